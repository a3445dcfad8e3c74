"""The changes to try, and the results of their trials."""

from __future__ import annotations

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
from pinfeed.diagnosis.runs import LoaderCopy, Run, Settings, as_it_is
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
        return statistics.fmean(self.before) / statistics.fmean(self.after) - 1 if self.after else 0

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


def more_workers(
    measured: Measured, loader: LoaderCopy, run: Callable[[Change], Run | None], period: float
) -> Change | None:
    """Returns the smallest number of workers that is about as fast as the best; ``run`` tries them."""
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
        if (tried := run(change)) is None:
            break
        is_faster = tried.period < _FASTER * fastest
        best = change if is_faster else best or change
        if not is_faster:  # nor will more
            break
        fastest = tried.period
    return best


def _of_samples(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    """Yields changes of the collate function, the dataset and its files."""
    now, loop, dataset = loader.settings, measured.loop, loader.dataset
    batches = loop.drawn_indices[:5]
    if not loader.has_fields and (conversion := converted(dataset, batches, loader.make)):
        code, note, plain, collate = conversion
        fused = replace(now, dataset=plain, collate=collate)
        yield Change("the transform as a field", code, fused, note)
    replacement = Collate()  # one for all batches, because it caches its plan

    def collated(indices: Any) -> tuple[Any, Any]:
        samples = loader.make(indices, as_it_is)
        return loader.collate(samples), replacement(samples)

    is_slow = loop.collate > MIN_GAIN * loop.production and not isinstance(loader.collate, Collate)
    if is_slow and _are_equal(batches, collated):
        code = "DataLoader(..., collate_fn=pinfeed.Collate())"
        yield Change("batches by pinfeed.Collate", code, replace(now, collate=replacement), _EQUAL)
    if type(loader.loader.batch_sampler) is not BatchSampler:
        return
    if not loader.has_fields:
        yield from _of_rows(loader, batches)
    is_array = isinstance(dataset, ARRAYS) or hasattr(dataset, "__getitems__")
    is_slow = measured.limit() in ("dataset", "cpus", "stragglers", "lock")
    if is_slow and loader.epoch and not is_array:
        # Not tried, because some samples can't show whether all are the same every time.
        left = max(measured.step, loop.bytes / _FILE_PACE, 1e-6)
        note = (
            "if samples are arrays or dicts of arrays, and the same every time, without augmentation: "
            f"about {loader.epoch * loop.bytes / 1e6:.3g} MB, written in {loader.epoch * loop.fetch:.0f} s"
        )
        code = 'dataset = pinfeed.ArrayDataset(pinfeed.write_array("decoded", dataset))'
        yield Change("samples decoded once", code, None, note, max(1.0, loop.period / left))


def _of_rows(loader: LoaderCopy, batches: list[Any]) -> Iterator[Change]:
    """Yields the change to read rows natively, if samples are rows of arrays in the dataset."""
    dataset, size = loader.dataset, loader.loader.batch_size
    try:
        last = len(dataset) - 1
        arrays = {
            "".join((f"dataset.{name}", *steps)): entry
            for name, value in vars(dataset).items()
            if isinstance(value, (*ARRAYS, tuple, dict))
            for steps, entry in entries(value)
            if isinstance(entry, ARRAYS) and entry.ndim and len(entry) == last + 1
        }

        last_rows = {name: np.asarray(array[last]) for name, array in arrays.items()}

        def name_of(entry: Any) -> str:
            value = np.asarray(entry)
            return next(
                name
                for name, row in last_rows.items()
                if row.dtype == value.dtype and np.array_equal(row, value)
            )

        names = map_entries(name_of, dataset[last])
        rows, replacement = ArrayDataset(map_entries(arrays.__getitem__, names)), Collate()
    except Exception:  # noqa: BLE001, the samples are not rows
        return
    if not _are_equal(batches, lambda i: (loader.make(i), replacement(rows.__getitems__(i)))):
        return
    text = repr(names)
    for name, array in arrays.items():
        path = str(getattr(array, "filename", None) or "")
        is_file = isinstance(array, np.memmap) and path.endswith(".npy")
        text = text.replace(repr(name), repr(path) if is_file else name)
    shuffle = ", shuffle=True" * isinstance(loader.loader.sampler, RandomSampler)
    settings = Settings(0, in_thread=True, dataset=rows, collate=replacement)
    code = f"pinfeed.from_numpy({text}, batch_size={size}{shuffle})"
    yield Change("rows read natively", code, settings, _EQUAL)


def _are_equal(batches: list[Any], make_both: Callable[[Any], tuple[Any, Any]]) -> bool:
    """Whether two equal batches are made from each of these indices; False if making them fails."""
    end = time.perf_counter() + _LONGEST
    try:
        for number, indices in enumerate(batches):
            if not have_equal_values(*make_both(indices)):
                return False
            if number and time.perf_counter() > end:
                break
    except Exception:  # noqa: BLE001, the other function does not accept the input
        return False
    return bool(batches)
