"""Loops over variants of a loader, each batch with the times of its stages."""

from __future__ import annotations

import functools
import inspect
import io
import itertools
import math
import statistics
import time
import timeit
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
)

from pinfeed.arguments import Problem, known_length
from pinfeed.diagnosis.batch_values import bytes_in, cloned, have_equal_values
from pinfeed.diagnosis.copying import copied
from pinfeed.diagnosis.stages import Batch, ReadyDataset, TimedDataset, TimedStream, begin_worker
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.loaders.stats import FeedStats
from pinfeed.optional import add_note
from pinfeed.structure import leaves

#: Bytes of a batch of which several would take much memory, and whose own cost doesn't count.
LARGE = 16_000_000
#: Seconds for the first batch of workers, where the loader itself has none.
_PATIENCE = 30.0


@dataclass(frozen=True)
class Settings:
    """How a loop is run; what is None is as in the loader."""

    workers: int
    in_thread: bool = False  # whether a `DeviceLoader` runs it ahead of the loop
    batch_factor: int = 1  # how many of the loader's batches make one
    prefetch_factor: int | None = None  # batches ahead for each worker
    persistent: bool = False  # whether workers stay for the next epoch
    pin_memory: bool = False  # whether the DataLoader pins batches
    epoch: int | None = None  # batches in an epoch; None to go on without end
    is_whole: bool = False  # whether the dataset is asked for a list of indices, as for one
    collate: Callable[[Any], Any] | None = None
    batches: Iterable[Any] | None = None  # the indices of the batches, each once
    is_ready: bool = False  # whether each worker makes one batch, and sends that again and again

    @property
    def makes_its_own(self) -> bool:
        """Whether the loop makes its batches itself, while it waits for them."""
        return not (self.workers or self.in_thread)

    @property
    def starts_after(self) -> int | None:
        """Batches after which workers start again; None if they don't."""
        return self.epoch if self.workers and not self.persistent else None

    @property
    def ahead(self) -> int:
        """Batches that are made before the loop waits for one, or whose memory is new: they tell little."""
        return max(2, self.workers * (self.prefetch_factor or 2)) + 4 * self.in_thread


@dataclass
class Run:
    """What a loop did; times are means of its steady batches, in seconds."""

    settings: Settings
    batches: list[Batch] = field(default_factory=list)
    startup: float = 0.0  # until there was the first batch
    bytes: int = 0  # of the first batch
    tensors: int = 0  # in it
    stats: FeedStats | None = None  # of the DeviceLoader, if there was one

    @property
    def steady(self) -> list[Batch]:
        """The batches after those that were made ahead, as many from each worker, or of whole epochs."""
        count, workers = len(self.batches), max(1, self.settings.workers)
        first = max(0, min(self.settings.ahead, count - workers))
        epoch = self.settings.starts_after
        whole = epoch if epoch and count - first >= epoch else workers
        return self.batches[first : count - (count - first) % whole]

    @property
    def samples(self) -> int:
        """How many are in one of the loader's batches."""
        return self.batches[0].samples // self.settings.batch_factor

    @property
    def unseen_start(self) -> float:
        """A batch's share of the workers' start that each epoch has, where the run was no longer than one."""
        epoch = self.settings.starts_after
        if not epoch or len(self.batches) > epoch:
            return 0.0
        return max(0.0, self.startup - self.made) / epoch

    @property
    def period(self) -> float:
        """From one of the loader's batches to the next."""
        steady = self.steady
        seconds = (steady[-1].done - steady[0].asked) / len(steady) + self.unseen_start
        return seconds / self.settings.batch_factor

    def mean(self, of: Callable[[Batch], float]) -> float:
        """Of the steady batches."""
        return statistics.fmean(map(of, self.steady))

    @property
    def wait_share(self) -> float:
        """The share of the time in which the loop waited for batches."""
        waited = self.mean(lambda batch: batch.received - batch.asked) + self.unseen_start
        return waited / (waited + self.mean(lambda batch: batch.done - batch.received))

    @property
    def fetch(self) -> float:
        """For the samples of a batch."""
        return self.mean(lambda batch: batch.fetched - batch.begun)

    @property
    def collate(self) -> float:
        """For the collate function."""
        return self.mean(lambda batch: batch.collated - batch.fetched)

    @property
    def made(self) -> float:
        """For the two."""
        return self.mean(lambda batch: batch.seconds)

    @property
    def cpu(self) -> float:
        """Of processor time for the two."""
        return self.mean(lambda batch: batch.cpu_seconds)

    @property
    def queued(self) -> float:
        """In which they waited for a CPU, because other work had it."""
        return self.mean(lambda batch: batch.queued_seconds)

    @property
    def idle(self) -> float:
        """In which they waited for something else than a CPU."""
        return max(0.0, self.made - self.cpu - self.queued)


