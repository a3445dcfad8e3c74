"""What could be changed, what that would give by the model, and trials of it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pinfeed.arguments import ARRAYS
from pinfeed.diagnosis.batch_values import have_equal_values
from pinfeed.diagnosis.model import LEAST_GAIN, Measured
from pinfeed.diagnosis.runs import LoaderCopy, Settings, as_it_is
from pinfeed.fields.collate import Collate
from pinfeed.limits import free_memory
from pinfeed.streams.stream_dataset import StreamDataset

#: Seconds after which no more batches are compared.
_LONGEST = 1.0
_EQUAL = "values were equal in up to five batches; if rare samples are treated otherwise, leave it as it is"
_STAY = "workers that stay don't see what is changed in the dataset later, such as its epoch"
#: Bytes a second that a file gives at least.
_FILE_PACE = 1e9


@dataclass
class Change:
    """A change of a loader; times are seconds for one of its batches.

    Other work on the machine only makes a round slower, so the least of the rounds counts.
    """

    name: str
    code: str  # what to write
    settings: Settings | None  # of the loop with it; None if it can't be tried
    model: Callable[[Measured], float]  # what it would take
    note: str = ""  # what else there is to know
    is_of_files: bool = False  # they are in memory by the time of the trials
    predictions: list[float] = field(default_factory=list)  # by what was measured in each round
    before: list[float] = field(default_factory=list)  # as it is, in each round
    after: list[float] = field(default_factory=list)  # with the change, in each round

    @property
    def predicted(self) -> float:
        """Seconds by the model."""
        return min(self.predictions)

    @property
    def tried(self) -> float | None:
        """Seconds as it was tried; None if it wasn't."""
        return min(self.after, default=None)

    @property
    def gain(self) -> float | None:
        """How many times the batches came in the trials, beyond 1; None if it wasn't tried."""
        return min(self.before) / min(self.after) - 1 if self.after else None

    @property
    def error(self) -> float | None:
        """How far the prediction is from the trial, as a part of that."""
        return None if self.tried is None else self.predicted / self.tried - 1

    @property
    def is_recommended(self) -> bool:
        """Whether two trials showed a gain, and none of them a loss."""
        is_better = all(b >= a for b, a in zip(self.before, self.after, strict=True))
        is_proven = is_better and len(self.after) > 1  # one may be chance
        return is_proven and self.gain is not None and self.gain >= LEAST_GAIN


def find_changes(measured: Measured, loader: LoaderCopy) -> list[Change]:
    """Those that would gain something by the model, the best first."""
    own, now = loader.settings.workers, measured.loop.period
    if own and not {1, own} <= set(measured.eager):  # there was no time for them
        found = [*_of_threads(measured, loader)]
    else:
        now = min(now, measured.predict(loader.settings))
        found = [*_of_copies(measured, loader)]
        if measured.limit() != "step":
            found += _of_threads(measured, loader)
            found += _of_samples(measured, loader)
            if 1 in measured.eager:
                found += _of_workers(measured, loader)
    for change in found:
        change.predictions.append(change.model(measured))
    worth = (1 - LEAST_GAIN) * now
    best = sorted(found, key=lambda change: change.predictions)
    return [change for change in best if change.predictions[0] < worth]


