"""Slots that devices copy from by themselves: pinned when a batch arrives in them.

The trainer locks the arena's pages up to the last slot that has been made, as soon as a batch arrives
behind those that are locked. Where the arena no longer grows, nothing happens any more.

A tensor that dies may be one that a device was told to copy, and has not copied yet. So its slot waits,
natively, until a thread here has waited for all that devices had to do by then.
"""

from __future__ import annotations

import atexit
import logging
import threading
import warnings

from pinfeed import _core
from pinfeed.memory.cuda_runtime import CudaRuntime

logger = logging.getLogger("pinfeed")

# How long the process waits at its end for a device that is busy.
_SECONDS_TO_EXIT = 1.0
_LONG = 3600.0

runtime = CudaRuntime()
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
