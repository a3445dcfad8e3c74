"""Times several ways of doing one job: verifies them, interleaves them, and compares with a reference.

A workload is a function, decorated with `workload(*targets)`, that returns a `Job`. Its name is the
workload's, its docstring the title.
"""

import functools
import gc
import math
import multiprocessing
import os
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pinfeed

SAMPLE_SECONDS = 4e-3  # a sample repeats its call until it is at least this long
FEWEST, MOST = 3, 60  # samples per way
QUICKEST = "fastest alternative"

Run = Callable[[], Any]


@dataclass(frozen=True)
class Way:
    """One way of doing a job, created by `reference`, `ours` or `other`.

    Attributes:
        name: Its name in tables.
        run: Does the job and returns the result. An iterator, such as an epoch, is exhausted.
        role: "reference", "pinfeed" or "other". A reference's result is not verified: its name says
            what it measures.
        job: The workload's job that it does, if there are several. Only ways of one job are compared.
        tolerance: Largest accepted absolute error; None for the job's.
        expected: The expected result; None for the job's.
        prepare: Called before each sample, outside the timed region. A sample is one call then.
        threads: Threads of torch and of pinfeed.
        units: Number of units of the job per call, such as batches of an epoch.
    """

    name: str
    run: Run
    role: str
    job: str = ""
    tolerance: float | None = None
    expected: Any = None
    prepare: Run | None = None
    threads: int = 1
    units: int = 1


reference = partial(Way, role="reference")
ours = partial(Way, role="pinfeed", tolerance=0.0)
other = partial(Way, role="other")


def built(make: Callable[..., Run], *args: Any, **options: Any) -> Run:
    """Sets a way up when it is verified: then an ImportError means "not installed"."""
    made = functools.cache(partial(make, *args, **options))
    return lambda: made()()


class Job:
    """The ways of doing a job, in the order of the table, and their common arguments.

    Args:
        ways: Ways. Ratios refer to the first reference and to pinfeed's first way.
        expected: The expected result, as `difference` accepts it; or a function that takes the
            result and returns its largest absolute difference from the reference.
        tolerance: Largest accepted absolute error of other ways than pinfeed's.
        outputs: Buffers that several ways write. They are overwritten before each is verified.
        prepare: As in `Way`, for all ways.
        wait: Waits for asynchronous work, inside the timed region.
        returns: "s" or "bytes" if ways measure something themselves and return it.
    """

    def __init__(
        self,
        *ways: Way,
        expected: Any = None,
        tolerance: float = 0.0,
        outputs: Sequence[torch.Tensor] = (),
        prepare: Run | None = None,
        wait: Run | None = None,
        returns: str = "",
    ) -> None:
        self.ways, self.expected, self.tolerance, self.outputs = ways, expected, tolerance, outputs
        self.prepare, self.wait, self.returns = prepare, wait, returns


@dataclass(frozen=True)
class Target:
    """A promise about a workload, created by `at_most` or `at_least`.

    Attributes:
        sign: "≤" or "≥".
        bound: Bound of a ratio, or of an absolute value if there is a unit.
        way: Beginning of the name of the measured way; "" is pinfeed's first.
        of: Beginning of the name of the way to compare with.
        quantity: The measured quantity: "seconds", "faults" (page faults), "cpu" (of all processes),
            "own_cpu" (of this one), "peak" (memory).
        unit: Unit of an absolute value, a key of `UNITS`.
        why: If the target is missed on the README's machine: the worst accepted figure, and the
            reason, measured or "not known".
    """

    sign: str
    bound: float
    way: str = ""
    of: str = ""
    quantity: str = "seconds"
    unit: str = ""
    why: tuple[float, str] | None = None


# The reason for a target that was met in another run on the same machine.
DISTURBED = "not known; passed in another run"

UNITS = {
    "s": ("seconds", 1.0),
    "ms": ("seconds", 1e-3),
    "µs": ("seconds", 1e-6),
    "bytes": ("seconds", 1.0),
    "page faults": ("faults", 1.0),
    "ms of CPU": ("own_cpu", 1e-3),
}


