"""Loops over variants of a loader, each batch with the times of its stages."""

from __future__ import annotations

import itertools
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from pinfeed.diagnosis.copying import copied
from pinfeed.diagnosis.timed import (
    Made,
    ReadyBatch,
    TimedCollate,
    TimedDataset,
    TimedStream,
    have_equal_values,
)
from pinfeed.fields.collate import Collate
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.loaders.stats import Activity, FeedStats, FeedTimes
from pinfeed.optional import add_note
from pinfeed.structure import leaves, map_leaves


@dataclass(frozen=True)
class Settings:
    """How a loop is run; what is None is as in the loader.

    Attributes:
        workers: How many.
        in_thread: Whether a `DeviceLoader` runs it ahead of the loop.
        batch_factor: How many of the loader's batches make one.
        prefetch_factor: Batches ahead for each worker.
        persistent: Whether workers stay for the next epoch.
        pin_memory: Whether the DataLoader pins batches.
        collate: Another collate function.
        other: A collate function that is timed beside.
        dataset: Another dataset.
        batches: The indices of the batches, each once.
        epoch: Batches in an epoch; None to go on without end.
        profile: Whether to note which functions take the time.
    """

    workers: int
    in_thread: bool = False
    batch_factor: int = 1
    prefetch_factor: int | None = None
    persistent: bool = False
    pin_memory: bool = False
    collate: Callable[[Any], Any] | None = None
    other: Callable[[Any], Any] | None = None
    dataset: Any = None
    batches: Iterable[Any] | None = None
    epoch: int | None = None
    profile: bool = False


class Passed(NamedTuple):
    """A batch that went through the loop.

    Attributes:
        asked: When the loop asked for it.
        received: When it had it.
        done: When the step was over.
        made: How it was made.
    """

    asked: float
    received: float
    done: float
    made: Made


@dataclass
class Run:
    """What a loop did.

    Attributes:
        settings: How it was run.
        passed: The batches.
        startup: Seconds until there was the first.
        stats: Of the DeviceLoader; for others the same times, of a loop that does it all itself.
        samples: In the first batch.
        bytes: Of the first batch.
        batch: The last one.
    """

    settings: Settings
    passed: list[Passed] = field(default_factory=list)
    startup: float = 0.0
    stats: FeedStats | None = None
    samples: int = 0
    bytes: int = 0
    batch: Any = None

    @property
    def steady(self) -> list[Passed]:
        """The batches after those that the workers began with, as many from each worker."""
        workers = max(1, self.settings.workers)
        count = len(self.passed) - workers
        return self.passed[workers : workers + count - (count % workers if count > workers else 0)]

    @property
    def period(self) -> float:
        """Seconds from one of the loader's batches to the next, in the mean."""
        steady = self.steady
        before = self.passed[len(self.passed[: max(1, self.settings.workers)]) - 1]
        return (steady[-1].done - before.done) / len(steady) / self.settings.batch_factor

    @property
    def wait_share(self) -> float:
        """The share of the time in which the loop waited for batches."""
        steady = self.steady
        waited = sum(batch.received - batch.asked for batch in steady)
        return waited / sum(batch.done - batch.asked for batch in steady)

    @property
    def stages(self) -> tuple[float, float]:
        """Mean seconds for the samples of a batch, and for the collate function."""
        return self.mean(lambda made: made.fetch_seconds), self.mean(
            lambda made: made.collate_seconds
        )

    def mean(self, seconds: Callable[[Made], float]) -> float:
        """The mean of a stage over the batches, the first of each worker left out."""
        return statistics.fmean(seconds(batch.made) for batch in self.steady)


