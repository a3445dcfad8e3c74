"""The changes to try, and the results of their trials."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from pinfeed.arguments import ARRAYS
from pinfeed.collation.collate import Collate
from pinfeed.diagnosis.batch_values import bytes_in, have_equal_values
from pinfeed.diagnosis.limit import MIN_GAIN, Measured
from pinfeed.diagnosis.runs import LoaderCopy, Run, Settings, as_it_is
from pinfeed.diagnosis.transforms import converted
from pinfeed.limits import free_memory
from pinfeed.sources.dataset import ArrayDataset
from pinfeed.streams.stream_dataset import StreamDataset
from pinfeed.structure import entries, map_entries

#: Seconds after which no more batches are compared.
_LONGEST = 1.0
#: Maximum number of workers to try.
_MAX_WORKERS = 16
#: A number of workers counts as faster if it takes less than this fraction of the time.
_FASTER = 0.9
#: Minimum bytes per second of reading a file.
_FILE_PACE = 1e9
_EQUAL = (
    "up to five batches had equal values; if your code treats rare samples differently, keep it"
)
_STAY = "persistent workers don't see later changes to the dataset, such as its epoch"
_STREAM = (
    "only if the stream is split among workers, because otherwise each worker yields all samples; "
    "with drop_last each worker drops its own incomplete batch"
)


@dataclass(eq=False)
class Change:
    """A change to a loader. Its times are seconds per original batch, by round of trials."""

    name: str
    code: str  # the code to write
    settings: Settings | None  # of the loop with the change; None if it can't be tried
    note: str = ""  # conditions and side effects
    # Maximum possible speedup; a larger one comes from other work or files.
    max_speedup: float | None = None
    again: list[Any] | None = None  # the batches to make; None for the loader's next ones
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
    def is_recommended(self) -> bool:
        """Whether its gain exceeds the noise from other processes, in each of several rounds."""
        if len(self.after) < 2:  # a single trial may be luck
            return False
        spread = (max(self.before) - min(self.before)) / statistics.fmean(self.before)
        worst = min(b / a for b, a in zip(self.before, self.after, strict=True))
        is_possible = self.max_speedup is None or self.gain < 1.25 * self.max_speedup
        return is_possible and self.gain > spread and worst > 1 + self.min_gain


def find_changes(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    """Yields the changes to try, except for the number of workers."""
    limit, now, loop = measured.limit(), loader.settings, measured.loop
    if torch.accelerator.is_available() and not now.in_thread:
        code = "pinfeed.DeviceLoader(loader), without .to(device) in the step"
        ahead = replace(now, in_thread=True, pin_memory=False)
        yield Change("copies during the step", code, ahead)
        code = "DataLoader(..., pin_memory=True), and .to(device, non_blocking=True) in the step"
        if not now.pin_memory:
            yield Change("pinned batches", code, replace(now, pin_memory=True))
    if limit == "step":
        return
    if limit == "batch" and _grows(loader):
        kind = "DataLoader" if loader.loader.batch_size else "BatchSampler"
        code = f"{kind}(..., batch_size={4 * loop.batches[0].samples})"
        large = replace(now, batch_factor=4, epoch=now.epoch and -(-now.epoch // 4))
        note = "if training allows larger batches; a step then trains on four times the samples"
        yield Change("batches of four times the size", code, large, note)
    if now.workers and loop.starting > MIN_GAIN * loop.period and not _misses_epochs(loader):
        code = "DataLoader(..., persistent_workers=True)"
        note = "" if isinstance(loader.dataset, StreamDataset) else _STAY
        stay = replace(now, persistent=True)
        yield Change("persistent workers", code, stay, note)
    alone = replace(now, workers=0, persistent=False, prefetch_factor=None)
    note = "without the arguments that are for workers, such as prefetch_factor" * bool(now.workers)
    if now.workers and limit in ("hand_off", "lock", "cpus", "start"):
        yield Change("no workers", "DataLoader(..., num_workers=0)", alone, note)
    # A thread replaces workers, or runs beside a step that takes time.
    is_useful = now.workers or measured.step_seconds > MIN_GAIN * loop.period
    if is_useful and not now.in_thread and not loader.reuses_memory:
        name = "a thread instead of workers" if now.workers else "prefetch during the step"
        code = "pinfeed.DeviceLoader(DataLoader(..., num_workers=0))"
        thread = replace(alone, in_thread=True, pin_memory=False)
        yield Change(name, code, thread, note, max_speedup=None if now.workers else 2.0)
    if now.workers and limit == "stragglers":
        ahead = replace(now, prefetch_factor=4 * (now.prefetch_factor or 2))
        code = f"DataLoader(..., prefetch_factor={ahead.prefetch_factor})"
        yield Change("more prefetched batches, for slow samples", code, ahead)
    if not loader.is_stream:
        yield from _of_samples(measured, loader)


def more_workers(
    measured: Measured, loader: LoaderCopy, run: Callable[[Change], Run | None], period: float
) -> Change | None:
    """Returns the smallest number of workers that is about as fast as the best."""
    limit, current, single = measured.limit(), loader.settings.workers, measured.runs.get(1)
    if limit in ("step", "sampler", "batch") or single is None:
        return None
    max_workers = _MAX_WORKERS if single.idle > single.cpu else max(2, round(measured.cpus.usable))
    max_workers = min(max_workers, loader.epoch or max_workers)  # at least one batch each
    # Several workers would repeat each other's batches (or it is unknown), or can't help.
    is_alone = loader.holds_files or loader.reuses_memory or loader.repeats is not False
    if is_full := limit in ("hand_off", "lock", "cpus"):
        counts = [current // 2] if current > 1 else []
    else:
        counts = [] if is_alone else [min(max_workers, max(1, current) * 2**i) for i in range(1, 6)]
    trials, best = list[tuple[float, Change]](), period
    for count in dict.fromkeys(counts):
        change = _with_workers(measured, loader, single, count)
        if (not is_full and count <= current) or (tried := run(change)) is None:
            break
        trials.append((tried.period, change))
        if tried.period > _FASTER * best:  # nor will more
            break
        best = tried.period
    enough = min((seconds for seconds, _ in trials), default=0.0) / _FASTER
    return next((change for seconds, change in trials if seconds <= enough), None)


def _with_workers(measured: Measured, loader: LoaderCopy, single: Run, count: int) -> Change:
    now, epoch = loader.settings, loader.epoch
    # For a loader without workers so far, make them persistent if they would start too often.
    is_short = single.startup > measured.loop.period * (epoch or 1 << 40) / count / 10
    persistent = now.persistent or (is_short and not now.workers and not _misses_epochs(loader))
    note = _STAY * (persistent and not isinstance(loader.dataset, StreamDataset))
    code = f"DataLoader(..., num_workers={count}{', persistent_workers=True' * persistent})"
    settings = replace(now, workers=count, persistent=persistent, epoch=epoch)
    note = _STREAM if loader.is_stream and count > 1 else note
    name = f"{count} worker{'s' * (count > 1)}"
    return Change(name, code, settings, note, max_speedup=1 + count / max(1, now.workers))


def _of_samples(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    """Yields changes of the collate function, the dataset and its files."""
    now, loop, dataset = loader.settings, measured.loop, loader.dataset
    batches = loop.drawn_indices[:5]
    replacement = Collate()  # one for all batches, because it caches its plan
    if batches and not loader.has_fields:
        conversion = converted(dataset, batches, loader.make)
        if conversion is not None:
            fused = None
            if conversion.collate is not None:
                fused = replace(
                    now, replace_dataset=lambda _: conversion.dataset, collate=conversion.collate
                )
            yield Change("the transform as a field", conversion.code, fused, conversion.note)
    is_slow = loop.collate > MIN_GAIN * loop.production and not isinstance(loader.collate, Collate)
    if is_slow and _are_equal(batches, loader.samples, loader.collate, replacement):
        code = "DataLoader(..., collate_fn=pinfeed.Collate())"
        yield Change("batches by pinfeed.Collate", code, replace(now, collate=replacement), _EQUAL)
    if loader.has_plain_batches and not loader.has_fields:
        yield from _of_rows(loader, batches)
    is_torchs = type(dataset).__module__.startswith("torch.")
    has_class = not (isinstance(dataset, ARRAYS) or is_torchs)  # of the user, to add a method
    if loader.has_plain_batches and has_class and not hasattr(dataset, "__getitems__"):
        if _are_equal(batches, as_it_is, loader.make, dataset.__getitem__):
            whole = replace(now, replace_dataset=_Whole, collate=as_it_is)
            code = (
                "def __getitems__(self, indices): return self[indices]  # in its class; and a collate_fn "
                "that returns its argument"
            )
            yield Change("whole batches from the dataset", code, whole, _EQUAL)
        elif measured.limit() in ("dataset", "cpus", "stragglers", "lock"):
            # Not tried, because some samples can't show whether all are the same every time.
            left = max(measured.step_seconds, loop.bytes / _FILE_PACE, 1e-6)
            batches_in_all = loader.length / loop.batches[0].samples
            note = (
                "if samples are arrays or dicts of arrays, and the same every time, without augmentation: "
                f"about {_size(loop.bytes * batches_in_all)}, written in {loop.fetch * batches_in_all:.0f} s"
            )
            code = 'dataset = pinfeed.ArrayDataset(pinfeed.write_array("decoded", dataset))'
            bound = max(1.0, loop.period / left)
            yield Change("samples decoded once", code, None, note, bound)
    free, size = free_memory(), loop.disk_bytes * loader.length / loop.batches[0].samples
    if measured.files > MIN_GAIN * loop.production and free is not None and size < 0.8 * free:
        code = "read every file once before the first epoch: cat FILES > /dev/null"
        note = f"about {_size(size)}, of {_size(free)} free memory"
        yield Change("files kept in memory", code, now, note, again=loop.drawn_indices)


class _Whole:
    """A dataset whose ``__getitem__`` is called with a list of indices."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitems__(self, indices: Any) -> Any:
        return self.dataset[indices]


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

        def name_of(entry: Any) -> str:
            return next(n for n, a in arrays.items() if np.array_equal(entry, np.asarray(a[last])))

        names = map_entries(name_of, dataset[last])
        rows, replacement = ArrayDataset(map_entries(arrays.__getitem__, names)), Collate()
    except Exception:  # noqa: BLE001, the samples are not rows
        return
    if not _are_equal(batches, as_it_is, loader.make, lambda i: replacement(rows.__getitems__(i))):
        return
    text = repr(names)
    for name, array in arrays.items():
        path = str(getattr(array, "filename", None) or "")
        is_file = isinstance(array, np.memmap) and path.endswith(".npy")
        text = text.replace(repr(name), repr(path) if is_file else name)
    shuffle = ", shuffle=True" * isinstance(loader.loader.sampler, torch.utils.data.RandomSampler)
    settings = Settings(0, in_thread=True, replace_dataset=lambda _: rows, collate=replacement)
    code = f"pinfeed.from_numpy({text}, batch_size={size}{shuffle})"
    yield Change("rows read natively", code, settings, _EQUAL)


