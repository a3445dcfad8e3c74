"""What could be changed, what that would give by the model, and trials of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import TensorDataset, default_collate

from pinfeed.diagnosis.model import Measured
from pinfeed.diagnosis.runs import InOrder, LoaderCopy, Run, Settings, bytes_in
from pinfeed.diagnosis.timed import have_equal_values
from pinfeed.fields.collate import Collate
from pinfeed.limits import free_memory
from pinfeed.sources.dataset import ArrayDataset

#: What a change must gain to be tried, and in the trial to be advised.
LEAST_GAIN = 0.03


@dataclass
class Change:
    """A change of a loader.

    Attributes:
        name: What changes.
        code: What to write.
        settings: The loop with it.
        predicted: Seconds for one of the loader's batches, by the model.
        note: What else there is to know.
        begins_twice: Whether the first run of a trial only brings the files into memory.
        before: Seconds as it is, in each trial.
        after: Seconds with the change, in each trial.
    """

    name: str
    code: str
    settings: Settings
    predicted: float
    note: str = ""
    begins_twice: bool = False
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)

    @property
    def tried(self) -> float | None:
        """Seconds for one of the loader's batches, as it was tried; None if it wasn't."""
        return sum(self.after) / len(self.after) if self.after else None

    @property
    def gain(self) -> float | None:
        """How many times the batches came in the trials, beyond 1; None if it wasn't tried."""
        return sum(self.before) / sum(self.after) - 1 if self.after else None

    @property
    def is_advised(self) -> bool:
        """Whether the trials showed a gain, and none of them a loss."""
        gain = self.gain
        is_better = all(b >= a for b, a in zip(self.before, self.after, strict=True))
        return gain is not None and gain >= LEAST_GAIN and is_better

    @property
    def error(self) -> float | None:
        """How far the prediction is from the trial, as a part of that."""
        return None if self.tried is None else self.predicted / self.tried - 1


def find_changes(measured: Measured, loader: LoaderCopy) -> list[Change]:
    """Those that would gain something by the model, the best first."""
    now = measured.loop
    if now is None or measured.limit() == "step":
        return []
    worth = (1 - LEAST_GAIN) * now.period
    found = [change for change in _all_changes(measured, loader) if change.predicted < worth]
    return sorted(found, key=lambda change: change.predicted)


def try_changes(
    changes: list[Change],
    loader: LoaderCopy,
    step: Callable[[Any], Any] | None,
    seconds: float,
    advance: Callable[[str], None],
) -> None:
    """Runs the loop as it is and with each change in turns, twice.

    Args:
        changes: The trials are noted in them.
        loader: What is changed.
        step: The training step.
        seconds: For each run.
        advance: Told before each run what it is.
    """
    for _ in range(2):
        advance("as it is")
        before = loader.run(loader.settings, seconds, step).period
        for change in changes:
            advance(change.name)
            if change.begins_twice:
                loader.run(change.settings, seconds, step)
            after = loader.run(change.settings, seconds, step).period
            change.before.append(before)
            change.after.append(after)


