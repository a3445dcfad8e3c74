"""Times several ways of doing one job: verified first, interleaved, beside the physical limit."""

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import torch

import pinfeed

SAMPLE_SECONDS = 2e-3  # a sample repeats its call until it is at least this long


class Role(StrEnum):
    """What a way stands for in a table."""

    LIMIT = "limit"
    OVERHEAD = "overhead"
    PINFEED = "pinfeed"
    PEER = "peer"


@runtime_checkable
class SelfTimed(Protocol):
    """A callable that does its work in another process, where only it can read the clock."""

    def seconds(self, calls: int) -> float:
        """Do the job `calls` times and return how long that took."""


def nothing() -> None:
    """Prepare nothing."""


def discard(result: Any) -> None:
    """Let the result die at once, as a training loop does with the batch before."""


@dataclass(frozen=True)
class Way:
    """One way of doing a job.

    Attributes:
        name: What a table calls it.
        build: Sets it up and returns the callable that is verified and timed. An ImportError
            from it is shown as "not installed", any other exception as "failed".
        role: A limit's result is not verified, everything else's is.
        tolerance: Largest absolute difference from the reference that is accepted.
        error: Measures that difference, where the workload's own reference does not apply.
        prepare: Called before each sample, outside the timed region.
    """

    name: str
    build: Callable[[], Callable[[], Any]]
    role: Role = Role.PEER
    tolerance: float = 0.0
    error: Callable[[Any], float] | None = None
    prepare: Callable[[], None] = nothing


@dataclass(frozen=True)
class Workload:
    """One job and the ways of doing it.

    Attributes:
        name: A short name for the command line and the JSON file.
        title: One line for a table's heading.
        ways: In the order of the table. Ratios refer to the first limit and the first pinfeed.
        error: Returns the largest absolute difference between a result and the reference.
        consume: Uses up a result inside the timed region (an epoch is an iterator, say).
        prepare: Called before each sample, outside the timed region.
        repeat: Whether a sample of a quick way may repeat its call. Not where `prepare` chooses
            data that has to come from memory: the second call would find it in the cache.
        images: Images in one result, for a rate; 0 where that means nothing.
    """

    name: str
    title: str
    ways: Sequence[Way]
    error: Callable[[Any], float]
    consume: Callable[[Any], object] = discard
    prepare: Callable[[], None] = nothing
    repeat: bool = True
    images: int = 0


@dataclass
class _Entry:
    """A way while its workload runs."""

    way: Way
    status: str = "ok"
    note: str = ""
    measured_error: float | None = None
    run: Callable[[], Any] = nothing
    calls: int = 1
    samples: list[float] = field(default_factory=list)


def _seconds(entry: _Entry, workload: Workload, calls: int) -> float:
    workload.prepare()
    entry.way.prepare()
    if isinstance(entry.run, SelfTimed):
        return entry.run.seconds(calls)
    run, consume = entry.run, workload.consume
    start = time.perf_counter()
    for _ in range(calls):
        consume(run())
    return time.perf_counter() - start


def _verify(entry: _Entry, workload: Workload) -> None:
    """Build the way, check its result, and choose how many calls make one sample."""
    way = entry.way
    try:
        entry.run = way.build()
        workload.prepare()
        way.prepare()
        if way.role is not Role.LIMIT:
            entry.measured_error = (way.error or workload.error)(entry.run())
            # Written so that a NaN is wrong as well.
            if not entry.measured_error <= way.tolerance:
                entry.status = "wrong"
                entry.note = f"off by {entry.measured_error:.3g}, allowed {way.tolerance:.3g}"
                return
        once = min(_seconds(entry, workload, 1) for _ in range(2))
        if workload.repeat:
            entry.calls = max(1, round(SAMPLE_SECONDS / once))
    except Exception as error:
        entry.status = "not installed" if isinstance(error, ImportError) else "failed"
        entry.note = f"{type(error).__name__}: {error}".splitlines()[0][:200]


def _ratio(entry: _Entry, base: _Entry | None) -> dict[str, float]:
    """Ratios of two ways: the median over the rounds that both took part in, and of the minima."""
    if base is None or not entry.samples or not base.samples:
        return {}
    pairs = [a / b for a, b in zip(entry.samples, base.samples, strict=False)]
    return {
        "median": statistics.median(pairs),
        "min": min(entry.samples) / min(base.samples),
    }


def _record(entry: _Entry, base: dict[Role, _Entry]) -> dict[str, Any]:
    record: dict[str, Any] = {
        "name": entry.way.name,
        "role": entry.way.role.value,
        "status": entry.status,
        "note": entry.note,
        "error": entry.measured_error,
        "tolerance": entry.way.tolerance,
        "rounds": len(entry.samples),
        "calls_per_sample": entry.calls,
    }
    if entry.samples:
        record["median_s"] = statistics.median(entry.samples)
        record["min_s"] = min(entry.samples)
        record["samples_s"] = entry.samples
        record["to_limit"] = _ratio(entry, base.get(Role.LIMIT))
        record["to_pinfeed"] = _ratio(entry, base.get(Role.PINFEED))
    return record


def measure(
    workload: Workload,
    *,
    rounds: int = 30,
    budget: float = 6.0,
    progress: Callable[[str], None] = discard,
) -> dict[str, Any]:
    """Verify every way of a workload, then time them in turn.

    Each round takes one sample of every way, in an order drawn anew, so that none of them always
    runs after the same neighbour and a slow spell of the machine falls on all of them alike.

    Args:
        workload: What to measure.
        rounds: Samples of each way.
        budget: Seconds after which a slow way stops taking part, once it has three samples.
        progress: Called with a line of text before each step.

    Returns:
        A record for the JSON file: name, title, images, and for every way its status, error,
        median and minimum in seconds per call, samples, and ratios to the limit and to pinfeed.
    """
    entries = [_Entry(way) for way in workload.ways]
    for entry in entries:
        progress(f"{workload.name}: verify {entry.way.name}")
        _verify(entry, workload)
    running = [entry for entry in entries if entry.status == "ok"]
    base: dict[Role, _Entry] = {}
    for entry in running:
        base.setdefault(entry.way.role, entry)

    order = random.Random(0)
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            progress(f"{workload.name}: round {number + 1} of {rounds}")
            for entry in order.sample(running, len(running)):
                spent = sum(entry.samples) * entry.calls
                if len(entry.samples) >= 3 and spent > budget:
                    continue
                seconds = _seconds(entry, workload, entry.calls)
                entry.samples.append(seconds / entry.calls)
    finally:
        if collecting:
            gc.enable()
    return {
        "name": workload.name,
        "title": workload.title,
        "kind": "timing",
        "images": workload.images,
        "ways": [_record(entry, base) for entry in entries],
    }


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Give torch and pinfeed `count` threads each, and what they had before at the end.

    The adapters of other libraries ask torch for the number when they are built.
    """
    before = torch.get_num_threads(), pinfeed.get_num_threads()
    torch.set_num_threads(count)
    pinfeed.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        pinfeed.set_num_threads(before[1])
