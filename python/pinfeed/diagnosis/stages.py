"""What runs in the workers: it makes batches as the loader does, with a clock."""

from __future__ import annotations

import operator
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from pinfeed.fields.collate import Collate
from pinfeed.optional import add_note
from pinfeed.structure import map_leaves

#: Whether the system tells what is read from a disk, and who waits for a CPU.
TELLS = os.path.exists("/proc/thread-self/schedstat")


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
        disk_bytes: Read from a disk meanwhile, by this process: files in the page cache don't count.
        queued_seconds: In which the thread waited for a CPU; 0 in a thread beside the step, as asking
            lets go of the GIL, which a step in Python would take.
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
        self.cpu_seconds, self.disk_bytes, self.queued_seconds = self._used()
        self.begun = time.perf_counter()

    def finish(self) -> None:
        """The batch is there."""
        self.collated = time.perf_counter()
        cpu_seconds, disk_bytes, queued_seconds = self._used()
        self.cpu_seconds = cpu_seconds - self.cpu_seconds
        self.disk_bytes = disk_bytes - self.disk_bytes
        self.queued_seconds = queued_seconds - self.queued_seconds

    def _used(self) -> tuple[float, int, float]:
        """Processor time, bytes from disks and seconds of waiting for a CPU, so far."""
        cpu_seconds = time.thread_time() if self.worker is None else time.process_time()
        if not TELLS:
            return cpu_seconds, 0, 0.0
        import resource

        disk_bytes = 512 * resource.getrusage(resource.RUSAGE_SELF).ru_inblock
        if threading.current_thread() is not threading.main_thread():
            return cpu_seconds, disk_bytes, 0.0
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        queued = int(os.read(file, 100).split()[1])
        os.close(file)
        return cpu_seconds, disk_bytes, queued / 1e9

    @property
    def samples(self) -> int:
        """How many."""
        return len(self.sample_seconds if self.indices is None else self.indices)

    @property
    def seconds(self) -> float:
        """From the first sample to the batch."""
        return self.collated - self.begun

    @property
    def own_seconds(self) -> float:
        """The same without the time in which it waited for a CPU."""
        return max(self.cpu_seconds, self.seconds - self.queued_seconds)


class TimedDataset(Dataset[Any]):
    """A loader's batches, as samples, each with what its stages took.

    A batch is made of several samples, or is one that the dataset gives.
    """

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[Any], Any],
        is_batched: bool,
        is_whole: bool = False,  # whether the dataset takes a list of indices in the place of one
    ) -> None:
        self.dataset = dataset
        self.collate = collate
        self.is_batched = is_batched
        self.is_whole = is_whole

    def __getitem__(self, indices: Any) -> tuple[Any, Batch]:
        batch = Batch(_integers(indices))
        return self._collated(self.samples(indices, batch), batch)

    def samples(self, indices: Any, batch: Batch) -> Any:
        """The samples of a batch, which notes their times."""
        together = getattr(self.dataset, "__getitems__", None)
        if self.is_whole or not self.is_batched:
            return self._timed(batch, indices, self.dataset.__getitem__, indices)
        if together:
            return self._timed(batch, indices, together, indices)
        return [self._timed(batch, index, self.dataset.__getitem__, index) for index in indices]

    def _timed(self, batch: Batch, index: Any, get: Callable[[Any], Any], argument: Any) -> Any:
        start = time.perf_counter()
        try:
            samples = get(argument)
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
    """The same for an iterable dataset; without a size the dataset gives batches."""

    def __init__(
        self, dataset: Any, collate: Callable[[Any], Any], size: int | None, drop_last: bool
    ) -> None:
        super().__init__(dataset, collate, size is not None)
        self.size = size or 1
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[tuple[Any, Batch]]:
        stream, count, is_over = iter(self.dataset), 0, False
        while not is_over:
            batch = Batch(None)
            samples: list[Any] = []
            try:
                while len(samples) < self.size:
                    samples.append(self._timed(batch, count, next, stream))
                    count += 1
            except StopIteration:
                is_over = True
            if samples and not (is_over and self.drop_last):
                yield self._collated(samples if self.is_batched else samples[0], batch)


class ReadyDataset(TimedDataset):
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


def begin_worker(init: Callable[[int], Any] | None, worker: int) -> None:
    """Begins a worker as the loader does: its ``worker_init_fn`` finds the loader's dataset.

    torch says that ``get_worker_info().dataset`` may be read and changed there. That it is frozen keeps
    users from changing it; a wrapper that hands on attributes would fail isinstance().
    """
    info: Any = get_worker_info()
    object.__setattr__(info, "dataset", info.dataset.dataset)
    if init is not None:
        init(worker)


def _integers(indices: Any) -> list[int] | None:
    """Indices for a report; None where they are something else."""
    try:
        return [operator.index(i) for i in (indices if hasattr(indices, "__iter__") else [indices])]
    except TypeError:
        return None
