"""The function: what is measured, in which order, and for how long."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch

from pinfeed.arguments import checked_number
from pinfeed.diagnosis.changes import find_changes, try_changes
from pinfeed.diagnosis.copying import random_states_kept
from pinfeed.diagnosis.model import Cpus, Measured
from pinfeed.diagnosis.report import Report
from pinfeed.diagnosis.runs import LoaderCopy, Run, Settings, time_copies, time_step
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
        self._end = time.perf_counter() + seconds
        self._report = report
        self._progress = progress

    def measure(self) -> None:
        """Fills ``report.measured``, the loop as it is first."""
        loader, measured, unit = self._loader, self._report.measured, self._unit
        own = loader.settings
        self._progress.advance("the loop as it is")
        measured.loop = loop = loader.run(own, 2 * unit, self._step)
        took = loop.batches[0].collated - loop.batches[0].begun
        if took > self._seconds:
            raise ValueError(
                f"diagnose: seconds={self._seconds:g} is too short: the first batch took {took:.1f} s; "
                f"give at least {10 * took:.0f}"
            )
        if self._step is not None:
            self._progress.advance("the step")
            measured.step = time_step(self._step, loader.batch, unit / 2)
        device = torch.accelerator.current_accelerator(check_available=True)
        if device is not None:
            measured.copies = time_copies(loader.batch, device)
        self._progress.advance("files")
        one = Settings(1, prefetch_factor=own.prefetch_factor)
        measured.eager[1] = cold = loader.run(one, unit)
        if any(batch.disk_bytes for batch in cold.batches) and not loader.is_stream:
            again = Settings(1, batches=[batch.indices for batch in cold.batches])
            warm = loader.run(again, unit)
            measured.disk_share = max(0.0, 1 - warm.fetch / cold.fetch)
        self._progress.advance("functions")
        measured.functions = loader.functions(unit / 2)
        # Each twice, in turns, and the faster counts: other work on the machine comes and goes.
        for _ in range(2):
            for n in self._numbers_of_workers():
                run = self._faster(measured.eager.get(n), Settings(n))
                if n != 1 or not measured.disk_share:  # where each run reads other files
                    measured.eager[n] = run
            if not loader.is_stream:
                some = min(2, int(measured.cpus.usable))
                ready = Settings(some, ready=loader.next_indices())
                measured.ready = self._faster(measured.ready, ready)
            if loader.can_join_batches:
                large = Settings(own.workers, batch_factor=4)
                measured.large = self._faster(measured.large, large)
        self._report.notes += self._notes()

    def _faster(self, before: Run | None, settings: Settings) -> Run:
        workers = settings.workers
        name = f"{workers} worker{'s' * (workers != 1)}"
        self._progress.advance("ready batches" if settings.ready is not None else name)
        run = self._loader.run(settings, self._unit / 2)
        return run if before is None or run.period < before.period else before

    def _numbers_of_workers(self) -> list[int]:
        """0 and its own number of workers; 1, 2, 4 as far as there are CPUs, or they need none."""
        measured, own = self._report.measured, self._loader.settings.workers
        one = measured.eager[1]
        most = measured.cpus.usable * (1 + one.idle / max(one.cpu, 1e-9))
        return sorted({0, 1, own} | {n for n in (2, 4) if n <= most})

    def _notes(self) -> Iterator[str]:
        """What makes the numbers worse, and what was not measured."""
        loader, measured = self._loader, self._report.measured
        one = measured.eager[1]
        if loader.not_copied:
            names = ", ".join(loader.not_copied)
            yield f"objects that can't be copied ({names}) were used as they are"
        if measured.step is not None and measured.step.changes_batch:
            yield "the step writes into its batch; it was timed on copies"
        if one.batches[0].disk_bytes is None or one.batches[0].queued_seconds is None:
            yield "this system does not tell what is read from a disk, or who waits for a CPU"
        queued = one.queued / (one.fetch + one.collate)
        if queued > 0.1:
            yield (
                f"a single worker waited for a CPU {queued:.0%} of its time: other work was running "
                "here, and predictions are off by as much"
            )
        if loader.is_stream:
            yield (
                "a stream can't be asked for a certain sample, so the hand-off, changes of its dataset, "
                "and reading again from memory were not measured"
            )

    def prove(self) -> None:
        """Finds what would gain something, and tries it."""
        report = self._report
        report.changes = find_changes(report.measured, self._loader)
        tried = [change for change in report.changes if change.settings is not None][:_MOST_TRIALS]
        if tried:
            runs = 2 * (len(tried) + 1)
            self._progress.total += runs
            seconds = max(self._unit / 2, (self._end - time.perf_counter()) / runs)
            try_changes(tried, self._loader, self._step, seconds, self._progress.advance)


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
