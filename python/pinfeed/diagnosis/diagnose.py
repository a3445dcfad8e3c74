"""The function: what is measured, in which order, and for how long."""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pinfeed.arguments import Problem, checked_number, instead
from pinfeed.diagnosis import stages
from pinfeed.diagnosis.changes import Change, find_changes
from pinfeed.diagnosis.copying import random_states_kept
from pinfeed.diagnosis.model import Cpus, Measured
from pinfeed.diagnosis.report import Report
from pinfeed.diagnosis.runs import (
    LARGE,
    LoaderCopy,
    Run,
    Settings,
    StepTimes,
    time_copies,
    time_step,
)
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.optional import add_note, import_extra
from pinfeed.ranks import group_ranks

#: About as many runs are made, the trials included: twice the same.
_RUNS = 24
#: So many changes are tried at most.
_MOST_TRIALS = 3
#: Runs of fewer batches are rough.
_FEW = 3
#: Batches that take less seconds are made in little more than measuring takes.
_FAST = 5e-4
#: How many times its seconds a diagnosis takes before it leaves runs out.
_OVERTIME = 2.0


@instead()
def diagnose(loader: Any, step: Callable[[Any], Any] | None = None, seconds: float = 20) -> Report:
    """Says which stage of a training loop is slow, and what to change, after having tried it.

    Takes loops over copies of what the loader holds: as it is, with 1, 2 and 4 workers, with batches
    that are ready. By these it predicts what changes would give, and runs the best of them. All this
    is done twice. It advises changes that gained at least 3 %.

    The random states of Python, NumPy and torch, the sampler's position and the epoch are afterwards
    what they were. The step does what it does: give it a model that may be trained.

    Args:
        loader: A torch DataLoader, or a `DeviceLoader` around one.
        step: The training step: called with a batch, many times. None: the loop only takes batches.
        seconds: About how long it may take. Less makes the numbers less certain. After twice the time
            what is left is left out, and the report says how long it would take.

    Returns:
        A `Report`: print it, ask for its ``limit``, its ``to_dict()``. An interrupt (Ctrl-C) ends the
        measuring, and what was measured by then is in the report.

    Raises:
        TypeError: ``loader`` is no DataLoader, or can be iterated only once.
        ValueError: There is no batch, or the first one takes longer than ``seconds``.
        RuntimeError: The DeviceLoader is in the middle of a loop; the main module is being imported by a worker.
        Exception: What the dataset, the collate function or the step raise, with a note which sample it
            was.

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
        wrong = "a process that was started imports the main module again, and that calls diagnose"
        raise RuntimeError(
            Problem("diagnose", wrong, hint="call it under if __name__ == '__main__'")
        )
    if isinstance(loader, DeviceLoader) and loader.is_in_loop:
        wrong = "the loader is in the middle of a loop, whose thread would take part of the time"
        hint = "finish the loop, or close() its iterator"
        raise RuntimeError(Problem("diagnose", wrong, hint=hint))
    if step is not None and (group_ranks() or (0, 1))[1] > 1:
        warnings.warn(
            "diagnose: each rank calls the step another number of times, so a step that waits for other "
            "ranks (DistributedDataParallel, all_reduce) never ends; give one that trains model.module",
            stacklevel=3,
        )
    busy = [child for child in multiprocessing.active_children() if child.daemon]
    files = _open_files()
    with random_states_kept(), _interrupts() as interrupts, _progress() as bar:
        start = time.perf_counter()
        copy = LoaderCopy(loader)
        attempt = _Attempts(copy, seconds, start, interrupts, bar)
        try:
            loop = copy.run(copy.settings, attempt.each, step, longest=seconds)
            if copy.learns_epoch():
                loop = copy.run(copy.settings, attempt.each, step)
        except Exception as error:
            if copy.own_iter is not None:
                add_note(
                    error, f"{copy.own_iter} was not run, so these are a plain DataLoader's batches"
                )
            raise
        report = Report(Measured(Cpus.here(), loop), notes=attempt.notes)
        try:
            _measure_and_try(copy, step, report, attempt)
        except KeyboardInterrupt:
            report.notes.append("it was interrupted; what comes later was not measured")
            report.is_complete = False
    report.seconds = time.perf_counter() - attempt.start
    report.is_complete &= not (attempt.too_late or attempt.has_failed)
    if busy:
        report.notes.append(
            f"{len(busy)} daemonic processes of this one, such as workers of another loop, were there "
            "all the while; at work, they make the numbers worse"
        )
    if attempt.too_late:
        each = report.seconds / (1 + attempt.begun)
        report.notes.append(
            f"there was no time for: {', '.join(attempt.too_late)}; a run takes {each:.2g} s here, so "
            f"give seconds={math.ceil(1.2 * _RUNS / _OVERTIME * each)}"
        )
    elif (count := report.measured.fewest_batches) < _FEW:
        wanted = math.ceil(_RUNS * _FEW * report.measured.loop.period)
        report.notes.append(
            f"some runs were {count} batch{'es' * (count > 1)} long, so their numbers are rough; give "
            f"seconds={max(wanted, math.ceil(2 * seconds))}"
        )
    report.notes += _notes(copy, report.measured)
    del copy, attempt
    gc.collect()  # what was copied closes its files
    if opened := _open_files() - files:
        names = ", ".join(sorted({os.path.basename(name) for _, name in opened})[:3])
        report.notes.append(
            f"samples or the step opened files in this process ({names}), which stay open: workers forked "
            "from now on share their positions, so train in another process than this"
        )
    return report


class _Attempts:
    """Runs for which there may be no time, or that the dataset may not allow."""

    def __init__(
        self, loader: LoaderCopy, seconds: float, start: float, interrupts: list[int], bar: Any
    ) -> None:
        self.seconds = seconds
        self.each = seconds / _RUNS  # for a run
        self.start = start
        # When runs are left out: 60 % of the time is for what comes before the first trials.
        self.end = self.start + 0.6 * _OVERTIME * seconds
        self.notes: list[str] = []  # what failed
        self.begun = 0  # how many runs
        self.too_late: list[str] = []  # those for which there was no time
        self.has_failed = False  # whether one of them did
        self._loader = loader
        self._round = ""
        self._interrupts = interrupts
        self._bar = bar

    def run(
        self, name: str, settings: Settings, step: Callable[[Any], Any] | None = None
    ) -> Run | None:
        """A loop with such settings, if there is time for it."""
        run: Run | None = self(name, lambda: self._loader.run(settings, self.each, step))
        return run

    def again(self, settings: Settings, step: Callable[[Any], Any] | None) -> Run | None:
        """The loop as it is once more; the runs from here on share the time that is left."""
        left = self.start + self.seconds - time.perf_counter()
        self.each = max(0.2 * self.each, left / (_RUNS / 2))
        self._round = "the second round"
        return self.run(self._round, settings, step)

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        """What the work returns; None, and a note, if there is no time for it or it fails."""
        if self._interrupts:
            raise KeyboardInterrupt
        if time.perf_counter() > self.end:
            if (missed := self._round or name) not in self.too_late:
                self.too_late.append(missed)
            return None
        if self._bar is not None:
            self._bar.set_postfix_str(name, refresh=False)
            self._bar.update()
        self.begun += 1
        try:
            return work()
        except Exception as error:  # the loop as it is has run
            if self._interrupts:  # which ended the workers, too
                raise KeyboardInterrupt from error
            self.has_failed = True
            note = f"{name}: not measured: {_said(error)}"
            if note not in self.notes:
                self.notes.append(note)
            # They hold the workers, in a cycle that torch makes: until it was collected, the workers
            # would stay, and the processes forked meanwhile would have them too.
            traceback.clear_frames(error.__traceback__)
            return None


def _said(error: Exception) -> str:
    """What an error says, and its notes; for a worker's without the traceback that stands before it."""
    lines = "".join(traceback.format_exception_only(error)).rstrip().splitlines()
    said = itertools.takewhile(lambda line: line[:1].strip(), reversed(lines))
    return "; ".join([*said][::-1] or lines[-1:])


