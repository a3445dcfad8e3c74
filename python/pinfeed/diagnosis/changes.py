"""The changes to try, and the results of their trials."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, RandomSampler

from pinfeed.arguments import ARRAYS
from pinfeed.collation.collate import Collate
from pinfeed.diagnosis.batch_values import have_equal_values
from pinfeed.diagnosis.limit import MIN_GAIN, Measured
from pinfeed.diagnosis.runs import LoaderCopy, Settings
from pinfeed.diagnosis.transforms import converted
from pinfeed.sources.dataset import ArrayDataset
from pinfeed.structure import entries, map_entries

#: Seconds after which no more batches are compared.
_LONGEST = 1.0
#: Maximum number of workers to try.
_MAX_WORKERS = 16
#: Another number of workers counts as faster if it takes less than this fraction of the time.
_FASTER = 0.9
#: Minimum bytes per second of reading a file.
_FILE_PACE = 1e9
_EQUAL = (
    "up to five batches had equal values; if your code treats rare samples differently, keep it"
)
_STAY = "persistent workers don't see later changes to the dataset, such as its epoch"
_STREAM = "if the stream is split among workers; with drop_last each drops its incomplete batch"


@dataclass(eq=False)
class Change:
    """A change to a loader. Its times are seconds per batch, by round of trials."""

    name: str
    code: str  # the code to write
    settings: Settings | None  # of the loop with the change; None if it can't be tried
    note: str = ""  # conditions and side effects
    max_speedup: float | None = None  # an upper bound, if it can't be tried
    before: list[float] = field(default_factory=list)  # without the change
    after: list[float] = field(default_factory=list)
    min_gain: float = MIN_GAIN  # a smaller gain may come from other work on the machine

    @property
    def tried(self) -> float | None:
        """Mean seconds with the change; None if it wasn't tried."""
        return statistics.fmean(self.after) if self.after else None

    @property
    def gain(self) -> float:
        """Speedup in the trials minus 1; 0 if it wasn't tried."""
        return statistics.fmean(self.before) / self.tried - 1 if self.tried else 0.0

    @property
    def worst(self) -> float:
        """The least gain of a round; 0 if it wasn't tried."""
        return min((b / a - 1 for b, a in zip(self.before, self.after, strict=True)), default=0.0)

    @property
    def is_recommended(self) -> bool:
        """Whether its gain exceeds the noise from other processes, in each of several rounds."""
        if len(self.after) < 2:  # a single trial may be luck
            return False
        spread = (max(self.before) - min(self.before)) / statistics.fmean(self.before)
        return self.worst > self.min_gain and self.gain > spread


def more_workers(
    measured: Measured, loader: LoaderCopy, try_change: Callable[[Change], None], period: float
) -> Change | None:
    """Tries numbers of workers; returns the smallest one that is about as fast as the best.

    ``period``: seconds per batch without a change.
    """
    limit, now, single = measured.limit(), loader.settings, measured.single
    if limit in ("step", "sampler", "batch", "hand_off", "lock", "cpus") or single is None:
        return None
    if single.hand_off > measured.loop.period:  # workers take turns with it
        return None
    most = _MAX_WORKERS if single.idle > single.cpu else max(2, round(measured.cpus))
    most = min(most, loader.epoch or most) if loader.can_add_workers else 0
    best, fastest, count = None, period, now.workers
    while count < most:
        count = min(most, 2 * max(1, count))
        # For a loader without workers so far, make them persistent if they would start too often.
        persistent = now.persistent or (not now.workers and single.start > period / count / 10)
        code = f"DataLoader(..., num_workers={count}{', persistent_workers=True' * persistent})"
        note = _STREAM if loader.is_stream else _STAY * persistent
        settings = replace(now, workers=count, persistent=persistent)
        change = Change(f"{count} workers", code, settings, note)
        try_change(change)
        if not change.tried:
            break
        is_faster = change.tried < _FASTER * fastest
        best = change if is_faster else best or change
        if not is_faster:  # nor will more
            break
        fastest = change.tried
    return best


