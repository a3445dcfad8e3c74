"""The share of a stream's samples for each worker of each rank."""

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

    Workers form groups. Each group reads its own shards, and its workers take turns: sample i of the
    group's shards belongs to the worker with index i % ``workers_per_group``.
    """

    groups: int  # number of groups
    group: int  # group of this worker
    workers_per_group: int  # number of workers in a group
    index_in_group: int  # index of this worker in its group
    # Number of ranks that must get the same number of samples, or 1. Their workers are neighbors:
    # either all of them get a sample, or none.
    lockstep_ranks: int = 1
    repeats: bool = False  # whether the last samples are repeated until all these ranks have one

    def of(self, shards: Shards) -> Shards:
        """Returns this group's shards."""
        return shards[self.group :: self.groups]

    def samples(self, stream: Iterator[Any]) -> Iterator[Any]:
        """Yields this worker's samples of its group's stream, which starts at the first turn."""
        if self.workers_per_group == 1:
            return stream
        if self.lockstep_ranks == 1:
            return islice(stream, self.index_in_group, None, self.workers_per_group)
        return self._even_samples(stream)

    def _even_samples(self, stream: Iterator[Any]) -> Iterator[Any]:
        index = self.index_in_group % self.lockstep_ranks
        gap = self.index_in_group - index
        while (
            len(samples := list(islice(stream, gap, gap + self.lockstep_ranks)))
            == self.lockstep_ranks
        ):
            yield samples[index]
            gap = self.workers_per_group - self.lockstep_ranks
        if samples and self.repeats:
            yield samples[index % len(samples)]


def worker_share(
    shards: int, rank: int, world_size: int, worker: int, workers: int, uneven: Uneven
) -> Share:
    """Returns the share of one worker of one rank.

    Workers compute it without communication. Neighboring shards and turns go to different ranks, so
    that ranks differ as little as possible.
    """
    parts = world_size * workers
    part = worker * world_size + rank
    if uneven == "keep":
        if shards >= parts:
            return Share(parts, part, 1, 0)
        return Share(1, 0, parts, part)
    repeats = uneven == "repeat"
    # The number of samples in a shard is unknown until it has been read. So one worker of every rank
    # reads it, and all of them reach its end after the same sample.
    if shards >= workers:
        return Share(workers, worker, world_size, rank, world_size, repeats)
    return Share(1, 0, parts, part, world_size, repeats)
