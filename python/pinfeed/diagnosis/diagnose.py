"""The function: what is measured, in which order, and for how long."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from pinfeed.arguments import checked_number
from pinfeed.diagnosis.changes import find_changes, last_line, try_changes
from pinfeed.diagnosis.copying import random_states_kept
from pinfeed.diagnosis.model import Cpus, Measured
from pinfeed.diagnosis.report import Report
from pinfeed.diagnosis.runs import LoaderCopy, Run, Settings, time_copies, time_step
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.optional import import_extra


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
    end = time.perf_counter() + seconds
    report = Report(Measured(Cpus.here()))
    busy = [child for child in multiprocessing.active_children() if child.daemon]
    if busy:
        report.notes.append(
            f"{len(busy)} daemonic processes of this one, such as workers of another loop, were there "
            "all the while; at work, they make the numbers worse"
        )
    with random_states_kept(), _progress() as advance:
        copy = LoaderCopy(loader)
        try:
            _measure(copy, step, seconds, report, advance)
            report.changes = find_changes(report.measured, copy)
            try_changes(report.changes, copy, step, end, advance, report.notes)
        except KeyboardInterrupt:
            if report.measured.loop is None:
                raise
            report.notes.append("it was interrupted; what comes later was not measured")
        report.notes += _notes(copy, report.measured)
    report.seconds = time.perf_counter() - end + seconds
    return report


def _measure(
    loader: LoaderCopy,
    step: Callable[[Any], Any] | None,
    seconds: float,
    report: Report,
    advance: Callable[[str], None],
) -> None:
    """Fills ``report.measured``, the loop as it is first.

    Args:
        loader: What is measured.
        step: The training step.
        seconds: For the whole diagnosis.
        report: Where what is found goes, as soon as it is.
        advance: Told what comes next.
    """
    measured, own, unit = report.measured, loader.settings, seconds / 24
    advance("the loop as it is")
    measured.loop = loop = loader.run(own, 2 * unit, step)
    took = loop.batches[0].collated - loop.batches[0].begun
    if took > seconds:
        raise ValueError(
            f"diagnose: seconds={seconds:g} is too short: the first batch took {took:.1f} s; "
            f"give at least {10 * took:.0f}"
        )
    if step is not None:
        advance("the step")
        measured.step = time_step(step, loader.batch, unit / 2)
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is not None:
        measured.copies = time_copies(loader.batch, device)

    def tried(name: str, work: Callable[[], Any]) -> Any:
        """What the work returns; None, and a note, if the dataset can't be used like this."""
        advance(name)
        try:
            return work()
        except Exception as error:  # noqa: BLE001, the loop as it is has run
            note = f"{name}: not measured: {last_line(error)}"
            report.notes += [note] * (note not in report.notes)
            return None

    def faster(before: Run | None, settings: Settings) -> Run | None:
        """Each is run twice, in turns with the others: other work on the machine comes and goes."""
        run = tried(f"workers: {settings.workers}", lambda: loader.run(settings, unit / 2))
        return run if run and (before is None or run.period < before.period) else before

    measured.functions = tried("functions", lambda: loader.functions(unit / 2)) or {}
    cold = tried("workers: 1", lambda: loader.run(Settings(1), unit))
    most = 0.0
    if cold is not None:
        measured.eager[1] = cold
        # 1, 2, 4 as far as there are CPUs, or they need none.
        most = measured.cpus.usable * (1 + cold.idle / max(cold.cpu, 1e-9))
        indices = [batch.indices for batch in cold.batches]
        if any(batch.disk_bytes for batch in cold.batches) and None not in indices:
            again = tried("files", lambda: loader.run(Settings(1, batches=indices), unit))
            measured.disk_share = max(0.0, 1 - again.fetch / cold.fetch) if again else 0.0
    for _ in range(2):
        for n in sorted({0, 1, own.workers} | {n for n in (2, 4) if n <= most}):
            run = faster(measured.eager.get(n), Settings(n))
            # What was read from a disk is there by now.
            if run is not None and (n != 1 or not measured.disk_share):
                measured.eager[n] = run
        if not loader.is_stream:
            some = min(2, int(measured.cpus.usable))
            measured.ready = faster(measured.ready, Settings(some, ready=loader.next_indices()))
        if loader.can_join_batches and own.workers in measured.eager:
            measured.large = faster(measured.large, Settings(own.workers, batch_factor=4))


def _notes(loader: LoaderCopy, measured: Measured) -> Iterator[str]:
    """What makes the numbers worse, and what was not measured."""
    if loader.not_copied:
        names = ", ".join(loader.not_copied)
        yield (
            f"objects that can't be copied ({names}) were used as they are, and keep what measuring "
            "changed in them"
        )
    if measured.step is not None and measured.step.changes_batch:
        yield "the step writes into its batch, or that can't be compared; it was timed on copies"
    one = measured.eager.get(1)
    if one is not None:
        if one.batches[0].disk_bytes is None or one.batches[0].queued_seconds is None:
            yield "this system does not tell what is read from a disk, or who waits for a CPU"
        queued = one.queued / max(one.fetch + one.collate, 1e-9)
        if queued > 0.1:
            yield (
                f"a single worker waited for a CPU {queued:.0%} of its time: other work was running "
                "here, and predictions are off by as much"
            )
    if loader.own_iter is not None:
        yield f"{loader.own_iter} was not run: what a plain DataLoader does was measured"
    if loader.is_stream:
        yield (
            "a stream can't be asked for a certain sample, so the hand-off, changes of its dataset, "
            "and reading again from memory were not measured"
        )


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A function that is told what begins, and shows it in a bar if tqdm is installed."""
    try:
        tqdm = import_extra("tqdm.auto", "progress").tqdm
    except ImportError:
        yield lambda name: None
        return
    with tqdm(desc="diagnose", leave=False, bar_format="{l_bar} {n} runs, {postfix}") as bar:

        def advance(name: str) -> None:
            bar.set_postfix_str(name, refresh=False)
            bar.update()

        yield advance
