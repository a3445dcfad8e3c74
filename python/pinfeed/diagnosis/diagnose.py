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

from pinfeed import _core
from pinfeed.arguments import Problem, checked_number, with_hints
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
    with random_states_kept(), _interrupts() as interrupts:
        diagnosis = _Diagnosis(loader, step, seconds, interrupts)
        try:
            diagnosis.measure()
            if _ROUNDS:
                diagnosis.try_changes()
        except KeyboardInterrupt:
            diagnosis.report.notes.append("it was interrupted; later stages were not measured")
    return diagnosis.finish()


class _Diagnosis:
    """The runs of a loader's copy, which are skipped when time runs out, and may fail."""

    def __init__(self, loader: Any, step: Any, seconds: float, interrupts: list[int]) -> None:
        quota, ranks = cpu_quota(), ranks_on_this_machine()
        cpus = usable_cpus(os.cpu_count() or 1, _core.available_cpus(), quota, ranks)
        load = other_load(cpus, min(0.1, seconds / 50))
        self.loader = LoaderCopy(loader)
        self.step = step
        self.each = seconds / _RUNS  # seconds per run
        self.start = time.perf_counter()
        self.end = self.start + _OVERTIME * seconds  # later runs are skipped
        self.interrupts = interrupts
        self.count = 1  # number of runs
        self.skipped: list[str] = []  # names of skipped runs
        loop = self.loader.run(self.loader.settings, self.each, step)
        self.period = loop.period  # of the latest unchanged loop
        step_seconds = 0.0 if step is None else loop.step
        self.measured = Measured(cpus, loop, step_seconds, load=load)
        self.report = Report(self.measured, notes=self.loader.notes)

    def measure(self) -> None:
        """Measures as far as there is time, in order of importance."""
        loader, loop = self.loader, self.measured.loop
        if loop.disk_bytes > loop.bytes / 50 and not loader.is_stream:
            loader.again = loop.drawn_indices
            self.measured.warm = self._run("files", loader.settings)
            loader.again = []  # later runs read files that are not cached
        else:  # later runs have the same samples, because a few of them can be slow
            loader.again = loop.repeatable(self.each)
        self.measured.single = self._run("one worker", Settings(1))
        if self.measured.single is not None:
            self._attempt("comparing two workers", lambda: loader.compare_workers(loop.bytes))

    def try_changes(self) -> None:
        """Tries each change once, and promising changes again, alternating with the unchanged loop."""
        measured, loader, changes = self.measured, self.loader, self.report.changes
        if not self._run_unchanged():
            return
        end, self.end = self.end, self.end - 0.3 * (self.end - self.start)
        best = more_workers(measured, loader, self._try, self.period)
        changes += self._attempt("changes", lambda: [*find_changes(measured, loader)]) or []
        for change in changes:
            self._try(change)
        changes += filter(None, [best])
        self.end = end
        for _ in range(_ROUNDS):
            promising = [change for change in changes if change.worst > MIN_GAIN]
            if not promising or not self._run_unchanged():
                return
            load = other_load(measured.cpus, min(0.1, self.each / 2))
            measured.load = max(measured.load, load)
            for change in sorted(promising, key=lambda change: -change.gain)[:_MAX_TRIALS]:
                self._try(change)

    def finish(self) -> Report:
        """Returns the report."""
        report = self.report
        report.seconds = time.perf_counter() - self.start
        for change in report.changes:
            change.min_gain = self.measured.min_gain
        if self.skipped:
            enough = math.ceil(_RUNS * report.seconds / self.count / _OVERTIME)
            names = ", ".join(self.skipped)
            report.notes.append(f"there was no time for: {names}; pass seconds={enough}")
        return report

    def _try(self, change: Change) -> None:
        """Runs the loop with a change, if it can be tried."""
        if change.settings and (run := self._run(change.name, change.settings, self.step)):
            change.before.append(self.period)
            change.after.append(run.period)

    def _run_unchanged(self) -> bool:
        """Runs the unchanged loop again; returns False if it wasn't run."""
        if run := self._run("the loop again", self.loader.settings, self.step):
            self.period = run.period
        return run is not None

    def _run(self, name: str, settings: Settings, step: Any = None) -> Run | None:
        run: Run | None = self._attempt(name, lambda: self.loader.run(settings, self.each, step))
        return run

    def _attempt(self, name: str, work: Callable[[], Any]) -> Any:
        """Returns the result of ``work``; None, and a note, if time ran out or it fails."""
        if self.interrupts:
            raise KeyboardInterrupt
        if time.perf_counter() > self.end:
            self.skipped += [name] * (name not in self.skipped)
            return None
        self.count += 1
        try:
            return work()
        except Exception as error:  # not fatal, because the unchanged loop has run
            if self.interrupts:  # the interrupt ended the workers, too
                raise KeyboardInterrupt from error
            note = f"{name}: not measured: {_message(error)}"
            self.report.notes += [note] * (note not in self.report.notes)
            # The frames hold the workers in a reference cycle of torch. Until it is collected, workers
            # stay alive, and processes forked meanwhile inherit them.
            traceback.clear_frames(error.__traceback__)
            return None


def _message(error: Exception) -> str:
    """Returns an error's message and notes, without the traceback in a worker's error."""
    lines = "".join(traceback.format_exception_only(error)).rstrip().splitlines()
    text = itertools.takewhile(lambda line: line[:1].strip(), reversed(lines))
    return "; ".join([*text][::-1] or lines[-1:])


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Records interrupts, also those swallowed in a ``__del__`` or when a worker ends."""
    interrupts: list[int] = []
    before: Any = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: Any) -> None:
        interrupts.append(number)
        before(number, frame)

    if callable(before) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, note)  # other threads get no interrupts
    try:
        yield interrupts
    finally:
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, before)
