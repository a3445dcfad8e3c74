"""The function: what is measured, in which order, and for how long."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable
from typing import Any, Self

from pinfeed.arguments import checked_number
from pinfeed.diagnosis.changes import find_changes, try_changes
from pinfeed.diagnosis.copying import random_states_kept
from pinfeed.diagnosis.model import Cpus, Measured
from pinfeed.diagnosis.report import Report
from pinfeed.diagnosis.runs import LoaderCopy, Settings, time_step
from pinfeed.fields.collate import Collate
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.optional import import_extra

#: So many changes are tried at most.
_MOST_TRIALS = 4


def diagnose(loader: Any, step: Callable[[Any], Any] | None = None, seconds: float = 20) -> Report:
    """Says which stage of a training loop is slow, and what to change, after having tried it.

    Takes loops over copies of what the loader holds: as it is, with 1, 2 and 4 workers, with batches
    that are ready. By these it predicts what changes would give, runs the best of them in turns with
    the loop as it is, and advises those that gained at least 3 %.

    The random states of Python, NumPy and torch, the sampler's position and the epoch are afterwards
    what they were. The step does what it does: give it a model that may be trained.

    Args:
        loader: A torch DataLoader, or a `DeviceLoader` around one.
        step: The training step: called with a batch, many times. None: the loop only takes batches.
        seconds: About how long it may take. Less makes the numbers less certain.

    Returns:
        A `Report`: print it, ask for its ``limit``, its ``to_dict()``. An interrupt (Ctrl-C) ends the
        measuring, and what was measured by then is in the report.

    Raises:
        TypeError: ``loader`` is no DataLoader, or holds an iterator, which measuring would use up.
        ValueError: There is no batch, or the first one takes longer than ``seconds``.
        RuntimeError: The DeviceLoader is in the middle of a loop.
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
        raise TypeError(f"diagnose: step must be callable with a batch, got {step!r}")
    if isinstance(loader, DeviceLoader) and loader.is_in_loop:
        raise RuntimeError(
            "diagnose: the loader is in the middle of a loop, whose thread would take part of the time; "
            "finish the loop, or close() its iterator"
        )
    start = time.perf_counter()
    report = Report(Measured(Cpus.here()))
    busy = [child for child in multiprocessing.active_children() if child.daemon]
    if busy:
        report.notes.append(
            f"{len(busy)} daemonic processes of this one, such as workers of another loop, were there "
            "all the while; at work, they make the numbers worse"
        )
    with random_states_kept(), _Progress() as progress:
        session = _Session(LoaderCopy(loader), step, seconds, report, progress)
        try:
            session.measure()
            session.prove()
        except KeyboardInterrupt:
            if report.measured.loop is None:
                raise
            report.notes.append("it was interrupted; what comes later was not measured")
    report.seconds = time.perf_counter() - start
    return report


