"""Times several alternatives for one job: verifies them, interleaves them, and compares with a reference.

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
MIN_SAMPLES, MAX_SAMPLES = 3, 60  # per alternative
FASTEST = "fastest alternative"

Run = Callable[[], Any]


@dataclass(frozen=True)
class Alternative:
    """One implementation of a job, created by `reference`, `ours` or `other`.

    Attributes:
        name: Its name in tables.
        run: Does the job and returns the result. An iterator, such as an epoch, is exhausted.
        role: "reference", "pinfeed" or "other". A reference's result is not verified: its name says
            what it measures.
        job: The name of its job, if the workload has several. Only alternatives for one job are compared.
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


reference = partial(Alternative, role="reference")
ours = partial(Alternative, role="pinfeed", tolerance=0.0)
other = partial(Alternative, role="other")


def built(make: Callable[..., Run], *args: Any, **options: Any) -> Run:
    """Sets an alternative up when it is verified, so that an ImportError means "not installed"."""
    run = functools.cache(partial(make, *args, **options))
    return lambda: run()()


class Job:
    """The alternatives for a job, in the order of the table, and their common arguments.

    Args:
        alternatives: Ratios refer to the first reference and to pinfeed's first alternative.
        expected: The expected result, as `difference` accepts it; or a function that takes the
            result and returns its largest absolute difference from the reference.
        tolerance: Largest accepted absolute error; pinfeed's alternatives must be exact.
        outputs: Buffers that several alternatives write. They are overwritten before each is verified.
        prepare: As in `Alternative`, for all alternatives.
        wait: Waits for asynchronous work, inside the timed region.
        returns: "s" or "bytes" if alternatives measure themselves and return the result.
    """

    def __init__(
        self,
        *alternatives: Alternative,
        expected: Any = None,
        tolerance: float = 0.0,
        outputs: Sequence[torch.Tensor] = (),
        prepare: Run | None = None,
        wait: Run | None = None,
        returns: str = "",
    ) -> None:
        self.alternatives, self.expected, self.tolerance, self.outputs = (
            alternatives,
            expected,
            tolerance,
            outputs,
        )
        self.prepare, self.wait, self.returns = prepare, wait, returns


@dataclass(frozen=True)
class Target:
    """A promise about a workload, created by `at_most` or `at_least`.

    Attributes:
        sign: "≤" or "≥".
        bound: Bound of a ratio, or of an absolute value if there is a unit.
        alternative: Beginning of the name of the alternative; "" is pinfeed's first.
        of: Beginning of the name of the alternative that it is compared with.
        quantity: The measured quantity: "seconds", "faults" (page faults), "cpu" (of all processes),
            "own_cpu" (of this one), "peak" (memory).
        unit: Unit of an absolute value, a key of `UNITS`.
        why: If the target is missed on the README's machine: the worst accepted figure, and the
            reason, measured or "not known".
    """

    sign: str
    bound: float
    alternative: str = ""
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


def at_most(bound: float, alternative: str = "", of: str = "", **options: Any) -> Target:
    """An alternative takes at most `bound` times as long as another: by default pinfeed's and the reference."""
    return Target("≤", bound, alternative, of, **options)


def at_least(bound: float, alternative: str = FASTEST, of: str = "", **options: Any) -> Target:
    """An alternative takes at least `bound` times as long as another: by default the fastest and pinfeed's."""
    return Target("≥", bound, alternative, of, **options)


@dataclass(frozen=True)
class Workload:
    """A registered workload.

    Attributes:
        name: Name on the command line and in the results.
        title: One line.
        make: Returns the job.
        targets: Its promises.
        usual: Beginning of the name of the usual PyTorch code, for README.md; "" leaves the workload out.
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
        # In slices, because whole float32 copies disturb the measured memory.
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
    """Returns the counters; the clock is read last, so reading the others is not timed."""
    own = total = time.process_time()
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    return {"own_cpu": own, "cpu": total, "faults": faults, "seconds": time.perf_counter()}


def _prepare(alternative: Alternative, job: Job) -> None:
    use_threads(alternative.threads)
    for prepare in (job.prepare, alternative.prepare):
        if prepare is not None:
            prepare()


def _sample(alternative: Alternative, job: Job, calls: int) -> dict[str, float]:
    """Returns the cost of a call, and as "spent" the seconds of all calls, including preparation."""
    start = time.perf_counter()
    _prepare(alternative, job)
    run, before = alternative.run, _counts()
    if job.returns:
        sample = {"seconds": run()}
    else:
        for _ in range(calls):
            _use_up(run())
        if job.wait is not None:
            job.wait()
        end = time.perf_counter()
        after = _counts() | {"seconds": end}
        sample = {key: (after[key] - before[key]) / calls / alternative.units for key in before}
    return sample | {"spent": time.perf_counter() - start}


def _verify(alternative: Alternative, job: Job) -> dict[str, Any]:
    """Checks an alternative's result, and chooses the number of calls per sample."""
    record = {
        "name": alternative.name,
        "role": alternative.role,
        "job": alternative.job,
        "status": "ok",
        "note": "",
    }
    record |= {"calls": 1, "error": None, "peak": 0, "samples": {}}
    tolerance = job.tolerance if alternative.tolerance is None else alternative.tolerance
    expected = job.expected if alternative.expected is None else alternative.expected
    try:
        for output in job.outputs:
            output.view(torch.uint8).fill_(255)
        _prepare(alternative, job)
        if alternative.role == "reference" or job.returns:
            _use_up(alternative.run())
        else:
            check = expected if callable(expected) else partial(difference, expected=expected)
            error = record["error"] = check(alternative.run())
            if not error <= tolerance:  # true for NaN
                note = f"off by {error:.3g}, allowed {tolerance:.3g}"
                return record | {"status": "wrong", "note": note}
        if not (alternative.prepare or job.prepare or job.returns):
            once = _sample(alternative, job, 1)["seconds"] * alternative.units
            if once < SAMPLE_SECONDS:  # a first call can do extra work
                once = min(once, _sample(alternative, job, 1)["seconds"] * alternative.units)
            record["calls"] = max(1, round(SAMPLE_SECONDS / once))
    except Exception as error:
        status = "not installed" if isinstance(error, ImportError) else "failed"
        note = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        return record | {"status": status, "note": note}
    return record


