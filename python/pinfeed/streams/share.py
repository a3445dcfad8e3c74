"""Which part of a stream one worker of one rank gets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

Shards = TypeVar("Shards", range, list[int])


@dataclass(frozen=True)
class Share:
    """The samples that are due to one (rank, worker).

    The shards are dealt out to ``groups``. The workers of a group read the same shards and take
    turns: sample i of them is that of turn i % ``turns``.

    Attributes:
        groups: How many there are.
        group: Which one this worker is of.
        turns: Workers in a group.
        turn: Which of them this is.
        level: All ranks shall get the same number: so many neighbouring turns, one of each rank,
            are all served or none; 1 where that doesn't matter.
        repeats: Whether those that the last samples don't suffice for are served with repeats.
        stretch: Instead of all of this: the first sample of a stretch of the stream that nobody else
            reads, and the number of samples in it, which may go on at the beginning of the stream.
    """

    groups: int
    group: int
    turns: int
    turn: int
    level: int = 1
    repeats: bool = False
    stretch: tuple[int, int] | None = None

    def of(self, shards: Shards) -> Shards:
        """This group's shards, of all in their order."""
        return shards[self.group :: self.groups]

    def samples(self, stream: Iterator[Any]) -> Iterator[Any]:
        """Takes this worker's samples out of those of its group, from the start of a round on."""
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
    even: str,
    samples: int | None = None,
) -> Share:
    """The share of one worker of one rank in a stream of so many shards, and samples if known.

    A function of its arguments alone, so that all workers agree without a word. Neighbouring turns
    and shards go to different ranks, which therefore differ by as little as can be.
    """
    parts = world_size * workers
    part = worker * world_size + rank
    if even == "none":
        if shards >= parts:
            return Share(parts, part, 1, 0)
        return Share(1, 0, parts, part)
    repeats = even == "repeat"
    if samples is not None:
        # Only ranks need equal numbers. So rounds are dealt out, of one sample for each rank, and a
        # worker may get one more than the next.
        rounds = -(-samples // world_size) if repeats else samples // world_size
        fewest, longer = divmod(rounds, workers)
        size = fewest + (worker < longer)
        earlier = worker * fewest + min(worker, longer)
        return Share(1, 0, 1, 0, stretch=(earlier * world_size + rank * size, size))
    # Nobody knows beforehand how many samples a shard has, but workers that read the same shards
    # find out together. So each shard is read by one worker of every rank.
    if shards >= workers:
        return Share(workers, worker, world_size, rank, world_size, repeats)
    return Share(1, 0, parts, part, world_size, repeats)
