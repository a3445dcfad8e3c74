"""The time of a loop by stage."""

from __future__ import annotations

import enum
import time
from typing import NamedTuple


class LoopStats(NamedTuple):
    """Counts and times of one loop over a `DeviceLoader`, as `DeviceLoader.stats` returns them.

    The background thread is always in one of three stages, whose times add up to the loop's duration.

    Attributes:
        batches: Number of batches that the training loop received.
        bytes: Number of bytes copied to the device for these batches; 0 on the CPU.
        waiting_for_loader: Seconds in which the thread waited for the loader's next batch.
        waiting_for_copy: Seconds in which it filled staging buffers, started copies and applied fields.
        waiting_for_consumer: Seconds in which it was idle, because ``prefetch`` batches were ready.
        waited: Seconds in which the training loop waited for batches.

    ``print(loader.stats())`` prints one line.

    Example:
        >>> loader = pinfeed.DeviceLoader([torch.zeros(4)] * 3, device="cpu")
        >>> loader.stats().bottleneck, len(list(loader)), loader.stats().batches
        (None, 3, 3)
    """

    batches: int
    bytes: int
    waiting_for_loader: float
    waiting_for_copy: float
    waiting_for_consumer: float
    waited: float = 0.0

    @property
    def bottleneck(self) -> str | None:
        """The longest stage: ``"loader"``, ``"copy"`` or ``"consumer"``; None before the first batch.

        ``"consumer"`` is ideal: most batches are ready before the training loop requests them.
        """
        times = {
            "loader": self.waiting_for_loader,
            "copy": self.waiting_for_copy,
            "consumer": self.waiting_for_consumer,
        }
        name = max(times, key=times.__getitem__)
        return name if times[name] > 0 else None

    def __str__(self) -> str:
        busy = self.waiting_for_loader, self.waiting_for_copy, self.waiting_for_consumer
        seconds = sum(busy)
        if not seconds:
            return "no batch yet"
        loader, copy, consumer = (f"{part / seconds:.0%}" for part in busy)
        return (
            f"{self.batches} batches in {seconds:.1f} s; the loop waited {self.waited / seconds:.0%} "
            f"of it (the thread: loader {loader}, copy {copy}, consumer {consumer})"
        )


class Activity(enum.IntEnum):
    """The current activity of the thread."""

    LOADING = 0
    COPYING = 1
    WAITING = 2


class LoopTimes:
    """The stopwatch of one iteration, which outlives its thread."""

    def __init__(self) -> None:
        self.waited = 0.0
        self._batches = 0
        self._bytes = 0
        # Seconds per activity, and the current activity with its start. One tuple, so that both change
        # together.
        self._times: tuple[list[float], tuple[Activity, float] | None] = [0.0, 0.0, 0.0], None

    def begin(self, activity: Activity | None) -> None:
        """Ends the current activity; None if no other begins."""
        now = time.perf_counter()
        self._times = self._until(now), None if activity is None else (activity, now)

    def count(self, size: int) -> None:
        """Counts a batch that the consumer received, and its bytes."""
        self._batches += 1
        self._bytes += size

    def _until(self, now: float) -> list[float]:
        seconds, current = self._times
        seconds = seconds.copy()
        if current is not None:
            # Another thread may have begun it since ``now``.
            seconds[current[0]] += max(0.0, now - current[1])
        return seconds

    def stats(self) -> LoopStats:
        """Returns the times up to now."""
        loading, copying, waiting = self._until(time.perf_counter())
        return LoopStats(self._batches, self._bytes, loading, copying, waiting, self.waited)
