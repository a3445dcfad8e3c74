"""The trainer's side of the arena: it maps what workers write, and says how much that may be."""

from __future__ import annotations

import mmap
import os
import sys
from multiprocessing import context
from typing import Any

import torch

from pinfeed import _core
from pinfeed.arguments import checked_integer
from pinfeed.limits import free_memory
from pinfeed.ranks import ranks_on_this_machine

# What stands in the first page of a worker's file, as int64. Each has one side that writes it.
IS_MAPPED = 0  # the trainer: it needs no descriptor any more
MAX_BYTES = 1  # both: what the slots may take
SHARERS = 2  # the worker, like all below: how many share a limit
RESIDENT_BYTES = 3
GROWS = 4
WAITS = 5
SENT = 6
RECEIVED = 7  # the trainer

_LOST = (
    "pinfeed: a batch was lost: its DataLoader worker ended before handing it over, or another process "
    "than this one started the worker"
)

_workers: dict[tuple[int, int], _Worker] = {}  # by token
_max_bytes: int | None = None  # what the user asked for


def worker_memory_stats() -> dict[str, int]:
    """How much memory the DataLoader workers of this process write batches into, and how it is used.

    Returns:
        A dict of integers. ``workers`` counts the processes that write, each from the first batch on
        that arrived from it until it ends. ``live_slots`` counts the arrays that tensors of this
        process view, and ``live_bytes`` the memory that they keep. ``resident_bytes`` is what all
        slots take now, ``max_bytes`` what those of one loader may. ``grows`` counts the slots that the
        workers had to make, ``waits`` the arrays that had to wait for room.

    Example:
        >>> sorted(pinfeed.testing.worker_memory_stats())[:4]
        ['grows', 'live_bytes', 'live_slots', 'max_bytes']
    """
    _forget_the_gone()
    workers = list(_workers.values())
    live = [slot for worker in workers for slot in list(worker.slots.values()) if slot.readers > 0]
    running = [worker.cells for worker in workers if not worker.is_gone]
    gone = [slot for worker in workers if worker.is_gone for slot in list(worker.slots.values())]
    return {
        "workers": len(running),
        "live_slots": len(live),
        "live_bytes": sum(slot.capacity for slot in live),
        "resident_bytes": sum(cells[RESIDENT_BYTES] for cells in running)
        + sum(slot.capacity for slot in gone),
        "max_bytes": arena_limit(),
        "grows": sum(cells[GROWS] for cells in running),
        "waits": sum(cells[WAITS] for cells in running),
    }


def set_worker_memory_limit(max_bytes: int | None) -> None:
    """Sets how much memory the batches of one DataLoader's workers may take together.

    Each of them may take its share. A worker that reaches it waits until the trainer lets a batch
    go; when the trainer has read everything and keeps its batches, the worker raises MemoryError after
    half a minute. Running workers obey with their next batch. What is in use already stays.

    Args:
        max_bytes: At least 1 MiB and less than 2**63, or None for half of the memory that is free
            when a worker makes its first batch, divided among the ranks that torchrun started on this
            machine, which is the default.

    Raises:
        TypeError: ``max_bytes`` is no integer.
        ValueError: ``max_bytes`` is too small or too large.

    Example:
        >>> pinfeed.set_worker_memory_limit(4 * 2**30)
        >>> pinfeed.set_worker_memory_limit(None)
    """
    global _max_bytes
    if max_bytes is not None:
        max_bytes = checked_integer(
            max_bytes, "set_worker_memory_limit: max_bytes", 2**20, sys.maxsize
        )
    _max_bytes = max_bytes
    limit = arena_limit()
    for worker in list(_workers.values()):
        worker.cells[MAX_BYTES] = limit // worker.cells[SHARERS]


def arena_limit() -> int:
    """What the user asked for, or this rank's share of half of the memory that is free now."""
    if _max_bytes is not None:
        return _max_bytes
    free = free_memory()
    return (sys.maxsize if free is None else free) // (2 * ranks_on_this_machine())


def limit_to_hand_over() -> int | None:
    """What a Collate takes along to a process that is being spawned: what the user asked for."""
    return None if context.get_spawning_popen() is None else _max_bytes


def accept_limit(max_bytes: int | None) -> None:
    """Keeps the limit that came along with a Collate."""
    global _max_bytes
    if max_bytes is not None:
        _max_bytes = max_bytes


def has_ended(process: int) -> bool:
    """Whether no process has this number; another one may have it by now."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # it has another user, and exists
        pass
    return False


class _Worker:
    """A process that writes batches, as the trainer sees it.

    Attributes:
        cells: The numbers in the first page of the file.
        slots: Those that a batch arrived in, by number.
        is_gone: Whether the process was found to have ended.
    """

    def __init__(self, descriptor: int, process: int) -> None:
        self.cells = memoryview(mmap.mmap(descriptor, _core.page_bytes)).cast("q")
        self.slots: dict[int, _core.SharedSlot] = {}
        self.is_gone = False
        self._process = process
        self._descriptor = descriptor
        if _max_bytes is not None:
            self.cells[MAX_BYTES] = _max_bytes // self.cells[SHARERS]
        self.cells[IS_MAPPED] = 1

    def slot(self, number: int, offset: int, capacity: int) -> _core.SharedSlot:
        """The slot that has this number now; an earlier one is in use no more."""
        slot = self.slots.get(number)
        if slot is None or slot.offset != offset:
            slot = _core.SharedSlot(self._descriptor, offset, capacity, False)
            self.slots[number] = slot
        return slot

    def look(self) -> None:
        """Gives memory back if the process has ended, but for what is viewed."""
        if has_ended(self._process):
            self.is_gone = True
            for slot in list(self.slots.values()):
                slot.retire()

    def close(self) -> None:
        """Lets go of the file."""
        os.close(self._descriptor)


def receive(
    token: tuple[int, int], descriptor: Any, place: tuple[int, int, int], start: int, size: int
) -> torch.UntypedStorage:
    """A storage over bytes that a worker wrote, as it is unpickled; its death lets the slot go.

    Args:
        token: The worker's process number, and what tells it from others that have the same.
        descriptor: What brings a descriptor of the worker's file; None if an earlier one came.
        place: Number, offset and capacity of the slot.
        start: Of the bytes in the slot.
        size: In bytes.
    """
    worker = _workers.get(token)
    if worker is None:
        if descriptor is None:
            raise RuntimeError(_LOST)
        _forget_the_gone()
        try:
            file = descriptor.detach()
        except (OSError, EOFError) as error:
            raise RuntimeError(_LOST) from error
        worker = _workers[token] = _Worker(file, token[0])
    worker.cells[RECEIVED] += 1
    memory = worker.slot(*place).receive(start, size)
    if memory is None:
        raise RuntimeError(_LOST)
    return memory.untyped_storage()


def _forget_the_gone() -> None:
    """Gives back what workers that have ended left, but for arrays that are viewed."""
    for token, worker in list(_workers.items()):
        worker.look()
        if not worker.is_gone:
            continue
        for number, slot in list(worker.slots.items()):
            if slot.readers == 0:
                worker.slots.pop(number, None)
        if not worker.slots and _workers.pop(token, None) is not None:
            worker.close()


def _forget_all() -> None:
    """In a child, which would keep the memory of its parent's workers."""
    for worker in _workers.values():
        worker.close()
    _workers.clear()


os.register_at_fork(after_in_child=_forget_all)
