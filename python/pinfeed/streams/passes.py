"""One pass over a stream: what an iteration yields, how far it is, and the state of that."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice, pairwise
from typing import Any, NamedTuple

from pinfeed.arguments import as_integer, checked_integer
from pinfeed.streams.shards import Counter, ShardReader, Start
from pinfeed.streams.share import Share
from pinfeed.streams.shuffle_buffer import ShuffleBuffer

# More than any stream yields, and positions in what all workers read together are still 64 bits.
_MOST_SAMPLES = 2**48


class StreamPass:
    """The samples of one worker in one epoch.

    Args:
        make_reader: Makes the reader of its shards of what is known of them, and of a function that
            returns the first position that is still needed.
        share: Which of the samples read are its own.
        buffer: Shuffles these, if they are to be.
        yielded: How many came in the pass that this one continues.
        starts: What that knew of the shards. For a share that is a stretch, the starts of all shards,
            and the end of the last.
        arrived: How many of its own samples the worker got in all, if that had come to their end.
    """

    def __init__(
        self,
        make_reader: Callable[[Iterable[Start], Callable[[], int]], ShardReader],
        share: Share,
        buffer: ShuffleBuffer | None,
        yielded: int = 0,
        starts: Iterable[Start] = ((0, 0),),
        arrived: int | None = None,
    ) -> None:
        self._share, self._buffer = share, buffer
        self._arrived = arrived
        self._counter = Counter(yielded)
        self._starts = list(starts)
        self._make_reader = make_reader
        self._reader = make_reader(self._starts, self._first_needed)

    def samples(self) -> Iterator[Any]:
        """The samples that are left; to be called once.

        Nothing here holds on to them: what they hold (an open file, the buffer) goes when the
        caller drops them.
        """
        if self._buffer is None:
            return self._counter.counting(self._own_samples(self._counter.count))
        return self._counter.counting(chain.from_iterable(self._shuffled(self._buffer)))

    def state(self) -> dict[str, Any]:
        """What another pass continues this one with."""
        starts: list[Any] = [[0, 0]]
        if self._share.stretch is None:
            if self._buffer is None:
                self._reader.drop_starts(self._first_needed())
            starts = [list(start) for start in self._reader.starts]
        return {"yielded": self._counter.count, "arrived": self._arrived, "starts": starts}

    def _first_needed(self) -> int:
        """The first sample of the stream that continuing needs."""
        number = self._counter.count
        if self._buffer is not None:
            steps = self._steps()
            number = int(self._buffer.origins(steps).min()) if steps else 0
        return number * self._share.turns

    def _own_samples(self, number: int) -> Iterator[Any]:
        """This worker's samples from its ``number``-th on, in the order of the stream."""
        if self._share.stretch is not None:
            first, count = self._share.stretch
            return chain.from_iterable(self._pieces(first + number, first + count))
        turns = self._share.turns
        return self._share.samples(self._reader.read(number * turns, turns - 1))

    def _pieces(self, position: int, stop: int) -> Iterator[Iterator[Any]]:
        """The samples of a stretch, which begins anew where the stream ends."""
        samples = self._starts[-1][1]
        while position < stop:
            start = position % samples
            count = min(stop - position, samples - start)
            reader = self._make_reader(self._starts, self._first_needed)
            yield islice(reader.read(start, 0), count)
            position += count

    def _shuffled(self, buffer: ShuffleBuffer) -> Iterator[Iterable[Any]]:
        """Samples in random order: those that come out for others, then what is left."""
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
        """How many samples came out of the buffer for others that came in."""
        assert self._buffer is not None
        if self._arrived is None:
            return self._counter.count
        return max(0, self._arrived - self._buffer.size)

    def _refilled(self, buffer: ShuffleBuffer) -> tuple[list[Any], Iterator[Any]]:
        """What the buffer held, read again, and the samples that come next."""
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
                f"StreamDataset: this worker finds {found} samples and had at least {expected} when "
                "the state was saved; a state continues the same data only"
            )
        return held, samples


class StreamState(NamedTuple):
    """How far a pass is.

    Attributes:
        epoch: Which order it has.
        yielded: How many samples it has yielded.
        arrived: How many of its own samples the worker got in all, if that came to their end.
        starts: Where the shards start that may have to be read again.
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
    def loaded(
        cls, state: Any, identity: Mapping[str, Any], shards: int, most: int | None
    ) -> StreamState:
        """The state in a dict that somebody kept.

        Args:
            state: Attributes and identity of the stream that it was taken of.
            identity: What that must have in common with the stream that is to continue.
            shards: How many the worker reads.
            most: How many samples it yields, if that is known.

        Raises:
            TypeError: ``state`` is no dict, or a value is of the wrong kind.
            ValueError: The identities differ, or a value is out of range or missing.
        """
        if not isinstance(state, dict):
            raise TypeError(f"StreamDataset: state must be a dict, got {type(state).__name__}")
        if missing := [key for key in (*cls._fields, *identity) if key not in state]:
            raise ValueError(
                "StreamDataset: state must be what state_dict() returned, but has no "
                f"{', '.join(missing)}"
            )
        _require_same(identity, state)
        name = "StreamDataset: {} of the state".format
        most = _MOST_SAMPLES if most is None else most
        yielded = checked_integer(state["yielded"], name("yielded"), 0, most)
        arrived = state["arrived"]
        if arrived is not None:
            arrived = checked_integer(arrived, name("arrived"), yielded, most)
        return cls(
            checked_integer(state["epoch"], name("epoch"), 0, sys.maxsize),
            yielded,
            arrived,
            _checked_starts(state["starts"], shards),
        )


def _require_same(identity: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    others = [
        f"{key} is {state[key]!r} there and {value!r} here"
        for key, value in identity.items()
        if state[key] != value
        # Lists of other lengths have other names.
        and not (key == "shard_names" and state.get("shards") != identity["shards"])
    ]
    if others:
        raise ValueError(f"StreamDataset: the state is of another stream: {', '.join(others)}")


def _checked_starts(starts: Any, shards: int) -> list[Start]:
    if not isinstance(starts, list | tuple) or not all(map(_is_pair, starts)):
        raise TypeError(
            "StreamDataset: starts of the state must be pairs of integers, as state_dict() has them, "
            f"got {starts!r}"
        )
    checked: list[Start] = [[operator.index(number) for number in pair] for pair in starts]
    if (
        not checked
        or min(checked[0]) < 0
        or (checked[0][0] == 0 and checked[0][1] != 0)
        or any(b[0] != a[0] + 1 or b[1] < a[1] for a, b in pairwise(checked))
        or checked[-1][0] > shards
        or checked[-1][1] > sys.maxsize
    ):
        raise ValueError(
            "StreamDataset: starts of the state must be those of neighbouring shards, as "
            f"state_dict() has them, of the {shards} shards that this worker reads, got {starts!r}"
        )
    return checked


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(as_integer(number) is not None for number in value)
    )
