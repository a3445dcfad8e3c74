"""One pass over a stream: the samples that a worker yields in an epoch, and its state."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice, pairwise, repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pinfeed.arguments import checked_integer, require_state
from pinfeed.batches import LastSample
from pinfeed.samplers.epoch_clock import MAX_EPOCH
from pinfeed.samplers.order_sampler import ROUNDS, permutation, random_keys
from pinfeed.streams.shards import Counter, ShardReader, Start, fewer_samples
from pinfeed.streams.share import Share

# More than any stream yields, while positions over all workers still fit in 64 bits.
_MAX_SAMPLES = 2**48

_DRAWS = 1024  # slots of a shuffle buffer drawn at a time


class StreamState(NamedTuple):
    """The position of a pass."""

    epoch: int  # the epoch, which determines the order
    yielded: int  # number of samples that the worker has yielded
    # Total number of the worker's samples, once it has read them all; otherwise None.
    arrived: int | None
    starts: list[Start]  # starts of the shards that may be read again
    # Shards that remained when the rank or worker counts changed: pairs of position in the epoch's
    # order and number of samples read before. The last pair stands for all shards from its position
    # on.
    left: list[Start]

    @classmethod
    def begin(cls, epoch: int, left: list[Start] | None = None) -> StreamState:
        """Returns the state before the first (remaining) sample."""
        return cls(epoch, 0, None, [[0, 0]], left or [[0, 0]])

    @classmethod
    def loaded(
        cls, state: Any, identity: Mapping[str, Any], shards: int, share: Share
    ) -> StreamState:
        """Validates a dict of `StreamDataset.state_dict`, for a worker with this ``share`` of ``shards``.

        ``identity`` is the part that must be the same.
        """
        require_state(state, cls._fields, identity, "StreamDataset", "stream")
        name = "StreamDataset: state[{!r}]".format
        yielded = checked_integer(state["yielded"], name("yielded"), 0, _MAX_SAMPLES)
        arrived = state["arrived"]
        if arrived is not None:
            arrived = checked_integer(arrived, name("arrived"), yielded, _MAX_SAMPLES)
        left = _checked_pairs("left", state["left"], shards, _are_remaining)
        own_shards = len(share.of(remaining_shards(left, shards)))
        return cls(
            checked_integer(state["epoch"], name("epoch"), 0, MAX_EPOCH),
            yielded,
            arrived,
            _checked_pairs("starts", state["starts"], own_shards, _are_adjacent),
            left,
        )


class StreamPass:
    """The samples of one worker in one epoch.

    Args:
        make_reader: Creates a `ShardReader` of the worker's shards, from the known starts of shards and
            a function that returns the first position that may be read again.
        share: The worker's share of the shards' samples.
        buffers: Shuffle buffers of all ranks that must get the same number of samples, so that all have
            the same state; the first one is the worker's own. Empty: no shuffling.
        state: Where the pass begins.
    """

    def __init__(
        self,
        make_reader: Callable[[Iterable[Start], Callable[[], int]], ShardReader],
        share: Share,
        buffers: list[ShuffleBuffer],
        state: StreamState,
    ) -> None:
        self._share, self._buffers = share, buffers
        self._epoch, self._arrived, self._left = state.epoch, state.arrived, state.left
        self._counter = Counter(state.yielded)
        self._last = LastSample(state.epoch)
        self._reader = make_reader(state.starts, self._first_needed)

    def samples(self) -> Iterator[Any]:
        """Yields the remaining samples; call it once.

        The pass holds no reference to the iterator, so open files and the buffer are freed as soon as
        the caller drops it.
        """
        samples: Iterator[Any]
        if self._buffers:
            samples = chain.from_iterable(self._shuffled(self._buffers[0]))
        else:
            samples = self._own_samples(self._counter.count)
        return self._last.keeping(self._counter.counting(samples))

    def state(self) -> StreamState:
        """Returns the position of this pass."""
        if not self._buffers:
            self._reader.drop_starts(self._first_needed())
        starts: list[Start] = [list(start) for start in self._reader.starts]
        return StreamState(self._epoch, self._counter.count, self._arrived, starts, self._left)

    def _first_needed(self) -> int:
        """Returns the first sample of the group's shards that a pass resumed here reads."""
        number = self._counter.count
        if self._buffers:
            steps = self._steps()
            firsts = (int(buffer.origins(steps).min()) for buffer in self._buffers)
            number = min(firsts) if steps else 0
        return number * self._share.workers_per_group

    def _own_samples(self, number: int) -> Iterator[Any]:
        """Yields the worker's samples from number ``number`` on, in stream order."""
        workers_per_group = self._share.workers_per_group
        return self._share.samples(
            self._reader.read(number * workers_per_group, workers_per_group - 1)
        )

    def _shuffled(self, buffer: ShuffleBuffer) -> Iterator[Iterable[Any]]:
        """Yields the samples in random order: one per arriving sample, then the rest of the buffer."""
        if self._counter.count == 0:
            samples = self._own_samples(0)
            buffered = list(islice(samples, buffer.size))
        else:
            buffered, samples = self._refilled(buffer)
        if self._arrived is None:
            yield buffer.step_through(samples, buffered, self._counter.count)
            self._arrived = self._counter.count + len(buffered)
        order = buffer.last_order(len(buffered)).tolist()
        yield (buffered[index] for index in order[self._counter.count - self._steps() :])

    def _steps(self) -> int:
        """Returns the number of samples that an arriving sample has replaced in the buffer."""
        if self._arrived is None:
            return self._counter.count
        return max(0, self._arrived - self._buffers[0].size)

    def _refilled(self, buffer: ShuffleBuffer) -> tuple[list[Any], Iterator[Any]]:
        """Returns the buffer's samples, read again, and an iterator over the following samples."""
        steps = self._steps()
        origins = buffer.origins(steps, self._arrived).tolist()
        slots = {origin: slot for slot, origin in enumerate(origins)}
        first = min(origins)
        samples = self._own_samples(first)
        buffered: list[Any] = [None] * len(origins)
        count, expected = first, steps + len(buffered)
        for number, sample in zip(range(first, expected), samples, strict=False):
            count += 1
            if (slot := slots.get(number)) is not None:
                buffered[slot] = sample
        if count < expected:
            raise fewer_samples("the source", count, f"at least {expected}")
        return buffered, samples


