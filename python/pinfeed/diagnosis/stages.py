"""What runs in the workers: it makes batches as the loader does, with a clock."""

from __future__ import annotations

import operator
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from pinfeed.fields.collate import Collate
from pinfeed.optional import add_note
from pinfeed.structure import map_leaves


class Batch:
    """When the stages of a batch were over, on the clock of `time.perf_counter`, which all processes share.

    Attributes:
        worker: Its number; None for the process of the loop.
        indices: Of the samples; None for a stream's, which are counted instead.
        sample_seconds: For each sample; one number for all where the dataset gives them together.
        begun: The first sample was asked for.
        fetched: The samples were there.
        collated: The batch was there.
        cpu_seconds: Of processor time between the two ends, in this process or, without workers,
            in this thread.
        disk_bytes: Read from a disk meanwhile; None where the system doesn't tell.
        queued_seconds: In which the thread waited for a CPU; None likewise, and 0 in a thread beside the
            step, as asking lets go of the GIL, which a step in Python would take.
        asked: The loop asked for it.
        received: The loop had it.
        done: The step was over.
    """

    # No dataclass: a DeviceLoader would look for tensors in it.
    def __init__(self, indices: list[int] | None) -> None:
        info = get_worker_info()
        self.worker = None if info is None else info.id
        self.indices = indices
        self.sample_seconds: list[float] = []
        self.fetched = self.collated = self.asked = self.received = self.done = 0.0
        self.cpu_seconds = -self._cpu_clock()
        self.disk_bytes = _disk_bytes()
        is_beside = threading.current_thread() is not threading.main_thread()
        self.queued_seconds = 0.0 if is_beside else _queued_seconds()
        self.begun = time.perf_counter()

    def finish(self) -> None:
        """The batch is there."""
        self.collated = time.perf_counter()
        self.cpu_seconds += self._cpu_clock()
        if self.disk_bytes is not None:
            self.disk_bytes = (_disk_bytes() or 0) - self.disk_bytes
        if self.queued_seconds:
            self.queued_seconds = (_queued_seconds() or 0.0) - self.queued_seconds

    def _cpu_clock(self) -> float:
        return time.thread_time() if self.worker is None else time.process_time()

    @property
    def samples(self) -> int:
        """How many."""
        return len(self.sample_seconds if self.indices is None else self.indices)

    @property
    def own_seconds(self) -> float:
        """For all of it, but for the time in which it waited for a CPU."""
        return max(self.cpu_seconds, self.collated - self.begun - (self.queued_seconds or 0.0))

    @property
    def fetch_seconds(self) -> float:
        """For all samples of the batch."""
        return self.fetched - self.begun

    @property
    def collate_seconds(self) -> float:
        """For the batch of them."""
        return self.collated - self.fetched


def _disk_bytes() -> int | None:
    """What this process has read from disks so far: files in the page cache don't count."""
    if sys.platform != "linux":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_inblock * 512


def _queued_seconds() -> float | None:
    """How long this thread has waited for a CPU so far."""
    try:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except OSError:
        return None
    text = os.read(file, 100)
    os.close(file)
    return int(text.split()[1]) / 1e9


class Maker(Dataset[Any]):
    """Makes a loader's batches and notes what their stages take; they are its samples.

    Args:
        dataset: The loader's.
        collate: The loader's.
        is_batched: Whether a batch is made of several samples; it may be one that the dataset gives.
    """

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], is_batched: bool) -> None:
        self.dataset = dataset
        self.collate = collate
        self.is_batched = is_batched

    def __getitem__(self, indices: Any) -> tuple[Any, Batch]:
        batch = Batch(_integers(indices))
        return self._collated(self.samples(indices, batch), batch)

    def samples(self, indices: Any, batch: Batch) -> Any:
        """The samples of a batch, which notes their times."""
        together = getattr(self.dataset, "__getitems__", None)
        if not self.is_batched:
            return self._timed(self._sample, indices, batch)
        if together:
            return self._timed(together, indices, batch)
        return [self._timed(self._sample, index, batch) for index in indices]

    def _sample(self, index: Any) -> Any:
        return self.dataset[index]

    def _timed(self, get: Callable[[Any], Any], index: Any, batch: Batch) -> Any:
        start = time.perf_counter()
        try:
            samples = get(index)
        except Exception as error:
            add_note(error, f"diagnose: raised by the dataset for sample {index}")
            raise
        batch.fetched = time.perf_counter()
        batch.sample_seconds.append(batch.fetched - start)
        return samples

    def _collated(self, samples: Any, batch: Batch) -> tuple[Any, Batch]:
        try:
            collated = self.collate(samples)
        except Exception as error:
            add_note(error, f"diagnose: raised by the collate function for samples {batch.indices}")
            raise
        batch.finish()
        return collated, batch


class StreamMaker(Maker, IterableDataset[Any]):
    """The same for an iterable dataset.

    Args:
        dataset: The loader's.
        collate: The loader's.
        size: Of a batch; None where the dataset gives batches.
        drop_last: Whether a last batch that is smaller is left out.
    """

    def __init__(
        self, dataset: Any, collate: Callable[[Any], Any], size: int | None, drop_last: bool
    ) -> None:
        super().__init__(dataset, collate, size is not None)
        self.size = size or 1
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[tuple[Any, Batch]]:
        stream, is_over = iter(self.dataset), False
        while not is_over:
            batch = Batch(None)
            samples: list[Any] = []
            while len(samples) < self.size and not is_over:
                start = time.perf_counter()
                try:
                    samples.append(next(stream))
                except StopIteration:
                    is_over = True
                else:
                    batch.fetched = time.perf_counter()
                    batch.sample_seconds.append(batch.fetched - start)
            if samples and not (is_over and self.drop_last):
                yield self._collated(samples if self.is_batched else samples[0], batch)


class ReadyMaker(Maker):
    """Makes one batch, which then comes again and again: it costs nothing but its way to the loop."""

    ready: Any = None

    def __getitem__(self, indices: Any) -> tuple[Any, Batch]:
        if self.ready is None:
            self.ready, _ = super().__getitem__(indices)
        # The memory of a `Collate` is on the way already; that of others is new for each batch.
        is_on_its_way = isinstance(self.collate, Collate)
        ready = self.ready if is_on_its_way else map_leaves(_in_fresh_memory, self.ready)
        batch = Batch(None)
        batch.fetched = batch.begun
        batch.finish()
        return ready, batch


def _in_fresh_memory(leaf: Any) -> Any:
    """A copy of a tensor that is in this process's own memory: sent again, that would cost nothing."""
    is_own = isinstance(leaf, torch.Tensor) and not leaf.is_shared()  # type: ignore[no-untyped-call]
    return leaf.clone() if is_own else leaf


class WorkerStart:
    """A ``worker_init_fn`` that gets to see the loader's dataset, and not what makes its batches.

    Args:
        init: The loader's.
    """

    def __init__(self, init: Callable[[int], Any] | None) -> None:
        self._init = init

    def __call__(self, worker: int) -> None:
        """Begins as the loader's workers do."""
        info: Any = get_worker_info()
        object.__setattr__(info, "dataset", info.dataset.dataset)  # a frozen class
        if self._init is not None:
            self._init(worker)


def _integers(indices: Any) -> list[int] | None:
    """Indices for a report; None where they are something else."""
    try:
        return [operator.index(i) for i in (indices if hasattr(indices, "__iter__") else [indices])]
    except TypeError:
        return None
