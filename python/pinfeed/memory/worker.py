"""The worker's side of the arena: batches are written into it, and travel as a few numbers.

A storage in the arena is pickled as its place there. Tensors, their views, parameters and nested
tensors are pickled by torch as ever, down to the storage that they share.
"""

from __future__ import annotations

import inspect
import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from multiprocessing import reduction
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing import reductions

from pinfeed import _core
from pinfeed.memory import trainer
from pinfeed.runtime import is_worker_process

logger = logging.getLogger("pinfeed")

#: Seconds that a worker waits for room while its trainer has no batch of it left to read.
PATIENCE = 30.0
#: As many arrays as an arena has places for; kSlots in csrc/runtime/arena_table.h.
MOST_SLOTS = 65536
#: Storages up to here that lie elsewhere are copied: cheaper than a file of shared memory.
_COPIED_BYTES = 2**20

_offer: trainer.Offer | None = None
_attached: tuple[int, _core.Arena] | None = None  # of which process; its children keep it mapped
_inherited_info: Any = None  # of the worker that forked this process
_found: tuple[int, WorkerArena | None] = (0, None)  # for which process, and what


def accept_offer(offer: trainer.Offer | None) -> None:
    """Keeps the arena that came along with a Collate, until a worker needs it."""
    global _offer
    if offer is not None and offer.descriptor is not None:
        _offer = offer


def is_worker() -> bool:
    """Whether this process is a DataLoader worker, and not one that a worker forked."""
    return is_worker_process() and torch.utils.data.get_worker_info() is not _inherited_info


def _after_fork() -> None:
    global _inherited_info
    _inherited_info = torch.utils.data.get_worker_info()


# Such a child sends nothing to the trainer. If it is the worker of a loader in a worker, torch
# makes another info for it.
os.register_at_fork(after_in_child=_after_fork)


def worker_arena() -> WorkerArena | None:
    """The trainer's arena; None in a worker that has none, which is logged once."""
    global _found
    process = os.getpid()
    if _found[0] != process:
        _found = (process, None)
        try:
            _found = (process, WorkerArena.of_this_worker())
        except (OSError, RuntimeError) as error:
            logger.log(
                trainer.LOG_LEVEL,
                "this worker has no arena for its batches, torch's shared memory serves: %s",
                error,
            )
    return _found[1]