class ShuffleBuffer:
    """A buffer of ``size`` samples; each step yields one and puts the next sample in its slot.

    The slot of a step is drawn from ``seed``, ``key`` and the step's number only. So the contents after
    any number of steps can be computed without the samples: each slot has the sample of the last step
    that drew it.
    """

    def __init__(self, size: int, seed: int, key: tuple[int, ...]) -> None:
        self.size = size
        self._seed, self._key = seed, key

    def step_through(self, samples: Iterable[Any], buffered: list[Any], step: int) -> Iterator[Any]:
        """Yields a sample of the buffer for each arriving one.

        ``buffered`` are the slots, which are updated; ``step`` is the number of earlier steps.
        """
        bits = self._bits(step)
        blocks = (self._slots(bits.random_raw(_DRAWS)).tolist() for _ in repeat(None))
        for sample, slot in zip(samples, chain.from_iterable(blocks), strict=False):
            yield buffered[slot]
            buffered[slot] = sample

    def origins(self, steps: int, count: int | None = None) -> npt.NDArray[np.int64]:
        """Returns each slot's sample after ``steps`` steps, as its number in order of arrival.

        ``count`` is the number of filled slots; None: all, as after any step.
        """
        if steps == 0:  # the buffer may be far larger than the stream, and than memory
            return np.arange(self.size if count is None else min(count, self.size))
        origins = np.full(self.size, -1)
        start = steps
        while start > 0 and origins.min() < 0:
            stop = start
            start = max(0, stop - max(_DRAWS, self.size))
            slots = self._slots(self._bits(start).random_raw(stop - start))
            np.maximum.at(origins, slots, np.arange(start, stop) + self.size)
        return np.where(origins < 0, np.arange(self.size), origins)

    def last_order(self, count: int) -> npt.NDArray[np.int64]:
        """Returns the order in which the remaining samples are yielded at the end."""
        return permutation(count, random_keys(self._seed, (*self._key, 1), ROUNDS))

    def _bits(self, step: int) -> np.random.PCG64:
        """Returns the generator for the draws from ``step`` on."""
        bits = np.random.PCG64(np.random.SeedSequence(self._seed, spawn_key=(*self._key, 0)))
        return bits.advance(step)

    def _slots(self, raw: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        # With 64 bits, the bias of the remainder is undetectable.
        return (raw % np.uint64(self.size)).astype(np.int64)


def remaining_shards(left: list[Start], shards: int) -> list[Start]:
    """Expands the remaining shards to one pair per shard."""
    return [*left[:-1], *([index, 0] for index in range(left[-1][0], shards))]


def _checked_pairs(
    key: str, pairs: Any, shards: int, are_valid: Callable[[Any], bool]
) -> list[Start]:
    """Returns the pairs of shard and sample of a state; shards increase, up to ``shards``."""
    try:
        checked: list[Start] = [
            [operator.index(shard), operator.index(sample)] for shard, sample in pairs
        ]
        is_valid = bool(checked) and min(map(min, checked)) >= 0 and checked[-1][0] <= shards
    except (TypeError, ValueError):
        is_valid = False
    if not is_valid or not are_valid(checked):
        raise ValueError(
            f"StreamDataset: state[{key!r}] must be pairs of a shard, in order and up to {shards}, and a "
            f"sample, got {pairs!r}; load an unchanged result of state_dict()"
        )
    return checked


def _are_remaining(left: list[Start]) -> bool:
    return left[-1][1] == 0 and all(a[0] < b[0] for a, b in pairwise(left))


def _are_adjacent(starts: list[Start]) -> bool:
    return all(b[0] == a[0] + 1 and b[1] >= a[1] for a, b in pairwise(starts))
