"""A loader's dataset and collate function with a clock. This is what runs in the workers."""

from __future__ import annotations

import math
import operator
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset

from pinfeed.fields.collate import Collate
from pinfeed.optional import add_note
from pinfeed.runtime import is_worker_process
from pinfeed.structure import leaves, map_leaves


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
        queued_seconds: In which the thread waited for a CPU; None likewise.
        asked: The loop asked for it.
        received: The loop had it.
        done: The step was over.
    """

    # No dataclass: a DeviceLoader would look for tensors in it.
    def __init__(self, indices: list[int] | None) -> None:
        info = torch.utils.data.get_worker_info() if is_worker_process() else None
        self.worker = None if info is None else info.id
        self.indices = indices
        self.sample_seconds: list[float] = []
        self.fetched = self.collated = self.asked = self.received = self.done = 0.0
        self.cpu_seconds = -self._cpu_clock()
        self.disk_bytes, self.queued_seconds = _disk_bytes(), _queued_seconds()
        self.begun = time.perf_counter()

    def finish(self) -> None:
        """The batch is there."""
        self.collated = time.perf_counter()
        self.cpu_seconds += self._cpu_clock()
        if self.disk_bytes is not None:
            self.disk_bytes = (_disk_bytes() or 0) - self.disk_bytes
        if self.queued_seconds is not None:
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
        return self.collated - self.begun - (self.queued_seconds or 0.0)

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


class TimedDataset(Dataset[Any]):
    """A map-style dataset that notes what each sample takes.

    It has the attributes of the dataset, for a ``worker_init_fn`` that reads or sets them.

    Args:
        dataset: The loader's.
    """

    timed: Any

    def __init__(self, dataset: Any) -> None:
        vars(self)["timed"] = dataset

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # also while it is unpickled
            raise AttributeError(name)
        return getattr(self.timed, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.timed, name, value)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def __len__(self) -> int:
        return len(self.timed)

    def __getitem__(self, index: Any) -> tuple[Any, Batch]:
        batch = Batch(_integers(index))
        return self._sample(index, batch), batch

    def __getitems__(self, indices: Any) -> tuple[Any, Batch]:
        batch = Batch(_integers(indices))
        if getattr(self.timed, "__getitems__", None):
            samples = self.timed.__getitems__(indices)
            batch.fetched = time.perf_counter()
            batch.sample_seconds.append(batch.fetch_seconds)
        else:
            samples = [self._sample(index, batch) for index in indices]
        return samples, batch

    def _sample(self, index: Any, batch: Batch) -> Any:
        start = time.perf_counter()
        try:
            sample = self.timed[index]
        except Exception as error:
            add_note(error, f"diagnose: raised by the dataset for sample {index}")
            raise
        batch.fetched = time.perf_counter()
        batch.sample_seconds.append(batch.fetched - start)
        return sample


class TimedStream(TimedDataset, IterableDataset[Any]):
    """The same of an iterable dataset: each sample, and how its batch was made.

    Args:
        dataset: The loader's.
        size: Of a batch.
    """

    size: int

    def __init__(self, dataset: Any, size: int) -> None:
        super().__init__(dataset)
        vars(self)["size"] = size

    def __iter__(self) -> Iterator[tuple[Any, Batch]]:
        stream = iter(self.timed)
        while True:
            batch = Batch(None)
            for _ in range(self.size):
                start = time.perf_counter()
                try:
                    sample = next(stream)
                except StopIteration:
                    return
                batch.fetched = time.perf_counter()
                batch.sample_seconds.append(batch.fetched - start)
                yield sample, batch


class TimedCollate:
    """A collate function that notes what it takes, and hands on how the batch was made.

    Args:
        collate: The loader's.
        is_of_pairs: Whether it gets a pair for each sample, of a `TimedStream`.
    """

    def __init__(self, collate: Callable[[Any], Any], is_of_pairs: bool = False) -> None:
        self._collate = collate
        self._is_of_pairs = is_of_pairs

    def __call__(self, fetched: Any) -> tuple[Any, Batch]:
        """The batch, and how it was made."""
        if self._is_of_pairs:
            samples, batch = [sample for sample, _ in fetched], fetched[0][1]
        else:
            samples, batch = fetched
        try:
            collated = self._collate(samples)
        except Exception as error:
            add_note(error, f"diagnose: raised by the collate function for samples {batch.indices}")
            raise
        batch.finish()
        return collated, batch


class ReadyBatch(TimedDataset):
    """A dataset whose every sample is the same batch, which costs nothing but its way to the loop.

    Args:
        dataset: The loader's.
        collate: The loader's.
        indices: Of the batch; where a batch is a sample, of that.
        is_batched: Whether it is a batch of several samples.
    """

    def __init__(
        self, dataset: Any, collate: Callable[[Any], Any], indices: Any, is_batched: bool
    ) -> None:
        super().__init__(dataset)
        vars(self).update(collate=collate, indices=indices, is_batched=is_batched, ready=None)

    def __getitem__(self, index: Any) -> tuple[Any, Batch]:
        if self.ready is None:
            fetch = self.__getitems__ if self.is_batched else super().__getitem__
            vars(self)["ready"] = self.collate(fetch(self.indices)[0])
        batch = Batch(None)
        batch.fetched = batch.begun
        # The memory of a `Collate` is on the way already; that of others is new for each batch.
        is_on_its_way = isinstance(self.collate, Collate)
        return self.ready if is_on_its_way else map_leaves(_in_fresh_memory, self.ready), batch


def _in_fresh_memory(leaf: Any) -> Any:
    """A copy of a tensor that is in this process's own memory: sent again, that would cost nothing."""
    is_own = isinstance(leaf, torch.Tensor) and not leaf.is_shared()  # type: ignore[no-untyped-call]
    return leaf.clone() if is_own else leaf


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


def _integers(indices: Any) -> list[int] | None:
    """Indices for a report; None where they are something else."""
    try:
        return [
            operator.index(index)
            for index in (indices if hasattr(indices, "__iter__") else [indices])
        ]
    except (TypeError, ValueError):
        return None
