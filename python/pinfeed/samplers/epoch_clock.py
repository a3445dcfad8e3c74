"""Which epoch each pass over samples is of, and where in it the pass begins."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

from torch.utils.data import get_worker_info

from pinfeed.memory.shared_cells import SharedCells

#: The last epoch that a clock with an owner can tell: what workers share is packed into 64 bits.
MOST_EPOCH = 2**30

# The places: what `set` said last, the pass that began last, and some that began before it.
_SAID, _LAST, _EARLIER, _PLACES = 0, 1, 2, 9


class EpochClock:
    """Counts epochs, for a sampler or a stream. Its state is one of three, and four events change it.

    | event                         | counted: next is n | set to e            | loaded: e, from start  |
    |-------------------------------|--------------------|---------------------|------------------------|
    | ``next`` asks                 | n                  | e                   | e                      |
    | ``set(f)``                    | set to f           | set to f            | loaded if f == e, else set to f |
    | ``load(f, start)``            | loaded: f, start   | loaded: f, start    | loaded: f, start       |
    | ``load(f)``, f is finished    | counted, f + 1     | counted, f + 1; set to e if e > f | counted, f + 1 |
    | ``begin`` returns, and leaves | n; counted, n + 1  | e; counted, e + 1   | e, start; counted, e + 1 |
    | ``goes_on(p)``                | counted, n         | counted, p + 1 if e == p is under way, else set to e | loaded |

    Two cases need more than the table. A loader may throw the pass away that began after a state of a
    finished epoch was ignored: the next pass repeats that epoch unless `end` came first. And with an
    ``owner``, copies of the clock in DataLoader workers share it: a DataLoader makes new workers for each
    pass, with new copies of its dataset, and nothing is called in the main process. The workers of a pass
    know each other by the seed that DataLoader drew for all of them: the first that begins takes the
    next epoch, and the others find it. (If torch is seeded alike before each pass, the epoch repeats, as
    with ``shuffle=True`` of a DataLoader.) Threads may be workers too, so what was loaded is by worker;
    what the main process has loaded for whichever workers come counts until a pass has begun.
    """

    def __init__(self, owner: str | None = None) -> None:
        # What `set` said last. The first pass of a worker takes it from here, as it was when the
        # worker was made: the main process may have said more before the worker begins. Later passes
        # take it from the shared place.
        self._said = _NONE
        self.sets = 0  # how often `set` was called
        self._begun: dict[int | None, int] = {}  # passes in this copy, by worker
        self._loaded: dict[tuple[int, int] | None, tuple[int, Any]] = {}
        # An epoch, where its workers begin, and the pass that had begun last when that was loaded.
        self._loaded_anywhere: tuple[int, Any, _Pass] | None = None
        self._ignored_epoch: int | None = (
            None  # of a state that `set` overruled, until a pass began
        )
        self._repeats: int | None = None  # the epoch of the pass that may be thrown away
        self._places: _Own | _Shared = _Own() if owner is None else _Shared(owner)

    @property
    def next(self) -> int:
        """The epoch of the next pass."""
        if self._repeats is not None:
            return self._repeats
        loaded = self._load_at_hand()
        if loaded is not None:
            return loaded[0]
        return self._said_now().epoch_after(self._places.get(_LAST))

    @property
    def loaded(self) -> Any:
        """Where the next pass begins, if that was loaded."""
        loaded = self._load_at_hand()
        return None if loaded is None else loaded[1]

    @property
    def is_set(self) -> bool:
        """Whether `set` says which epoch is next."""
        is_counted = self._said_now().call == self._places.get(_LAST).call
        return not is_counted and worker_key() not in self._loaded

    @property
    def have_begun(self) -> bool:
        """Whether there was a pass, here or elsewhere."""
        return self._places.get(_LAST).epoch >= 0

    @property
    def is_loaded_into_main(self) -> bool:
        """Whether a state was loaded into the main process, from which workers can't go on."""
        return None in self._loaded and self._loaded_anywhere is None

    def set(self, epoch: int) -> None:
        """Says which epoch the next pass is of."""
        loaded = self._load_at_hand()
        if loaded is not None and loaded[0] != epoch:
            self._loaded.pop(worker_key(), None)
            self._loaded_anywhere = None
        self._repeats = None
        self.sets += 1
        self._said = _Pass(0, self._said.call % 255 + 1, epoch)
        self._places.put(_SAID, self._said)

    def load(self, epoch: int, start: Any = None, anywhere: Any = None) -> bool:
        """Says where the next pass goes on: from ``start``, or behind the epoch if that is None.

        ``anywhere`` is where workers begin, if this is the main process.

        Returns:
            Whether it does; False if the epoch is finished and `set` has said a later one.
        """
        if start is None and self.is_set and self._said.epoch > epoch:
            self._ignored_epoch = self._said.epoch
            return False
        self._repeats = self._ignored_epoch = None
        key = worker_key()
        if start is not None:
            self._loaded[key] = epoch, start
        else:
            self._loaded.pop(key, None)
        last = self._places.get(_LAST)
        if start is None:
            last = last._replace(epoch=epoch)
        if key is None:  # what was set before is overruled
            last = last._replace(call=self._said.call)
            self._places.put(_LAST, last)
            self._loaded_anywhere = None if anywhere is None else (epoch, anywhere, last)
        return True

    def begin(self, draw: Callable[[], int] | None = None) -> tuple[int, Any]:
        """A pass begins now, in this worker or without workers.

        ``draw`` returns the epoch if it would be counted.

        Returns:
            Its epoch, and where it begins: what was loaded, or None.
        """
        info = get_worker_info()
        epoch, start = self._load_at_hand() or (None, None)
        anywhere = None
        if info is None:
            self._loaded_anywhere = None
        elif worker_key() not in self._loaded and self._loaded_anywhere is not None:
            epoch, start, anywhere = self._loaded_anywhere
        self._loaded.pop(worker_key(), None)
        if self._repeats is not None:
            epoch, self._repeats = self._repeats, None
            return epoch, start
        said = self._said_now()
        worker = None if info is None else info.id
        self._begun[worker] = self._begun.get(worker, 0) + 1
        while True:
            key = 0
            if info is not None:
                what = info.seed - info.id, self._begun[worker], said.call, epoch is None
                key = 1 + hash(what) % (2**24 - 1)
            last, *earlier = self._places.begun()
            for known in (last, *earlier) if epoch is None else (last,):
                if key == known.key != 0 and epoch in (None, known.epoch):
                    return known.epoch, start
            if anywhere is not None and last != anywhere:  # a pass has begun with it
                epoch = start = anywhere = None
                continue
            is_counted = said.call == last.call
            found = said.epoch_after(last) if epoch is None else epoch
            if draw is not None and epoch is None and is_counted:
                found = draw()
            obeys = epoch is None or epoch == said.epoch
            begun = _Pass(key, said.call if obeys else last.call, found)
            self._places.put(_EARLIER + last.epoch % len(earlier), last)
            if self._places.exchange(_LAST, last, begun):
                if self._ignored_epoch == found:
                    self._repeats = found
                self._ignored_epoch = None
                return found, start

    def goes_on(self, epoch: int) -> None:
        """The pass of this epoch goes on, so what `set` said of the same epoch was said of this pass."""
        last = self._places.get(_LAST)
        if self._said.epoch == epoch and self._said.call != last.call:
            self._places.put(_LAST, last._replace(call=self._said.call, epoch=epoch))

    def end(self) -> None:
        """The pass that began last has ended, or was left."""
        self._repeats = None

    def __getstate__(self) -> dict[str, Any]:
        # A worker's copy shares the places; any other copy goes its own way.
        own = {name: copy.copy(self.__dict__[name]) for name in ("_places", "_begun", "_loaded")}
        return self.__dict__ | own

    def _load_at_hand(self) -> tuple[int, Any] | None:
        """What was loaded for this worker."""
        key, anywhere = worker_key(), self._loaded_anywhere
        if anywhere is not None and self._places.get(_LAST) != anywhere[2]:
            anywhere = None  # a pass has begun with it
            if key is None:
                self._loaded_anywhere = None
                self._loaded.pop(None, None)
        if key in self._loaded or key is None:
            return self._loaded.get(key)
        return None if anywhere is None else anywhere[:2]

    def _said_now(self) -> _Pass:
        info = get_worker_info()
        if (None if info is None else info.id) not in self._begun:
            return self._said
        return self._places.get(_SAID)


