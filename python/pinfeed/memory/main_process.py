"""The main process's side of worker memory: maps the batches of workers, and limits their size."""

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

# The int64 integers in the first page of a worker's file. Each is written by one side.
IS_MAPPED = 0  # main process: it has the file, and needs no descriptor
MAX_BYTES = 1  # both: limit of the slots
SHARERS = 2  # worker, like all below: number of workers that share a limit
RESIDENT_BYTES = 3
GROWS = 4
WAITS = 5
SENT = 6
RECEIVED = 7  # main process

_LOST = (
    "pinfeed: a batch was lost, because its DataLoader worker ended early (see the worker's error) or was "
    "started by another process; iterate a DataLoader in the process that began its loop"
)

_workers: dict[tuple[int, int], _Worker] = {}  # by token
_max_bytes: int | None = None  # set by the user


def worker_memory_stats() -> dict[str, int]:
    """Returns the memory that the DataLoader workers of this process use for batches.

    Returns:
        A dict of integers. ``workers`` counts the worker processes, each from the arrival of its first
        batch until it ends. A slot is shared memory for one array, and is reused. ``live_slots`` and
        ``live_bytes`` count the slots that tensors of this process view, and their memory.
        ``resident_bytes`` is the memory of all slots, and ``max_bytes`` the limit of one loader.
        ``grows`` counts the slots that workers created, and ``waits`` the arrays that had to wait.

    Example:
        >>> sorted(pinfeed.testing.worker_memory_stats())[:4]
        ['grows', 'live_bytes', 'live_slots', 'max_bytes']
    """
    _forget_ended()
    workers = list(_workers.values())
    live = [slot for worker in workers for slot in list(worker.slots.values()) if slot.readers > 0]
    running = [worker.integers for worker in workers if not worker.is_gone]
    ended = [slot for worker in workers if worker.is_gone for slot in list(worker.slots.values())]
    return {
        "workers": len(running),
        "live_slots": len(live),
        "live_bytes": sum(slot.capacity for slot in live),
        "resident_bytes": sum(integers[RESIDENT_BYTES] for integers in running)
        + sum(slot.capacity for slot in ended),
        "max_bytes": worker_memory_limit(),
        "grows": sum(integers[GROWS] for integers in running),
        "waits": sum(integers[WAITS] for integers in running),
    }


def set_worker_memory_limit(max_bytes: int | None) -> None:
    """Limits the shared memory that the workers of each DataLoader use for batches.

    The workers share the limit evenly. A worker that reaches its share waits until the main process
    releases a batch. If the main process has received all of the worker's batches and releases none, the
    worker raises MemoryError after half a minute. Running workers apply a new limit from their next batch
    on, but keep memory that they already use.

    Args:
        max_bytes: Limit in bytes, at least 1 MiB. None, the default, is half of the memory that is free
            at a worker's first batch, divided by the number of ranks that torchrun started on this
            machine.

    Raises:
        TypeError: If ``max_bytes`` is not an integer.
        ValueError: If ``max_bytes`` is too small or too large.

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
    limit = worker_memory_limit()
    for worker in list(_workers.values()):
        worker.integers[MAX_BYTES] = limit // worker.integers[SHARERS]


def worker_memory_limit() -> int:
    """Returns the user's limit, or this rank's share of half of the memory that is free now."""
    if _max_bytes is not None:
        return _max_bytes
    free = free_memory()
    return (sys.maxsize if free is None else free) // (2 * ranks_on_this_machine())


def limit_for_pickling() -> int | None:
    """Returns the user's limit if a Collate is being pickled for a spawned process."""
    return None if context.get_spawning_popen() is None else _max_bytes


def accept_limit(max_bytes: int | None) -> None:
    """Applies a limit that arrived with a Collate."""
    global _max_bytes
    if max_bytes is not None:
        _max_bytes = max_bytes


def has_ended(process: int) -> bool:
    """Whether no process has this id. False if the system has reused the id."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # it exists, and belongs to another user
        pass
    return False


class _Worker:
    """A process that writes batches, as seen by the main process.

    Attributes:
        integers: The integers in the first page of its file.
        slots: The slots in which batches have arrived, by number.
        is_gone: Whether the process has ended.
    """

    def __init__(self, descriptor: int, process: int) -> None:
        self.integers = memoryview(mmap.mmap(descriptor, _core.page_bytes)).cast("q")
        self.slots: dict[int, _core.SharedSlot] = {}
        self.is_gone = False
        self._process = process
        self._descriptor = descriptor
        if _max_bytes is not None:
            self.integers[MAX_BYTES] = _max_bytes // self.integers[SHARERS]
        self.integers[IS_MAPPED] = 1

    def slot(self, number: int, offset: int, capacity: int) -> _core.SharedSlot:
        """Returns the slot that has this number now; an earlier slot of the number is unused."""
        slot = self.slots.get(number)
        if slot is None or slot.offset != offset:
            slot = _core.SharedSlot(self._descriptor, offset, capacity, False)
            self.slots[number] = slot
        return slot

    def look(self) -> None:
        """Frees the memory of a process that has ended, except arrays that are still viewed."""
        if has_ended(self._process):
            self.is_gone = True
            for slot in list(self.slots.values()):
                slot.retire()

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)


def receive(
    token: tuple[int, int], descriptor: Any, location: tuple[int, int, int], start: int, size: int
) -> torch.UntypedStorage:
    """Unpickles a storage over bytes that a worker wrote. The slot is released when the storage is freed.

    Args:
        token: The worker's process id, and the time of its start.
        descriptor: A duplicate of the worker's file descriptor; None if an earlier one arrived.
        location: Number, offset and capacity of the slot.
        start: Offset of the bytes in the slot.
        size: Number of bytes.
    """
    worker = _workers.get(token)
    if worker is None:
        if descriptor is None:
            raise RuntimeError(_LOST)
        _forget_ended()
        try:
            file = descriptor.detach()
        except (OSError, EOFError) as error:
            raise RuntimeError(_LOST) from error
        worker = _workers[token] = _Worker(file, token[0])
    worker.integers[RECEIVED] += 1
    memory = worker.slot(*location).receive(start, size)
    if memory is None:
        raise RuntimeError(_LOST)
    return memory.untyped_storage()


def _forget_ended() -> None:
    """Frees the memory of workers that have ended, except arrays that are still viewed."""
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
    """Drops the workers in a forked child, which otherwise holds their memory."""
    for worker in _workers.values():
        worker.close()
    _workers.clear()


os.register_at_fork(after_in_child=_forget_all)
