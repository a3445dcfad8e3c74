"""The samples of shards, one shard after another, from any position on."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from pinfeed.optional import add_note
from pinfeed.streams.counter import Counter

# Where a shard starts: its place in the order of shards, and how many samples come before it.
Start = Sequence[int]

_MOST_STARTS = 64


class ShardReader:
    """Reads shards in order, and notes where each one starts.

    Args:
        shards: Their numbers.
        open_shard: Returns the samples of the shard of that number.
        name: Returns what messages call it.
        starts: Starts of neighbouring shards that are known already.
        on_skip: Called with what is to be said of an error, which then ends its shard and nothing
            else. Without it errors are raised.
        first_needed: Asked when many starts are known: the first position that may be read again.
    """

    def __init__(
        self,
        shards: Sequence[int],
        open_shard: Callable[[int], Iterable[Any]],
        name: Callable[[int], str],
        starts: Iterable[Start],
        on_skip: Callable[[str], None] | None,
        first_needed: Callable[[], int],
    ) -> None:
        self.starts: list[Start] = list(starts)
        self._shards, self._open_shard, self._name = shards, open_shard, name
        self._on_skip, self._first_needed = on_skip, first_needed
        self._most_starts = max(_MOST_STARTS, 2 * len(self.starts))

    def drop_starts(self, position: int) -> None:
        """Forgets the starts that nobody needs who reads on from a position."""
        del self.starts[: bisect_right(self.starts, position, key=lambda start: start[1]) - 1]

    def read(self, position: int, beyond: int) -> Iterator[Any]:
        """Samples from a position on.

        Args:
            position: How many samples come before, in all shards together.
            beyond: How far that may lie behind the samples of all shards that were read so far.

        Raises:
            ValueError: A shard, or all together, have fewer samples than are known of, or the shard
                of that position isn't known.
        """
        if self.starts[0][1] > position:
            raise ValueError(
                "StreamDataset: starts of the state must reach back to sample "
                f"{position} of the shards, got {self.starts[0][1]}"
            )
        self.drop_starts(position)
        known = deque(self.starts)
        while (start := known.popleft())[0] < len(self._shards):
            place, first = start
            length = known[0][1] - first if known else None
            counter = Counter()
            try:
                samples = self._open_shard(self._shards[place])
                if length is not None:
                    samples = islice(samples, length)
                samples = counter.counting(samples)
                deque(islice(samples, max(0, position - first)), maxlen=0)
                yield from samples
            except Exception as error:
                where = f"{self._name(self._shards[place])}, after {counter.count} of its samples"
                if self._on_skip is None:
                    add_note(error, f"StreamDataset: in {where}")
                    raise
                self._on_skip(f"{where}: {type(error).__name__}: {error}")
            if length is None:
                self._require(place, counter.count, position - first - beyond)
                known.append((place + 1, first + counter.count))
                self._note(known[0])
            else:
                self._require(place, counter.count, length)
        if position - start[1] > beyond:
            raise ValueError(
                f"StreamDataset: the shards have {start[1]} samples, but {position - beyond} are known "
                "of; states are of the same data only"
            )

    def _note(self, start: Start) -> None:
        self.starts.append(start)
        if len(self.starts) > self._most_starts:
            self.drop_starts(self._first_needed())
            self._most_starts = max(_MOST_STARTS, 2 * len(self.starts))

    def _require(self, place: int, count: int, expected: int) -> None:
        if count < expected:
            raise ValueError(
                f"StreamDataset: {self._name(self._shards[place])} has {count} samples, but "
                f"{expected} are known of; states, and lengths, are of the same data only"
            )
