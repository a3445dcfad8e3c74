"""Loops over variants of a loader, each batch with the times of its stages."""

from __future__ import annotations

import cProfile
import itertools
import os
import pstats
import statistics
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from pinfeed.arguments import known_length
from pinfeed.diagnosis.copying import copied
from pinfeed.diagnosis.stages import Batch, Maker, ReadyMaker, StreamMaker, WorkerStart
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.loaders.stats import FeedStats
from pinfeed.optional import add_note
from pinfeed.structure import is_container, leaves, parts, rebuild

#: Seconds for the first batch of workers, where the loader itself has none.
_PATIENCE = 30.0


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
        epoch: Batches in an epoch; None to go on without end.
        dataset: Another dataset.
        collate: Another collate function.
        batches: The indices of the batches, each once.
        is_ready: Whether each worker makes one batch, and sends that again and again.
    """

    workers: int
    in_thread: bool = False
    batch_factor: int = 1
    prefetch_factor: int | None = None
    persistent: bool = False
    pin_memory: bool = False
    epoch: int | None = None
    dataset: Any = None
    collate: Callable[[Any], Any] | None = None
    batches: Iterable[Any] | None = None
    is_ready: bool = False

    @property
    def makes_its_own(self) -> bool:
        """Whether the loop makes its batches itself, while it waits for them."""
        return not (self.workers or self.in_thread)

    @property
    def ahead(self) -> int:
        """Batches that are made before the loop waits for one; they tell little of the pace."""
        return max(1, self.workers * (self.prefetch_factor or 2) + 2 * self.in_thread)


@dataclass
class Run:
    """What a loop did.

    Attributes:
        settings: How it was run.
        batches: Those that went through it.
        startup: Seconds until there was the first.
        bytes: Of the first batch.
        stats: Of the DeviceLoader, if there was one.
    """

    settings: Settings
    batches: list[Batch] = field(default_factory=list)
    startup: float = 0.0
    bytes: int = 0
    stats: FeedStats | None = None

    @property
    def steady(self) -> list[Batch]:
        """The batches after those that were made ahead, as many from each worker."""
        count, workers = len(self.batches), max(1, self.settings.workers)
        first = min(self.settings.ahead, count - workers)
        return self.batches[first : count - (count - first) % workers]

    @property
    def samples(self) -> int:
        """How many are in one of the loader's batches."""
        return self.batches[0].samples // self.settings.batch_factor

    @property
    def period(self) -> float:
        """Seconds from one of the loader's batches to the next, in the mean."""
        steady = self.steady
        return (steady[-1].done - steady[0].asked) / len(steady) / self.settings.batch_factor

    @property
    def wait_share(self) -> float:
        """The share of the time in which the loop waited for batches."""
        waited = sum(batch.received - batch.asked for batch in self.steady)
        return waited / sum(batch.done - batch.asked for batch in self.steady)

    def mean(self, of: Callable[[Batch], float]) -> float:
        """Of the steady batches."""
        return statistics.fmean(map(of, self.steady))

    @property
    def fetch(self) -> float:
        """Mean seconds for the samples of a batch."""
        return self.mean(lambda batch: batch.fetch_seconds)

    @property
    def collate(self) -> float:
        """Mean seconds for the collate function."""
        return self.mean(lambda batch: batch.collate_seconds)

    @property
    def cpu(self) -> float:
        """Mean seconds of processor time for the two."""
        return self.mean(lambda batch: batch.cpu_seconds)

    @property
    def queued(self) -> float:
        """Mean seconds in which they waited for a CPU, because other work had it."""
        return self.mean(lambda batch: batch.queued_seconds or 0.0)

    @property
    def idle(self) -> float:
        """Mean seconds in which they waited for something else than a CPU."""
        return max(0.0, self.fetch + self.collate - self.cpu - self.queued)


