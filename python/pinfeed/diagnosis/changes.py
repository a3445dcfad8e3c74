"""What could be changed, what that would give by the model, and trials of it."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset

from pinfeed.diagnosis.model import LEAST_GAIN, Measured
from pinfeed.diagnosis.runs import LoaderCopy, Run, Settings, as_it_is, bytes_in
from pinfeed.fields.collate import Collate
from pinfeed.limits import free_memory
from pinfeed.structure import leaves

#: So many changes are tried at most, each for so many seconds at least, twice.
_MOST_TRIALS = 4
_LEAST_TRIAL = 0.05
#: Bytes a second that a file gives at least.
_FILE_PACE = 1e9


@dataclass
class Change:
    """A change of a loader.

    Attributes:
        name: What changes.
        code: What to write.
        settings: The loop with it; None if it can't be tried.
        modelled: Seconds for one of the loader's batches, by the model.
        note: What else there is to know.
        is_of_files: Whether it is about files, which are in memory by the time of the trials: they
            are compared with the first loop.
        now: Seconds as it was in the first loop.
        step: Seconds of the step.
        before: Seconds as it is, in each trial.
        after: Seconds with the change, in each trial.
    """

    name: str
    code: str
    settings: Settings | None
    modelled: float
    note: str = ""
    is_of_files: bool = False
    now: float = 0.0
    step: float = 0.0
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)

    @property
    def predicted(self) -> float:
        """Seconds by the model, for a machine as it was in the trials.

        Other work comes and goes. If it made the loop as it is slower than it was at first, it did so to
        the loop with the change, unless that one waits for the step.
        """
        if not self.before or self.modelled <= self.step:
            return self.modelled
        return self.modelled * statistics.fmean(self.before) / self.now

    @property
    def tried(self) -> float | None:
        """Seconds for one of the loader's batches, as it was tried; None if it wasn't."""
        return statistics.fmean(self.after) if self.after else None

    @property
    def gain(self) -> float | None:
        """How many times the batches came in the trials, beyond 1; None if it wasn't tried."""
        return sum(self.before) / sum(self.after) - 1 if self.after else None

    @property
    def error(self) -> float | None:
        """How far the prediction is from the trial, as a part of that."""
        return None if self.tried is None else self.predicted / self.tried - 1

    @property
    def is_advised(self) -> bool:
        """Whether the trials showed a gain, and none of them a loss."""
        is_better = all(b >= a for b, a in zip(self.before, self.after, strict=True))
        return self.gain is not None and self.gain >= LEAST_GAIN and is_better


def find_changes(measured: Measured, loader: LoaderCopy) -> list[Change]:
    """Those that would gain something by the model, the best first."""
    limit, own, now = measured.limit(), loader.settings.workers, measured.loop.period
    if own and not {1, own} <= set(measured.eager):  # there was no time for them
        found = [*_of_threads(measured, loader)]
    else:
        found = [*_of_copies(measured, loader)]
        if limit != "step":
            found += _of_threads(measured, loader)
            found += _of_samples(measured, loader)
            if 1 in measured.eager:
                found += _of_workers(measured, loader)
        if limit != "stragglers":  # which the model leaves out
            now = min(now, measured.predict(loader.settings))
    for change in found:
        change.now, change.step = measured.loop.period, measured.step_seconds
    worth = (1 - LEAST_GAIN) * now
    return sorted((c for c in found if c.predicted < worth), key=lambda change: change.predicted)


