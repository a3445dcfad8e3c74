"""Resharding of the rest of a pass, for other rank and worker counts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from pinfeed.arguments import checked_integer, states_within, workers_of
from pinfeed.ranks import Uneven, different_steps
from pinfeed.streams.passes import StreamState, remaining_shards
from pinfeed.streams.shards import Start
from pinfeed.streams.share import Share, worker_share

#: The parts of a state that identify its rank and worker.
RANK_AND_WORKER = ("rank", "world_size", "worker", "workers")


def matching_state(
    states: list[Any], workers: int, identity: Mapping[str, int], needed: set[str], name: str
) -> Any:
    """Returns the loader's state with this number of workers and ``identity``; the list if there is none."""
    for state in states:
        if workers_of(state) == workers:
            for inner in states_within(state, needed, name):
                if identity.items() <= inner.get("stream", inner).items():
                    return state
    return states


class CombinedState:
    """The combined states of all workers of all ranks.

    Args:
        states: The states. Unless ``uneven="keep"``, the state of any one rank suffices.
        shards: Number of shards.
        uneven: As in `StreamDataset`.

    Attributes:
        can_reshard: Whether other rank and worker counts can resume, because each shard is read by one worker,
            or by ranks at the same step.
        missing: A rank and a worker without a state, or None.
    """

    def __init__(self, states: list[dict[str, Any]], shards: int, uneven: Uneven) -> None:
        self._shards = shards
        self._world_size, self._workers = (
            checked_integer(states[0].get(name), f"StreamDataset: state[{name!r}]", 1)
            for name in ("world_size", "workers")
        )
        states_by_rank = {(state.get("rank"), state.get("worker")): state for state in states}
        # The states of each group, by rank.
        self._groups: dict[int, dict[int, tuple[dict[str, Any], Share]]] = {}
        self.missing: tuple[int, int] | None = None
        share = Share(1, 0, 1, 0)
        for worker in range(self._workers):
            for rank in range(self._world_size):
                share = worker_share(shards, rank, self._world_size, worker, self._workers, uneven)
                group = self._groups.setdefault(share.group, {})
                if (rank, worker) in states_by_rank:
                    group[rank] = states_by_rank[rank, worker], share
                elif self.missing is None and uneven == "keep":
                    self.missing = rank, worker
            if not group:
                self.missing = self.missing or (0, worker)
        self.can_reshard = share.workers_per_group in (1, share.lockstep_ranks)

    def remaining(self, identity: Mapping[str, Any]) -> StreamState:
        """Returns the state before the first remaining sample, for any rank and worker counts.

        ``identity`` is the part of the states that must be the same.
        """
        if self.missing is not None:
            raise ValueError(
                f"StreamDataset: state must be a list of the states of all {self._world_size} ranks, with "
                f"{self._workers} workers each, to resume with other ranks or workers; save the state on "
                f"every rank: rank {self.missing[0]}, worker {self.missing[1]} is missing"
            )
        sizes = {"world_size": self._world_size, "workers": self._workers}
        loaded: dict[tuple[int, int], StreamState] = {}
        left: list[Start] = []
        for number, group in self._groups.items():
            for rank, (state, share) in group.items():
                position = StreamState.loaded(state, {**identity, **sizes}, self._shards, share)
                loaded[number, rank] = position
            left += self._remaining_starts(position, share)
        self._require_same_step(loaded)
        left.sort(key=lambda position: position[0])
        end = self._shards
        while left and left[-1] == [end - 1, 0]:
            left.pop()
            end -= 1
        return StreamState.begin(position.epoch, [*left, [end, 0]])

    def _remaining_starts(self, state: StreamState, share: Share) -> list[Start]:
        shards = share.of(remaining_shards(state.left, self._shards))
        starts, position = state.starts, state.yielded * share.workers_per_group
        if starts[-1][0] == len(shards):  # it has reached the end
            return []
        index, first = starts[bisect_right(starts, position, key=lambda start: start[1]) - 1]
        (shard, read_before), *rest = shards[index:]
        return [[shard, read_before + position - first], *rest]

    def _require_same_step(self, loaded: dict[tuple[int, int], StreamState]) -> None:
        steps = {(group, state.yielded) for (group, _), state in loaded.items()}
        epochs = {(state.epoch, str(state.left)) for state in loaded.values()}
        if len(steps) == len(self._groups) and len(epochs) == 1:
            return
        positions = (
            (rank, f"yielded {state.yielded} samples of epoch {state.epoch}")
            for (_, rank), state in loaded.items()
        )
        raise different_steps("StreamDataset", positions)
