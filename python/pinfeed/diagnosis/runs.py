"""Timed loops over variants of a loader."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import io
import itertools
import math
import statistics
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from pinfeed.arguments import Problem, known_length
from pinfeed.diagnosis import stages
from pinfeed.diagnosis.batch_values import bytes_in, have_equal_values
from pinfeed.diagnosis.copying import copied
from pinfeed.diagnosis.stages import Batch, TimedDataset, TimedStream, begin_worker
from pinfeed.imports import add_note
from pinfeed.loaders.device_loader import DeviceLoader

_Step = Callable[[Any], Any] | None
#: Fewer batches of more bytes are compared.
_LARGE = 16_000_000
#: Timeout in seconds for workers if the loader itself has none.
_PATIENCE = 30.0
#: A run ends early after this multiple of its seconds.
_SLOW = 3.0
#: Reasons why more workers are not tried, nor a thread because of the first one.
_REUSES = "later batches overwrite the memory of earlier ones"
_SHARES_FILES = "the dataset holds open files, whose position forked workers share: open them at the first sample"
_DRAWS_ALIKE = "two workers drew the same random numbers from copies of one generator: seed it in worker_init_fn"
_REPEATS = "each worker reads the whole stream: split it by get_worker_info(), as pinfeed.StreamDataset does"


@dataclass(frozen=True, eq=False)
class Settings:
    """The settings of a loop."""

    workers: int
    in_thread: bool = False  # whether a `DeviceLoader` prefetches
    persistent: bool = False  # whether workers are persistent
    dataset: Any = None  # instead of the loader's
    collate: Callable[[Any], Any] | None = None  # instead of the loader's
    in_order: bool = True  # whether workers return batches in order


def _mean(of: Callable[[Batch], float]) -> Any:
    return property(lambda run: statistics.fmean(map(of, run.steady)))


@dataclass
class Run:
    """The results of a loop; times are means over its steady batches, in seconds per batch."""

    settings: Settings
    ahead: int = 2  # number of first batches to ignore: prefetched, or in newly allocated memory
    again: list[Any] = field(default_factory=list)  # indices to repeat instead of the sampler's
    epoch: int | None = None  # number of batches after which workers start again, if known
    batches: list[Batch] = field(default_factory=list)
    draws: list[float] = field(default_factory=list)  # seconds of the sampler, batch by batch
    drawn_indices: list[Any] = field(default_factory=list)  # that it yielded
    bytes: int = 0  # of the first batch

    samples = _mean(lambda b: len(b.sample_seconds if b.indices is None else b.indices))
    fetch = _mean(lambda batch: batch.fetched - batch.start)
    collate = _mean(lambda batch: batch.collated - batch.fetched)
    production = _mean(lambda batch: batch.collated - batch.start)
    cpu = _mean(lambda batch: batch.cpu_seconds)
    queued = _mean(lambda batch: batch.queued_seconds)  # for a CPU
    # Neither using nor waiting for a CPU.
    idle = _mean(lambda b: max(0.0, b.collated - b.start - b.cpu_seconds - b.queued_seconds))
    disk_bytes = _mean(lambda batch: batch.disk_bytes)
    step = _mean(lambda batch: batch.end - batch.received)
    _waited = _mean(lambda batch: batch.received - batch.requested)
    # Waiting for a batch that was not made yet; the rest of the wait is its transfer.
    _making = _mean(lambda batch: max(0.0, min(batch.collated, batch.received) - batch.requested))

    @property
    def unit(self) -> int:
        """The number of batches that repeat the same work."""
        return math.lcm(max(1, len(self.again)), max(1, self.settings.workers))

    @property
    def steady(self) -> list[Batch]:
        """The batches after the first ``ahead``: a multiple of ``unit``, if there are enough."""
        count, workers = len(self.batches), max(1, self.settings.workers)
        first = max(0, min(self.ahead, count - workers))
        unit = self.unit if count - first >= self.unit else workers
        return self.batches[first : count - (count - first) % unit]

    def repeatable(self, seconds: float) -> list[Any]:
        """Returns the indices of its first batches, to repeat them in runs of ``seconds``."""
        count = min(len(self.drawn_indices), 1 << 10, max(4, int(seconds / self.period)))
        power = 1 << count.bit_length() >> 1  # so that few batches are a common multiple
        return self.drawn_indices[: min(power, self.epoch or power)]

    @property
    def sampler(self) -> float:
        """Seconds to draw the indices of a batch."""
        return statistics.fmean(self.draws[1:] or self.draws or [0.0])

    @property
    def hand_off(self) -> float:
        """Seconds of waiting for a finished batch from a worker, which meanwhile is idle."""
        if not self.settings.workers:
            return 0.0
        idle = self._waited + self.step - self.production / self.settings.workers
        return max(0.0, min(self._waited - self._making - self.sampler, idle))

    @property
    def unexplained(self) -> float:
        """Seconds that the loop waited outside of the stages."""
        return max(0.0, self._waited - self.sampler - self.production - self.hand_off)

    @property
    def start(self) -> float:
        """A batch's share of the time that workers take to start, in each epoch."""
        if not self.epoch or not self.settings.workers or self.settings.persistent:
            return 0.0
        first = self.batches[0]
        return max(0.0, first.received - first.requested - self.production) / self.epoch

    @property
    def wait(self) -> float:
        """Seconds of waiting for a batch."""
        return self._waited + self.start

    @property
    def period(self) -> float:
        """Seconds from one batch to the next."""
        return self.wait + self.step


