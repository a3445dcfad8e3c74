"""Timed production of batches; runs in the workers."""

from __future__ import annotations

import itertools
import operator
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import Dataset, IterableDataset, get_worker_info

from pinfeed.imports import add_note

#: Whether the system reports bytes read from disks, and the time that threads wait for a CPU.
TELLS = os.path.exists("/proc/thread-self/schedstat")


class Batch:
    """End times of a batch's stages, by `time.perf_counter`, which all processes share."""

    requested = received = end = 0.0  # the loop requested it, received it, and finished its step
    fetched = collated = 0.0  # the samples were complete, and the batch
    cpu_seconds = queued_seconds = 0.0  # used, and spent waiting for a CPU
    disk_bytes = 0  # read from disk by this process, not from the page cache

    # Not a dataclass, because a DeviceLoader searches dataclasses for tensors.
    def __init__(self, indices: list[int] | None) -> None:
        self.indices = indices  # None for a stream
        self.sample_seconds: list[float] = []  # of each sample, or one for a batch of the dataset
        self._used_before = _used()
        self.start = time.perf_counter()

    def finish(self) -> None:
        """Stops the clock of the batch's production."""
        self.collated = time.perf_counter()
        used = (now - before for now, before in zip(_used(), self._used_before, strict=True))
        self.cpu_seconds, self.disk_bytes, self.queued_seconds = used


def _used() -> tuple[float, Any, float]:
    """Returns CPU seconds, bytes read from disk, and seconds of waiting for a CPU.

    CPU seconds are of this worker process or, in the main process, of this thread.
    """
    cpu_seconds = time.thread_time() if get_worker_info() is None else time.process_time()
    if not TELLS:
        return cpu_seconds, 0, 0.0
    import resource

    disk_bytes = 512 * resource.getrusage(resource.RUSAGE_SELF).ru_inblock
    # In a DeviceLoader's thread, reading releases the GIL and changes the measurement.
    if threading.current_thread() is not threading.main_thread():
        return cpu_seconds, disk_bytes, 0.0
    file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    queued_seconds = int(os.read(file, 100).split()[1]) / 1e9
    os.close(file)
    return cpu_seconds, disk_bytes, queued_seconds


class TimedDataset(Dataset[Any]):
    """A dataset of a loader's batches, each with its timings."""

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], is_batched: bool) -> None:
        self.dataset = dataset
        self.collate = collate
        self.is_batched = is_batched

    def __getitem__(self, indices: Any) -> tuple[Any, Batch]:
        batch, get = Batch(_integers(indices)), self.dataset.__getitem__
        get_several = getattr(self.dataset, "__getitems__", None)
        if not self.is_batched:
            samples = self._timed(batch, get, indices)
        elif get_several:
            samples = self._timed(batch, get_several, indices)
        else:
            samples = [self._timed(batch, get, index) for index in indices]
        return self._collated(samples, batch)

    def _timed(self, batch: Batch, get: Callable[[Any], Any], index: Any) -> Any:
        start = time.perf_counter()
        try:
            samples = get(index)
        except StopIteration:
            raise  # the end of a stream
        except Exception as error:
            add_note(error, f"raised by the dataset for sample {index}")
            raise
        batch.fetched = time.perf_counter()
        batch.sample_seconds.append(batch.fetched - start)
        return samples

    def _collated(self, samples: Any, batch: Batch) -> tuple[Any, Batch]:
        try:
            collated = self.collate(samples)
        except Exception as error:
            of = "" if batch.indices is None else f" for samples {batch.indices}"
            add_note(error, f"raised by the collate function{of}")
            raise
        batch.finish()
        return collated, batch


class TimedStream(TimedDataset, IterableDataset[Any]):
    """A `TimedDataset` of an iterable dataset, which yields batches if ``size`` is None."""

    def __init__(self, dataset: Any, collate: Any, size: int | None, drop_last: bool) -> None:
        super().__init__(dataset, collate, size is not None)
        self.size = size or 1
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[tuple[Any, Batch]]:
        stream, count, is_over = iter(self.dataset), itertools.count(), False
        while not is_over:
            batch = Batch(None)
            samples: list[Any] = []
            try:
                while len(samples) < self.size:
                    samples.append(self._timed(batch, lambda _: next(stream), next(count)))
            except StopIteration:
                is_over = True
            if samples and not (is_over and self.drop_last):
                yield self._collated(samples if self.is_batched else samples[0], batch)


def begin_worker(init: Callable[[int], Any] | None, worker: int) -> None:
    """Calls ``worker_init_fn``, which finds the loader's own dataset in ``get_worker_info()``."""
    info: Any = get_worker_info()
    object.__setattr__(info, "dataset", info.dataset.dataset)
    if init is not None:
        init(worker)


def _integers(indices: Any) -> list[int] | None:
    """Returns indices for the report, or None if they aren't integers."""
    try:
        return [operator.index(i) for i in (indices if hasattr(indices, "__iter__") else [indices])]
    except TypeError:
        return None