class _Session:
    """The steps of one diagnosis.

    Args:
        loader: What is measured.
        step: The training step.
        seconds: For all of it.
        report: Where what is found goes, as soon as it is.
        progress: Told what comes next.
    """

    def __init__(
        self,
        loader: LoaderCopy,
        step: Callable[[Any], Any] | None,
        seconds: float,
        report: Report,
        progress: _Progress,
    ) -> None:
        self._loader = loader
        self._step = step
        self._seconds = seconds
        self._unit = seconds / 20
        self._report = report
        self._progress = progress

    def measure(self) -> None:
        """Fills ``report.measured``, the loop as it is first."""
        loader, measured, unit = self._loader, self._report.measured, self._unit
        notes = self._report.notes
        if loader.not_copied:
            notes.append(
                f"objects that can't be copied ({', '.join(loader.not_copied)}) were used as they are"
            )
        self._progress.advance("the loop as it is")
        measured.loop = loop = loader.run(loader.settings, 2 * unit, self._step)
        first = loop.passed[0]
        took = first.made.collated - first.made.begun
        if took > self._seconds:
            raise ValueError(
                f"diagnose: seconds={self._seconds:g} is too short: the first batch took {took:.1f} s; "
                f"give at least {10 * took:.0f}"
            )
        self._progress.advance("one worker")
        other = None if isinstance(loader.collate, Collate) or loader.is_stream else Collate()
        one = Settings(1, prefetch_factor=loader.settings.prefetch_factor, other=other)
        measured.one_worker = one_worker = loader.run(one, 1.5 * unit)
        read = sum(passed.made.disk_bytes or 0 for passed in one_worker.passed)
        if read and not loader.is_stream:
            self._progress.advance("the same from memory")
            batches = [passed.made.indices for passed in one_worker.passed]
            measured.warm = loader.run(Settings(1, batches=batches), 1.5 * unit)
        elif one_worker.passed[0].made.disk_bytes is None:
            notes.append("this system does not tell what was read from a disk")
        if self._step is not None:
            self._progress.advance("the step")
            measured.step = time_step(self._step, loop.batch, unit)
            if measured.step.changes_batch:
                notes.append("the step writes into its batch; it was timed on copies")
        self._progress.advance("functions")
        profiled = loader.run(Settings(1, profile=True), 0.5 * unit).passed[-1].made
        whole = sum(seconds for _, seconds in profiled.functions)
        measured.functions = [(name, taken / whole) for name, taken in profiled.functions if whole]
        numbers = self._numbers_of_workers()
        for n in numbers * 2:  # in turns: other work on the machine comes and goes
            self._progress.advance(f"{n} worker{'s' * (n != 1)}")
            again = loader.run(Settings(n), unit / 2)
            if n not in measured.eager or again.period < measured.eager[n].period:
                measured.eager[n] = again
        share = min(1.0, measured.queued / max(1e-9, measured.fetch + measured.collate))
        if share > 0.1:
            notes.append(
                f"a single worker waited for a CPU {share:.0%} of its time: other work was running here, "
                "and predictions are off by as much"
            )
        if loader.is_stream:
            notes.append(
                "a stream can't be asked for a certain sample, so the hand-off, changes of its dataset, "
                "and reading again from memory were not measured"
            )
        else:
            self._progress.advance("ready batches")
            indices = loader.next_indices()
            measured.handoff = loader.run(
                Settings(min(2, int(measured.cpus.usable))), unit, None, indices
            )
        if isinstance(first.made.indices, list) and (
            loader.makes_plain_batches or loader.is_stream
        ):
            self._progress.advance("large batches")
            large = Settings(loader.settings.workers, batch_factor=4)
            measured.large = loader.run(large, 0.7 * unit)

    def _numbers_of_workers(self) -> list[int]:
        """0 and its own number of workers; 1, 2, 4 as far as there are CPUs, or they need none."""
        measured, own = self._report.measured, self._loader.settings.workers
        by_cpus = measured.cpus.usable
        if measured.cpu > 0:
            by_cpus *= 1 + measured.idle / measured.cpu
        numbers = {0, 1, own} | {n for n in (2, 4) if n <= by_cpus}
        return sorted(numbers)

    def prove(self) -> None:
        """Finds what would gain something, and tries it."""
        report = self._report
        report.changes = find_changes(report.measured, self._loader)
        tried = report.changes[:_MOST_TRIALS]
        if tried:
            self._progress.total += 2 * (len(tried) + 1)
            try_changes(tried, self._loader, self._step, self._unit, self._progress.advance)


class _Progress:
    """A tqdm bar of the runs, if tqdm is installed and there is a terminal or a notebook."""

    def __init__(self) -> None:
        self.total = 15
        self._bar: Any = None
        with contextlib.suppress(ImportError):
            tqdm = import_extra("tqdm.auto", "progress").tqdm
            self._bar = tqdm(desc="diagnose", leave=False, bar_format="{l_bar}{bar}{postfix}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, name: str) -> None:
        """Says what begins."""
        if self._bar is not None:
            self._bar.total = self.total
            self._bar.set_postfix_str(name, refresh=False)
            self._bar.update()