class _Pass(NamedTuple):
    """A pass that has begun, or one that `EpochClock.set` speaks of; packed, it is one number.

    Attributes:
        key: 24 bits that its workers have in common, and workers of other passes have not; or 0.
        call: 8 bits: which call of `EpochClock.set` it obeyed, or the pass before it.
        epoch: -1 before there is one; 31 bits where it is packed.
    """

    key: int
    call: int
    epoch: int

    def epoch_after(self, last: _Pass) -> int:
        """The epoch of the pass after ``last``, if ``self`` is what was said."""
        return last.epoch + 1 if self.call == last.call else self.epoch

    def packed(self) -> int:
        return self.key << 39 | self.call << 31 | self.epoch + 1

    @classmethod
    def unpacked(cls, number: int) -> _Pass:
        return cls(number >> 39, number >> 31 & 0xFF, (number & 0x7FFFFFFF) - 1)


_NONE = _Pass(0, 0, -1)


class _Own:
    """The places of a clock that nobody shares."""

    def __init__(self) -> None:
        self._passes = [_NONE] * _PLACES

    def get(self, place: int) -> _Pass:
        return self._passes[place]

    def put(self, place: int, value: _Pass) -> None:
        self._passes[place] = value

    def begun(self) -> list[_Pass]:
        return self._passes[_LAST:]

    def exchange(self, place: int, expected: _Pass, desired: _Pass) -> bool:
        self._passes[place] = desired
        return True

    def __copy__(self) -> _Own:
        copied = _Own()
        copied._passes = [*self._passes]
        return copied


class _Shared:
    """The places of a clock whose copies in workers share them."""

    def __init__(self, owner: str) -> None:
        self._cells = SharedCells([_NONE.packed()] * _PLACES, owner)

    def get(self, place: int) -> _Pass:
        return _Pass.unpacked(int(self._cells.values[place]))

    def put(self, place: int, value: _Pass) -> None:
        self._cells.values[place] = value.packed()

    def begun(self) -> list[_Pass]:
        return [*map(_Pass.unpacked, self._cells.values.tolist()[_LAST:])]

    def exchange(self, place: int, expected: _Pass, desired: _Pass) -> bool:
        return self._cells.compare_exchange(place, expected.packed(), desired.packed())

    def __getstate__(self) -> dict[str, Any]:
        return {"_cells": copy.copy(self._cells)}


def worker_key() -> tuple[int, int] | None:
    """The number of this DataLoader worker, and that of all workers; None outside of workers."""
    info = get_worker_info()
    return None if info is None else (info.id, info.num_workers)
