"""Where batches are written: pooled or pinned memory, in a DataLoader worker the trainer's."""

from __future__ import annotations

import math
import os
from typing import Any

import torch

from pinfeed.memory import pinned
from pinfeed.memory.shared import new_shared_storage
from pinfeed.memory.worker import Allocate, is_worker, worker_arena
from pinfeed.runtime import is_worker_process

#: As the native pool does, so that bytes nobody wrote are seen.
_POISON = os.environ.get("PINFEED_DEBUG") == "1"


def batch_allocator(pin: pinned.Pin) -> Allocate | None:
    """The allocator for the outputs of a collation that happens here and now.

    Args:
        pin: Whether they lie in pinned memory, unless this is a DataLoader worker.

    None stands for the native buffer pool. In a DataLoader worker the batch has to reach another
    process, so it is written into the arena of that process; or into torch's shared memory where
    there is no arena. What becomes pinned there, the other process decides. What a worker has forked
    is for the worker itself, so the pool serves.
    """
    if not is_worker():
        if is_worker_process() or not pinned.is_wanted(pin):
            return None
        return _allocate_pinned_poisoned if _POISON else pinned.pinned_empty
    arena = worker_arena()
    return _allocate_shared if arena is None else arena.allocate


def as_output(tensor: torch.Tensor, pin: pinned.Pin) -> torch.Tensor:
    """A small tensor that torch has made of numbers, where outputs are to be."""
    if not is_worker_process() and pinned.is_wanted(pin):
        return pinned.pinned(tensor)
    return tensor


def _allocate_pinned_poisoned(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    tensor = pinned.pinned_empty(shape, dtype)
    storage: Any = tensor.untyped_storage()
    storage.fill_(0xCB)
    return tensor


def _allocate_shared(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    empty = torch.empty(0, dtype=getattr(torch, dtype), device="cpu")
    items = math.prod(shape)
    if items == 0:
        return empty.reshape(shape)
    storage = new_shared_storage(items * empty.itemsize, "Collate")
    if _POISON:
        storage.fill_(0xCB)
    return empty.set_(storage, 0, shape)  # type: ignore[call-overload]