def at_most(bound: float, way: str = "", of: str = "", **options: Any) -> Target:
    """A way takes at most `bound` times as long as another: by default pinfeed's and the reference."""
    return Target("≤", bound, way, of, **options)


def at_least(bound: float, way: str = QUICKEST, of: str = "", **options: Any) -> Target:
    """A way takes at least `bound` times as long as another: by default the fastest and pinfeed's."""
    return Target("≥", bound, way, of, **options)


@dataclass(frozen=True)
class Workload:
    """A registered workload.

    Attributes:
        name: Name on the command line and in the results.
        title: One line.
        make: Returns the job.
        targets: Its promises.
        usual: Beginning of the name of the usual PyTorch way, for README.md; "" leaves the workload out.
    """

    name: str
    title: str
    make: Callable[[], Job]
    targets: Sequence[Target]
    usual: str


WORKLOADS: dict[str, Workload] = {}


def workload(*targets: Target, usual: str = "") -> Callable[[Callable[[], Job]], Any]:
    """Registers a function that returns a job."""

    def register(make: Callable[[], Job]) -> Callable[[], Job]:
        name, title = make.__name__.replace("_", "-"), " ".join((make.__doc__ or "").split())
        WORKLOADS[name] = Workload(name, title.rstrip("."), make, targets, usual)
        return make

    return register


def difference(result: Any, expected: Any) -> float:
    """Returns the largest absolute difference of arrays, tensors, and structures of them.

    Infinite if shapes or dtypes differ, and NaN if there is one. Further items of a tuple must be
    None.
    """
    if isinstance(expected, Mapping):
        pairs = [(result[key], expected[key]) for key in expected]
        same = result.keys() == expected.keys()
    elif isinstance(expected, list | tuple):
        pairs = list(zip(result, expected, strict=False))
        same = len(pairs) == len(expected) and not any(x is not None for x in result[len(pairs) :])
    else:
        one, two = torch.as_tensor(result), torch.as_tensor(expected)
        if one.shape != two.shape or one.dtype != two.dtype:
            return math.inf
        if torch.equal(one, two):
            return 0.0
        # In slices: a whole float32 copy of both would disturb the memory that is measured.
        slices = zip(one.flatten().split(1 << 20), two.flatten().split(1 << 20), strict=True)
        return float(np.max([float((a.float() - b.float()).abs().max()) for a, b in slices]))
    return float(np.max([difference(*pair) for pair in pairs])) if same else math.inf


def use_threads(count: int) -> None:
    """Sets the thread counts of torch and pinfeed."""
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)
    if pinfeed.get_num_threads() != count:
        pinfeed.set_num_threads(count)


def _use_up(result: Any) -> Any:
    """Drops a result, as a training loop does with the previous batch."""
    if isinstance(result, Iterator):
        for _ in result:
            pass


def _counts() -> dict[str, float]:
    """Returns the counters, the clock last, so that reading the others takes none of its time."""
    own = all_of_them = time.process_time()
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        all_of_them += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    return {"own_cpu": own, "cpu": all_of_them, "faults": faults, "seconds": time.perf_counter()}


def _prepare(way: Way, job: Job) -> None:
    use_threads(way.threads)
    for prepare in (job.prepare, way.prepare):
        if prepare is not None:
            prepare()


def _sample(way: Way, job: Job, calls: int) -> dict[str, float]:
    """Returns the cost of a call, and as "spent" the seconds of all calls, including preparation."""
    start = time.perf_counter()
    _prepare(way, job)
    run, before = way.run, _counts()
    if job.returns:
        sample = {"seconds": run()}
    else:
        for _ in range(calls):
            _use_up(run())
        if job.wait is not None:
            job.wait()
        end = time.perf_counter()
        after = _counts() | {"seconds": end}
        sample = {key: (after[key] - before[key]) / calls / way.units for key in before}
    return sample | {"spent": time.perf_counter() - start}