def _measure_and_try(
    loader: LoaderCopy, step: Callable[[Any], Any] | None, report: Report, attempt: _Attempts
) -> None:
    """Measures and tries, twice: other work on the machine comes and goes, in seconds.

    The report has the stages of the first round, and of the predictions and trials of both the least.
    """
    first = report.measured
    _measure(loader, step, first, attempt)
    if 1 in first.eager:
        attempt("what two workers make", loader.compare_workers)
    attempt.end = attempt.start + _OVERTIME * attempt.seconds
    report.changes = attempt("changes", lambda: find_changes(first, loader)) or []
    tried = [change for change in report.changes if change.settings is not None][:_MOST_TRIALS]
    _try(tried, step, first.loop, first.loop, attempt)
    if tried and (loop := attempt.again(loader.settings, step)):
        # First what an advice needs.
        _try(tried, step, loop, first.loop, attempt)
        again = Measured(first.cpus, loop, earlier=[first.loop, *first.eager.values()])
        _measure(loader, step, again, attempt)
        if time.perf_counter() < attempt.end:
            for change in tried:
                change.predictions.append(change.model(again))


def _try(
    changes: list[Change],
    step: Callable[[Any], Any] | None,
    loop: Run,
    first: Run,
    attempt: _Attempts,
) -> None:
    """Runs the loop with each of the changes, after it was run as it is."""
    for change in changes:
        assert change.settings is not None
        run = attempt.run(change.name, change.settings, step)
        if run is not None:
            before, after = (first if change.is_of_files else loop).period, run.period
            change.before.append(before)
            change.after.append(after)