class LoaderCopy:
    """What a loader holds, copied, to run variants of it.

    Args:
        loader: A DataLoader, or a DeviceLoader around one.

    Attributes:
        settings: The loader's own.
        dataset: The copy that this process uses.
        collate: Likewise.
        of_workers: The two copies that workers use: what this process opens, they must not inherit.
        batch: The first that the last loop had, as it was before the step.
        not_copied: Names of the types of objects that both share, because they can't be copied.
        is_stream: Whether the dataset is an iterable one.
        own_iter: The name of the ``__iter__`` of a subclass of DataLoader; None without.

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
        self._patience = _PATIENCE
        own_iter = type(inner).__iter__
        self.own_iter = None if own_iter is DataLoader.__iter__ else own_iter.__qualname__
        self._is_batched = inner.batch_sampler is not None
        sampler = inner.batch_sampler if self._is_batched else inner.sampler
        self.is_stream = isinstance(inner.dataset, IterableDataset)
        within = (sampler, inner.sampler, getattr(sampler, "sampler", None))
        if any(isinstance(one, Iterator) for one in within) and not self.is_stream:
            raise TypeError(
                "diagnose: the loader's sampler is an iterator, which measuring would use up; give "
                "the DataLoader a list of the batches, or an object whose __iter__ begins anew"
            )
        made = (inner.dataset, inner.collate_fn)
        (self.dataset, self.collate), originals = copied(made)
        if self.is_stream and any(isinstance(one, Iterator) for one in (*originals, inner.dataset)):
            raise TypeError(
                "diagnose: the dataset holds an iterator, which measuring would use up; begin it in "
                "its __iter__"
            )
        self.not_copied = sorted({type(original).__qualname__ for original in originals})
        parts = (*made, sampler, inner.generator, inner.worker_init_fn)
        (*self.of_workers, sampler, self._generator, self._init), _ = copied(parts)
        self._maker = Maker(self.dataset, self.collate, self._is_batched)
        self._indices = iter(()) if self.is_stream else _endless(sampler)
        self.batch: Any = None
        self.settings = Settings(
            workers=inner.num_workers,
            in_thread=self._device_loader is not None,
            prefetch_factor=inner.prefetch_factor,
            persistent=inner.persistent_workers,
            pin_memory=inner.pin_memory,
            epoch=None if self.is_stream or not inner.num_workers else known_length(inner),
        )

    @property
    def makes_plain_batches(self) -> bool:
        """Whether batches are lists of indices, of a size that torch's sampler made."""
        return self._is_batched and type(self._loader.batch_sampler) is BatchSampler

    @property
    def can_join_batches(self) -> bool:
        """Whether several batches can be made one."""
        return self._is_batched and (self.is_stream or self.makes_plain_batches)

    @property
    def length(self) -> int:
        """How many samples there are; 0 if nobody knows."""
        return known_length(self.dataset) or 0

    def next_indices(self) -> Any:
        """Those of the next batch."""
        return next(self._indices)

    def samples(self, indices: Any) -> Any:
        """The samples of a batch, made in this process."""
        return self._maker.samples(indices, Batch(None))

    def functions(self, seconds: float) -> dict[str, float]:
        """The functions that take most of a sample's time by themselves, and their shares."""
        profiler, stream = cProfile.Profile(), iter(self.dataset) if self.is_stream else iter(())
        batch, end = Batch(None), time.perf_counter() + seconds
        while time.perf_counter() < end:
            if self.is_stream and profiler.runcall(next, stream, end) is end:
                break
            if not self.is_stream:
                profiler.runcall(self._maker.samples, self.next_indices(), batch)
        found = {}
        for (file, line, name), times in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
            if os.path.dirname(file) != os.path.dirname(__file__) and "perf_counter" not in name:
                name = name.strip("<>").removeprefix("built-in method ")
                place = f" ({os.path.basename(file)}:{line})" if line else ""
                found[name + place] = times[2]  # by itself, without those that it calls
        whole = sum(found.values()) or 1.0
        dearest = sorted(found, key=found.__getitem__, reverse=True)[:8]
        return {name: found[name] / whole for name in dearest}

    def run(
        self, settings: Settings, seconds: float, step: Callable[[Any], Any] | None = None
    ) -> Run:
        """Loops for so many seconds, not counting the first batches, or until each has come once.

        Args:
            settings: How.
            seconds: For how long; there is a batch from each worker at least, after the first ones.
            step: Called with each batch.

        Raises:
            ValueError: There is no batch.
            TypeError: There are batches only once.
            Exception: Whatever the dataset, the collate function or the step raise.
        """
        run = Run(settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # DataLoader's about workers, known better here
            try:
                self._loop(run, self._variant(settings), seconds, step)
            except RuntimeError as error:
                if settings.workers and not run.batches:
                    self._explain(error)
                raise
        self._patience = max(self._patience, 10 * run.startup)
        return run

    def _variant(self, settings: Settings) -> Iterable[tuple[Any, Batch]]:
        """A loader of batches, and how they were made."""
        own = self._loader
        dataset, collate = self.of_workers if settings.workers else (self.dataset, self.collate)
        dataset = dataset if settings.dataset is None else settings.dataset
        collate = collate if settings.collate is None else settings.collate
        options: dict[str, Any] = {}
        if self.is_stream:
            size = own.batch_size and own.batch_size * settings.batch_factor
            maker: Maker = StreamMaker(dataset, collate, size, own.drop_last)
        else:
            maker = (ReadyMaker if settings.is_ready else Maker)(dataset, collate, self._is_batched)
            indices = self._indices if settings.batches is None else iter(settings.batches)
            if settings.batch_factor > 1:
                indices = _joined(indices, settings.batch_factor)
            options["sampler"] = _Epochs(indices, settings.epoch)
        if settings.workers:
            options |= {
                "timeout": own.timeout if own.num_workers else self._patience,
                "worker_init_fn": WorkerStart(self._init),
                "multiprocessing_context": own.multiprocessing_context,
                "prefetch_factor": settings.prefetch_factor or 2,
                "persistent_workers": settings.persistent,
                "in_order": own.in_order,
            }
        variant: DataLoader[Any] = DataLoader(
            maker,
            batch_size=None,
            collate_fn=as_it_is,
            num_workers=settings.workers,
            generator=self._generator,
            pin_memory=settings.pin_memory,
            **options,
        )
        if not settings.in_thread:
            return variant
        if self._device_loader is None:
            return DeviceLoader(variant)
        device_loader = self._device_loader
        fields = None if device_loader.fields is None else (device_loader.fields, None)
        return DeviceLoader(variant, device_loader.device, fields, device_loader.depth)

    def _loop(
        self, run: Run, loader: Any, seconds: float, step: Callable[[Any], Any] | None
    ) -> None:
        batches, ahead = run.batches, run.settings.ahead
        least = ahead + max(1, run.settings.workers)
        asked = time.perf_counter()
        source = iter(loader)
        epoch = 0  # batches in it
        while len(batches) < least or batches[-1].done - batches[ahead - 1].done < seconds:
            try:
                given, batch = next(source)
            except StopIteration:
                if run.settings.batches is not None:
                    break
                if not epoch:
                    raise self._nothing(batches) from None
                source, epoch = iter(loader), 0
                continue
            epoch += 1
            if not batches:  # which no step has seen; the first one's time doesn't count
                self.batch, given = given, cloned(given)
            batch.asked, batch.received = asked, time.perf_counter()
            if step is not None:
                step(given)
                synchronize()
            batch.done = asked = time.perf_counter()
            batches.append(batch)
        run.startup = batches[0].received - batches[0].asked
        run.bytes = bytes_in(self.batch)
        run.stats = loader.stats() if isinstance(loader, DeviceLoader) else None

    def _nothing(self, batches: list[Batch]) -> Exception:
        if batches:
            return TypeError(
                "diagnose: the loader can be iterated only once: the second time it has no batch; begin "
                "anew in the __iter__ of its dataset or sampler"
            )
        return ValueError(
            "diagnose: the loader has no batch: its dataset or its sampler is empty, or drop_last "
            "leaves nothing"
        )

    def _explain(self, error: RuntimeError) -> None:
        context: Any = self._loader.multiprocessing_context or torch.multiprocessing
        if context.get_start_method() != "fork":
            add_note(
                error,
                f"diagnose: workers begin by {context.get_start_method()!r} here, which imports the "
                "main module again; call diagnose under if __name__ == '__main__':",
            )
        elif "timed out" in str(error) and threading.active_count() > 1:
            others = {one.name for one in threading.enumerate()} - {threading.main_thread().name}
            add_note(
                error,
                "diagnose: a forked worker waits for ever for a lock that another thread holds here; "
                f"running are {', '.join(sorted(others))}",
            )


class StepTimes(NamedTuple):
    """What a step takes for one batch.

    Attributes:
        seconds: The mean.
        cpu_seconds: Of processor time, in all threads of this process.
    """

    seconds: float
    cpu_seconds: float


def time_step(step: Callable[[Any], Any], batch: Any, seconds: float) -> StepTimes:
    """Times a step again and again on copies of one batch: it may write into them."""
    step(cloned(batch))
    taken: list[float] = []
    cpu: list[float] = []
    end = time.perf_counter() + seconds
    while not taken or (time.perf_counter() < end and len(taken) < 10_000):
        given = cloned(batch)
        synchronize()
        start, cpu_start = time.perf_counter(), time.process_time()
        step(given)
        synchronize()
        taken.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
    return StepTimes(statistics.fmean(taken), statistics.fmean(cpu))


class CopyTimes(NamedTuple):
    """What it takes to bring a batch to the device, in seconds.

    Attributes:
        pinning: To copy it into pinned memory.
        pageable: To the device from memory as the collate function leaves it.
        pinned: To the device from pinned memory.
    """

    pinning: float
    pageable: float
    pinned: float


def time_copies(batch: Any, device: torch.device) -> CopyTimes | None:
    """The best of five of each; None if nothing of the batch is in the CPU's memory."""
    tensors = [leaf for _, leaf in leaves(batch) if isinstance(leaf, torch.Tensor)]
    tensors = [tensor for tensor in tensors if tensor.device.type == "cpu"]
    if not tensors:
        return None
    pinned = [tensor.pin_memory() for tensor in tensors]

    def best(work: Callable[[], Any]) -> float:
        taken = []
        for _ in range(5):
            start = time.perf_counter()
            work()
            synchronize()
            taken.append(time.perf_counter() - start)
        return min(taken)

    return CopyTimes(
        best(lambda: [tensor.clone().pin_memory() for tensor in tensors]),
        best(lambda: [tensor.to(device) for tensor in tensors]),
        best(lambda: [tensor.to(device, non_blocking=True) for tensor in pinned]),
    )


def synchronize() -> None:
    """Waits for the accelerator, if there is one, so that a step has taken its time."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def bytes_in(batch: Any) -> int:
    """Of all arrays and tensors that containers lead to."""
    return sum(int(leaf.nbytes) for _, leaf in leaves(batch) if hasattr(leaf, "nbytes"))


def cloned(node: Any) -> Any:
    """A copy of a batch: its containers, tensors, arrays, and what else can make one of itself."""
    if is_container(node):
        return rebuild(node, [cloned(part) for part in parts(node)])
    clone = getattr(node, "clone", None) or getattr(node, "copy", None)
    return node if clone is None else clone()


def as_it_is(batch: Any) -> Any:
    """The collate function of a dataset that gives whole batches."""
    return batch


class _Epochs:
    """Indices that go on where the last epoch ended."""

    def __init__(self, indices: Iterator[Any], length: int | None) -> None:
        self._indices = indices
        self._length = length

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self._indices, self._length)


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