class WorkerArena:
    """The trainer's arena in a worker, and the queue that leads to the trainer.

    Attributes:
        arena: The trainer's.
        outputs: The same, as native code takes it to write batches into.
    """

    def __init__(self, arena: _core.Arena, data_queue: Any, done_event: Any, trainer: int) -> None:
        self.arena = arena
        self.outputs = _core.ArenaOutputs(arena, self.wait_for_room)
        self._queue = data_queue
        self._done_event = done_event
        self._trainer = trainer
        self._parent = os.getppid()  # the trainer, or the server that forks for it

    @classmethod
    def of_this_worker(cls) -> WorkerArena:
        """Finds the arena; raises RuntimeError that says what is missing, or OSError."""
        parent = multiprocessing.parent_process()
        if parent is None or parent.pid is None:
            raise RuntimeError("it was not started by multiprocessing")
        data_queue, done_event = _queue_and_event()
        worker = cls(_arena_of(parent.pid), data_queue, done_event, parent.pid)
        if not worker.arena.join():
            raise RuntimeError(
                "1,024 processes use it already, or /proc does not show this process"
            )
        reduction.register(torch.UntypedStorage, worker.reduce_storage)
        return worker

    def reduce_storage(self, storage: torch.UntypedStorage) -> Any:
        """How a storage is pickled: in a message to the trainer by its place in the arena.

        Elsewhere nobody could read that, so torch's shared memory serves.
        """
        is_sending = threading.current_thread() is self._queue._thread
        if is_sending and storage.device.type == "cpu":
            size = storage.nbytes()
            message = self.arena.send(storage.data_ptr(), size)
            if message is None and 0 < size <= _COPIED_BYTES and not storage.is_shared():
                memory = self.arena.allocate(size)  # for what torch made, of numbers mostly
                if memory is not None:
                    memory.untyped_storage().copy_(storage)
                    message = self.arena.send(memory.data_ptr(), size)
            if message is not None:
                return rebuild_storage, (self.arena.id, *message, size)
        return reductions.reduce_storage(storage)  # type: ignore[no-untyped-call]

    def wait_for_room(self, size: int) -> Iterator[None]:
        """Waits until the trainer may have let a batch go, as often as it is asked to.

        As long as the trainer has not read all that this worker sent, it is busy with other
        things. When it has, and still no room appears, it keeps its batches.

        Raises:
            MemoryError: No room will appear.
            RuntimeError: The loader is closed.
        """
        self.arena.count_wait()
        pause, patient_until = 0.001, time.monotonic() + PATIENCE
        while size <= self.arena.stats()["max_bytes"]:
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
            yield
            if self._done_event.is_set() or self._is_orphaned():
                raise RuntimeError("Collate: the loader was closed while its worker waited")
            if self.arena.has_unread_messages():
                patient_until = time.monotonic() + PATIENCE
            elif time.monotonic() > patient_until:
                break
        raise MemoryError(_full(size, self.arena))

    def _is_orphaned(self) -> bool:
        if os.getppid() != self._parent:
            return True
        # Perhaps the trainer was gone before this worker made its first batch.
        try:
            os.kill(self._trainer, 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # it has another user, and exists
            pass
        return False


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
    memory = arena.receive(slot, generation, offset, size)
    if memory is None:
        raise RuntimeError(
            "pinfeed: a batch was lost: its DataLoader worker ended before handing it over"
        )
    return memory.untyped_storage()


def _full(size: int, arena: _core.Arena) -> str:
    stats, shortage = arena.stats(), arena.shortage
    refused = f"; the system gave no more: {os.strerror(shortage)}" if shortage else ""
    return (
        f"Collate: no room for {size:,} bytes in the arena of this DataLoader's workers, which has "
        f"room for {MOST_SLOTS:,} arrays and max_bytes={stats['max_bytes']:,} bytes: "
        f"{stats['live_slots']:,} arrays of {stats['live_bytes']:,} bytes are in use{refused}; let "
        "go of batches, keep a clone() of what you need, lower the loader's prefetch_factor, or "
        "allow more bytes with pinfeed.set_arena_limit(max_bytes)"
    )


def _arena_of(process: int) -> _core.Arena:
    """The arena of the process that started this one: handed over, inherited, or looked up."""
    global _attached
    if _attached is None or _attached[0] != process:
        _attached = process, _find_arena(process)
    return _attached[1]


def _find_arena(process: int) -> _core.Arena:
    if _offer is not None and _offer.trainer == process:
        return _attach(_offer.descriptor.detach())
    arena = trainer.inherited_arena(process)
    if arena is not None:
        return arena
    # A spawned worker whose Collate did not come from the trainer, but from an import.
    name = f"/memfd:{_core.Arena.file_name(process)} (deleted)"
    try:
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            if str(descriptor.readlink()) == name:
                return _attach(os.open(descriptor, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        logger.debug("can't look for the arena of process %d: %s", process, error)
    raise RuntimeError(
        trainer.refusal() or "the trainer had no Collate yet when it started this worker"
    )


def _attach(descriptor: int) -> _core.Arena:
    try:
        return _core.Arena.attach(descriptor)
    finally:
        os.close(descriptor)


def _queue_and_event() -> tuple[Any, Any]:
    """The queue of results and the event that ends it all, as DataLoader gave them to its worker."""
    process: Any = multiprocessing.current_process()
    try:
        loop = process._target
        arguments = inspect.signature(loop).bind(*process._args, **process._kwargs).arguments
        queue, event = arguments["data_queue"], arguments["done_event"]
        queue._thread  # noqa: B018 - DataLoader's queues send from a thread of their own
    except (AttributeError, KeyError, TypeError) as error:
        raise RuntimeError(f"its loop is not that of torch's DataLoader ({error!r})") from error
    return queue, event
