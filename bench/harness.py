"""Times several alternatives for one job: verifies them, interleaves them, and compares with a reference.

A workload is a function, decorated with `workload(*targets)`, that returns its alternatives. Its name is
the workload's, its docstring the title.
"""

import functools
import gc
import multiprocessing
import os
import random
import resource
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import pinfeed
from bench.data import difference
from bench.targets import Target

SAMPLE_SECONDS = 4e-3  # a sample repeats its call until it is at least this long
MIN_SAMPLES, MAX_SAMPLES = 3, 60  # per alternative

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
        expected: The expected result, as `difference` accepts it; or a function that takes the
            result and returns its largest absolute difference from the reference.
        tolerance: Largest accepted absolute error; pinfeed's alternatives must be exact.
        outputs: Buffers that several alternatives write. They are overwritten before each is verified.
        prepare: Called before each sample, outside the timed region. A sample is one call then.
        wait: Waits for asynchronous work, inside the timed region.
        threads: Threads of torch and of pinfeed.
        units: Number of units of the job per call, such as batches of an epoch.
        returns: "s" or "bytes" if it measures itself and returns the result.
    """

    name: str
    run: Run
    role: str
    job: str = ""
    expected: Any = None
    tolerance: float | None = None
    outputs: Sequence[torch.Tensor] | None = None
    prepare: Run | None = None
    wait: Run | None = None
    threads: int = 1
    units: int = 1
    returns: str | None = None


reference = partial(Alternative, role="reference")
ours = partial(Alternative, role="pinfeed", tolerance=0.0)
other = partial(Alternative, role="other")


def filling(out: torch.Tensor) -> Alternative:
    """Returns the usual reference, which writes the output once."""
    return reference("fill the output (`out.fill_`)", partial(out.fill_, 1))


def built(make: Callable[..., Run], *args: Any, **options: Any) -> Run:
    """Sets an alternative up when it is verified, so that an ImportError means "not installed"."""
    run = functools.cache(partial(make, *args, **options))
    return lambda: run()()


def compare(*alternatives: Alternative, **common: Any) -> list[Alternative]:
    """Returns the alternatives in the order of the table, with common values of missing attributes.

    Ratios refer to the first reference and to pinfeed's first alternative.
    """
    return [
        replace(each, **{key: value for key, value in common.items() if getattr(each, key) is None})
        for each in alternatives
    ]


@dataclass(frozen=True)
class Workload:
    """A registered workload.

    Attributes:
        name: Name on the command line and in the results.
        title: One line.
        make: Returns the alternatives.
        targets: Its promises.
        usual: Beginning of the name of the usual PyTorch code, for README.md; "" leaves the workload out.
    """

    name: str
    title: str
    make: Callable[[], list[Alternative]]
    targets: Sequence[Target]
    usual: str


WORKLOADS: dict[str, Workload] = {}


def workload(*targets: Target, usual: str = "") -> Callable[..., Any]:
    """Registers a function that returns alternatives."""

    def register(make: Callable[[], list[Alternative]]) -> Callable[[], list[Alternative]]:
        name, title = make.__name__.replace("_", "-"), " ".join((make.__doc__ or "").split())
        WORKLOADS[name] = Workload(name, title.rstrip("."), make, targets, usual)
        return make

    return register


def use_threads(count: int) -> None:
    """Sets the thread counts of torch and pinfeed."""
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)
    if pinfeed.get_num_threads() != count:
        pinfeed.set_num_threads(count)


def _use_up(result: Any) -> None:
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


def _prepare(alternative: Alternative) -> None:
    use_threads(alternative.threads)
    if alternative.prepare is not None:
        alternative.prepare()


def _sample(alternative: Alternative, calls: int) -> dict[str, float]:
    """Returns the cost of a call, and as "spent" the seconds of all calls, including preparation."""
    start = time.perf_counter()
    _prepare(alternative)
    run, before = alternative.run, _counts()
    if alternative.returns:
        sample = {"seconds": run()}
    else:
        for _ in range(calls):
            _use_up(run())
        if alternative.wait is not None:
            alternative.wait()
        end = time.perf_counter()
        after = _counts() | {"seconds": end}
        sample = {key: (after[key] - before[key]) / calls / alternative.units for key in before}
    return sample | {"spent": time.perf_counter() - start}


def _verify(alternative: Alternative) -> dict[str, Any]:
    """Checks an alternative's result, and chooses the number of calls per sample."""
    record = {key: getattr(alternative, key) for key in ("name", "role", "job")}
    record |= {"status": "ok", "note": "", "calls": 1, "error": None, "peak": 0, "samples": {}}
    expected, tolerance = alternative.expected, alternative.tolerance or 0.0
    try:
        for output in alternative.outputs or ():
            output.view(torch.uint8).fill_(255)
        _prepare(alternative)
        if alternative.role == "reference" or alternative.returns:
            _use_up(alternative.run())
        else:
            check = expected if callable(expected) else partial(difference, expected=expected)
            error = record["error"] = check(alternative.run())
            if not error <= tolerance:  # true for NaN
                note = f"off by {error:.3g}, allowed {tolerance:.3g}"
                return record | {"status": "wrong", "note": note}
        if not (alternative.prepare or alternative.returns):
            once = _sample(alternative, 1)["seconds"] * alternative.units
            if once < SAMPLE_SECONDS:  # a first call can do extra work
                once = min(once, _sample(alternative, 1)["seconds"] * alternative.units)
            record["calls"] = max(1, round(SAMPLE_SECONDS / once))
    except Exception as error:
        status = "not installed" if isinstance(error, ImportError) else "failed"
        note = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        return record | {"status": status, "note": note}
    return record


def _peak(alternative: Alternative) -> int:
    """Returns the peak memory of one call, in bytes above the process's before it (Linux)."""

    def status(name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

    _prepare(alternative)
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
    warnings.simplefilter("ignore")  # of loops that don't train
    use_threads(1)
    try:
        alternatives = workload.make()
    except ImportError:
        # Imports again when it is verified, to be listed as not installed.
        alternatives = [other("the whole workload", workload.make)]
    records = [*map(_verify, alternatives)]
    pairs = zip(alternatives, records, strict=True)
    running = [(alternative, record) for alternative, record in pairs if record["status"] == "ok"]
    order, share = random.Random(0), seconds / max(len(running), 1)
    gc.collect()
    gc.disable()
    for number in range(MAX_SAMPLES):
        for alternative, record in order.sample(running, len(running)):
            if number < MIN_SAMPLES or sum(record["samples"]["spent"]) < share:
                for key, value in _sample(alternative, record["calls"]).items():
                    record["samples"].setdefault(key, []).append(value)
    if any(target.quantity == "peak" for target in workload.targets):
        for alternative, record in running:
            record["peak"] = _peak(alternative)
    gc.enable()
    facts = {"name": workload.name, "title": workload.title, "returns": alternatives[0].returns}
    return facts | {"alternatives": records}
