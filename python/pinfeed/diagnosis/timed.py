"""A loader's dataset and collate function with a clock. This is what runs in the workers."""

from __future__ import annotations

import cProfile
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset

from pinfeed.optional import add_note
from pinfeed.runtime import is_worker_process
from pinfeed.structure import map_leaves


class Made:
    """How a batch was made, on the clock of `time.perf_counter`, which all processes share.

    Attributes:
        worker: Its number; None for the process of the loop.
        indices: Of the samples; None for a stream's, which are counted instead.
        sample_seconds: For each sample; one number for all where the dataset gives them together.
        begun: When the first sample was asked for.
        fetched: When the samples were there.
        collated: When the batch was there.
        cpu_seconds: Of processor time between the two ends, in this process or, without workers,
            in this thread.
        disk_bytes: Read from a disk meanwhile; None where the system doesn't tell.
        queued_seconds: In which the thread waited for a CPU; None likewise.
        functions: Own seconds of the functions that took most since the worker began, by name, if
            they were asked for.
        other_seconds: What another collate function took for the same samples.
        is_other_equal: Whether its batch has the same values.
    """

    # No dataclass: a DeviceLoader would look for tensors in it.
    def __init__(self, indices: list[int] | None) -> None:
        info = torch.utils.data.get_worker_info() if is_worker_process() else None
        self.worker = None if info is None else info.id
        self.indices = indices
        self.sample_seconds: list[float] = []
        self.functions: list[tuple[str, float]] = []
        self.other_seconds: float | None = None
        self.is_other_equal: bool | None = None
        self.fetched = self.collated = 0.0
        self._cpu_clock = time.thread_time if self.worker is None else time.process_time
        self.cpu_seconds = -self._cpu_clock()
        self.disk_bytes = _disk_bytes()
        self.queued_seconds = _queued_seconds()
        self.begun = time.perf_counter()

    def finish(self) -> None:
        """The batch is there."""
        self.collated = time.perf_counter()
        self.cpu_seconds += self._cpu_clock()
        if self.disk_bytes is not None:
            self.disk_bytes = (_disk_bytes() or 0) - self.disk_bytes
        if self.queued_seconds is not None:
            self.queued_seconds = (_queued_seconds() or 0.0) - self.queued_seconds

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_cpu_clock"}

    @property
    def fetch_seconds(self) -> float:
        """For all samples of the batch."""
        return self.fetched - self.begun

    @property
    def collate_seconds(self) -> float:
        """For the batch of them."""
        return self.collated - self.fetched


def _disk_bytes() -> int | None:
    """What this process has read from disks so far."""
    if sys.platform != "linux":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_inblock * 512


