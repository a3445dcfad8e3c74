"""Whether batches lie in the arena."""

from __future__ import annotations

import torch

from pinfeed.memory import trainer


def in_arena(tensor: torch.Tensor) -> bool:
    """Whether a tensor of this process lies where a worker wrote it."""
    address = tensor.data_ptr()
    return any(
        slot.address <= address < slot.address + slot.capacity
        for worker in trainer._workers.values()
        for slot in worker.slots.values()
    )