def _are_equal(
    batches: list[Any],
    make_input: Callable[[Any], Any],
    now: Callable[[Any], Any],
    other: Callable[[Any], Any],
) -> bool:
    """Whether another function makes the same batches from the same input; False if it fails."""
    end = time.perf_counter() + _LONGEST
    try:
        for number, indices in enumerate(batches):
            argument = make_input(indices)
            batch = other(argument)  # first, because many datasets reject lists
            if not have_equal_values(now(argument), batch):
                return False
            if number and time.perf_counter() > end:
                break
    except Exception:  # noqa: BLE001, the other function does not accept the input
        return False
    return bool(batches)


def _grows(loader: LoaderCopy) -> bool:
    """Whether four times the samples make a larger batch; some collate functions use only the first."""
    if not loader.has_plain_batches or loader.is_stream:
        return False
    joined = [index for _ in range(4) for index in next(loader.indices)]
    return bytes_in(loader.make(joined)) > 2 * bytes_in(loader.batch)


def _misses_epochs(loader: LoaderCopy) -> bool:
    """Whether a dataset has a ``set_epoch`` that persistent workers miss; a StreamDataset shares it."""
    dataset = loader.dataset
    for _ in range(8):  # a Subset of a Subset
        if hasattr(dataset, "set_epoch"):
            return not isinstance(dataset, StreamDataset)
        dataset = getattr(dataset, "dataset", None)
    return False


def _size(count: float) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e9 else f"{count / 1e6:.3g} MB"
