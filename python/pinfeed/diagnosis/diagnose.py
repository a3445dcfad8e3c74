"""`diagnose`: measures a loop, and tries changes."""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pinfeed.arguments import Problem, checked_number, with_hints
from pinfeed.diagnosis import stages
from pinfeed.diagnosis.changes import Change, find_changes, more_workers
from pinfeed.diagnosis.copying import random_states_kept
from pinfeed.diagnosis.limit import MIN_GAIN, Cpus, Measured
from pinfeed.diagnosis.report import Report
from pinfeed.diagnosis.runs import LoaderCopy, Run, Settings, time_step
from pinfeed.imports import add_note
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.ranks import group_ranks

#: Approximate number of runs, including trials.
_RUNS = 16
#: Rounds of trials, after a first one that selects promising changes.
_ROUNDS = 2
#: Maximum number of changes tried in these rounds.
_MAX_TRIALS = 3
#: Seconds per batch below which measuring itself takes a large part of the time.
_FAST = 5e-4
#: Length of a list from which its copies in workers are reported.
_MANY = 100_000
#: Multiple of ``seconds`` after which remaining runs are skipped.
_OVERTIME = 2.0


@with_hints()
def diagnose(loader: Any, step: Callable[[Any], Any] | None = None, seconds: float = 20) -> Report:
    """Finds the slow stage of a training loop, and recommends changes that were faster in trials.

    It runs loops over copies of the loader's parts: unchanged, with other worker counts, and with
    batches that are already in memory. Then it tries changes that keep the batches equal, several times
    each, in turn with the unchanged loop. It recommends a change whose gain exceeds the noise from
    other processes.

    The random states of Python, NumPy and torch, the sampler's position and the epoch are the same
    afterwards. The step is executed, so pass a model that may be trained.

    Args:
        loader: A torch DataLoader, or a `DeviceLoader` around one.
        step: The training step, called many times with a batch. None: the loop discards batches.
        seconds: Approximate duration. A shorter one is less accurate. After twice this time the remaining
            runs are skipped, and the report says how long they would take.

    Returns:
        A `Report`: print it, or read its ``limit``, ``recommended`` or ``to_dict()``. An interrupt (Ctrl-C)
        ends the measurements; the report has the results so far.

    Raises:
        TypeError: If ``loader`` isn't a DataLoader, or can be iterated only once.
        ValueError: If the loader yields no batch, or the first one takes longer than ``seconds``.
        RuntimeError: If the DeviceLoader is in the middle of a loop, or a worker imports a main module
            that calls `diagnose` without ``if __name__ == "__main__":``.
        Exception: Errors of the dataset, the collate function or the step, with a note that names the
            sample.

    Example:
        >>> import time
        >>> class Slow:
        ...     def __len__(self):
        ...         return 1000
        ...
        ...     def __getitem__(self, index):
        ...         time.sleep(0.005)
        ...         return torch.tensor(index)
        >>> loader = torch.utils.data.DataLoader(Slow(), batch_size=4)
        >>> pinfeed.diagnose(loader, seconds=1).limit
        'dataset'
    """
    seconds = checked_number(seconds, "diagnose: seconds", 0.1, 1e6)
    if step is not None and not callable(step):
        raise TypeError(Problem("diagnose", f"step must be callable with a batch, got {step!r}"))
    main = sys.modules.get("__mp_main__", sys)
    if main.__name__ == "__mp_main__" and main is not sys.modules["__main__"]:
        wrong = "a new process imported the main module, which calls diagnose again"
        raise RuntimeError(
            Problem("diagnose", wrong, hint="call diagnose under if __name__ == '__main__'")
        )
    if isinstance(loader, DeviceLoader) and loader.is_in_loop:
        wrong = (
            "loader must not be in the middle of a loop, because its thread would distort the times"
        )
        hint = "finish the loop, or call close() of its iterator"
        raise RuntimeError(Problem("diagnose", wrong, hint=hint))
    if step is not None and (group_ranks() or (0, 1))[1] > 1:
        warnings.warn(
            "diagnose: ranks call the step different numbers of times, so a step that waits for other "
            "ranks (DistributedDataParallel, all_reduce) never ends; pass a step that trains model.module",
            stacklevel=3,
        )
    files, cpus = _open_files(), Cpus.here()
    load = cpus.load(min(0.1, seconds / 50))
    with random_states_kept(), _interrupts() as interrupts:
        copy = LoaderCopy(loader)
        attempt = _Attempts(copy, seconds, interrupts)
        try:
            loop = copy.run(copy.settings, attempt.each, step, longest=seconds)
        except Exception as error:
            if copy.own_iter is not None:
                add_note(
                    error,
                    f"{copy.own_iter} was not called: these are the batches of a plain DataLoader",
                )
            raise
        report = Report(Measured(cpus, loop, load=load), notes=attempt.notes)
        try:
            _measure(copy, step, report.measured, attempt)
            if _ROUNDS:
                _try(copy, step, report, attempt)
        except KeyboardInterrupt:
            report.notes.append("it was interrupted; later stages were not measured")
            report.is_complete = False
    for change in report.changes:
        change.min_gain = report.measured.min_gain
    report.seconds = time.perf_counter() - attempt.start
    report.is_complete &= not (attempt.skipped or attempt.has_failed)
    if attempt.skipped:
        each = report.seconds / (1 + attempt.count)
        report.notes.append(
            f"there was no time for: {', '.join(attempt.skipped)}; a run takes {each:.2g} s here, so "
            f"pass seconds={math.ceil(1.2 * _RUNS / _OVERTIME * each)}"
        )
    report.notes += _notes(copy, report.measured)
    del copy, attempt
    gc.collect()  # so that copies close their files
    if opened := _open_files() - files:
        names = ", ".join(sorted({os.path.basename(name) for _, name in opened})[:3])
        report.notes.append(
            f"the dataset or the step opened files in this process ({names}) and left them open. Workers "
            "forked from now on share their positions, so train in a new process"
        )
    return report


