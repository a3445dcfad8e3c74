"""The worker's side of worker memory: writes batches into slots of a shared file, and sends their addresses.

A storage in a slot is pickled as its position. torch pickles tensors, views, parameters and nested
tensors as usual, down to their storage.
"""

from __future__ import annotations

import bisect
import collections
import ctypes
import inspect
import logging
import math
import mmap
import multiprocessing
import os
import sys
import threading
import time
from multiprocessing import reduction, util
from typing import Any

import torch
from torch.multiprocessing import reductions

from pinfeed import _core, runtime
from pinfeed.memory import main_process
from pinfeed.runtime import is_worker_process

logger = logging.getLogger("pinfeed")

#: Seconds that a worker waits for free memory after the main process has read all of its batches.
PATIENCE = 30.0
#: Maximum seconds between a batch's completion and its message.
_UNSENT = 0.25
#: Slots of one capacity that an allocation checks before it creates another.
_PROBES = 16
#: Storages up to this size are sent as bytes, which is cheaper than a slot of at least two pages.
SMALL_BYTES = 16 * 1024
#: Log level for missing worker memory: a warning only on systems that should have it.
_LOG_LEVEL = logging.WARNING if hasattr(os, "memfd_create") else logging.INFO

_memory: WorkerMemory | None = None
_is_refused = False  # whether the system can't provide it
_making = threading.Lock()  # one memory per process, whichever thread collates first


def _after_fork() -> None:
    global _memory, _is_refused, _making
    _memory, _is_refused, _making = None, False, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def worker_memory() -> WorkerMemory | None:
    """Returns a worker's memory for batches; None in other processes, or if unavailable (logged once)."""
    if runtime.is_main:
        return None
    if _memory is None and is_worker_process() and not _is_refused:
        with _making:
            _make_memory()
    return _memory


def _make_memory() -> None:
    global _memory, _is_refused
    if _memory is not None or _is_refused:
        return
    try:
        _memory = WorkerMemory()
    except (OSError, RuntimeError) as error:
        _is_refused = True
        logger.log(
            _LOG_LEVEL,
            "this worker can't share memory for its batches, and uses torch's shared memory instead: %s",
            error,
        )


