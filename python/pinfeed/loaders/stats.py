"""Where the time of an iteration goes."""

from __future__ import annotations

import enum
import time
from typing import NamedTuple


class FeedStats(NamedTuple):
    """What an iteration of a `DeviceLoader` has done so far.

    The three times are those of the background thread, which is always at one of them: together
    they are the time that the iteration has taken.

    Attributes:
        batches: Handed to the consumer.
        bytes: Of these, copied to the device; 0 on the CPU, where nothing is copied.
        waiting_for_loader: Seconds until the loader had the next batch.
        waiting_for_copy: Seconds for a staging buffer to be free and filled, copies to be started, and
            fields to be applied.
        waiting_for_consumer: Seconds with ``prefetch`` batches ready and nothing to do.
        waited: Seconds that the consumer, the training loop, waited for batches.

    ``print(loader.stats())`` at the end of an epoch is one line.

    Example:
        >>> stats = pinfeed.DeviceLoader([1, 2, 3], device="cpu").stats()
        >>> stats.batches, stats.bottleneck
        (0, None)
    """

    batches: int
    bytes: int
    waiting_for_loader: float
    waiting_for_copy: float
    waiting_for_consumer: float
    waited: float = 0.0

    @property
    def bottleneck(self) -> str | None:
        """Who is waited for most: ``"loader"``, ``"copy"`` or ``"consumer"``; None before a batch.

        ``"consumer"`` is what one wants: batches are ready before they are asked for.
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
    """What the thread is doing."""

    LOADING = 0
    COPYING = 1
    WAITING = 2


class FeedTimes:
    """The stopwatch of one iteration, which outlives its thread."""

    def __init__(self) -> None:
        self.waited = 0.0
        self._batches = 0
        self._bytes = 0
        # Of each activity until now, and the current one and since when: they change together.
        self._times: tuple[list[float], tuple[Activity, float] | None] = [0.0, 0.0, 0.0], None

    def begin(self, activity: Activity | None) -> None:
        """Ends the current activity; None if no other begins."""
        now = time.perf_counter()
        self._times = self._until(now), None if activity is None else (activity, now)

    def count(self, size: int) -> None:
        """Another batch of that many bytes was handed over."""
        self._batches += 1
        self._bytes += size

    def _until(self, now: float) -> list[float]:
        seconds, current = self._times
        seconds = seconds.copy()
        if current is not None:
            # Another thread may have begun it since ``now``.
            seconds[current[0]] += max(0.0, now - current[1])
        return seconds

    def stats(self) -> FeedStats:
        """The times up to now."""
        loading, copying, waiting = self._until(time.perf_counter())
        return FeedStats(self._batches, self._bytes, loading, copying, waiting, self.waited)