def _measure(
    loader: LoaderCopy,
    step: Callable[[Any], Any] | None,
    measured: Measured,
    attempt: _Attempts,
) -> None:
    """Measures what there is time for, what matters most first."""
    own, eager = loader.settings, measured.eager
    if step is not None:
        beside = measured.loop.mean(lambda batch: batch.done - batch.received)
        alone = attempt("the step", lambda: time_step(step, loader.batch, attempt.each / 2))
        measured.step = alone or StepTimes(beside, 0.0)
        if beside > 2 * measured.step.seconds:  # it was warming up: torch.compile, say
            measured.loop = attempt.run("the loop again", own, step) or measured.loop
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is not None:
        measured.copies = time_copies(loader.batch, device)

    def run_with(workers: int) -> None:
        # The workers of a stream stay: their start is no part of making batches.
        settings = Settings(workers, persistent=loader.is_stream)
        if run := attempt.run(f"workers: {workers}", settings):
            eager[workers] = run

    run_with(0)
    measured.thread = attempt.run("a thread", Settings(0, in_thread=True))
    run_with(1)
    one = measured.one
    # 1, 2, 4 as far as there are CPUs, or they need none.
    most = measured.cpus.usable * (1 + one.idle / max(one.cpu, 1e-9))
    for n in dict.fromkeys((own.workers, 2, 4)):
        if n > 1 and 1 in eager and (n <= most or n == own.workers):
            run_with(n)
    cold = eager.get(own.workers)
    if cold and any(batch.disk_bytes for batch in cold.batches):
        indices = [batch.indices for batch in cold.batches]
        if None not in indices:
            measured.warm = attempt.run("files", replace(cold.settings, batches=indices))
    if not loader.is_stream and 1 in eager:
        ready = Settings(min(2, int(measured.cpus.usable)), is_ready=True)
        measured.ready = attempt.run("hand-off", ready)
    if loader.has_plain_batches and cold and measured.loop.bytes < LARGE:
        large = attempt.run(
            "batches of four times the size", replace(cold.settings, batch_factor=4)
        )
        # A short stream can't fill them.
        # Nor does a collate function that takes the first of its samples.
        if large and large.samples == measured.loop.samples and large.bytes >= 2 * cold.bytes:
            measured.large = large


