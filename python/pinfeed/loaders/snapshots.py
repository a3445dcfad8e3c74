"""The state of a loader after each of its batches, at a bounded price."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pinfeed.arguments import checked_integer

# A snapshot is taken when this many times the time of the last one has passed, so that all together
# take less than a fortieth of the time, and resuming makes batches again for no longer than that.
_SHARE = 40

_SNAPSHOT, _SINCE = "snapshot", "batches_since"


class LoaderState(NamedTuple):
    """Where a loader was.

    Attributes:
        snapshot: What its ``state_dict`` returned.
        since: How many batches it has made after that.
    """

    snapshot: Any
    since: int = 0

    def saved(self) -> Any:
        """What `loaded` takes: the loader's own state, or a dict with it and the number."""
        return {_SNAPSHOT: self.snapshot, _SINCE: self.since} if self.since else self.snapshot

    @classmethod
    def loaded(cls, state: Any) -> LoaderState:
        """The state that `saved` returned, or that a loader's own ``state_dict`` did.

        Raises:
            TypeError: The number of batches is no integer.
            ValueError: It is negative.
        """
        if isinstance(state, dict) and state.keys() == {_SNAPSHOT, _SINCE}:
            name = f"DeviceLoader: {_SINCE} of the state"
            return cls(state[_SNAPSHOT], checked_integer(state[_SINCE], name, 0))
        return cls(state)


@dataclass
class LoadedSince:
    """How many batches the next iteration over a loader is to pass over.

    An object, because shallow copies share it: they share the loader too, and what is loaded into
    that is for a single iteration, whoever begins it.
    """

    batches: int = 0

    def take(self) -> int:
        """The number, which is 0 from then on."""
        batches, self.batches = self.batches, 0
        return batches


class Snapshots:
    """Takes the states of one iteration.

    Args:
        loader: That is iterated over.
        take: Returns its state.
        clock: Returns seconds.
    """

    def __init__(
        self, loader: Any, take: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._take = take
        self._clock = clock
        self._can_skip = repeats_itself(loader)
        self._last = LoaderState(None)
        self._next_at = float("-inf")

    def after_batch(self, is_end: bool) -> LoaderState:
        """The state now, after one more batch or the end."""
        if self._can_skip and not is_end and self._clock() < self._next_at:
            self._last = LoaderState(self._last.snapshot, self._last.since + 1)
            return self._last
        start = self._clock()
        self._last = LoaderState(self._take())
        end = self._clock()
        self._next_at = end + _SHARE * (end - start)
        return self._last


def repeats_itself(loader: Any) -> bool:
    """Whether a loader that a state is loaded into makes the batches after it again, in their order.

    torchdata's StatefulDataLoader promises so, and its states take longer than a small batch.
    """
    is_stateful = any(
        kind.__name__ == "StatefulDataLoader" and kind.__module__.partition(".")[0] == "torchdata"
        for kind in type(loader).__mro__
    )
    return is_stateful and bool(getattr(loader, "in_order", True))
