"""The state of a pass over a stream, and whether another stream can continue it."""

from __future__ import annotations

import operator
import sys
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from pinfeed.arguments import as_integer, checked_integer
from pinfeed.streams.shard_reader import Start

# More than any stream yields, and positions in what all workers read together are still 64 bits.
_MOST_SAMPLES = 2**48


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
