"""Storages in the arena travel as a few numbers; everything around them as torch sends it.

In a worker this stands before torch's own way to pickle a storage. Tensors, their views, parameters
and nested tensors are pickled by torch as before, down to the storage that they share.
"""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import reduction
from typing import Any

import torch
from torch.multiprocessing import reductions

from pinfeed import _core
from pinfeed.memory import pinning, trainer

#: Storages up to here that lie elsewhere are copied: cheaper than a file of shared memory.
_COPIED_BYTES = 2**20


def send_storages_through(arena: _core.Arena, is_sending: Callable[[], bool]) -> None:
    """Makes this process send storages that lie in the arena by their place in it.

    Args:
        arena: The trainer's.
        is_sending: Whether the calling thread pickles for the trainer. Elsewhere nobody could read
            the message, so torch's shared memory serves.
    """

    def reduce_storage(storage: torch.UntypedStorage) -> Any:
        if is_sending() and storage.device.type == "cpu":
            size = storage.nbytes()
            message = arena.send(storage.data_ptr(), size)
            if message is None and 0 < size <= _COPIED_BYTES and not storage.is_shared():
                message = _send_copy(arena, storage)
            if message is not None:
                return rebuild_storage, (arena.id, *message, size)
        return reductions.reduce_storage(storage)  # type: ignore[no-untyped-call]

    reduction.register(torch.UntypedStorage, reduce_storage)


def _send_copy(arena: _core.Arena, storage: torch.UntypedStorage) -> tuple[int, int, int] | None:
    """Copies what torch made, of numbers mostly, into a slot; None if there is no room."""
    memory = arena.allocate(storage.nbytes())
    if memory is None:
        return None
    copy = memory.untyped_storage()
    copy.copy_(storage)
    return arena.send(copy.data_ptr(), copy.nbytes())


def rebuild_storage(
    arena_id: int, slot: int, generation: int, offset: int, size: int
) -> torch.UntypedStorage:
    """The trainer's storage over a worker's bytes; its death lets the slot go.

    Raises:
        RuntimeError: The worker is gone and its memory taken back, or this is not the trainer.
    """
    arena = trainer.find_arena(arena_id)
    if arena is None:
        raise RuntimeError(
            "pinfeed: a batch of a DataLoader worker can only be read by the process that started "
            "the worker; give the loader to that process, or send a clone() of the batch"
        )
    pinning.pin_slot(arena, slot)
    memory = arena.receive(slot, generation, offset, size)
    if memory is None:
        raise RuntimeError(
            "pinfeed: a batch was lost, for its DataLoader worker is gone and what it had not "
            "handed over was taken back"
        )
    return memory.untyped_storage()