def _of_threads(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    now = loader.settings
    thread = replace(now, workers=0, in_thread=True, persistent=False, pin_memory=False)
    if now != thread and measured.thread is not None:
        name = "a thread instead of workers" if now.workers else "a thread beside the step"
        code = "pinfeed.DeviceLoader(DataLoader(..., num_workers=0))"
        yield Change(name, code, thread, measured.predict(thread))


def _of_workers(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    """How many there are, when they begin, and how far ahead they are."""
    now, predict = loader.settings, measured.predict
    best = measured.best_workers(now)
    if best != now.workers:
        several = replace(now, workers=best, in_thread=now.in_thread and now.workers > 0)
        yield Change(
            f"{best} worker{'s' * (best > 1)}",
            f"DataLoader(..., num_workers={best})",
            several,
            predict(several),
            "each reads the whole stream, but for what get_worker_info() leaves to others"
            if loader.is_stream and best > 1
            else "",
        )
    if measured.starting(now) > 0:
        staying = replace(now, persistent=True)
        yield Change(
            "workers that stay for the next epoch",
            "DataLoader(..., persistent_workers=True)",
            staying,
            predict(staying),
            f"an epoch is {now.epoch} batches; workers take {1000 * measured.loop.startup:.0f} ms to begin",
        )
    if now.workers and measured.limit() == "stragglers":
        factor = 4 * (now.prefetch_factor or 2)
        yield Change(
            "more batches ahead, for the slow samples",
            f"DataLoader(..., prefetch_factor={factor})",
            replace(now, prefetch_factor=factor),
            max(measured.step_seconds, measured.mean_made / now.workers),
        )


def _of_copies(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    """How batches come to the device. A step is taken to copy its batch itself."""
    now, copies = loader.settings, measured.copies
    if copies is None or now.in_thread:
        return
    ahead = replace(now, in_thread=True, pin_memory=False)
    yield Change(
        "copies beside the step",
        "pinfeed.DeviceLoader(loader), without .to(device) in the step",
        ahead,
        measured.predict(ahead, step_saved=copies.pinned if now.pin_memory else copies.pageable),
    )
    if not now.pin_memory:
        pinned = replace(now, pin_memory=True)
        saved = measured.predict(pinned, step_saved=copies.pageable - copies.pinned)
        yield Change(
            "pinned batches",
            "DataLoader(..., pin_memory=True), and .to(device, non_blocking=True) in the step",
            pinned,
            max(saved, copies.pinning),
        )


def _of_samples(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    """What makes a batch: its size, the files, the dataset, the collate function."""
    now, predict, one = loader.settings, measured.predict, measured.one
    if measured.large is not None and measured.limit() == "batch":
        large = replace(now, batch_factor=measured.large.settings.batch_factor)
        yield Change(
            "batches of four times the size",
            f"DataLoader(..., batch_size={one.samples * large.batch_factor})",
            large,
            predict(large),
            "if the training allows; its step then has four times the samples",
        )
    yield Change("a dataset that takes no time, at most", "", None, predict(now, fetch=0.0))
    if loader.is_stream:
        return
    if not isinstance(loader.collate, Collate):
        ours = Collate()  # one for all batches: it keeps what it found in the first
        left = _part_left(loader, lambda _, samples: ours(samples), from_samples=True)
        if left is not None:
            yield Change(
                "batches by pinfeed.Collate",
                "DataLoader(..., collate_fn=pinfeed.Collate())",
                replace(now, collate=ours),
                predict(now, collate=left),
                "its batches had equal values",
            )
    if measured.disk_share > LEAST_GAIN:
        yield from _of_files(measured, loader)
    if not loader.makes_plain_batches or hasattr(loader.dataset, "__getitems__"):
        return
    left = _part_left(loader, lambda indices, _: loader.dataset[indices])
    if left is not None:
        code = "def __getitems__(self, indices): return self[indices]  # and collate_fn=lambda x: x"
        if isinstance(loader.dataset, TensorDataset):
            code = "pinfeed.from_numpy(dataset.tensors, batch_size, shuffle=True)"
        dataset = loader.of_workers[0] if now.workers else loader.dataset
        yield Change(
            "whole batches from the dataset, by __getitems__",
            code,
            replace(now, dataset=_Whole(dataset), collate=as_it_is),
            predict(now, fetch=left, collate=left),
            "dataset[indices] gave the same values",
        )
        return
    indices = loader.next_indices()[:32]
    samples = loader.samples(indices)
    sample_bytes, seconds = bytes_in(samples[0]), one.fetch / one.samples
    is_worth_it = 0 < sample_bytes < _FILE_PACE * seconds
    if is_worth_it and have_equal_values(loader.samples(indices[:2]), samples[:2]):
        thread = Settings(0, in_thread=True)
        workers = measured.n_effective(now.workers) if now.workers else 1.0
        written = loader.length * seconds / workers
        yield Change(
            "samples decoded once, and kept",
            'pinfeed.write_array("decoded", dataset), then pinfeed.ArrayDataset of what it returns',
            replace(thread, dataset=_Kept(samples)),
            predict(thread, fetch=0.0),
            f"about {_size(sample_bytes * loader.length)}, written in {written:.0f} s; tried with "
            f"{len(samples)} of the samples in memory",
        )


def _of_files(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    now, one = loader.settings, measured.one
    predicted = measured.predict(now, fetch=1 - measured.disk_share)
    size = one.mean(lambda batch: batch.disk_bytes or 0) / one.samples * loader.length
    free = free_memory()
    if free is not None and size < 0.8 * free:
        batches = [loader.next_indices() for _ in range(len(one.batches))]
        for indices in batches:
            loader.samples(indices)
        yield Change(
            "files kept in memory",
            "read every file once before the first epoch: cat FILES > /dev/null",
            replace(now, batches=batches * 1000),
            predicted,
            f"about {_size(size)}, of {_size(free)} that are free",
            is_of_files=True,
        )
    if loader.makes_plain_batches:
        yield Change(
            "files read in order",
            "shuffle the files once, and then read them in order: DataLoader(..., shuffle=False)",
            replace(now, batches=_in_order(loader.length, one.samples)),
            predicted,
            is_of_files=True,
        )


def _in_order(length: int, size: int) -> Iterator[list[int]]:
    for first in itertools.count(0, size):
        yield [i % length for i in range(first, first + size)]


def _part_left(
    loader: LoaderCopy, other: Callable[[Any, Any], Any], *, from_samples: bool = False
) -> float | None:
    """What part of the time to make a batch another way takes, in turns, in this process.

    Args:
        loader: Whose batches are made.
        other: The other way: gets the indices and the samples.
        from_samples: Whether both begin with the samples.

    Returns:
        The part; None if it can't make them, or their values differ.
    """
    now_seconds, other_seconds = [], []
    for _ in range(5):
        indices = loader.next_indices()
        start = time.perf_counter()
        samples = loader.samples(indices)
        fetched = time.perf_counter()
        batch = loader.collate(samples)
        collated = time.perf_counter()
        try:
            is_equal = have_equal_values(batch, other(indices, samples))
        except Exception:  # noqa: BLE001, whatever a dataset says to a list, a Collate to samples
            is_equal = False
        if not is_equal:
            return None
        begun = time.perf_counter()
        other(indices, samples)
        other_seconds.append(time.perf_counter() - begun)
        now_seconds.append(collated - (fetched if from_samples else start))
    return min(other_seconds) / min(now_seconds)


def have_equal_values(one: Any, other: Any) -> bool:
    """Whether two batches have the same keys, dtypes, shapes and values; False if nobody can tell."""
    ours, theirs = list(leaves(one)), list(leaves(other))
    return [steps for steps, _ in ours] == [steps for steps, _ in theirs] and all(
        _are_equal(leaf, twin) for (_, leaf), (_, twin) in zip(ours, theirs, strict=True)
    )


def _are_equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    try:
        if isinstance(one, torch.Tensor):
            is_alike: bool = one.dtype == other.dtype and one.shape == other.shape
            return is_alike and torch.allclose(one, other, 0, 0, equal_nan=True)
        if isinstance(one, np.ndarray):
            has_nan = one.dtype.kind in "fcmM"
            return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=has_nan)
        if isinstance(one, float) and math.isnan(one):
            return math.isnan(other)
        return one is other or bool(one == other)
    except Exception:  # noqa: BLE001, of a sparse tensor, a DataFrame, somebody's __eq__
        return False


def try_changes(
    changes: list[Change],
    loader: LoaderCopy,
    step: Callable[[Any], Any] | None,
    end: float,
    attempt: Callable[[str, Callable[[], Run]], Run | None],
) -> None:
    """Runs the loop as it is and with each of the best changes in turns, twice.

    Args:
        changes: The trials are noted in them.
        loader: What is changed.
        step: The training step.
        end: When it should be over, by `time.perf_counter`.
        attempt: Does a run with a name, and returns None if there was no time, or the dataset can't
            be used like this.
    """
    tried = [change for change in changes if change.settings is not None][:_MOST_TRIALS]
    left = 2 * len(tried) + 2

    def run(name: str, settings: Settings) -> float | None:
        nonlocal left
        seconds = max(_LEAST_TRIAL, (end - time.perf_counter()) / left)
        left -= 1
        done = attempt(name, lambda: loader.run(settings, seconds, step))
        return None if done is None else done.period

    for _ in range(2 * bool(tried)):
        before = run("as it is", loader.settings)
        for change in tried:
            assert change.settings is not None
            after = run(change.name, change.settings)
            if before is not None and after is not None:
                change.before.append(change.now if change.is_of_files else before)
                change.after.append(after)


class _Whole:
    """A dataset that gives whole batches."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitems__(self, indices: list[int]) -> Any:
        return self._dataset[indices]


class _Kept:
    """Samples that are there, in the place of a dataset of more."""

    def __init__(self, samples: list[Any]) -> None:
        self._samples = samples

    def __getitem__(self, index: int) -> Any:
        return self._samples[hash(index) % len(self._samples)]


def _size(count: float) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e9 else f"{count / 1e6:.3g} MB"