def _notes(loader: LoaderCopy, measured: Measured) -> Iterator[str]:
    """What makes the numbers worse, and what was not measured."""
    if loader.not_copied:
        names = ", ".join(loader.not_copied)
        yield (
            f"objects that can't be copied ({names}) were used as they are, and keep what measuring "
            "changed in them"
        )
    if loader.holds_files:
        yield (
            "the dataset holds open files, whose position forked workers share, so more of them are not "
            "advised; open each file when the first sample is asked for"
        )
    if loader.repeats and not loader.is_stream:
        now = ", as those of this loader do now," * (loader.settings.workers > 1)
        yield (
            f"two workers drew the same random numbers{now} from a generator of which each has a copy, so more "
            "of them are not advised; seed it in worker_init_fn, or draw from the global ones of torch, NumPy "
            "or Python, which are seeded for each worker"
        )
    if loader.reuses_memory:
        yield (
            "a batch lies in memory that is written again for a later one, so neither a thread nor workers "
            "are advised, which make batches ahead"
        )
    one = measured.one
    if measured.loop.period - measured.step_seconds < _FAST and measured.limit() != "step":
        yield "batches are made so fast that measuring them, some 0.05 ms for each, makes gains rough"
    if not stages.TELLS:
        yield "this system does not tell what is read from a disk, or who waits for a CPU"
    queued = min(1.0, one.queued / max(one.made, 1e-9))
    if queued > 0.1 and one.settings.workers == 1:
        yield (
            f"a single worker waited for a CPU {queued:.0%} of its time: other work was running here, "
            "and predictions are off by as much"
        )
    if loader.own_iter is not None:
        yield f"{loader.own_iter} was not run: what a plain DataLoader does was measured"
    if loader.repeats and loader.is_stream:
        yield (
            "each worker reads the whole stream, so several make the same batches: its __iter__ has to "
            "split it by get_worker_info(), as pinfeed.StreamDataset does, or to seed its generator for each"
        )
    if loader.is_stream:
        yield (
            "a stream can't be asked for a certain sample, so the hand-off, changes of its dataset, "
            "and reading again from memory were not measured"
        )


def _open_files() -> set[tuple[str, str]]:
    """Descriptors and names of the files that this process reads, as far as the system tells."""
    found = set()
    with contextlib.suppress(OSError):
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # of the listing itself
                name = os.readlink(f"/proc/self/fd/{number}")
                flags = Path(f"/proc/self/fdinfo/{number}").read_text().split("flags:")[1].split()
                if os.path.isfile(name) and int(flags[0], 8) & os.O_ACCMODE != os.O_WRONLY:
                    found.add((number, name))
    return found


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """The interrupts that came, also those that some ``__del__`` or a worker's end hid."""
    came: list[int] = []

    def note(number: int, frame: Any) -> None:
        came.append(number)
        before(number, frame)

    before: Any = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield came  # nobody is to be interrupted
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)


def _progress() -> Any:
    """A bar that shows what begins, if stderr is a terminal; its context is None otherwise, or without tqdm."""
    if not (hasattr(sys.stderr, "isatty") and sys.stderr.isatty()):
        return contextlib.nullcontext()
    try:
        tqdm = import_extra("tqdm.auto", "progress").tqdm
    except ImportError:
        return contextlib.nullcontext()
    # Without tqdm's thread, which would be there when workers are forked, and stay.
    bar = type("Bar", (tqdm,), {"monitor_interval": 0})
    return bar(desc="diagnose", leave=False, bar_format="{l_bar} {n} runs, {postfix}")