def _of_threads(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    now = loader.settings
    thread = replace(now, workers=0, in_thread=True, persistent=False, pin_memory=False)
    has_work = now.workers or measured.step is not None  # of the loop, beside which it would run
    if now != thread and measured.thread is not None and has_work and not loader.reuses_memory:
        name = "a thread instead of workers" if now.workers else "a thread beside the step"
        code = "pinfeed.DeviceLoader(DataLoader(..., num_workers=0))"
        without = "without the arguments that are for workers, such as prefetch_factor"
        note = without if now.workers else ""
        yield Change(name, code, thread, lambda m: m.predict(thread), note)


def _of_workers(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    """How many there are, when they begin, and how far ahead they are."""
    now = replace(loader.settings, epoch=loader.epoch)
    best = measured.best_workers(now)
    # Each of several would make what another makes, or nobody knows.
    is_alone = loader.holds_files or loader.reuses_memory or loader.repeats is not False
    has_epochs = _is_told_epochs(loader.dataset)
    stay = "" if isinstance(loader.dataset, StreamDataset) else _STAY
    if best != now.workers and not (is_alone and best > now.workers):
        several = replace(now, workers=best, in_thread=now.in_thread and now.workers > 0)
        is_short = measured.starting(several) > LEAST_GAIN * measured.predict(several)
        stays = now.persistent or (is_short and not now.workers and not has_epochs)
        several = replace(several, persistent=stays)
        yield Change(
            f"{best} worker{'s' * (best > 1)}",
            f"DataLoader(..., num_workers={best}{', persistent_workers=True' * several.persistent})",
            several,
            lambda m: m.predict(several),
            "if the stream is split among workers, or its samples come as often as there are workers; with "
            "drop_last each worker drops its own rest"
            if loader.is_stream and best > 1
            else stay * several.persistent,
        )
    if measured.starting(now) > 0 and not has_epochs:
        lasting = replace(now, persistent=True)
        yield Change(
            "workers that stay for the next epoch",
            "DataLoader(..., persistent_workers=True)",
            lasting,
            lambda m: m.predict(lasting),
            f"an epoch is {now.epoch} batches; workers take {1000 * measured.loop.startup:.0f} ms to begin"
            f"{stay and '; ' + stay}",
        )
    if now.workers and measured.limit() == "stragglers":
        factor = 4 * (now.prefetch_factor or 2)
        yield Change(
            "more batches ahead, for the slow samples",
            f"DataLoader(..., prefetch_factor={factor})",
            replace(now, prefetch_factor=factor),
            lambda m: max(m.step_seconds, m.mean_made / now.workers),
        )


def _of_copies(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    """How batches come to the device. A step is taken to copy its batch itself."""
    now, copies = loader.settings, measured.copies
    if copies is None or now.in_thread:
        return
    ahead = replace(now, in_thread=True, pin_memory=False)
    saved = copies.pinned if now.pin_memory else copies.pageable
    yield Change(
        "copies beside the step",
        "pinfeed.DeviceLoader(loader), without .to(device) in the step",
        ahead,
        lambda m: m.predict(ahead, step_saved=saved),
    )
    if not now.pin_memory:
        pinned, less = replace(now, pin_memory=True), copies.pageable - copies.pinned
        yield Change(
            "pinned batches",
            "DataLoader(..., pin_memory=True), and .to(device, non_blocking=True) in the step",
            pinned,
            lambda m: max(m.predict(pinned, step_saved=less), copies.pinning),
        )


def _of_samples(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    """What makes a batch: its size, the files, the dataset, the collate function."""
    now, one = loader.settings, measured.one
    if measured.large is not None and measured.limit() == "batch":
        large = measured.large.settings
        yield Change(
            "batches of four times the size",
            f"{'DataLoader' if loader.batch_size else 'BatchSampler'}(..., "
            f"batch_size={one.samples * large.batch_factor})",
            replace(now, batch_factor=4, epoch=now.epoch and -(-now.epoch // 4)),
            lambda m: m.predict(replace(now, batch_factor=4), run=m.large),
            "if the training allows; its step then has four times the samples",
        )
    yield Change(
        "a dataset that takes no time, at most", "", None, lambda m: m.predict(now, fetch=0.0)
    )
    if loader.is_stream:
        return
    if not isinstance(loader.collate, Collate):
        ours = Collate()  # one for all batches: it keeps what it found in the first
        left = _part_left(lambda: loader.samples(next(loader.indices)), loader.collate, ours)
        if left is not None:
            yield Change(
                "batches by pinfeed.Collate",
                "DataLoader(..., collate_fn=pinfeed.Collate())",
                replace(now, collate=ours),
                lambda m: m.predict(now, collate=left),
                _EQUAL,
            )
    if measured.disk_share > LEAST_GAIN:
        yield from _of_files(measured, loader)
    is_torchs = type(loader.dataset).__module__.startswith("torch.")
    has_class = not (isinstance(loader.dataset, ARRAYS) or is_torchs)  # for a method of one's own
    if not (loader.has_plain_batches and has_class) or hasattr(loader.dataset, "__getitems__"):
        return
    share = _part_left(
        lambda: next(loader.indices),
        lambda indices: loader.collate(loader.samples(indices)),
        loader.dataset.__getitem__,
    )
    if share is not None:
        yield Change(
            "whole batches from the dataset",
            "def __getitems__(self, indices): return self[indices]  # in its class; and a collate_fn that "
            "returns what it gets",
            replace(now, is_whole=True, collate=as_it_is),
            lambda m: m.predict(now, fetch=share, collate=share),
            _EQUAL,
        )
        return
    # Not tried: that each sample comes the same every time can't be seen from some of them.
    seconds, sample_bytes = one.fetch / one.samples, one.bytes / one.samples
    if loader.length and 0 < sample_bytes < _FILE_PACE * seconds:
        thread = Settings(0, in_thread=True)
        yield Change(
            "samples decoded once, at most",
            'pinfeed.write_array("decoded", dataset), and pinfeed.ArrayDataset of what it returns',
            None,
            lambda m: m.predict(thread, fetch=0.0),
            "if each sample is the same every time, without augmentation, and an array or a dict of them: "
            f"about {_size(sample_bytes * loader.length)}, written in {loader.length * seconds:.0f} s",
        )


def _of_files(measured: Measured, loader: LoaderCopy) -> Iterator[Change]:
    now, one, warm = loader.settings, measured.one, measured.warm
    assert warm is not None
    size = one.mean(lambda batch: batch.disk_bytes) / one.samples * loader.length
    free = free_memory()

    def model(measured: Measured) -> float:
        return measured.predict(now, run=measured.warm)

    if free is not None and size < 0.8 * free:
        batches = [batch.indices for batch in warm.batches]
        yield Change(
            "files kept in memory",
            "read every file once before the first epoch: cat FILES > /dev/null",
            replace(now, batches=batches * 1000),
            model,
            f"about {_size(size)}, of {_size(free)} that are free",
            is_of_files=True,
        )
    if loader.shuffles and loader.length:
        yield Change(
            "files read in order",
            "shuffle the files once, and then read them in order: DataLoader(..., shuffle=False)",
            replace(now, batches=_in_order(loader.length, one.samples)),
            model,
            is_of_files=True,
        )


def _is_told_epochs(dataset: Any) -> bool:
    """Whether it has epochs of which workers that stay would not hear; a stream of pinfeed's tells them."""
    for _ in range(8):  # a Subset of a Subset
        if hasattr(dataset, "set_epoch"):
            return not isinstance(dataset, StreamDataset)
        dataset = getattr(dataset, "dataset", None)
    return False


def _in_order(length: int, size: int) -> Iterator[list[int]]:
    for first in itertools.count(0, size):
        yield [i % length for i in range(first, first + size)]


def _part_left(
    given: Callable[[], Any], now: Callable[[Any], Any], other: Callable[[Any], Any]
) -> float | None:
    """What part of the time another way to make a batch takes, in turns with the one of now.

    None if it can't make one, or one with other values.
    """
    seconds: list[list[float]] = [[], []]
    end = time.perf_counter() + _LONGEST
    for number in range(5):
        if number > 1 and time.perf_counter() > end:
            break
        what = given()
        try:
            made = other(what)  # first, as many datasets take no lists
            if not have_equal_values(now(what), made):
                return None
            for way, taken in zip((now, other), seconds, strict=True):
                start = time.perf_counter()
                way(what)
                taken.append(time.perf_counter() - start)
        except Exception:  # noqa: BLE001, whatever a dataset says to a list, a Collate to samples
            return None
    return min(seconds[1]) / min(seconds[0])


def _size(count: float) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e9 else f"{count / 1e6:.3g} MB"