class LoaderCopy:
    """A copy of the parts of a DataLoader, or a DeviceLoader around one, to run variants of it."""

    #: Whether more workers, and a thread, make the loader's batches; see `compare_workers`.
    can_add_workers = can_prefetch = False

    def __init__(self, loader: Any) -> None:
        self._device_loader = loader if isinstance(loader, DeviceLoader) else None
        inner = loader.loader if isinstance(loader, DeviceLoader) else loader
        if not isinstance(inner, DataLoader):
            name = type(inner).__name__
            wrong = f"loader must be a torch DataLoader, or a DeviceLoader around one, got {name}"
            hint = "pass DataLoader(dataset, batch_size) for a dataset, or the DataLoader inside a wrapper"
            raise TypeError(Problem("diagnose", wrong, hint=hint))
        self.loader: DataLoader[Any] = inner
        self.has_fields = getattr(loader, "fields", None) is not None
        self._patience = _PATIENCE
        self._is_batched = inner.batch_sampler is not None
        self.is_stream = isinstance(inner.dataset, IterableDataset)
        sampler = inner.batch_sampler if self._is_batched else inner.sampler
        functions = inner.collate_fn, inner.worker_init_fn
        parts = (inner.dataset, *functions, sampler, inner.generator)
        # Separate copies for workers, which must not inherit files that this process opens.
        (self.dataset, self.collate, *_), _ = copied(parts)
        (*self._of_workers, self._init, sampler_copy, self._generator), shared = copied(parts)
        if any(isinstance(one, types.GeneratorType) for one in shared):
            wrong = "loader must be iterable several times, but its dataset or sampler holds a generator"
            hint = "create it in __iter__ or __getitem__, or pass a list of the batches"
            raise TypeError(Problem("diagnose", wrong, hint=hint))
        self._holds_files = any(map(_is_open_file, shared))
        self.notes: list[str] = []
        if shared:
            names = ", ".join(sorted({type(one).__qualname__ for one in shared}))
            self.notes.append(f"measuring may have changed objects that can't be copied: {names}")
        if (own := type(inner).__iter__) is not DataLoader.__iter__:
            name = own.__qualname__
            self.notes.append(f"{name} was not called: a plain DataLoader was measured")
        if self.is_stream:
            self.notes.append(
                "a stream can't be read twice, so changes to its dataset were not tried, and trials have other samples"
            )
        if not stages.TELLS:
            self.notes.append("this system reports neither disk reads nor waits for a CPU")
        #: Indices of batches to repeat in runs. The sampler still runs, and takes its time.
        self.again: list[Any] = []
        self.indices = iter(()) if self.is_stream else _endless(sampler_copy)
        self.epoch = None if self.is_stream else known_length(inner)
        self.settings = Settings(
            inner.num_workers,
            self._device_loader is not None,
            inner.persistent_workers,
            in_order=inner.in_order,
        )

    def samples(self, indices: Any, dataset: Any = None) -> Any:
        """Returns the samples of a batch, from the loader's dataset or another one, in this process."""
        dataset = self.dataset if dataset is None else dataset
        return TimedDataset(dataset, as_it_is, self._is_batched)[indices][0]

    def compare_workers(self, size: int) -> None:
        """Determines whether more workers, or a thread, would return the same batches, of ``size`` bytes.

        They wouldn't if later batches overwrite earlier ones, or if two workers repeat each other's batches
        (an unsharded stream, or random numbers from copies of one generator).
        """
        obstacles = {
            _REUSES: self._reuses_memory(),
            _SHARES_FILES: self._holds_files,
            _REPEATS if self.is_stream else _DRAWS_ALIKE: self._workers_repeat(size),
        }
        self.can_prefetch = not obstacles[_REUSES]
        self.can_add_workers = not any(obstacles.values())
        found = [why for why, is_found in obstacles.items() if is_found]
        self.notes += [f"more workers were not tried, because {why}" for why in found]

    def _reuses_memory(self) -> bool:
        with contextlib.suppress(Exception):  # a stream, or a dataset that works only in workers
            batches = map(self.collate, map(self.samples, self.indices))
            batch = next(batches)
            clone = copy.deepcopy(batch)
            can_tell = have_equal_values(batch, clone)
            later = [next(batches), next(batches)]
            return bool(later) and can_tell and not have_equal_values(batch, clone)
        return False

    def _workers_repeat(self, size: int) -> bool:
        count = 4 if size < _LARGE else 1
        # Each of two workers makes each batch twice.
        again = [one for one in itertools.islice(self.indices, count) for _ in range(4)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            variant = self._variant(Run(Settings(2), again=again))
            batches = [batch for batch, _ in itertools.islice(variant, 4 * count)]
        pairs = zip(batches[::2], batches[1::2], strict=False)  # of one worker and the other
        of_one = zip(batches[::4], batches[2::4], strict=False)
        is_constant = all(have_equal_values(*pair) for pair in of_one)
        return not is_constant and all(have_equal_values(*pair) for pair in pairs)

    def run(self, settings: Settings, seconds: float, step: _Step = None) -> Run:
        """Loops for ``seconds``, in whole units of work, not counting the first batches.

        At least one batch from each worker follows the first batches.
        """
        ahead = max(2, settings.workers * self._prefetched) + 4 * settings.in_thread
        run = Run(settings, ahead, self.again, self.epoch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # DataLoader's warning about the number of workers
            try:
                self._loop(run, seconds, step)
            except RuntimeError as error:
                if "timed out" in str(error):
                    add_note(
                        error,
                        "either its batch can't be pickled, which stderr shows, or it waits for a lock that a "
                        'thread held when the worker was forked: pass multiprocessing_context="forkserver"',
                    )
                raise
        first = run.batches[0]
        self._patience = max(self._patience, 10 * (first.received - first.requested))
        return run

    @property
    def _prefetched(self) -> int:
        return self.loader.prefetch_factor or 2  # batches per worker

    def _drawn(self, run: Run) -> Iterator[Any]:
        """Yields the indices of batches, and records them and the sampler's times."""
        repeated = itertools.cycle(run.again)
        while True:
            start = time.perf_counter()
            try:
                indices = next(self.indices)
            except StopIteration:
                return
            run.draws.append(time.perf_counter() - start)
            run.drawn_indices.append(next(repeated, indices))
            yield run.drawn_indices[-1]

    def _variant(self, run: Run) -> Iterable[tuple[Any, Batch]]:
        """Creates a loader that yields batches with their timings."""
        original, settings = self.loader, run.settings
        dataset, collate = self._of_workers if settings.workers else (self.dataset, self.collate)
        dataset = dataset if settings.dataset is None else settings.dataset
        collate = settings.collate or collate
        options: dict[str, Any] = {}
        if self.is_stream:
            timed: Any = TimedStream(dataset, collate, original.batch_size, original.drop_last)
        else:
            timed = TimedDataset(dataset, collate, self._is_batched)
            options["sampler"] = self._drawn(run)
        if settings.workers:
            options |= {
                "timeout": original.timeout if original.num_workers else self._patience,
                "worker_init_fn": functools.partial(begin_worker, self._init),
                "multiprocessing_context": original.multiprocessing_context,
                "prefetch_factor": self._prefetched,
                "persistent_workers": settings.persistent,
                "in_order": settings.in_order,
            }
        variant: DataLoader[Any] = DataLoader(
            timed,
            batch_size=None,
            collate_fn=as_it_is,
            num_workers=settings.workers,
            generator=self._generator,
            pin_memory=original.pin_memory and not settings.in_thread,
            **options,
        )
        if not settings.in_thread:
            return variant
        if (of := self._device_loader) is None:
            return DeviceLoader(variant)
        fields = None if of.fields is None else (of.fields, None)
        return DeviceLoader(variant, of.device, fields, of.prefetch)

    def _loop(self, run: Run, seconds: float, step: _Step) -> None:
        batches, min_batches = run.batches, run.ahead + max(1, run.settings.workers)
        request_time = time.perf_counter()
        for data, batch in _endless(self._variant(run)):
            run.bytes = run.bytes or bytes_in(data)
            batch.requested, batch.received = request_time, time.perf_counter()
            if step is not None:
                do_step(step, data)
            batch.end = request_time = time.perf_counter()
            batches.append(batch)
            if len(batches) < min_batches:
                continue
            elapsed = request_time - batches[run.ahead - 1].end
            is_whole = (len(batches) - run.ahead) % run.unit == 0
            if elapsed >= seconds * (1 if is_whole else _SLOW):
                return
        wrong = "loader must yield at least one batch, got none"
        hint = "check whether its dataset or sampler is empty, or drop_last drops all samples"
        if not batches:
            raise ValueError(Problem("diagnose", wrong, hint=hint))
        wrong = "loader must be iterable several times, but the second time it had no batch"
        hint = "create a new iterator in the __iter__ of its dataset or sampler"
        raise TypeError(Problem("diagnose", wrong, hint=hint))


def do_step(step: Callable[[Any], Any], batch: Any) -> None:
    """Runs a training step and waits for its end, also on an accelerator and for JAX arrays."""
    try:
        result = step(batch)
    except Exception as error:
        note = "which diagnose calls many times; a learning rate scheduler may have reached its end"
        if isinstance(step, torch.nn.Module) and not isinstance(batch, torch.Tensor):
            kind, key = type(batch).__name__, "'image'" if isinstance(batch, Mapping) else 0
            note = f"which gets the whole {kind}; pass step=lambda batch: model(batch[{key}])"
        add_note(error, f"raised by step(batch), {note}")
        raise
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        wrong = f"step must train on the batch when called, but returned a {type(result).__name__}"
        raise TypeError(Problem("diagnose", wrong, hint="pass a function that runs it to the end"))
    if jax := sys.modules.get("jax"):
        jax.block_until_ready(result)
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def as_it_is(batch: Any) -> Any:
    """The collate function of a dataset that returns whole batches."""
    return batch


def _is_open_file(value: Any) -> bool:
    if isinstance(value, io.IOBase):
        return not value.closed and value.readable()
    return type(value).__module__.partition(".")[0] in ("h5py", "sqlite3", "lmdb")


def _endless(epoch: Iterable[Any]) -> Iterator[Any]:
    """Yields from consecutive epochs of a sampler or a loader, until one is empty."""
    is_empty = False
    while not is_empty:
        is_empty = True
        for batch in epoch:
            is_empty = False
            yield batch