def find_changes(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    """Yields the changes to try, except for the number of workers."""
    limit, now, loop = measured.limit(), loader.settings, measured.loop
    if torch.accelerator.is_available() and not now.in_thread:
        code = "pinfeed.DeviceLoader(loader), without .to(device) in the step"
        yield Change("copies during the step", code, replace(now, in_thread=True))
    if limit == "step":
        return
    if loop.start > MIN_GAIN * loop.period:
        code = "DataLoader(..., persistent_workers=True)"
        yield Change("persistent workers", code, replace(now, persistent=True), _STAY)
    alone = replace(now, workers=0, persistent=False)
    note = "without the arguments that are for workers, such as prefetch_factor" * bool(now.workers)
    if now.workers and limit in ("hand_off", "lock", "cpus", "start"):
        yield Change("no workers", "DataLoader(..., num_workers=0)", alone, note)
    # A thread replaces workers, or runs beside a step that takes time.
    is_useful = now.workers or measured.step > MIN_GAIN * loop.period
    if is_useful and not now.in_thread and loader.can_prefetch:
        name = "a thread instead of workers" if now.workers else "prefetch during the step"
        code = "pinfeed.DeviceLoader(DataLoader(..., num_workers=0))"
        yield Change(name, code, replace(alone, in_thread=True), note)
    if not loader.is_stream:
        yield from _of_samples(measured, loader)


def _of_samples(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    """Yields changes of the collate function, the dataset and its files, which make equal batches."""
    loop, batches = measured.loop, measured.loop.drawn_indices[:5]
    has_batch_sampler = type(loader.loader.batch_sampler) is not BatchSampler
    is_slow = loop.collate > MIN_GAIN * loop.production and not isinstance(loader.collate, Collate)
    finders = {
        _transform_as_field: not loader.has_fields,
        _by_collate: is_slow,
        _native_rows: not loader.has_fields and not has_batch_sampler,
    }
    for find in (find for find, applies in finders.items() if applies):
        with contextlib.suppress(Exception):  # not possible for these samples
            change, tolerance = find(loader, batches[0])
            if _are_equal(loader, change.settings, batches, tolerance):
                yield change
    is_array = isinstance(loader.dataset, ARRAYS) or hasattr(loader.dataset, "__getitems__")
    is_slow = measured.limit() in ("dataset", "cpus", "stragglers", "lock")
    if is_slow and loader.epoch and not is_array and not has_batch_sampler:
        # Not tried, because some samples can't show whether all are the same every time.
        left = max(measured.step, loop.bytes / _FILE_PACE, 1e-6)
        note = (
            "if samples are arrays or dicts of arrays, and the same every time, without augmentation: "
            f"about {loader.epoch * loop.bytes / 1e6:.3g} MB, written in {loader.epoch * loop.fetch:.0f} s"
        )
        code = 'dataset = pinfeed.ArrayDataset(pinfeed.write_array("decoded", dataset))'
        yield Change("samples decoded once", code, None, note, max(1.0, loop.period / left))


# Each of these functions returns a change, and the maximum difference of its batches' values; None if
# their values are not compared. It raises if the change is not possible.


def _transform_as_field(loader: LoaderCopy, indices: Any) -> tuple[Change, float | None]:
    code, note, dataset, collate, tolerance = converted(loader.dataset, indices[0])
    settings = replace(loader.settings, dataset=dataset, collate=collate)
    return Change("the transform as a field", code, settings, note), tolerance


def _by_collate(loader: LoaderCopy, indices: Any) -> tuple[Change, float | None]:
    code = "DataLoader(..., collate_fn=pinfeed.Collate())"
    settings = replace(loader.settings, collate=Collate())
    return Change("batches by pinfeed.Collate", code, settings, _EQUAL), 0


def _native_rows(loader: LoaderCopy, indices: Any) -> tuple[Change, float | None]:
    """The change to read rows natively, if samples are rows of arrays in the dataset."""
    dataset = loader.dataset
    last = len(dataset) - 1
    arrays = {
        "".join((f"dataset.{name}", *steps)): entry
        for name, value in vars(dataset).items()
        if isinstance(value, (*ARRAYS, tuple, dict))
        for steps, entry in entries(value)
        if isinstance(entry, ARRAYS) and entry.ndim and len(entry) == last + 1
    }
    rows = {name: np.asarray(array[last]) for name, array in arrays.items()}

    def name_of(entry: Any) -> str:
        value = np.asarray(entry)
        is_row = (
            (row.dtype == value.dtype and np.array_equal(row, value)) for row in rows.values()
        )
        return next(itertools.compress(rows, is_row))

    names = map_entries(name_of, dataset[last])
    native = ArrayDataset(map_entries(arrays.__getitem__, names))
    text = repr(names)
    for name, array in arrays.items():
        path = str(getattr(array, "filename", None) or "")
        is_file = isinstance(array, np.memmap) and path.endswith(".npy")
        text = text.replace(repr(name), repr(path) if is_file else name)
    shuffle = ", shuffle=True" * isinstance(loader.loader.sampler, RandomSampler)
    code = f"pinfeed.from_numpy({text}, batch_size={loader.loader.batch_size}{shuffle})"
    settings = Settings(0, in_thread=True, dataset=native, collate=Collate())
    return Change("rows read natively", code, settings, _EQUAL), 0


def _are_equal(
    loader: LoaderCopy, settings: Any, batches: list[Any], tolerance: float | None
) -> bool:
    """Whether the dataset or the collate function of these settings makes the loader's batches."""
    end = time.perf_counter() + _LONGEST
    for number, indices in enumerate(batches):
        samples = others = loader.samples(indices)
        if settings.dataset is not None:
            others = loader.samples(indices, settings.dataset)
        if not have_equal_values(loader.collate(samples), settings.collate(others), tolerance):
            return False
        if number and time.perf_counter() > end:
            break
    return True
