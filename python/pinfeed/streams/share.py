"""Which samples of a stream each worker of each rank yields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from pinfeed.ranks import Uneven

Shards = TypeVar("Shards", range, list[int], list[Sequence[int]])


@dataclass(frozen=True)
class Share:
    """The samples of one worker of one rank.

    Workers form groups. Each group reads shards of its own, and its workers take turns: sample i of
    the group's shards belongs to the worker whose turn is i % ``turns``.

    Attributes:
        groups: The number of groups.
        group: The group of this worker.
        turns: The number of workers in a group.
        turn: Which of them this worker is.
        level: The number of ranks that must get equally many samples, or 1. Their turns are
            neighbours: either all of them get a sample, or none.
        repeats: Whether the last samples are repeated until all those ranks have one.
    """

    groups: int
    group: int
    turns: int
    turn: int
    level: int = 1
    repeats: bool = False

    def of(self, shards: Shards) -> Shards:
        """The shards of this group, out of all."""
        return shards[self.group :: self.groups]

    def samples(self, stream: Iterator[Any]) -> Iterator[Any]:
        """The samples of this worker, out of those of its group from the first turn on."""
        if self.turns == 1:
            return stream
        if self.level == 1:
            return islice(stream, self.turn, None, self.turns)
        return self._even_samples(stream)

    def _even_samples(self, stream: Iterator[Any]) -> Iterator[Any]:
        place = self.turn % self.level
        gap = self.turn - place
        while len(served := list(islice(stream, gap, gap + self.level))) == self.level:
            yield served[place]
            gap = self.turns - self.level
        if served and self.repeats:
            yield served[place % len(served)]


def share_of(
    shards: int,
    rank: int,
    world_size: int,
    worker: int,
    workers: int,
    uneven: Uneven,
) -> Share:
    """The share of one worker of one rank.

    Every worker computes its own from the same arguments, so nothing has to be communicated.
    Neighbouring shards and turns go to different ranks: that way ranks differ as little as possible.
    """
    parts = world_size * workers
    part = worker * world_size + rank
    if uneven == "keep":
        if shards >= parts:
            return Share(parts, part, 1, 0)
        return Share(1, 0, parts, part)
    repeats = uneven == "repeat"
    # How many samples a shard has is not known before it has been read. So one worker of every rank
    # reads it, and all of them come to its end after the same sample.
    if shards >= workers:
        return Share(workers, worker, world_size, rank, world_size, repeats)
    return Share(1, 0, parts, part, world_size, repeats)