class LoaderCopy:
    """What a loader holds, copied, to run variants of it.

    Args:
        loader: A DataLoader, or a DeviceLoader around one.

    Attributes:
        settings: The loader's own.
        not_copied: Names of the types of objects that both share, because they can't be copied.
        is_stream: Whether the dataset is an iterable one.

    Raises:
        TypeError: It is something else, or what it holds can be iterated only once.
    """

    def __init__(self, loader: Any) -> None:
        self._device_loader = loader if isinstance(loader, DeviceLoader) else None
        inner = loader.loader if self._device_loader is not None else loader
        if not isinstance(inner, DataLoader):
            raise TypeError(
                "diagnose: loader must be a torch DataLoader, or a DeviceLoader around one, got "
                f"{type(inner).__name__}; put what yields the samples into an IterableDataset"
            )
        self._loader: DataLoader[Any] = inner
        self._is_batched = inner.batch_sampler is not None
        sampler = inner.batch_sampler if self._is_batched else inner.sampler
        self.is_stream = isinstance(inner.dataset, IterableDataset)
        if isinstance(sampler, Iterator) and not self.is_stream:
            raise TypeError(
                "diagnose: the loader's sampler is an iterator, which measuring would use up; give "
                "the DataLoader a list of the batches, or an object whose __iter__ begins anew"
            )
        parts = (inner.dataset, sampler, inner.collate_fn, inner.generator, inner.worker_init_fn)
        (self.dataset, sampler, self.collate, self._generator, self._init), originals = copied(
            parts
        )
        if self.is_stream and any(isinstance(original, Iterator) for original in originals):
            raise TypeError(
                "diagnose: the dataset holds an iterator, which measuring would use up; begin it in its "
                "__iter__"
            )
        self.not_copied = sorted({type(original).__qualname__ for original in originals})
        self._indices = _endless(sampler) if not self.is_stream else iter(())
        self.settings = Settings(
            workers=inner.num_workers,
            in_thread=self._device_loader is not None,
            prefetch_factor=inner.prefetch_factor,
            persistent=inner.persistent_workers,
            pin_memory=inner.pin_memory,
            epoch=None if self.is_stream or not inner.num_workers else _length(inner),
        )

    def next_indices(self) -> Any:
        """Those of the next batch."""
        return next(self._indices)

    @property
    def makes_plain_batches(self) -> bool:
        """Whether batches are lists of indices, of a size that torch's sampler made."""
        return self._is_batched and type(self._loader.batch_sampler) is BatchSampler

    @property
    def dataset_length(self) -> int:
        """How many samples there are; 0 if nobody knows."""
        return _length(self.dataset) or 0

    @property
    def start_method(self) -> str:
        """How workers begin: ``"fork"``, ``"spawn"``, ``"forkserver"``."""
        context: Any = self._loader.multiprocessing_context or torch.multiprocessing
        return str(context.get_start_method())

    def loop_over(self, settings: Settings) -> Iterable[tuple[Any, Made]]:
        """A loader of batches, and how they were made."""
        loader, workers = self._loader, settings.workers
        dataset = self.dataset if settings.dataset is None else settings.dataset
        if self.is_stream and settings.dataset is None:
            timed: TimedDataset = TimedStream(
                dataset, settings.profile, (loader.batch_size or 1) * settings.batch_factor
            )
        elif isinstance(dataset, TimedDataset):
            timed = dataset
        else:
            timed = TimedDataset(dataset, settings.profile)
        collate: Any = self.collate if settings.collate is None else settings.collate
        collate = TimedCollate(collate, self.is_stream and self._is_batched, settings.other)
        order: dict[str, Any] = {}
        if isinstance(timed, ReadyBatch):
            order["batch_size"], collate = None, _as_it_is
            order["sampler"] = _Supply(itertools.repeat(0), None)
        elif self.is_stream:
            size = loader.batch_size
            order["batch_size"] = size and size * settings.batch_factor
            order["drop_last"] = loader.drop_last
        else:
            indices = self._indices if settings.batches is None else iter(settings.batches)
            if settings.batch_factor > 1:
                indices = _joined(indices, settings.batch_factor)
            supply = _Supply(indices, settings.epoch)
            order = {"batch_sampler": supply} if self._is_batched else {"sampler": supply}
            if not self._is_batched:
                order["batch_size"] = None
        if workers:
            order["timeout"] = loader.timeout
            order["worker_init_fn"] = self._init
            order["multiprocessing_context"] = loader.multiprocessing_context
            order["prefetch_factor"] = settings.prefetch_factor or 2
            order["persistent_workers"] = settings.persistent
        made: DataLoader[Any] = DataLoader(
            timed,
            collate_fn=collate,
            num_workers=workers,
            generator=self._generator,
            pin_memory=settings.pin_memory,
            **order,
        )
        if not settings.in_thread:
            return made
        if self._device_loader is None:
            return DeviceLoader(made)
        own = self._device_loader
        fields = None if own.fields is None else (own.fields, None)
        return DeviceLoader(made, own.device, fields, own.depth)

    def run(
        self,
        settings: Settings,
        seconds: float,
        step: Callable[[Any], Any] | None = None,
        ready: Any = None,
    ) -> Run:
        """Loops for so many seconds, not counting the start, or until each batch has come once.

        Args:
            settings: How.
            seconds: For how long; there are two batches at least.
            step: Called with each batch.
            ready: Indices of a batch that workers make once and then return again and again.

        Raises:
            ValueError: There is no batch.
            Exception: Whatever the dataset, the collate function or the step raise.
        """
        if ready is not None:
            is_own = not isinstance(self.collate, Collate)  # whose memory is that of the way
            dataset = ReadyBatch(self.dataset, self.collate, ready, is_own)
            settings = Settings(settings.workers, dataset=dataset)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # DataLoader's about workers, known better here
            loader = self.loop_over(settings)
            return self._loop(Run(settings), loader, seconds, step)

    def _loop(
        self, run: Run, loader: Any, seconds: float, step: Callable[[Any], Any] | None
    ) -> Run:
        workers = max(1, run.settings.workers)
        times, passed = FeedTimes(), run.passed
        asked = times.begin(Activity.LOADING)
        source = iter(loader)
        is_empty = True
        while True:
            try:
                run.batch, made = next(source)
            except StopIteration:
                if is_empty or run.settings.batches is not None:
                    break
                source, is_empty = iter(loader), True
                continue
            except RuntimeError as error:
                if not passed and run.settings.workers and self.start_method != "fork":
                    add_note(
                        error,
                        f"diagnose: workers begin by {self.start_method!r} here, which imports the main "
                        "module again; call diagnose under if __name__ == '__main__':",
                    )
                raise
            is_empty = False
            received = times.begin(Activity.WAITING)
            if step is not None:
                step(run.batch)
                synchronize()
            done = times.begin(Activity.LOADING)
            if not passed:
                run.startup = received - asked
                run.samples = _count(made)
                run.bytes = bytes_in(run.batch)
            passed.append(Passed(asked, received, done, made))
            asked = done
            is_enough = len(passed) >= 2 * workers + 1
            if is_enough and done - passed[workers - 1].done >= seconds:
                break
        times.begin(None)
        run.stats = loader.stats() if isinstance(loader, DeviceLoader) else times.stats()
        if not passed:
            raise ValueError(
                "diagnose: the loader has no batch: its dataset or its sampler is empty, or drop_last "
                "leaves nothing"
            )
        return run


