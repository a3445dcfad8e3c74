"""Timed loops over variants of a loader."""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import itertools
import math
import statistics
import time
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from pinfeed.arguments import Problem, known_length
from pinfeed.diagnosis.batch_values import bytes_in, cloned, have_equal_values
from pinfeed.diagnosis.copying import copied
from pinfeed.diagnosis.stages import Batch, TimedDataset, TimedStream, begin_worker
from pinfeed.imports import add_note
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.structure import entries

#: Batches of more bytes are not copied several times.
LARGE = 16_000_000
#: Timeout in seconds for workers if the loader itself has none.
_PATIENCE = 30.0
#: A run ends early after this multiple of its seconds.
_SLOW = 5.0


@dataclass(frozen=True, eq=False)
class Settings:
    """The settings of a loop."""

    workers: int
    in_thread: bool = False  # whether a `DeviceLoader` prefetches
    batch_factor: int = 1  # number of the loader's batches in one batch of the loop
    prefetch_factor: int | None = None  # prefetched batches per worker
    persistent: bool = False  # whether workers are persistent
    pin_memory: bool = False  # whether the DataLoader pins batches
    epoch: int | None = None  # batches per epoch; None: endless
    replace_dataset: Callable[[Any], Any] | None = None  # replaces the loader's dataset
    collate: Callable[[Any], Any] | None = None  # instead of the loader's

    @property
    def ahead(self) -> int:
        """Number of first batches to ignore: prefetched, or in newly allocated memory."""
        return max(2, self.workers * (self.prefetch_factor or 2)) + 4 * self.in_thread


def _mean(of: Callable[[Batch], float]) -> Any:
    return property(lambda run: statistics.fmean(map(of, run.steady)))


@dataclass
class Run:
    """The results of a loop; times are means over its steady batches, in seconds per batch."""

    settings: Settings
    batches: list[Batch] = field(default_factory=list)
    draws: list[float] = field(default_factory=list)  # seconds of the sampler, batch by batch
    drawn_indices: list[Any] = field(default_factory=list)  # that it yielded
    unit: int = 1  # number of batches that repeat the same work
    epoch: int | None = None  # the number of batches after which workers started again
    bytes: int = 0  # of the first batch

    samples = _mean(lambda batch: batch.samples)
    fetch = _mean(lambda batch: batch.fetched - batch.start)
    collate = _mean(lambda batch: batch.collated - batch.fetched)
    production = _mean(lambda batch: batch.collated - batch.start)
    cpu = _mean(lambda batch: batch.cpu_seconds)
    queued = _mean(lambda batch: batch.queued_seconds)  # for a CPU
    idle = _mean(lambda batch: max(0.0, batch.seconds - batch.cpu_seconds - batch.queued_seconds))
    disk_bytes = _mean(lambda batch: batch.disk_bytes)
    clocks = _mean(lambda batch: batch.clock_seconds)
    step = _mean(lambda batch: batch.end - batch.received)
    _waited = _mean(lambda batch: batch.received - batch.requested)
    # Waiting for a batch that was not made yet; the rest of the wait is its transfer.
    making = _mean(lambda batch: max(0.0, min(batch.collated, batch.received) - batch.requested))

    @property
    def steady(self) -> list[Batch]:
        """The batches after the prefetched ones, in whole units if possible."""
        count, workers = len(self.batches), max(1, self.settings.workers)
        first = max(0, min(self.settings.ahead, count - workers))
        unit = self.unit if count - first >= self.unit else workers
        return self.batches[first : count - (count - first) % unit]

    @property
    def sampler(self) -> float:
        """Seconds to draw the indices of a batch."""
        return statistics.fmean(self.draws[1:] or self.draws or [0.0])

    @property
    def queued_outside(self) -> float:
        """Seconds that a loop without workers waited for a CPU outside of the stages."""
        steady = self.steady
        queued = steady[-1].queued_before - steady[0].queued_before
        return float(max(0.0, queued / max(1, len(steady) - 1) - self.queued))

    @property
    def unexplained(self) -> float:
        """Seconds that a loop without workers waited outside of the stages, and not for a CPU."""
        drawing = max(self.sampler, self.queued_outside)  # the two may overlap
        missing = self._waited - drawing - self.production - self.clocks
        return float(max(0.0, missing))

    @property
    def startup(self) -> float:
        """Seconds until the first batch."""
        return self.batches[0].received - self.batches[0].requested

    @property
    def starting(self) -> float:
        """A batch's share of the time that workers take to start in each epoch."""
        if not self.epoch:
            return 0.0
        starts = self.batches[self.epoch :: self.epoch] or self.batches[:1]
        waited = statistics.fmean(batch.received - batch.requested for batch in starts)
        return max(0.0, waited - self.production) / self.epoch

    @property
    def wait(self) -> float:
        """Seconds waiting for a batch, including its share of a worker start before the steady batches."""
        is_unseen = self.epoch is not None and len(self.batches) <= self.epoch
        return self._waited + (self.starting if is_unseen else 0.0)

    @property
    def period(self) -> float:
        """Seconds from one of the loader's batches to the next."""
        return (self.wait + self.step) / self.settings.batch_factor

    @property
    def hand_off(self) -> float:
        """Seconds waiting for a finished batch: its transfer from workers or a thread."""
        return max(0.0, self._waited - self.making - self.sampler)