class LoaderCopy:
    """What a loader holds, copied, to run variants of it.

    Args:
        loader: A DataLoader, or a DeviceLoader around one.

    Attributes:
        settings: The loader's own.
        dataset: The copy that this process uses.
        collate: Likewise.
        length: Of the dataset; 0 if nobody knows.
        batch_size: The loader's; None where a batch sampler has one, or the dataset.
        epoch: Batches in one; None if nobody knows, as of a stream until it has ended once.
        indices: Of the samples of one batch after the other.
        of_workers: The two copies that workers use: what this process opens, they must not inherit.
        batch: The first that the last loop had, as it was before the step.
        not_copied: Names of the types of objects that both share, because they can't be copied.
        holds_files: Whether some of these are open files, whose position workers would share.
        repeats: Whether two workers make the same where one would not: of a stream that is not split, or
            because random numbers come from a generator of which each has a copy; None if nobody knows.
        reuses_memory: Whether a batch lies in memory that is written again for a later one.
        is_stream: Whether the dataset is an iterable one.
        shuffles: Whether torch's own sampler does, because of ``shuffle=True``.
        has_plain_batches: Whether torch's sampler joins samples to batches of a size, or a stream's are.
        own_iter: The name of the ``__iter__`` of a subclass of DataLoader; None without.

    Raises:
        TypeError: It is something else, or what it holds can be iterated only once.
    """

    batch: Any
    repeats: bool | None = None
    reuses_memory = False

    def __init__(self, loader: Any) -> None:
        self._device_loader = loader if isinstance(loader, DeviceLoader) else None
        inner = loader.loader if isinstance(loader, DeviceLoader) else loader
        if not isinstance(inner, DataLoader):
            expected = "loader must be a torch DataLoader, or a DeviceLoader around one"
            hint = "give the DataLoader in it; what yields the samples can be an IterableDataset"
            raise TypeError(
                Problem("diagnose", f"{expected}, got {type(inner).__name__}", hint=hint)
            )
        self._loader: DataLoader[Any] = inner
        self._patience = _PATIENCE
        own_iter = type(inner).__iter__
        self.own_iter = None if own_iter is DataLoader.__iter__ else own_iter.__qualname__
        is_batched = inner.batch_sampler is not None
        sampler = inner.batch_sampler if is_batched else inner.sampler
        self.has_plain_batches = type(inner.batch_sampler) is BatchSampler
        self.shuffles = self.has_plain_batches and type(inner.sampler) is RandomSampler
        self.is_stream = isinstance(inner.dataset, IterableDataset)
        made = (inner.dataset, inner.collate_fn)
        (self.dataset, self.collate), originals = copied(made)
        self.length = known_length(self.dataset) or 0
        self.batch_size = inner.batch_size
        parts = (*made, sampler, inner.generator, inner.worker_init_fn)
        (*self.of_workers, sampler_copy, self._generator, self._init), shared = copied(parts)
        self.not_copied = sorted({type(one).__qualname__ for one in shared})
        self.holds_files = any(map(_is_open_file, originals))
        others = [*originals, *copied([inner.worker_init_fn])[1]]
        of_sampler = [one for one in shared if not any(one is other for other in others)]
        # A dataset of a length reads files where it wants to, and asks cursors anew.
        of_dataset = [x for x in originals if self.is_stream or isinstance(x, types.GeneratorType)]
        _check_lasts(of_dataset, "dataset holds", "begin it in its __iter__ or __getitem__")
        hint = "give a list of the batches, or an object whose __iter__ begins anew"
        _check_lasts([sampler, inner.sampler, *of_sampler], "sampler is, or holds,", hint)
        self._timed = TimedDataset(self.dataset, self.collate, is_batched)
        self._epochs: list[int] = []  # how many batches a sampler had, once it began anew
        self.indices = iter(()) if self.is_stream else _endless(sampler_copy, self._epochs)
        self.epoch = None if self.is_stream else known_length(inner)
        self.settings = Settings(
            workers=inner.num_workers,
            in_thread=self._device_loader is not None,
            prefetch_factor=inner.prefetch_factor,
            persistent=inner.persistent_workers,
            pin_memory=inner.pin_memory,
            epoch=self.epoch if inner.num_workers else None,
        )

    def samples(self, indices: Any) -> Any:
        """The samples of a batch, made in this process."""
        return self._timed.samples(indices, Batch(None))

    def compare_workers(self) -> None:
        """Finds out whether two workers make the same where one would not."""
        if self.is_stream:
            settings = Settings(2, prefetch_factor=1)
        else:  # each of them makes each batch twice
            count = 4 if bytes_in(self.batch) < LARGE else 1
            batches = [batch for batch in itertools.islice(self.indices, count) for _ in range(4)]
            settings = Settings(2, prefetch_factor=1, batches=batches)
        alike, again, four = [], [], list[Any]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for given, _ in itertools.islice(self._variant(settings, in_order=True), 16):
                four.append(given)
                if len(four) == 4:  # two of one worker, between them those of the other
                    one, other, next_of_one, next_of_other = four
                    alike += [
                        have_equal_values(one, other),
                        have_equal_values(next_of_one, next_of_other),
                    ]
                    again.append(have_equal_values(one, next_of_one))
                    four.clear()
        self.repeats = bool(again) and all(alike) and not all(again)

    def learns_epoch(self) -> bool:
        """Whether a sampler that has no length has ended an epoch, after which workers start again."""
        if self.epoch is not None or not self._epochs:
            return False
        self.epoch = self._epochs[0]
        if self.settings.workers:
            self.settings = replace(self.settings, epoch=self.epoch)
        return self.settings.starts_after is not None

    def run(
        self,
        settings: Settings,
        seconds: float,
        step: Callable[[Any], Any] | None = None,
        longest: float = math.inf,
    ) -> Run:
        """Loops for so many seconds, not counting the first batches, or until each has come once.

        There is a batch from each worker at least, after the first ones.

        Raises:
            ValueError: There is no batch, or making the first one took longer than ``longest``.
            TypeError: There are batches only once.
            Exception: Whatever the dataset, the collate function or the step raise.
        """
        run, start = Run(settings), time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # DataLoader's about workers, known better here
            try:
                self._loop(run, self._variant(settings), seconds, step, longest)
            except RuntimeError as error:
                if settings.workers and not run.batches:
                    self._explain(error, time.perf_counter() - start)
                raise
        self._patience = max(self._patience, 10 * run.startup)
        return run

    def _variant(self, settings: Settings, in_order: bool = False) -> Iterable[tuple[Any, Batch]]:
        """A loader of batches, and how they were made."""
        own = self._loader
        dataset, collate = self.of_workers if settings.workers else (self.dataset, self.collate)
        collate = collate if settings.collate is None else settings.collate
        options: dict[str, Any] = {}
        if self.is_stream:
            size = own.batch_size and own.batch_size * settings.batch_factor
            timed: TimedDataset = TimedStream(dataset, collate, size, own.drop_last)
        else:
            kind = ReadyDataset if settings.is_ready else TimedDataset
            timed = kind(dataset, collate, self._timed.is_batched, settings.is_whole)
            batches = self.indices if settings.batches is None else iter(settings.batches)
            options["sampler"] = _Epochs(batches, settings.batch_factor, settings.epoch)
        if settings.workers:
            options |= {
                "timeout": own.timeout if own.num_workers else self._patience,
                "worker_init_fn": functools.partial(begin_worker, self._init),
                "multiprocessing_context": own.multiprocessing_context,
                "prefetch_factor": settings.prefetch_factor or 2,
                "persistent_workers": settings.persistent,
                "in_order": in_order or own.in_order,
            }
        variant: DataLoader[Any] = DataLoader(
            timed,
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
        self,
        run: Run,
        loader: Any,
        seconds: float,
        step: Callable[[Any], Any] | None,
        longest: float,
    ) -> None:
        batches, settings, epochs = run.batches, run.settings, list[int]()
        starts = settings.workers > 0 and not settings.persistent
        least = enough = settings.ahead + max(1, settings.workers)
        if settings.workers and (settings.prefetch_factor or 2) > 2:
            least = 3 * settings.ahead  # the loop lives on a long queue for a while
        asked = time.perf_counter()
        for given, batch in _endless(loader, epochs) if settings.batches is None else loader:
            if not batches:  # which no step has seen; the first one's time doesn't count
                if batch.seconds > longest:
                    wrong = f"seconds={longest:g} is too short: the first batch took {batch.seconds:.1f} s"
                    hint = f"give at least {10 * batch.seconds:.0f}"
                    raise ValueError(Problem("diagnose", wrong, hint=hint))
                self.batch, given = given, cloned(given)
                first = given
            batch.asked, batch.received = asked, time.perf_counter()
            if step is not None:
                do_step(step, given)
            batch.done = asked = time.perf_counter()
            batches.append(batch)
            if asked - batches[0].done > 4 * seconds:
                least = enough
            # With a second start there is a whole epoch; a stream's is known when it is over.
            epoch = settings.starts_after or (epochs[0] if epochs and starts else 0)
            whole = settings.ahead + epoch if 0 < epoch < len(batches) else 0
            if (
                len(batches) >= max(least, whole)
                and asked - batches[settings.ahead - 1].done >= seconds
            ):
                break
        else:
            if not batches:
                wrong = "the loader has no batch"
                hint = "its dataset or its sampler is empty, or drop_last leaves nothing"
                raise ValueError(Problem("diagnose", wrong, hint=hint))
            if settings.batches is None:
                wrong = "the loader can be iterated only once: the second time it has no batch"
                hint = "begin anew in the __iter__ of its dataset or sampler"
                raise TypeError(Problem("diagnose", wrong, hint=hint))
        if settings.makes_its_own and step is None and have_equal_values(first, cloned(first)):
            self.reuses_memory = not have_equal_values(cloned(self.batch), first)
        if self.is_stream and self.epoch is None and epochs:
            self.epoch = epochs[0]
            if settings is self.settings and settings.workers:
                self.settings = run.settings = replace(settings, epoch=self.epoch)
        run.startup = batches[0].received - batches[0].asked
        run.bytes = bytes_in(self.batch)
        run.tensors = sum(isinstance(leaf, torch.Tensor) for _, leaf in leaves(self.batch))
        run.stats = loader.stats() if isinstance(loader, DeviceLoader) else None

    def _explain(self, error: RuntimeError, seconds: float) -> None:
        """Says what workers that made no batch in so many seconds may have met."""
        context: Any = self._loader.multiprocessing_context or torch.multiprocessing
        method = context.get_start_method()
        if method != "fork" and error.__cause__ is not None:  # a worker ended by itself
            add_note(
                error,
                f"workers begin by {method!r} here, which imports the main module again; call diagnose "
                "under if __name__ == '__main__'",
            )
        elif not self._loader.num_workers and seconds >= self._patience:
            add_note(
                error,
                "a worker waits for ever for a lock that a thread held here when it was forked; or its "
                "batch can't be pickled, which it says on stderr",
            )