def _peak(alternative: Alternative, job: Job) -> int:
    """Returns the peak memory of one call, in bytes above the process's before it (Linux)."""

    def status(name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

    _prepare(alternative, job)
    gc.collect()
    before = status("VmRSS:")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    _use_up(alternative.run())
    return status("VmHWM:") - before


def measure(workload: Workload, seconds: float) -> dict[str, Any]:
    """Verifies every alternative of a workload, then times them in turn.

    Each round takes one sample of every alternative, in a random order, so that noise hits all of them
    equally and none always follows the same one. An alternative stops when its share of the seconds
    is used up and it has at least `MIN_SAMPLES`.
    """
    use_threads(1)
    job = workload.make()
    records = [_verify(alternative, job) for alternative in job.alternatives]
    running = [
        pair for pair in zip(job.alternatives, records, strict=True) if pair[1]["status"] == "ok"
    ]
    order, share = random.Random(0), seconds / max(len(running), 1)
    gc.collect()
    gc.disable()
    for number in range(MAX_SAMPLES):
        for alternative, record in order.sample(running, len(running)):
            if number < MIN_SAMPLES or sum(record["samples"]["spent"]) < share:
                for key, value in _sample(alternative, job, record["calls"]).items():
                    record["samples"].setdefault(key, []).append(value)
    if any(target.quantity == "peak" for target in workload.targets):
        for alternative, record in running:
            record["peak"] = _peak(alternative, job)
    gc.enable()
    facts = {"name": workload.name, "title": workload.title, "returns": job.returns}
    return facts | {"alternatives": records}


def ratio(one: Mapping[str, Any], two: Mapping[str, Any], quantity: str = "seconds") -> float:
    """Returns the ratio of the medians, which the tables show."""
    if quantity == "peak":
        return one["peak"] / two["peak"]
    return statistics.median(one["samples"][quantity]) / statistics.median(two["samples"][quantity])


class NotMeasured(Exception):
    """The workload or alternative did not run."""


def find(
    record: Mapping[str, Any], name: str, role: str, job: str | None = None
) -> Mapping[str, Any]:
    """Returns the alternative whose name begins with `name`, or the first of a role; `job=None` is any."""
    alternatives = [
        alternative for alternative in record["alternatives"] if alternative["role"] == role or name
    ]
    alternatives = [
        alternative for alternative in alternatives if job is None or alternative["job"] == job
    ]
    if name == FASTEST:
        alternatives = [
            alternative
            for alternative in alternatives
            if alternative["role"] == "other" and alternative["status"] == "ok"
        ]
        alternatives.sort(
            key=lambda alternative: statistics.median(alternative["samples"]["seconds"])
        )
    alternative = next(
        (
            alternative
            for alternative in alternatives
            if name == FASTEST or alternative["name"].startswith(name)
        ),
        None,
    )
    if alternative is None or alternative["status"] != "ok":
        reason = (
            f"{alternative['name']}: {alternative['status']}"
            if alternative
            else f"no alternative {name or role!r}"
        )
        raise NotMeasured(reason)
    return alternative


def measured(target: Target, record: Mapping[str, Any]) -> float:
    """Returns the value of a target, from a workload's record."""
    alternative = find(record, target.alternative, "pinfeed")
    if target.unit:
        quantity, scale = UNITS[target.unit]
        return statistics.median(alternative["samples"][quantity]) / scale
    base = find(record, target.of, "reference" if target.sign == "≤" else "pinfeed")
    return ratio(alternative, base, target.quantity)