class _Attempts:
    """Runs that are skipped when time runs out, and may fail."""

    def __init__(self, loader: LoaderCopy, seconds: float, interrupts: list[int]) -> None:
        self.seconds = seconds
        self.each = seconds / _RUNS  # seconds per run
        self.start = time.perf_counter()
        self.end = self.start + _OVERTIME * seconds  # later runs are skipped
        self.notes: list[str] = []  # about failures
        self.count = 0  # number of runs
        self.skipped: list[str] = []  # names of skipped runs
        self.has_failed = False  # whether a run has failed
        self._loader = loader
        self._interrupts = interrupts

    def run(self, name: str, settings: Settings, step: Any = None, again: Any = None) -> Run | None:
        """Runs a loop with these settings, if there is time."""
        run: Run | None = self(
            name, lambda: self._loader.run(settings, self.each, step, again=again)
        )
        return run

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        """Returns the result of ``work``; None, and a note, if time ran out or it fails."""
        if self._interrupts:
            raise KeyboardInterrupt
        if time.perf_counter() > self.end:
            if name not in self.skipped:
                self.skipped.append(name)
            return None
        self.count += 1
        try:
            return work()
        except Exception as error:  # not fatal, because the unchanged loop has run
            if self._interrupts:  # the interrupt ended the workers, too
                raise KeyboardInterrupt from error
            self.has_failed = True
            note = f"{name}: not measured: {_message(error)}"
            if note not in self.notes:
                self.notes.append(note)
            # The frames hold the workers in a reference cycle of torch. Until it is collected, workers
            # stay alive, and processes forked meanwhile inherit them.
            traceback.clear_frames(error.__traceback__)
            return None


def _message(error: Exception) -> str:
    """Returns an error's message and notes, without the traceback in a worker's error."""
    lines = "".join(traceback.format_exception_only(error)).rstrip().splitlines()
    text = itertools.takewhile(lambda line: line[:1].strip(), reversed(lines))
    return "; ".join([*text][::-1] or lines[-1:])


def _measure(
    loader: LoaderCopy, step: Callable[[Any], Any] | None, measured: Measured, attempt: _Attempts
) -> None:
    """Measures as far as there is time, in order of importance."""
    original, runs = loader.settings, measured.runs
    if step is not None:
        alone = attempt("the step", lambda: time_step(step, loader.batch, attempt.each / 2))
        measured.step = alone or measured.loop.step
        if measured.loop.step > 2 * measured.step:  # it was warming up, for example torch.compile
            measured.loop = attempt.run("the loop again", original, step) or measured.loop
    loop = measured.loop
    if loop.disk_bytes > loop.bytes / 50 and not loader.is_stream:
        measured.warm = attempt.run("files", original, again=loop.drawn_indices)
    elif not loader.is_stream:
        loader.repeat(loop, attempt.each)
    for workers in (1, 2):
        # Persistent workers for a stream, so that their start isn't measured.
        settings = Settings(workers, persistent=loader.is_stream)
        is_wanted = workers == 1 or (1 in runs and original.workers < 2)
        if is_wanted and (run := attempt.run(f"workers: {workers}", settings)):
            runs[workers] = run
    if 1 in runs:
        attempt("comparing two workers", loader.compare_workers)
    attempt("checking the memory of batches", lambda: loader.reuses_memory)