class StepTimes(NamedTuple):
    """What a step takes for one batch: mean seconds, and of processor time in all threads."""

    seconds: float
    cpu_seconds: float


def time_step(step: Callable[[Any], Any], batch: Any, seconds: float) -> StepTimes:
    """Times a step again and again on copies of one batch: it may write into them."""
    taken: list[float] = []
    cpu: list[float] = []
    end = time.perf_counter() + seconds
    while not taken or (time.perf_counter() < end and len(taken) < 10_000):
        copies = [cloned(batch) for _ in range(8 if bytes_in(batch) < LARGE else 2)]
        step(copies.pop())  # meanwhile the threads that copied stop to spin
        for given in copies:
            synchronize()
            start, cpu_start = time.perf_counter(), time.process_time()
            do_step(step, given)
            taken.append(time.perf_counter() - start)
            cpu.append(time.process_time() - cpu_start)
    return StepTimes(statistics.fmean(taken), statistics.fmean(cpu))


class CopyTimes(NamedTuple):
    """Seconds to copy a batch into pinned memory, and to the device from pageable or pinned memory."""

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

    def best(copy: Callable[[torch.Tensor], Any], sources: list[torch.Tensor]) -> float:
        def work() -> None:
            for tensor in sources:
                copy(tensor)
            synchronize()

        return min(timeit.repeat(work, number=1))

    return CopyTimes(
        best(lambda tensor: tensor.clone().pin_memory(), tensors),
        best(lambda tensor: tensor.to(device), tensors),
        best(lambda tensor: tensor.to(device, non_blocking=True), pinned),
    )


