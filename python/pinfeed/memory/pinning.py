"""Slots that devices copy from by themselves: pinned when a batch arrives in them.

The trainer locks the arena's pages up to the last slot that has been made, as soon as a batch arrives
behind those that are locked. Where the arena no longer grows, nothing happens any more.

A tensor that dies may be one that a device was told to copy, and has not copied yet. So its slot waits,
natively, until a thread here has waited for all that devices had to do by then.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import logging
import threading
import warnings
from typing import Any

import torch

from pinfeed import _core

logger = logging.getLogger("pinfeed")

# How long the process waits at its end for a device that is busy.
_SECONDS_TO_EXIT = 1.0
_LONG = 3600.0

_PORTABLE = 1  # cudaHostRegisterPortable: pinned for all devices of the process
_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
# Torch hands out streams of a pool in turn, one for each priority. Others than these two are rare.
_PRIORITIES = (0, -1)
_STREAMS_OF_A_PRIORITY = 32

_pinnings: dict[int, ArenaPinning] = {}  # by the arena's id
_lock = threading.Lock()


def pin_slot(arena: _core.Arena, slot: int) -> None:
    """Sees to it that a slot is pinned, if this process uses a device and memory can be pinned.

    Args:
        arena: Of this process.
        slot: That a batch is about to be received in.
    """
    if not runtime.is_ready():
        return
    pinning = _pinnings.get(arena.id)
    if pinning is None:
        with _lock:
            pinning = _pinnings.setdefault(arena.id, ArenaPinning(arena, runtime))
    if arena.end_of(slot) > pinning.end:
        pinning.grow()


def pinned_bytes(arena: _core.Arena) -> int:
    """How much of an arena of this process is pinned."""
    pinning = _pinnings.get(arena.id)
    return 0 if pinning is None else pinning.end - arena.first_slot


class ArenaPinning:
    """The pinned part of one arena, from its first slot on.

    Args:
        arena: Of this process.
        device_runtime: What locks pages and waits for devices.

    Attributes:
        end: Where the pinned part ends, in bytes from the arena's start.
        refusal: Why it does not grow any more; None if it may.
    """

    def __init__(self, arena: _core.Arena, device_runtime: CudaRuntime) -> None:
        self.end = arena.first_slot
        self.refusal: str | None = None
        self._arena = arena
        self._runtime = device_runtime
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def grow(self) -> None:
        """Pins all slots that have been made. What can't be pinned stays as it is.

        A range ends where a slot does, for a copy must not cross the border of two.
        """
        with self._lock:
            end = self._arena.end_of_slots
            if self.refusal is not None or self._is_closed or end <= self.end:
                return
            try:
                self._register(end)
            except RuntimeError as error:
                self._arena.keep(self.end)
                self.refusal = str(error)
        if self.refusal is not None:
            warnings.warn(
                "pinfeed: the memory of batches from DataLoader workers could not be pinned, so they "
                f"go to the device through another copy: {self.refusal}",
                RuntimeWarning,
                stacklevel=3,
            )

    def close(self) -> None:
        """Ends the thread. Slots that are let go later are never used again."""
        self._is_closed = True
        self._arena.wake()
        if self._thread is not None:
            self._thread.join(_SECONDS_TO_EXIT)

    def _register(self, end: int) -> None:
        limit = self._arena.stats()["max_bytes"]
        if end - self._arena.first_slot > limit:
            # Slots without memory would get some, more than the arena may have.
            raise RuntimeError(f"its slots spread over more than max_bytes, {limit:,}")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pinfeed arena", daemon=True)
            self._thread.start()
            atexit.register(self.close)
        # From here on slots up to `end` wait when they are let go, whenever they were received.
        if not self._arena.keep(end):
            self._arena.keep(self.end)  # a process may be giving some of it back: another time
            return
        self._runtime.register(self._arena.address + self.end, end - self.end)
        self.end = end

    def _run(self) -> None:
        """Lets slots go that no device reads any more."""
        self._runtime.enter_thread()
        while not self._is_closed:
            slots = self._arena.next_released(_LONG)
            if not slots:
                continue
            try:
                self._runtime.wait_for_readers()
            except RuntimeError as error:
                # The device has failed, so it reads no more. Who uses it next hears of it.
                logger.debug("while waiting for devices to read batches: %s", error)
            self._arena.drop_taken(slots)


class CudaRuntime:
    """Locking pages, and telling when devices have read what they were asked to read.

    Nothing here starts a device: it serves those that the process uses already.
    """

    def is_ready(self) -> bool:
        """Whether the process uses CUDA."""
        return torch.cuda.is_initialized()  # type: ignore[no-untyped-call]

    def register(self, address: int, size: int) -> None:
        """Locks pages in memory, and makes them known to all devices.

        Args:
            address: Of the first page.
            size: In bytes, a multiple of the page's.

        Raises:
            RuntimeError: The driver says no.
        """
        devices = _devices_in_use()
        if not devices:
            raise RuntimeError("no device is in use")
        cudart: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        with torch.cuda.device(devices[0]):
            code = cudart.cudaHostRegister(address, size, _PORTABLE)
            if int(code) == 0:
                return
            # CUDA keeps the error for whoever asks next, which would be a kernel of the user.
            with contextlib.suppress(RuntimeError):
                torch.zeros(1, device=f"cuda:{devices[0]}")
        raise RuntimeError(f"cudaHostRegister: {cudart.cudaGetErrorString(code)}")

    def enter_thread(self) -> None:
        """Prepares a thread that is going to call `wait_for_readers`."""
        devices = _devices_in_use()
        if devices:
            torch.cuda.set_device(devices[0])
        # Otherwise waiting for an event here would spoil the graph that another thread captures.
        with contextlib.suppress(OSError, AttributeError):  # no CUDA but ROCm
            mode = ctypes.c_int(_THREAD_LOCAL)
            driver = ctypes.CDLL("libcuda.so.1")
            driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))

    def wait_for_readers(self) -> None:
        """Returns when all is done that any stream of torch has been asked to do by now.

        Nobody can tell which stream reads a tensor that has died, so this looks at them all. Those
        that have nothing to do, which most have, cost a microsecond.
        """
        for device in _devices_in_use():
            events = []
            for stream in _streams(device):
                if not _is_capturing(stream) and not stream.query():
                    event = torch.Event(f"cuda:{device}", blocking=True)
                    event.record(stream)
                    events.append(event)
            for event in events:
                event.synchronize()


def _devices_in_use() -> list[int]:
    """The devices that have a context; those that a call would give one first cost memory."""
    current = torch.cuda.current_device()
    has_context = torch._C._cuda_hasPrimaryContext  # type: ignore[attr-defined]
    devices = [index for index in range(torch.cuda.device_count()) if has_context(index)]
    return sorted(devices, key=lambda index: index != current)


@functools.cache
def _streams(device: int) -> list[torch.cuda.Stream]:
    streams = {torch.cuda.default_stream(device)}
    with torch.cuda.device(device):
        for priority in _PRIORITIES:
            found: set[Any] = set()
            for _ in range(4 * _STREAMS_OF_A_PRIORITY):  # other threads may take some meanwhile
                if len(found) < _STREAMS_OF_A_PRIORITY:
                    found.add(torch.cuda.Stream(device, priority=priority))  # type: ignore[no-untyped-call]
            streams |= found
    return list(streams)


def _is_capturing(stream: Any) -> bool:
    """Whether a graph is being made of what the stream is given; asking for more would spoil it."""
    if hasattr(stream, "is_capturing"):  # from torch 2.13 on
        return stream.is_capturing()
    with torch.cuda.stream(stream):
        return torch.cuda.is_current_stream_capturing()


runtime = CudaRuntime()