def _try(
    loader: LoaderCopy, step: Callable[[Any], Any] | None, report: Report, attempt: _Attempts
) -> None:
    """Tries each change once, and promising changes again, alternating with the unchanged loop."""
    measured, settings = report.measured, loader.settings

    def run(change: Change) -> Run | None:
        assert change.settings is not None
        result = attempt.run(change.name, change.settings, step, change.again)
        if result is not None:
            change.before.append(period)
            change.after.append(result.period)
        return result

    loop = attempt.run("the loop again", settings, step)
    if loop is None:
        return
    period = loop.period
    end, attempt.end = attempt.end, attempt.end - 0.3 * _OVERTIME * attempt.seconds
    report.changes = attempt("changes", lambda: [*find_changes(measured, loader)]) or []
    is_workers, best = measured.limit() in ("dataset", "stragglers", "gil"), None
    for is_first in (True, False):  # the more promising kind of change first
        if is_first is is_workers:
            best = more_workers(measured, loader, run, period)
        else:
            for change in report.changes:
                if change.settings is not None:
                    run(change)
    report.changes += [] if best is None else [best]
    attempt.end, now = end, time.perf_counter()
    # Changes until time runs out, with the unchanged loop in each round.
    max_trials = int((end - now) / ((now - attempt.start) / attempt.count) / max(1, _ROUNDS)) - 1
    promising = [change for change in report.changes if change.gain > MIN_GAIN]
    finalists = sorted(promising, key=lambda change: -change.gain)[
        : max(1, min(max_trials, _MAX_TRIALS))
    ]
    for number in range(_ROUNDS if finalists else 0):
        measured.load = max(measured.load, measured.cpus.load(min(0.1, attempt.each / 2)))
        if (loop := attempt.run("the loop again", settings, step)) is None:
            break
        period = loop.period
        for change in finalists:
            if run(change) and number == 0:  # drop the selecting trial, which may have been luck
                change.before, change.after = change.before[1:], change.after[1:]


def _notes(loader: LoaderCopy, measured: Measured) -> Iterator[str]:
    """Yields notes about the accuracy of the numbers, and about skipped measurements."""
    if loader.not_copied:
        names = ", ".join(loader.not_copied)
        yield f"measuring may have changed objects that can't be copied: {names}"
    if loader.holds_files:
        yield (
            "the dataset holds open files, whose position forked workers share, so more workers were not "
            "tried; open each file when the first sample is requested"
        )
    if loader.repeats and not loader.is_stream:
        now = ", as this loader's workers do now," * (loader.settings.workers > 1)
        yield (
            f"two workers drew the same random numbers{now} from copies of one generator, so more workers were "
            "not tried; seed the generator in worker_init_fn, or draw from the global generators of torch, "
            "NumPy or Python"
        )
    if vars(loader).get("reuses_memory"):
        yield (
            "later batches overwrite the memory of earlier ones, so a thread and workers, which prefetch, were "
            "not tried"
        )
    for name, count in _long_lists(loader.dataset) if loader.settings.workers else ():
        yield (
            f"each worker gradually copies {name}, a list of {count:,} objects; pinfeed.SharedList keeps one "
            "copy for all workers"
        )
    if measured.loop.period - measured.step_seconds < _FAST and measured.limit() != "step":
        yield "gains are imprecise, because measuring a batch, about 0.05 ms, takes a large part of its time"
    if not stages.TELLS:
        yield "this system reports neither disk reads nor the time that threads wait for a CPU"
    if loader.own_iter is not None:
        yield f"{loader.own_iter} was not called: a plain DataLoader was measured"
    if loader.repeats and loader.is_stream:
        yield (
            "each worker reads the whole stream, so several workers make the same batches; split the stream in "
            "__iter__ by get_worker_info(), as pinfeed.StreamDataset does, or seed its generator "
            "differently in each worker"
        )
    if loader.is_stream:
        yield "changes to the dataset of a stream were not tried, and each trial has other samples"


def _long_lists(dataset: Any) -> Iterator[tuple[str, int]]:
    """Yields the long lists of objects in a dataset, also of the dataset in a Subset."""
    while dataset is not None:
        for name, value in getattr(dataset, "__dict__", {}).items():
            if type(value) is list and len(value) >= _MANY and type(value[0]) not in (int, float):
                yield f"{type(dataset).__name__}.{name}", len(value)
        dataset = getattr(dataset, "dataset", None)


def _open_files() -> set[tuple[str, str]]:
    """Returns descriptors and names of files that this process reads, if the system can tell."""
    files = set()
    with contextlib.suppress(OSError):
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # of the listing itself
                name = os.readlink(f"/proc/self/fd/{number}")
                flags = Path(f"/proc/self/fdinfo/{number}").read_text().split("flags:")[1].split()
                if os.path.isfile(name) and int(flags[0], 8) & os.O_ACCMODE != os.O_WRONLY:
                    files.add((number, name))
    return files


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Records interrupts, also those swallowed in a ``__del__`` or when a worker ends."""
    interrupts: list[int] = []

    def note(number: int, frame: Any) -> None:
        interrupts.append(number)
        before(number, frame)

    before: Any = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield interrupts  # this thread gets no interrupts
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)
