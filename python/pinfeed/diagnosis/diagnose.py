"""`diagnose`: measures a loop, and tries changes."""

from __future__ import annotations

import contextlib
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
from typing import Any

from torch.utils.data import DataLoader

from pinfeed import _core
from pinfeed.arguments import Problem, checked_number, with_hints
from pinfeed.diagnosis import stages
from pinfeed.diagnosis.changes import Change, find_changes, more_workers
from pinfeed.diagnosis.copying import random_states_kept
from pinfeed.diagnosis.limit import MIN_GAIN, Measured, other_load, usable_cpus
from pinfeed.diagnosis.report import Report
from pinfeed.diagnosis.runs import LoaderCopy, Run, Settings
from pinfeed.limits import cpu_quota
from pinfeed.ranks import group_ranks, ranks_on_this_machine

#: Approximate number of runs, including trials.
_RUNS = 16
#: Rounds of trials, after a first one of all changes; 0: no trials.
_ROUNDS = 2
#: Maximum number of changes tried in these rounds.
_MAX_TRIALS = 3
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
    afterwards. But the step is executed many times, so let it train a copy of the model.

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
        ValueError: If the loader yields no batch.
        RuntimeError: If a worker imports a main module that calls `diagnose` without
            ``if __name__ == "__main__":``.
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
    if step is not None and (group_ranks() or (0, 1))[1] > 1:
        warnings.warn(
            "diagnose: ranks call the step different numbers of times, so a step that waits for other "
            "ranks (DistributedDataParallel, all_reduce) never ends; pass a step that trains model.module",
            stacklevel=3,
        )
    quota, ranks = cpu_quota(), ranks_on_this_machine()
    cpus = usable_cpus(os.cpu_count() or 1, _core.available_cpus(), quota, ranks)
    load = other_load(cpus, min(0.1, seconds / 50))
    with random_states_kept(), _interrupts() as interrupts:
        copy = LoaderCopy(loader)
        attempt = _Attempts(copy, step, seconds, interrupts)
        loop = copy.run(copy.settings, attempt.each, step)
        report = Report(Measured(cpus, loop, step is not None, load=load), notes=attempt.notes)
        try:
            _measure(copy, report.measured, attempt)
            if _ROUNDS:
                _try(copy, report, attempt)
        except KeyboardInterrupt:
            report.notes.append("it was interrupted; later stages were not measured")
    for change in report.changes:
        change.min_gain = report.measured.min_gain
    report.seconds = time.perf_counter() - attempt.start
    if attempt.skipped:
        enough = math.ceil(_RUNS * report.seconds / attempt.count / _OVERTIME)
        names = ", ".join(attempt.skipped)
        report.notes.append(f"there was no time for: {names}; pass seconds={enough}")
    report.notes += [*copy.notes, *_notes(copy)]
    return report


class _Attempts:
    """Runs that are skipped when time runs out, and may fail."""

    def __init__(
        self, loader: LoaderCopy, step: Any, seconds: float, interrupts: list[int]
    ) -> None:
        self.each = seconds / _RUNS  # seconds per run
        self.start = time.perf_counter()
        self.end = self.start + _OVERTIME * seconds  # later runs are skipped
        self.notes: list[str] = []  # about failures
        self.count = 1  # number of runs
        self.skipped: list[str] = []  # names of skipped runs
        self.step = step
        self._loader = loader
        self._interrupts = interrupts

    def run(self, name: str, settings: Settings, step: Any = None, **options: Any) -> Run | None:
        """Runs a loop with these settings, if there is time."""
        run: Run | None = self(name, lambda: self._loader.run(settings, self.each, step, **options))
        return run

    def unchanged(self) -> Run | None:
        """Runs the unchanged loop again."""
        return self.run("the loop again", self._loader.settings, self.step)

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        """Returns the result of ``work``; None, and a note, if time ran out or it fails."""
        if self._interrupts:
            raise KeyboardInterrupt
        if time.perf_counter() > self.end:
            self.skipped += [name] * (name not in self.skipped)
            return None
        self.count += 1
        try:
            return work()
        except Exception as error:  # not fatal, because the unchanged loop has run
            if self._interrupts:  # the interrupt ended the workers, too
                raise KeyboardInterrupt from error
            note = f"{name}: not measured: {_message(error)}"
            self.notes += [note] * (note not in self.notes)
            # The frames hold the workers in a reference cycle of torch. Until it is collected, workers
            # stay alive, and processes forked meanwhile inherit them.
            traceback.clear_frames(error.__traceback__)
            return None