def do_step(step: Callable[[Any], Any], batch: Any) -> None:
    """Does a training step, and waits until it is over.

    Raises:
        TypeError: It did nothing yet.
    """
    try:
        result = step(batch)
    except Exception as error:
        add_note(error, "raised by the step, which diagnose calls many times: a scheduler may end")
        raise
    kinds = (inspect.isawaitable, inspect.isgenerator, inspect.isasyncgen)
    if any(is_later(result) for is_later in kinds):
        wrong = f"step must do its work when it is called, and returned a {type(result).__name__}"
        raise TypeError(Problem("diagnose", wrong, hint="give a function that runs it to its end"))
    synchronize(result)


def synchronize(result: Any = None) -> None:
    """Waits for the accelerator, if there is one, and for arrays of JAX, so that a step has taken its time."""
    try:
        waits = [getattr(leaf, "block_until_ready", None) for _, leaf in leaves(result)]
    except Exception:  # noqa: BLE001, whatever it was, it is no array
        waits = []
    for wait in filter(callable, waits):
        wait()
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def as_it_is(batch: Any) -> Any:
    """The collate function of a dataset that gives whole batches."""
    return batch


def _check_lasts(held: list[Any], where: str, hint: str) -> None:
    """Raises a TypeError if what a loader holds can be read only once: measuring would use it up."""
    for one in held:
        if _is_open_file(one) if isinstance(one, io.IOBase) else isinstance(one, Iterator):
            wrong = f"the loader's {where} an iterator, which measuring would use up"
            raise TypeError(Problem("diagnose", wrong, hint=hint))


def _is_open_file(value: Any) -> bool:
    if isinstance(value, io.IOBase):
        return not value.closed and value.readable()
    return type(value).__module__.partition(".")[0] in ("h5py", "sqlite3", "lmdb")


class _Epochs:
    """Batches of indices, several joined to one, that go on where the last epoch ended."""

    def __init__(self, batches: Iterator[Any], factor: int, length: int | None) -> None:
        self._batches = batches
        self._factor = factor
        self._length = length

    def __iter__(self) -> Iterator[Any]:
        joined = self._batches if self._factor == 1 else self._joined()
        return itertools.islice(joined, self._length)

    def _joined(self) -> Iterator[Any]:
        while parts := list(itertools.islice(self._batches, self._factor)):
            yield list(itertools.chain(*parts))


def _endless(epoch: Iterable[Any], lengths: list[int]) -> Iterator[Any]:
    """One epoch of a sampler or a loader after the other, until one is empty; notes their lengths."""
    while not lengths or lengths[-1]:
        count = 0
        for count, one in enumerate(epoch, 1):  # noqa: B007
            yield one
        lengths.append(count)
