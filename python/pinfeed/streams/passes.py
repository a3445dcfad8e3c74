"""One pass over a stream: the samples that a worker yields in an epoch, and its state."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice, pairwise
from typing import Any, NamedTuple

from pinfeed.arguments import checked_integer, require_state
from pinfeed.batches import LastSample
from pinfeed.samplers.epoch_clock import MOST_EPOCH
from pinfeed.streams.shards import Counter, ShardReader, Start
from pinfeed.streams.share import Share
from pinfeed.streams.shuffle_buffer import ShuffleBuffer

# More than any stream yields, and positions in what all workers read together are still 64 bits.
_MOST_SAMPLES = 2**48


class StreamState(NamedTuple):
    """How far a pass has come.

    Attributes:
        epoch: The epoch, from which the order follows.
        yielded: How many samples the worker has yielded.
        arrived: How many samples of its own the worker has in all, if it has read them all.
        starts: The starts of the shards that may be read again.
    """

    epoch: int
    yielded: int
    arrived: int | None
    starts: list[Start]

    @classmethod
    def begin(cls, epoch: int) -> StreamState:
        """The state before the first sample."""
        return cls(epoch, 0, None, [[0, 0]])

    @classmethod
    def loaded(cls, state: Any, identity: Mapping[str, Any], shards: int) -> StreamState:
        """The state in a dict that `StreamDataset.state_dict` returned.

        ``identity`` is the part of it that must be the same in the stream that goes on. The worker
        reads so many ``shards``.
        """
        require_state(state, cls._fields, identity, "StreamDataset", "stream")
        name = "StreamDataset: {} of the state".format
        yielded = checked_integer(state["yielded"], name("yielded"), 0, _MOST_SAMPLES)
        arrived = state["arrived"]
        if arrived is not None:
            arrived = checked_integer(arrived, name("arrived"), yielded, _MOST_SAMPLES)
        return cls(
            checked_integer(state["epoch"], name("epoch"), 0, MOST_EPOCH),
            yielded,
            arrived,
            _checked_starts(state["starts"], shards),
        )


class StreamPass:
    """The samples of one worker in one epoch.

    Args:
        make_reader: Makes a `ShardReader` of the worker's shards. It takes the starts of shards that
            are known, and a function that returns the first position that may be read again.
        share: Which of the shards' samples are the worker's own.
        buffer: Shuffles them; None keeps their order.
        state: Where the pass begins.
    """

    def __init__(
        self,
        make_reader: Callable[[Iterable[Start], Callable[[], int]], ShardReader],
        share: Share,
        buffer: ShuffleBuffer | None,
        state: StreamState,
    ) -> None:
        self._share, self._buffer = share, buffer
        self._epoch, self._arrived = state.epoch, state.arrived
        self._counter = Counter(state.yielded)
        self._last = LastSample(state.epoch)
        self._reader = make_reader(state.starts, self._first_needed)

    def samples(self) -> Iterator[Any]:
        """The samples that are left; to be called once.

        The pass keeps no reference to the iterator: an open file and the buffer are freed as soon as
        the caller drops it.
        """
        if self._buffer is None:
            samples = self._own_samples(self._counter.count)
        else:
            samples = chain.from_iterable(self._shuffled(self._buffer))
        return self._last.keeping(self._counter.counting(samples))

    def state(self) -> StreamState:
        """Where another pass goes on after this one."""
        if self._buffer is None:
            self._reader.drop_starts(self._first_needed())
        starts: list[Start] = [list(start) for start in self._reader.starts]
        return StreamState(self._epoch, self._counter.count, self._arrived, starts)

    def _first_needed(self) -> int:
        """The first sample of the group's shards that a pass which goes on from here reads."""
        number = self._counter.count
        if self._buffer is not None:
            steps = self._steps()
            number = int(self._buffer.origins(steps).min()) if steps else 0
        return number * self._share.turns

    def _own_samples(self, number: int) -> Iterator[Any]:
        """The worker's samples from number ``number`` on, in the order of the stream."""
        turns = self._share.turns
        return self._share.samples(self._reader.read(number * turns, turns - 1))

    def _shuffled(self, buffer: ShuffleBuffer) -> Iterator[Iterable[Any]]:
        """The samples in random order: one for each that comes in, then those left in the buffer."""
        if self._counter.count == 0:
            samples = self._own_samples(0)
            held = list(islice(samples, buffer.size))
        else:
            held, samples = self._refilled(buffer)
        if self._arrived is None:
            yield buffer.step_through(samples, held, self._counter.count)
            self._arrived = self._counter.count + len(held)
        order = buffer.last_order(len(held)).tolist()
        yield (held[place] for place in order[self._counter.count - self._steps() :])

    def _steps(self) -> int:
        """How many samples have left the buffer for another that came in."""
        assert self._buffer is not None
        if self._arrived is None:
            return self._counter.count
        return max(0, self._arrived - self._buffer.size)

    def _refilled(self, buffer: ShuffleBuffer) -> tuple[list[Any], Iterator[Any]]:
        """The samples that the buffer held, read again, and the iterator of those that follow."""
        steps = self._steps()
        origins = buffer.origins(steps, self._arrived).tolist()
        places = {origin: place for place, origin in enumerate(origins)}
        first = min(origins)
        samples = self._own_samples(first)
        held: list[Any] = [None] * len(origins)
        found, expected = first, steps + len(held)
        for number, sample in zip(range(first, expected), samples, strict=False):
            found += 1
            if (place := places.get(number)) is not None:
                held[place] = sample
        if found < expected:
            raise ValueError(
                f"StreamDataset: this worker found at least {expected} samples when the state was "
                f"saved, and finds {found} now; load the state with the same data"
            )
        return held, samples


def _checked_starts(starts: Any, shards: int) -> list[Start]:
    try:
        checked: list[Start] = [[operator.index(i), operator.index(n)] for i, n in starts]
    except (TypeError, ValueError):
        checked = []
    if (
        not checked
        or min(checked[0]) < 0
        or any(b[0] != a[0] + 1 or b[1] < a[1] for a, b in pairwise(checked))
        or checked[-1][0] > shards
    ):
        raise ValueError(
            "StreamDataset: starts of the state must be pairs of integers for neighbouring shards, "
            f"out of the {shards} that this worker reads, as state_dict() has them; got {starts!r}"
        )
    return checked