def _verify(way: Way, job: Job) -> dict[str, Any]:
    """Checks a way's result, and chooses the number of calls per sample."""
    record = {"name": way.name, "role": way.role, "job": way.job, "status": "ok", "note": ""}
    record |= {"calls": 1, "error": None, "peak": 0, "samples": {}}
    tolerance = job.tolerance if way.tolerance is None else way.tolerance
    expected = job.expected if way.expected is None else way.expected
    try:
        for output in job.outputs:
            output.view(torch.uint8).fill_(255)
        _prepare(way, job)
        if way.role == "reference" or job.returns:
            _use_up(way.run())
        else:
            check = expected if callable(expected) else partial(difference, expected=expected)
            error = record["error"] = check(way.run())
            if not error <= tolerance:  # so that a NaN is wrong as well
                note = f"off by {error:.3g}, allowed {tolerance:.3g}"
                return record | {"status": "wrong", "note": note}
        if not (way.prepare or job.prepare or job.returns):
            once = _sample(way, job, 1)["seconds"] * way.units
            if once < SAMPLE_SECONDS:  # the first call may have done extra work
                once = min(once, _sample(way, job, 1)["seconds"] * way.units)
            record["calls"] = max(1, round(SAMPLE_SECONDS / once))
    except Exception as error:
        status = "not installed" if isinstance(error, ImportError) else "failed"
        note = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        return record | {"status": status, "note": note}
    return record


def _peak(way: Way, job: Job) -> int:
    """Returns the memory that one call takes in addition to the process's, in bytes (Linux)."""

    def status(name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

    _prepare(way, job)
    gc.collect()
    before = status("VmRSS:")
    Path("/proc/self/clear_refs").write_text("5")  # starts the peak anew
    _use_up(way.run())
    return status("VmHWM:") - before


def measure(workload: Workload, seconds: float) -> dict[str, Any]:
    """Verifies every way of a workload, then times them in turn.

    Each round takes one sample of every way, in a random order, so that noise hits all of them
    equally and none always follows the same one. A way that has used up its share of the seconds
    ends, once it has a few samples.
    """
    use_threads(1)
    job = workload.make()
    records = [_verify(way, job) for way in job.ways]
    running = [pair for pair in zip(job.ways, records, strict=True) if pair[1]["status"] == "ok"]
    order, share = random.Random(0), seconds / max(len(running), 1)
    gc.collect()
    gc.disable()
    for number in range(MOST):
        for way, record in order.sample(running, len(running)):
            if number < FEWEST or sum(record["samples"]["spent"]) < share:
                for key, value in _sample(way, job, record["calls"]).items():
                    record["samples"].setdefault(key, []).append(value)
    if any(target.quantity == "peak" for target in workload.targets):
        for way, record in running:
            record["peak"] = _peak(way, job)
    gc.enable()
    facts = {"name": workload.name, "title": workload.title, "returns": job.returns}
    return facts | {"ways": records}


def ratio(one: Mapping[str, Any], two: Mapping[str, Any], quantity: str = "seconds") -> float:
    """Returns the ratio of the medians, which the tables show."""
    if quantity == "peak":
        return one["peak"] / two["peak"]
    return statistics.median(one["samples"][quantity]) / statistics.median(two["samples"][quantity])


class NotMeasured(Exception):
    """The workload, or the way in it, did not run."""


def find(
    record: Mapping[str, Any], name: str, role: str, job: str | None = None
) -> Mapping[str, Any]:
    """Returns the way whose name begins like this; without a name, the first of a role. None: any job."""
    ways = [way for way in record["ways"] if way["role"] == role or name]
    ways = [way for way in ways if job is None or way["job"] == job]
    if name == QUICKEST:
        ways = [way for way in ways if way["role"] == "other" and way["status"] == "ok"]
        ways.sort(key=lambda way: statistics.median(way["samples"]["seconds"]))
    way = next((way for way in ways if name == QUICKEST or way["name"].startswith(name)), None)
    if way is None or way["status"] != "ok":
        reason = f"{way['name']}: {way['status']}" if way else f"no way {name or role!r}"
        raise NotMeasured(reason)
    return way


def measured(target: Target, record: Mapping[str, Any]) -> float:
    """Returns the value of a target, from a workload's record."""
    way = find(record, target.way, "pinfeed")
    if target.unit:
        quantity, scale = UNITS[target.unit]
        return statistics.median(way["samples"][quantity]) / scale
    base = find(record, target.of, "reference" if target.sign == "≤" else "pinfeed")
    return ratio(way, base, target.quantity)