class LoaderCopy:
    """A copy of a loader's parts, to run variants of it.

    Args:
        loader: A DataLoader, or a DeviceLoader around one.

    Raises:
        TypeError: If it is something else, or its parts can be iterated only once.
    """

    batch: Any  # the first batch of the last loop, as it was before the step
    #: Whether two workers repeat each other's batches: an unsharded stream, or random numbers from copies
    #: of one generator; None if unknown.
    repeats: bool | None = None

    def __init__(self, loader: Any) -> None:
        self._device_loader = loader if isinstance(loader, DeviceLoader) else None
        inner = loader.loader if isinstance(loader, DeviceLoader) else loader
        if not isinstance(inner, DataLoader):
            expected = "loader must be a torch DataLoader, or a DeviceLoader around one"
            hint = "pass DataLoader(dataset, batch_size) for a dataset, or the DataLoader inside a wrapper"
            raise TypeError(
                Problem("diagnose", f"{expected}, got {type(inner).__name__}", hint=hint)
            )
        self.loader: DataLoader[Any] = inner
        self.has_fields = getattr(loader, "fields", None) is not None
        self._patience = _PATIENCE
        own_iter = type(inner).__iter__
        self.own_iter = None if own_iter is DataLoader.__iter__ else own_iter.__qualname__
        self._is_batched = inner.batch_sampler is not None
        sampler = inner.batch_sampler if self._is_batched else inner.sampler
        self.has_plain_batches = type(inner.batch_sampler) is BatchSampler
        self.is_stream = isinstance(inner.dataset, IterableDataset)
        pair = (inner.dataset, inner.collate_fn)
        (self.dataset, self.collate), originals = copied(pair)
        self.length = known_length(self.dataset) or 0
        # Separate copies for workers, which must not inherit files that this process opens.
        parts = (*pair, sampler, inner.generator, inner.worker_init_fn)
        (*self._of_workers, sampler_copy, self._generator, self._init), shared = copied(parts)
        self.not_copied = sorted({type(one).__qualname__ for one in shared})
        self.holds_files = any(map(_is_open_file, originals))  # workers would share their position
        others = [*originals, *copied([inner.worker_init_fn])[1]]
        of_sampler = [one for one in shared if not any(one is other for other in others)]
        # A map-style dataset may hold files and cursors, because it seeks in them.
        of_dataset = [x for x in originals if self.is_stream or isinstance(x, types.GeneratorType)]
        hint = "create the iterator in the dataset's __iter__ or __getitem__"
        _check_lasts(of_dataset, "dataset holds", hint)
        hint = "pass a list of the batches, or an object whose __iter__ creates a new iterator"
        _check_lasts([sampler, inner.sampler, *of_sampler], "sampler is, or holds,", hint)
        # The indices of the batches of all runs, once `repeat` chose them.
        self._again: list[Any] = []
        self.indices = iter(()) if self.is_stream else _endless(sampler_copy, [])
        self.epoch = None if self.is_stream else known_length(inner)
        self.settings = Settings(
            workers=inner.num_workers,
            in_thread=self._device_loader is not None,
            prefetch_factor=inner.prefetch_factor,
            persistent=inner.persistent_workers,
            pin_memory=inner.pin_memory,
            epoch=self.epoch if inner.num_workers else None,
        )

    def make(self, indices: Any) -> Any:
        """Makes a batch in this process."""
        return TimedDataset(self.dataset, self.collate, self._is_batched)[indices][0]

    def samples(self, indices: Any) -> Any:
        """Returns the samples of a batch, made in this process."""
        return TimedDataset(self.dataset, as_it_is, self._is_batched)[indices][0]

    @functools.cached_property
    def reuses_memory(self) -> bool:
        """Whether later batches overwrite the memory of a batch."""
        if self.is_stream:
            return False
        with contextlib.suppress(Exception):  # the dataset may work only in workers
            batches = [self.make(next(self.indices))]
            clone = cloned(batches[0])
            can_tell = have_equal_values(batches[0], clone)
            batches += [self.make(next(self.indices)) for _ in range(2)]
            return can_tell and not have_equal_values(batches[0], clone)
        return False

    def repeat(self, run: Run, seconds: float) -> None:
        """Makes all later runs repeat the batches of the first ``seconds`` of a run.

        The sampler still runs and takes its time, but its indices are replaced, so that times of the same
        samples are compared, even if a few of them are slow.
        """
        count = min(len(run.drawn_indices), 1 << 10, max(4, int(seconds / run.period)))
        count = min(1 << (count.bit_length() - 1), self.epoch or count)
        self._again = run.drawn_indices[:count]

    def compare_workers(self) -> None:
        """Determines whether two workers repeat each other's batches."""
        settings, again = Settings(2, prefetch_factor=1), None
        if not self.is_stream:  # each worker makes each batch twice
            count = 4 if bytes_in(self.batch) < LARGE else 1
            again = [one for one in itertools.islice(self.indices, count) for _ in range(4)]
            settings = replace(settings, epoch=len(again))
        equal, repeated, four = [], [], list[Any]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            variant = self._variant(Run(settings), again, in_order=True)
            for batch, _ in itertools.islice(variant, 16):
                four.append(batch)
                if len(four) == 4:  # two of one worker, alternating with two of the other
                    one, other, next_of_one, next_of_other = four
                    equal += [
                        have_equal_values(one, other),
                        have_equal_values(next_of_one, next_of_other),
                    ]
                    repeated.append(have_equal_values(one, next_of_one))
                    four.clear()
        self.repeats = bool(repeated) and all(equal) and not all(repeated)

    def run(
        self,
        settings: Settings,
        seconds: float,
        step: Callable[[Any], Any] | None = None,
        longest: float = math.inf,
        again: list[Any] | None = None,
    ) -> Run:
        """Loops for ``seconds``, in whole units of work, not counting the first batches.

        At least one batch from each worker follows the first batches.

        Raises:
            ValueError: If the loader yields no batch, or the first one took longer than ``longest``.
            TypeError: If the loader can be iterated only once.
            Exception: Errors of the dataset, the collate function or the step.
        """
        run, start = Run(settings), time.perf_counter()
        again = again or self._again
        unit = 1 if self.is_stream else max(1, len(again) // settings.batch_factor)
        run.unit = math.lcm(unit, max(1, settings.workers))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # DataLoader's warning about the number of workers
            try:
                self._loop(run, self._variant(run, again), seconds, step, longest)
            except RuntimeError as error:
                if settings.workers and not run.batches:
                    self._explain(error, time.perf_counter() - start)
                raise
        self._patience = max(self._patience, 10 * (run.batches[0].received - start))
        return run

    def _variant(
        self, run: Run, again: list[Any] | None, in_order: bool = False
    ) -> Iterable[tuple[Any, Batch]]:
        """Creates a loader that yields batches with their timings."""
        original, settings = self.loader, run.settings
        dataset, collate = self._of_workers if settings.workers else (self.dataset, self.collate)
        dataset = dataset if settings.replace_dataset is None else settings.replace_dataset(dataset)
        collate = collate if settings.collate is None else settings.collate
        options: dict[str, Any] = {}
        if self.is_stream:
            size = original.batch_size and original.batch_size * settings.batch_factor
            timed: Any = TimedStream(dataset, collate, size, original.drop_last)
        else:
            timed = TimedDataset(dataset, collate, self._is_batched)
            options["sampler"] = _Draws(self.indices, run, again)
        if settings.workers:
            options |= {
                "timeout": original.timeout if original.num_workers else self._patience,
                "worker_init_fn": functools.partial(begin_worker, self._init),
                "multiprocessing_context": original.multiprocessing_context,
                "prefetch_factor": settings.prefetch_factor or 2,
                "persistent_workers": settings.persistent,
                "in_order": in_order or original.in_order,
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
        return DeviceLoader(variant, device_loader.device, fields, device_loader.prefetch)

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
        run.epoch = settings.epoch if starts else None
        min_batches = settings.ahead + max(1, settings.workers)
        request_time = time.perf_counter()
        for data, batch in _endless(loader, epochs):
            if not batches:  # before any step could change it; the first batch's time doesn't count
                if batch.seconds > longest:
                    took = f"{batch.seconds:.1f}, which the first batch took"
                    wrong = f"seconds must be more than {took}, got {longest:g}"
                    hint = f"pass at least {10 * batch.seconds:.0f}"
                    raise ValueError(Problem("diagnose", wrong, hint=hint))
                self.batch, data = data, cloned(data)
            batch.requested, batch.received = request_time, time.perf_counter()
            if step is not None:
                do_step(step, data)
            batch.end = request_time = time.perf_counter()
            batches.append(batch)
            run.epoch = run.epoch or (epochs[0] if starts and epochs else None)  # of a stream
            if run.epoch and run.epoch < len(batches):
                run.unit = run.epoch  # with one start
            if len(batches) < min_batches:
                continue
            elapsed, total = (request_time - batches[i].end for i in (settings.ahead - 1, 0))
            is_whole = (len(batches) - settings.ahead) % run.unit == 0
            if (elapsed >= seconds and is_whole) or total > _SLOW * seconds:
                break
        else:
            if not batches:
                wrong = "loader must yield at least one batch, got none"
                hint = "its dataset or its sampler is empty, or drop_last drops all samples"
                raise ValueError(Problem("diagnose", wrong, hint=hint))
            wrong = "loader must be iterable several times, but the second time it had no batch"
            hint = "create a new iterator in the __iter__ of its dataset or sampler"
            raise TypeError(Problem("diagnose", wrong, hint=hint))
        run.bytes = bytes_in(self.batch)

    def _explain(self, error: RuntimeError, seconds: float) -> None:
        """Adds a note with a likely cause to the error of workers without a batch."""
        context: Any = self.loader.multiprocessing_context or torch.multiprocessing
        method = context.get_start_method()
        if method != "fork" and error.__cause__ is not None:  # a worker ended by itself
            hint = (
                "which imports the main module again; call diagnose under if __name__ == '__main__'"
            )
            add_note(error, f"workers start with {method!r} here, {hint}")
        elif not self.loader.num_workers and seconds >= self._patience:
            add_note(
                error,
                "either its batch can't be pickled, which stderr shows, or it waits for a lock that a "
                'thread held when the worker was forked: pass multiprocessing_context="forkserver"',
            )


def time_step(step: Callable[[Any], Any], batch: Any, seconds: float) -> float:
    """Returns the mean seconds of a step, called repeatedly with copies of a batch, which it may change."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or (time.perf_counter() < end and len(times) < 10_000):
        copies = [cloned(batch) for _ in range(8 if bytes_in(batch) < LARGE else 2)]
        step(copies.pop())  # meanwhile the copying threads stop spinning
        for clone in copies:
            synchronize()
            start = time.perf_counter()
            do_step(step, clone)
            times.append(time.perf_counter() - start)
    return statistics.fmean(times)


def do_step(step: Callable[[Any], Any], batch: Any) -> None:
    """Runs a training step and waits for its end.

    Raises:
        TypeError: If the step is asynchronous and has not run yet.
    """
    try:
        result = step(batch)
    except Exception as error:
        add_note(
            error,
            "raised by step(batch), which diagnose calls many times; a learning rate scheduler may have "
            "reached its end",
        )
        raise
    kinds = (inspect.isawaitable, inspect.isgenerator, inspect.isasyncgen)
    if any(is_later(result) for is_later in kinds):
        wrong = f"step must train on the batch when called, but returned a {type(result).__name__}"
        raise TypeError(Problem("diagnose", wrong, hint="pass a function that runs it to the end"))
    synchronize(result)


def synchronize(result: Any = None) -> None:
    """Waits for the accelerator and for JAX arrays, so that the step's time is complete."""
    try:
        waits = [getattr(entry, "block_until_ready", None) for _, entry in entries(result)]
    except Exception:  # noqa: BLE001, the result has no arrays
        waits = []
    for wait in filter(callable, waits):
        wait()
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def as_it_is(batch: Any) -> Any:
    """The collate function of a dataset that returns whole batches."""
    return batch


def _check_lasts(objects: list[Any], where: str, hint: str) -> None:
    """Raises TypeError if a part of the loader can be read only once, because measuring exhausts it."""
    for value in objects:
        if _is_open_file(value) if isinstance(value, io.IOBase) else isinstance(value, Iterator):
            wrong = f"loader must be iterable several times, but its {where} an iterator"
            raise TypeError(Problem("diagnose", wrong, hint=hint))


def _is_open_file(value: Any) -> bool:
    if isinstance(value, io.IOBase):
        return not value.closed and value.readable()
    return type(value).__module__.partition(".")[0] in ("h5py", "sqlite3", "lmdb")


class _Draws:
    """A sampler of (joined) index batches, which continues where the last epoch ended."""

    def __init__(self, batches: Iterator[Any], run: Run, again: list[Any] | None) -> None:
        self._batches = batches
        self._run = run
        self._again = itertools.cycle(again) if again else None

    def __iter__(self) -> Iterator[Any]:
        run, settings = self._run, self._run.settings
        numbers = itertools.count() if settings.epoch is None else range(settings.epoch)
        for _ in numbers:
            start = time.perf_counter()
            parts = list(itertools.islice(self._batches, settings.batch_factor))
            run.draws.append(time.perf_counter() - start)
            if not parts:
                return
            if self._again is not None:
                parts = list(itertools.islice(self._again, len(parts)))
            run.drawn_indices += parts
            yield parts[0] if settings.batch_factor == 1 else list(itertools.chain(*parts))


def _endless(epoch: Iterable[Any], lengths: list[int]) -> Iterator[Any]:
    """Yields from consecutive epochs of a sampler or a loader, until one is empty; records lengths."""
    while not lengths or lengths[-1]:
        count = 0
        for count, batch in enumerate(epoch, 1):  # noqa: B007
            yield batch
        lengths.append(count)