def _all_changes(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    yield from _changes_of_workers(measured, loader)
    yield from _changes_of_collate(measured, loader)
    yield from _changes_of_files(measured, loader)
    yield from _changes_of_dataset(measured, loader)


def _changes_of_workers(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    now, run = loader.settings, measured.loop
    assert run is not None
    best = measured.best_workers(now)
    if best != now.workers:
        settings = dataclasses.replace(
            now, workers=best, in_thread=now.in_thread and now.workers > 0
        )
        yield Change(
            f"{best} worker{'s' * (best > 1)}",
            f"DataLoader(..., num_workers={best})",
            settings,
            measured.predict(settings),
        )
    thread = dataclasses.replace(now, workers=0, in_thread=True, persistent=False)
    if now != thread:
        yield Change(
            "a thread instead of workers" if now.workers else "a thread beside the step",
            "pinfeed.DeviceLoader(DataLoader(..., num_workers=0))",
            thread,
            measured.predict(thread),
        )
    if now.workers and not now.in_thread and torch.accelerator.is_available():
        settings = dataclasses.replace(now, in_thread=True, pin_memory=False)
        copy = run.period - max(measured.predict(now), measured.step_seconds)
        yield Change(
            "copies beside the step",
            "pinfeed.DeviceLoader(loader), without .to(device) in the step",
            settings,
            measured.predict(settings) - max(copy, 0.0),
        )
    if now.workers and not now.persistent and now.epoch is not None:
        settings = dataclasses.replace(now, persistent=True)
        yield Change(
            "workers that stay for the next epoch",
            "DataLoader(..., persistent_workers=True)",
            settings,
            measured.predict(settings),
            f"an epoch is {now.epoch} batches; workers take {1000 * run.startup:.0f} ms to begin",
        )
    if now.workers and measured.straggling() > 0.05:
        factor = 4 * (now.prefetch_factor or 2)
        yield Change(
            "more batches ahead, for the slow samples",
            f"DataLoader(..., prefetch_factor={factor})",
            dataclasses.replace(now, prefetch_factor=factor),
            max(measured.step_seconds, (measured.fetch + measured.collate) / now.workers),
        )
    if measured.large is not None and measured.per_batch > 0.2 * run.period:
        settings = dataclasses.replace(now, batch_factor=measured.large.settings.batch_factor)
        yield Change(
            "batches of four times the size",
            f"DataLoader(..., batch_size={run.samples * settings.batch_factor})",
            settings,
            measured.predict(settings),
            "if the training allows; its step then has four times the samples",
        )


def _changes_of_collate(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    run = measured.one_worker
    if run is None or run.settings.other is None:
        return
    made = [passed.made for passed in run.steady]
    seconds = [one.other_seconds for one in made if one.other_seconds is not None]
    if not seconds or not all(one.is_other_equal for one in made):
        return
    collate = sum(seconds) / len(seconds)
    yield Change(
        "batches by pinfeed.Collate",
        "DataLoader(..., collate_fn=pinfeed.Collate())",
        dataclasses.replace(loader.settings, collate=Collate()),
        measured.predict(loader.settings, collate=collate),
        f"its batches had equal values, all {len(seconds)} of them",
    )


def _changes_of_files(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    run = measured.one_worker
    if run is None or measured.disk < 0.1 * measured.fetch or loader.is_stream:
        return
    fetch = measured.fetch - measured.disk
    disk_bytes = sum(passed.made.disk_bytes or 0 for passed in run.passed)
    size = disk_bytes / len(run.passed) / max(1, run.samples) * loader.dataset_length
    free = free_memory()
    if free is not None and size < 0.8 * free:
        batches = [passed.made.indices for passed in run.passed]
        yield Change(
            "files kept in memory",
            "read every file once before the first epoch: cat FILES > /dev/null",
            dataclasses.replace(loader.settings, batches=batches * 50),
            measured.predict(loader.settings, fetch=fetch),
            f"about {size / 1e9:.1f} GB, of {free / 1e9:.1f} GB that are free",
            begins_twice=True,
        )
    if loader.makes_plain_batches and run.samples > 1:
        yield Change(
            "files read in order",
            "shuffle the files once, and then read them in order: DataLoader(..., shuffle=False)",
            dataclasses.replace(
                loader.settings, batches=InOrder(loader.dataset_length, run.samples)
            ),
            measured.predict(loader.settings, fetch=fetch),
        )


def _changes_of_dataset(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    run, dataset = measured.one_worker, loader.dataset
    if run is None or loader.is_stream or not loader.makes_plain_batches:
        return
    thread = Settings(0, in_thread=True)
    if isinstance(dataset, TensorDataset) and loader.collate is default_collate:
        yield Change(
            "batches cut from the arrays",
            "pinfeed.from_numpy(dataset, batch_size, shuffle=True)",
            dataclasses.replace(thread, dataset=ArrayDataset(dataset.tensors), collate=Collate()),
            measured.predict(thread, fetch=0.0, collate=0.1 * measured.collate),
        )
        return
    if measured.fetch < 0.3 * (measured.fetch + measured.collate) or hasattr(
        dataset, "__getitems__"
    ):
        return
    samples = _decoded_once(loader, run)
    if samples is None:
        return
    size = bytes_in(samples[0]) * loader.dataset_length
    n = measured.n_effective(max(1, loader.settings.workers))
    minutes = loader.dataset_length * measured.fetch / max(1, run.samples) / n / 60
    yield Change(
        "samples decoded once, and kept",
        'pinfeed.write_array("decoded", dataset), then pinfeed.ArrayDataset of what it returns',
        dataclasses.replace(thread, dataset=_Kept(samples, loader.dataset_length)),
        measured.predict(thread, fetch=0.0),
        f"about {size / 1e9:.2g} GB, written in {minutes:.1f} min; tried with {len(samples)} of the "
        "samples in memory",
    )


class _Kept:
    """Samples that are there, in the place of a dataset of more."""

    def __init__(self, samples: list[Any], length: int) -> None:
        self._samples = samples
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return self._samples[index % len(self._samples)]


def _decoded_once(loader: LoaderCopy, run: Run) -> list[Any] | None:
    """Samples in memory; None where they are no arrays, or come different each time."""
    known: Iterable[int] = run.passed[0].made.indices or []
    indices = list(known)[:32]
    if not indices or not all(isinstance(index, int) for index in indices):
        return None
    samples = [loader.dataset[index] for index in indices]
    if not bytes_in(samples[0]):
        return None
    again = [loader.dataset[index] for index in indices[:2]]
    return samples if have_equal_values(again, samples[:2]) else None
