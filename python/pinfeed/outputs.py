"""Where batches are written: the buffer pool, or in a DataLoader worker the trainer's memory."""

from __future__ import annotations

import math
import os

import torch

from pinfeed.arena.worker import Allocate, worker_arena
from pinfeed.shared_memory import new_shared_storage

#: As the native pool does, so that bytes nobody wrote are seen.
_POISON = os.environ.get("PINFEED_DEBUG") == "1"


def batch_allocator() -> Allocate | None:
    """The allocator for the outputs of a collation that happens here and now.

    None stands for the native buffer pool. In a DataLoader worker the batch has to reach another
    process, so it is written into the arena of that process; or into torch's shared memory where
    there is no arena.
    """
    if torch.utils.data.get_worker_info() is None:
        return None
    arena = worker_arena()
    return _allocate_shared if arena is None else arena.allocate


def _allocate_shared(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    empty = torch.empty(0, dtype=getattr(torch, dtype), device="cpu")
    items = math.prod(shape)
    if items == 0:
        return empty.reshape(shape)
    storage = new_shared_storage(items * empty.itemsize, "Collate")
    if _POISON:
        storage.fill_(0xCB)
    return empty.set_(storage, 0, shape)  # type: ignore[call-overload]