class WorkerMemory:
    """A worker's file of shared memory, its slots, and the queue to the main process.

    A slot has the size of its first array, rounded up by at most a quarter, and later holds arrays down
    to half its size. When arrays outgrow it, its memory is freed.

    The main process marks a released array only in the slot itself. So an allocation checks slots, the
    least recently used first, but only a limited number, because a program may keep thousands of
    batches.
    """

    def __init__(self) -> None:
        self._queue, self._done_event = _queue_and_event()
        parent: Any = multiprocessing.parent_process()
        self._main_process = parent.pid
        self._parent = os.getppid()  # the main process, or its fork server
        self._file = _core.create_shared_file("pinfeed")
        os.truncate(self._file, _core.page_bytes)
        self._end = _core.page_bytes
        self._integers = memoryview(mmap.mmap(self._file, _core.page_bytes)).cast("q")
        info: Any = torch.utils.data.get_worker_info()
        self._integers[main_process.SHARERS] = info.num_workers
        self._integers[main_process.MAX_BYTES] = (
            main_process.worker_memory_limit() // info.num_workers
        )
        self._token = os.getpid(), time.monotonic_ns()
        self._slots: dict[int, _core.SharedSlot] = {}
        self._free_numbers: list[int] = []  # below the highest one in use
        self._by_capacity: dict[int, collections.deque[int]] = {}  # numbers, in the order of use
        self._by_address: list[tuple[int, int]] = []  # with the number, sorted
        self._lock = threading.Lock()
        self._shortage = ""
        self._collation = 0  # number of the latest call of a Collate
        self._collations: dict[int, int] = {}  # by the number of the slot that it claimed last
        self._is_used_here = False  # whether the dataset has held batches that it collated
        reduction.register(torch.UntypedStorage, self.reduce_storage)
        util.Finalize(None, self._retire, exitpriority=-10)  # once the queue has sent everything

    def begin(self) -> None:
        """Marks the start of a Collate call, whose arrays form one batch."""
        self._collation += 1

    def output(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Allocates an array of a batch."""
        size = math.prod(shape) * dtype.itemsize
        if size <= SMALL_BYTES:
            return torch.empty(shape, dtype=dtype, device="cpu")
        memory = self.allocate(size)
        if memory is None and (memory := self._wait_for_room(size)) is None:
            return torch.empty(shape, dtype=dtype, device="cpu")
        tensor = torch.empty(0, dtype=dtype, device="cpu")
        return tensor.set_(memory.untyped_storage(), 0, shape)  # type: ignore[call-overload]

    def allocate(self, size: int) -> torch.Tensor | None:
        """Returns uint8 memory in a free slot; None if the limit is reached."""
        step = max(_core.page_bytes, 1 << (size.bit_length() - 3))
        capacity = -(-size // step) * step
        with self._lock:
            while self._resident() > self._max_bytes() and self._discard_one():
                pass
            for slot_capacity, numbers in self._by_capacity.items():
                if size <= slot_capacity <= 2 * capacity:
                    for _ in range(min(len(numbers), _PROBES)):
                        number = numbers[0]
                        memory = self._slots[number].claim(size)
                        numbers.rotate(-1)
                        if memory is not None:
                            self._collations[number] = self._collation
                            return memory
            self._discard_one(size // 2, size, _PROBES)  # an outgrown slot
            return self._grow(size, capacity)

    def reduce_storage(self, storage: torch.UntypedStorage) -> Any:
        """Pickles a storage for the main process as its position, or as bytes if it is small.

        Other processes can't map the position, and get torch's shared memory.
        """
        size = storage.nbytes()
        is_sending = threading.current_thread() is self._queue._thread
        if is_sending and size > 0 and storage.device.type == "cpu":
            address = storage.data_ptr()
            match = self._find(address, size)
            if match is None and not storage.is_shared():  # allocated by torch
                if size <= SMALL_BYTES:
                    return rebuild_small_storage, (ctypes.string_at(address, size),)
                memory = self.allocate(size)
                if memory is not None:
                    memory.untyped_storage().copy_(storage)
                    match = self._find(memory.data_ptr(), size)
            if match is not None:
                number, slot, start = match
                slot.send()
                self._integers[main_process.SENT] += 1
                is_mapped = self._integers[main_process.IS_MAPPED]
                descriptor = None if is_mapped else reduction.DupFd(self._file)
                location = (number, slot.offset, slot.capacity)
                return main_process.receive, (self._token, descriptor, location, start, size)
        return reductions.reduce_storage(storage)  # type: ignore[no-untyped-call]

    def _find(self, address: int, size: int) -> tuple[int, _core.SharedSlot, int] | None:
        """Returns the number of the slot that holds these bytes, the slot, and their offset in it."""
        with self._lock:
            index = bisect.bisect_left(self._by_address, (address + 1,)) - 1
            if index < 0:
                return None
            begin, number = self._by_address[index]
            slot = self._slots[number]
        start = address - begin
        return (number, slot, start) if start + size <= slot.capacity else None

    def _grow(self, size: int, capacity: int) -> torch.Tensor | None:
        """Returns memory in a new slot, and frees unused slots to stay within the limit."""
        while self._resident() + capacity > self._max_bytes():
            if not self._discard_one():
                return None
        while True:
            try:
                slot = _core.SharedSlot(self._file, self._end, capacity, True)
                break
            except OSError as error:
                self._shortage = str(error)
                if not self._discard_one():
                    return None
        self._end += _core.page_bytes + capacity
        number = self._free_numbers.pop() if self._free_numbers else len(self._slots)
        self._slots[number] = slot
        self._collations[number] = self._collation
        self._by_capacity.setdefault(capacity, collections.deque()).append(number)
        bisect.insort(self._by_address, (slot.address, number))
        self._integers[main_process.GROWS] += 1
        self._integers[main_process.RESIDENT_BYTES] += capacity
        return slot.claim(size)

    def _discard_one(self, low: int = 0, high: int = 2**63, probes: int = sys.maxsize) -> bool:
        """Frees the memory of one unused slot with low <= capacity < high."""
        for capacity, numbers in self._by_capacity.items():
            if not low <= capacity < high:
                continue
            for _ in range(min(len(numbers), probes)):
                number = numbers[0]
                if self._slots[number].discard():
                    self._forget(number)
                    return True
                numbers.rotate(-1)
        return False

    def _forget(self, number: int) -> None:
        """Removes a slot that was discarded, the first of its capacity."""
        slot = self._slots.pop(number)
        numbers = self._by_capacity[slot.capacity]
        numbers.popleft()
        if not numbers:
            del self._by_capacity[slot.capacity]
        del self._by_address[bisect.bisect_left(self._by_address, (slot.address, number))]
        self._free_numbers.append(number)
        self._integers[main_process.RESIDENT_BYTES] -= slot.capacity

    def _resident(self) -> int:
        return self._integers[main_process.RESIDENT_BYTES]

    def _max_bytes(self) -> int:
        return self._integers[main_process.MAX_BYTES]

    def _retire(self) -> None:
        # When a worker ends, its loader has read all of its messages, or won't read any more.
        for slot in self._slots.values():
            slot.retire()

    def _wait_for_room(self, size: int) -> torch.Tensor | None:
        """Waits until the main process releases a batch; None if this worker itself holds others.

        A dataset that collates in its ``__getitem__`` holds batches that the main process can't release,
        and the main process may be waiting for the batch made of them.

        The main process is busy until it has read everything that this worker sent. If it then still
        releases nothing, it is holding its batches.
        """
        self._integers[main_process.WAITS] += 1
        pause, patient_until = 0.001, time.monotonic() + PATIENCE
        grace = 0.0 if self._is_used_here else _UNSENT  # an earlier batch may be on its way
        is_own_until = time.monotonic() + grace
        while size <= self._max_bytes():
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
            memory = self.allocate(size)
            if memory is not None:
                return memory
            # The main process may have ended before this worker made its first batch.
            is_orphaned = os.getppid() != self._parent or main_process.has_ended(self._main_process)
            if self._done_event.is_set() or is_orphaned:
                raise RuntimeError("Collate: the loader was closed while its worker waited")
            is_arriving = self._integers[main_process.SENT] > self._integers[main_process.RECEIVED]
            with self._lock:
                numbers = [number for number, slot in self._slots.items() if slot.readers == 0]
                is_used_here = any(
                    self._collations[number] != self._collation for number in numbers
                )
            is_all_own = len(numbers) == len(self._slots)
            if is_arriving or self._shortage or not (is_used_here or is_all_own):
                is_own_until = time.monotonic() + grace
            elif time.monotonic() > is_own_until:
                self._is_used_here |= is_used_here
                return None
            if is_arriving:
                patient_until = time.monotonic() + PATIENCE
            elif time.monotonic() > patient_until:
                break
        refused = f"; the system refused more: {self._shortage}" if self._shortage else ""
        raise MemoryError(
            f"Collate: not enough memory for {size:,} bytes in this DataLoader worker, which is "
            f"limited to {self._max_bytes():,} bytes, its share of set_worker_memory_limit's max_bytes: "
            f"{len(self._slots):,} arrays take {self._resident():,} bytes{refused}; drop batches, "
            "keep a clone() of what you need, lower the loader's prefetch_factor or num_workers, or "
            "allow more bytes with pinfeed.set_worker_memory_limit(max_bytes)"
        )


def rebuild_small_storage(contents: bytes) -> torch.UntypedStorage:
    """Returns a new storage with these bytes."""
    return torch.frombuffer(bytearray(contents), dtype=torch.uint8).untyped_storage()


def _queue_and_event() -> tuple[Any, Any]:
    """Returns the result queue and the done event that DataLoader passed to its worker."""
    process: Any = multiprocessing.current_process()
    try:
        loop = process._target
        arguments = inspect.signature(loop).bind(*process._args, **process._kwargs).arguments
        queue, event = arguments["data_queue"], arguments["done_event"]
        queue._thread  # noqa: B018 - DataLoader's queues send from a thread of their own
    except (AttributeError, KeyError, TypeError) as error:
        raise RuntimeError(f"its loop is not the loop of torch's DataLoader ({error!r})") from error
    return queue, event