def _queued_seconds() -> float | None:
    """How long this thread has waited for a CPU so far."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


class TimedDataset(Dataset[Any]):
    """A map-style dataset that notes what each sample takes.

    It has the attributes of the dataset, for a ``worker_init_fn`` that reads or sets them.

    Args:
        dataset: The loader's.
        profile: Whether to note which functions take the time.
    """

    timed: Any
    profile: bool

    def __init__(self, dataset: Any, profile: bool = False) -> None:
        self.__dict__.update(timed=dataset, profile=profile, profiler=None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "timed" not in self.__dict__:  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.timed, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.timed, name, value)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __len__(self) -> int:
        return len(self.timed)

    def __getitem__(self, index: Any) -> tuple[Any, Made]:
        made = Made(_integers(index))
        with _Profiled(self, made):
            sample = self.timed[index]
        made.fetched = time.perf_counter()
        made.sample_seconds.append(made.fetched - made.begun)
        return sample, made

    def __getitems__(self, indices: Any) -> tuple[Any, Made]:
        made = Made(_integers(indices))
        samples: Any
        with _Profiled(self, made):
            if getattr(self.timed, "__getitems__", None):
                samples = self.timed.__getitems__(indices)
                made.sample_seconds.append(time.perf_counter() - made.begun)
            else:
                samples = []
                before = made.begun
                for index in indices:
                    try:
                        samples.append(self.timed[index])
                    except Exception as error:
                        add_note(error, f"diagnose: raised by the dataset for sample {index}")
                        raise
                    now = time.perf_counter()
                    made.sample_seconds.append(now - before)
                    before = now
        made.fetched = time.perf_counter()
        return samples, made


class TimedStream(TimedDataset, IterableDataset[Any]):
    """The same of an iterable dataset: each sample, and how its batch was made.

    Args:
        dataset: The loader's.
        profile: As in a `TimedDataset`.
        size: Of a batch.
    """

    size: int

    def __init__(self, dataset: Any, profile: bool, size: int) -> None:
        super().__init__(dataset, profile)
        self.__dict__["size"] = size

    def __iter__(self) -> Iterator[tuple[Any, Made]]:
        stream = iter(self.timed)
        while True:
            made = Made(None)
            for _ in range(self.size):
                start = time.perf_counter()
                try:
                    with _Profiled(self, made):
                        sample = next(stream)
                except StopIteration:
                    return
                made.fetched = time.perf_counter()
                made.sample_seconds.append(made.fetched - start)
                yield sample, made


class _Profiled:
    """Profiles what the dataset does, if that was asked for."""

    def __init__(self, dataset: TimedDataset, made: Made) -> None:
        self._dataset = dataset
        self._made = made

    def __enter__(self) -> None:
        if self._dataset.profile:
            if self._dataset.profiler is None:
                self._dataset.__dict__["profiler"] = cProfile.Profile()
            self._dataset.profiler.enable()

    def __exit__(self, *error: object) -> None:
        if self._dataset.profile:
            self._dataset.profiler.disable()
            self._made.functions = _most_expensive(self._dataset.profiler)


def _most_expensive(profiler: cProfile.Profile) -> list[tuple[str, float]]:
    """The functions by their own seconds, those that took most first."""
    found = []
    for entry in profiler.getstats():
        code = entry.code
        if isinstance(code, str):
            name = code.strip("<>").removeprefix("built-in method ")
        else:
            name = (
                f"{code.co_qualname} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
            )
        if "lsprof.Profiler" not in name and not name.startswith("_Profiled."):
            found.append((name, entry.inlinetime))
    return sorted(found, key=lambda pair: -pair[1])[:8]


class TimedCollate:
    """A collate function that notes what it takes, and hands on how the batch was made.

    Args:
        collate: The loader's.
        is_stream: Whether it gets one pair for each sample, of a `TimedStream`.
        other: Another one, to be compared with it.
    """

    def __init__(
        self,
        collate: Callable[[Any], Any],
        is_stream: bool = False,
        other: Callable[[Any], Any] | None = None,
    ) -> None:
        self.collate = collate
        self.is_stream = is_stream
        self.other = other

    def __call__(self, fetched: Any) -> tuple[Any, Made]:
        """The batch, and how it was made."""
        if self.is_stream and isinstance(fetched, list):
            samples, made = [sample for sample, _ in fetched], fetched[0][1]
        else:
            samples, made = fetched
        batch = self.collate(samples)
        made.finish()
        if self.other is not None:
            start = time.perf_counter()
            try:
                made.is_other_equal = have_equal_values(batch, self.other(samples))
            except Exception:  # noqa: BLE001, it can't do these samples
                made.is_other_equal = False
            made.other_seconds = time.perf_counter() - start
        return batch, made


class ReadyBatch(TimedDataset):
    """A dataset whose every sample is the same batch, which costs nothing but its way to the loop.

    Args:
        dataset: The loader's.
        collate: The loader's.
        indices: Of the batch; where a batch is a sample, of that.
        is_copied: Whether each batch is to be in fresh memory, as the collate function leaves it.
    """

    def __init__(
        self, dataset: Any, collate: Callable[[Any], Any], indices: Any, is_copied: bool
    ) -> None:
        super().__init__(dataset)
        self.__dict__.update(collate=collate, indices=indices, is_copied=is_copied, batch=None)

    def __getitem__(self, index: Any) -> tuple[Any, Made]:
        if self.batch is None:
            fetch = self.__getitems__ if hasattr(self.indices, "__len__") else super().__getitem__
            self.__dict__["batch"] = self.collate(fetch(self.indices)[0])
        made = Made(None)
        made.fetched = made.begun
        batch = map_leaves(_in_fresh_memory, self.batch) if self.is_copied else self.batch
        return batch, made


def _in_fresh_memory(leaf: Any) -> Any:
    """A copy of a tensor that is in this process's own memory: sent again, that would cost nothing."""
    is_own = isinstance(leaf, torch.Tensor) and not leaf.is_shared()  # type: ignore[no-untyped-call]
    return leaf.clone() if is_own else leaf


def have_equal_values(one: Any, other: Any) -> bool:
    """Whether two batches have the same keys, dtypes, shapes and values."""
    if isinstance(one, torch.Tensor):
        return (
            isinstance(other, torch.Tensor)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and torch.allclose(one, other, 0, 0, equal_nan=True)
        )
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and have_equal_values(
            *map(torch.as_tensor, (one, other))
        )
    if isinstance(one, Mapping):
        return (
            isinstance(other, Mapping)
            and list(one) == list(other)
            and all(have_equal_values(one[key], other[key]) for key in one)
        )
    if isinstance(one, Sequence) and not isinstance(one, str | bytes):
        return (
            isinstance(other, Sequence)
            and len(one) == len(other)
            and all(map(have_equal_values, one, other))
        )
    return type(one) is type(other) and bool(one == other)


def _integers(indices: Any) -> list[int] | None:
    """Indices for a report; None where they are something else."""
    try:
        return [int(index) for index in (indices if hasattr(indices, "__iter__") else [indices])]
    except (TypeError, ValueError):
        return None