def _message(error: Exception) -> str:
    """Returns an error's message and notes, without the traceback in a worker's error."""
    lines = "".join(traceback.format_exception_only(error)).rstrip().splitlines()
    text = itertools.takewhile(lambda line: line[:1].strip(), reversed(lines))
    return "; ".join([*text][::-1] or lines[-1:])


def _measure(loader: LoaderCopy, measured: Measured, attempt: _Attempts) -> None:
    """Measures as far as there is time, in order of importance."""
    loop = measured.loop
    if loop.disk_bytes > loop.bytes / 50 and not loader.is_stream:
        measured.warm = attempt.run("files", loader.settings, again=loop.drawn_indices)
    elif not loader.is_stream:
        loader.repeat(loop, attempt.each)
    measured.single = attempt.run("one worker", Settings(1))
    if measured.single is not None:
        attempt("comparing two workers", lambda: loader.compare_workers(loop.bytes))


def _try(loader: LoaderCopy, report: Report, attempt: _Attempts) -> None:
    """Tries each change once, and promising changes again, alternating with the unchanged loop."""
    measured = report.measured

    def run(change: Change) -> Run | None:
        if change.settings is None:
            return None
        result = attempt.run(change.name, change.settings, attempt.step)
        if result is not None:
            change.before.append(period)
            change.after.append(result.period)
        return result

    if (loop := attempt.unchanged()) is None:
        return
    period = loop.period
    end, attempt.end = attempt.end, attempt.end - 0.3 * (attempt.end - attempt.start)
    best = more_workers(measured, loader, run, period)
    changes = attempt("changes", lambda: [*find_changes(measured, loader)]) or []
    for change in changes:
        run(change)
    report.changes = changes + [best] * (best is not None)
    attempt.end = end
    for _ in range(_ROUNDS):
        promising = [change for change in report.changes if change.worst > MIN_GAIN]
        promising.sort(key=lambda change: -change.gain)
        if not promising or (loop := attempt.unchanged()) is None:
            return
        period = loop.period
        measured.load = max(measured.load, other_load(measured.cpus, min(0.1, attempt.each / 2)))
        for change in promising[:_MAX_TRIALS]:
            run(change)


def _notes(loader: LoaderCopy) -> Iterator[str]:
    """Yields notes about the loader, and about skipped measurements."""
    if not stages.TELLS:
        yield "this system reports neither disk reads nor the time that threads wait for a CPU"
    own_iter = type(loader.loader).__iter__
    if own_iter is not DataLoader.__iter__:
        yield f"{own_iter.__qualname__} was not called: a plain DataLoader was measured"
    if loader.is_stream:
        yield "changes to the dataset of a stream were not tried, and each trial has other samples"


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Records interrupts, also those swallowed in a ``__del__`` or when a worker ends."""
    interrupts: list[int] = []

    def note(number: int, frame: Any) -> None:
        interrupts.append(number)
        before(number, frame)

    before: Any = signal.getsignal(signal.SIGINT)
    # Other threads get no interrupts.
    is_main = callable(before) and threading.current_thread() is threading.main_thread()
    if is_main:
        signal.signal(signal.SIGINT, note)
    try:
        yield interrupts
    finally:
        if is_main:
            signal.signal(signal.SIGINT, before)