class StepTimes(NamedTuple):
    """What a step takes for one batch.

    Attributes:
        seconds: The median.
        cpu_seconds: Of processor time, in all threads of this process.
        changes_batch: Whether it writes into the batch.
    """

    seconds: float
    cpu_seconds: float
    changes_batch: bool


def time_step(step: Callable[[Any], Any], batch: Any, seconds: float) -> StepTimes:
    """Times a step again and again on one kept batch; on copies, if it changes that."""
    kept = _cloned(batch)
    step(batch)
    synchronize()
    changes_batch = not have_equal_values(batch, kept)
    taken: list[float] = []
    cpu: list[float] = []
    end = time.perf_counter() + seconds
    while not taken or (time.perf_counter() < end and len(taken) < 10_000):
        given = _cloned(kept) if changes_batch else batch
        start, cpu_start = time.perf_counter(), time.process_time()
        step(given)
        synchronize()
        taken.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
    return StepTimes(statistics.median(taken), statistics.median(cpu), changes_batch)


def synchronize() -> None:
    """Waits for the accelerator, if there is one, so that a step has taken its time."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


class _Supply:
    """Indices that go on where the last epoch ended."""

    def __init__(self, indices: Iterator[Any], epoch: int | None) -> None:
        self._indices = indices
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self._indices, self._epoch)


class InOrder:
    """Batches of indices in order, each time from another place on.

    Args:
        length: Of the dataset.
        size: Of a batch.
    """

    def __init__(self, length: int, size: int) -> None:
        self._length = length
        self._size = size

    def __iter__(self) -> Iterator[list[int]]:
        place = int(torch.randint(self._length, ()))
        while True:
            yield [i % self._length for i in range(place, place + self._size)]
            place += self._size


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def _endless(sampler: Iterable[Any]) -> Iterator[Any]:
    """One epoch of a sampler after the other; none if they are empty."""
    is_empty = False
    while not is_empty:
        is_empty = True
        for indices in sampler:
            is_empty = False
            yield indices


def _joined(batches: Iterator[Any], factor: int) -> Iterator[Any]:
    while parts := list(itertools.islice(batches, factor)):
        yield [index for part in parts for index in part]


def _as_it_is(batch: Any) -> Any:
    return batch


def _count(made: Made) -> int:
    return len(made.sample_seconds if made.indices is None else made.indices)


def _cloned(batch: Any) -> Any:
    return map_leaves(lambda leaf: leaf.clone() if hasattr(leaf, "clone") else leaf, batch)


def bytes_in(batch: Any) -> int:
    """Of all arrays and tensors that containers lead to."""
    return sum(int(leaf.nbytes) for _, leaf in leaves(batch) if hasattr(leaf, "nbytes"))
