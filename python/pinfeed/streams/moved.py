"""The rest of a pass, for other rank and worker counts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from pinfeed.arguments import checked_integer, states_within, workers_of
from pinfeed.ranks import Uneven
from pinfeed.streams.passes import StreamState, left_shards
from pinfeed.streams.shards import Start
from pinfeed.streams.share import Share, share_of

#: The parts of a state that identify its rank and worker.
PLACE = ("rank", "world_size", "worker", "workers")


def own_state(
    states: list[Any], workers: int, place: Mapping[str, int], needed: set[str], name: str
) -> Any:
    """Selects the loader's state with this number of workers and ``place``; without one, the list."""
    for state in states:
        if workers_of(state) == workers:
            for one in states_within(state, needed, name):
                if place.items() <= one.get("stream", one).items():
                    return state
    return states


class WholePass:
    """The combined states of all workers of all ranks.

    Args:
        states: The states. Unless ``uneven="keep"``, the state of any one rank suffices.
        shards: Number of shards.
        uneven: As in `StreamDataset`.

    Attributes:
        moves: Whether other rank and worker counts can resume, because each shard is read by one worker,
            or by ranks at the same step.
        missing: A rank and a worker without a state, or None.
    """

    def __init__(self, states: list[dict[str, Any]], shards: int, uneven: Uneven) -> None:
        self._shards = shards
        self._world_size, self._workers = (
            checked_integer(states[0].get(name), f"StreamDataset: {name} of the state", 1)
            for name in ("world_size", "workers")
        )
        states_by_place = {(one.get("rank"), one.get("worker")): one for one in states}
        # The states of each group, by rank.
        self._groups: dict[int, dict[int, tuple[dict[str, Any], Share]]] = {}
        self.missing: tuple[int, int] | None = None
        share = Share(1, 0, 1, 0)
        for worker in range(self._workers):
            for rank in range(self._world_size):
                share = share_of(shards, rank, self._world_size, worker, self._workers, uneven)
                group = self._groups.setdefault(share.group, {})
                if (rank, worker) in states_by_place:
                    group[rank] = states_by_place[rank, worker], share
                elif self.missing is None and uneven == "keep":
                    self.missing = rank, worker
            if not group:
                self.missing = self.missing or (0, worker)
        self.moves = share.turns in (1, share.level)

    def remaining(self, identity: Mapping[str, Any]) -> StreamState:
        """Returns the state before the first remaining sample, for any rank and worker counts.

        ``identity`` is the part of the states that must be the same.
        """
        if self.missing is not None:
            raise ValueError(
                f"StreamDataset: to resume with other ranks or workers, state must be the list of the "
                f"states of all {self._world_size} ranks with {self._workers} workers each; rank "
                f"{self.missing[0]}, worker {self.missing[1]} is missing; save the state on every rank"
            )
        sizes = {"world_size": self._world_size, "workers": self._workers}
        found: dict[tuple[int, int], StreamState] = {}
        left: list[Start] = []
        for number, group in self._groups.items():
            for rank, (state, share) in group.items():
                one = StreamState.loaded(state, {**identity, **sizes}, self._shards, share)
                found[number, rank] = one
            left += self._left_of(one, share)
        self._require_same_step(found)
        left.sort(key=lambda start: start[0])
        beyond = self._shards
        while left and left[-1] == [beyond - 1, 0]:
            left.pop()
            beyond -= 1
        return StreamState.begin(one.epoch, [*left, [beyond, 0]])

    def _left_of(self, state: StreamState, share: Share) -> list[Start]:
        shards = share.of(left_shards(state.left, self._shards))
        starts, position = state.starts, state.yielded * share.turns
        if starts[-1][0] == len(shards):  # it has reached the end
            return []
        place, first = starts[bisect_right(starts, position, key=lambda start: start[1]) - 1]
        (shard, read_before), *rest = shards[place:]
        return [[shard, read_before + position - first], *rest]

    def _require_same_step(self, found: dict[tuple[int, int], StreamState]) -> None:
        steps = {(group, one.yielded) for (group, _), one in found.items()}
        epochs = {(one.epoch, str(one.left)) for one in found.values()}
        if len(steps) == len(self._groups) and len(epochs) == 1:
            return
        named = ", ".join(
            f"rank {rank} has yielded {one.yielded} samples of epoch {one.epoch}"
            for (_, rank), one in found.items()
        )
        raise ValueError(
            f"StreamDataset: the states of all ranks must be at the same step, got {named}; load states "
            "that all ranks saved after the same step"
        )
