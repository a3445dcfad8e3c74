"""Which epoch a pass over a stream is of: counted, or said by `set_epoch`; the same in all workers."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from torch.utils.data import get_worker_info

from pinfeed.memory.shared_cells import SharedCells

MOST_EPOCH = 2**30

# The cells: what set_epoch said last, the pass that began last, and some that began before it.
_SAID, _LAST, _EARLIER, _CELLS = 0, 1, 2, 9


class PassEpochs:
    """The epochs of the passes over a dataset, here and in all its copies in workers.

    A DataLoader makes new workers for each pass, with new copies of its dataset, unless they persist;
    in the trainer nothing is called for it. So the copies count passes in memory that they share. The
    workers of a pass know each other by the seed that DataLoader drew for all of them: the first that
    begins takes the next epoch, and the others find it. (Whoever seeds torch alike before each pass
    gets the same epoch again, as with ``shuffle=True`` of a DataLoader.)
    """

    def __init__(self, owner: str) -> None:
        # What set_epoch said last. The first pass of a worker takes it from here, as it was when the
        # worker was made: the trainer may have said more before the worker begins. Later passes take
        # it from the cell.
        self._said = _NONE
        self._begun: dict[int | None, int] = {}  # passes in this copy, by worker
        self._cells = SharedCells([_NONE.packed()] * _CELLS, owner)

    def set(self, epoch: int) -> None:
        """Says which epoch the next pass is of."""
        self._said = _Pass(0, self._said.call % 255 + 1, epoch)
        self._cells.values[_SAID] = self._said.packed()

    def next(self) -> int:
        """The epoch of the next pass."""
        return self._said_now().epoch_after(_Pass.unpacked(int(self._cells.values[_LAST])))

    @property
    def have_begun(self) -> bool:
        """Whether there was a pass, here or elsewhere."""
        return bool(self._cells.values[_LAST])

    def begin(self, loaded: int | None = None) -> int:
        """The epoch of a pass that begins now, in this worker or without workers.

        A pass that goes on from a state that was ``loaded`` is of that state's epoch.
        """
        info = get_worker_info()
        said = self._said_now()
        worker = None if info is None else info.id
        self._begun[worker] = self._begun.get(worker, 0) + 1
        key = 0
        if info is not None:
            loader = info.seed - info.id
            key = 1 + hash((loader, self._begun[worker], said.call, loaded is None)) % (2**24 - 1)
        while True:
            numbers = self._cells.values.tolist()
            last, *earlier = map(_Pass.unpacked, numbers[_LAST:])
            for known in (last, *earlier) if loaded is None else (last,):
                if key == known.key != 0 and loaded in (None, known.epoch):
                    return known.epoch
            epoch = said.epoch_after(last) if loaded is None else loaded
            obeys = loaded is None or loaded == said.epoch
            begun = _Pass(key, said.call if obeys else last.call, epoch)
            self._cells.values[_EARLIER + last.epoch % len(earlier)] = numbers[_LAST]
            if self._cells.compare_exchange(_LAST, numbers[_LAST], begun.packed()):
                return epoch

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_cells": copy.copy(self._cells)}  # a worker's copy shares them

    def _said_now(self) -> _Pass:
        info = get_worker_info()
        if (None if info is None else info.id) not in self._begun:
            return self._said
        return _Pass.unpacked(int(self._cells.values[_SAID]))


class _Pass(NamedTuple):
    """A pass that has begun, or one that set_epoch speaks of; in a cell it is one number.

    Attributes:
        key: 24 bits that its workers have in common, and workers of other passes have not; or 0.
        call: 8 bits: which call of set_epoch it obeyed, or the pass before it.
        epoch: 31 bits; -1 before there is one.
    """

    key: int
    call: int
    epoch: int

    def epoch_after(self, last: _Pass) -> int:
        """The epoch of the pass after ``last``, if ``self`` is what set_epoch said."""
        return last.epoch + 1 if self.call == last.call else self.epoch

    def packed(self) -> int:
        return self.key << 39 | self.call << 31 | self.epoch + 1

    @classmethod
    def unpacked(cls, number: int) -> _Pass:
        return cls(number >> 39, number >> 31 & 0xFF, (number & 0x7FFFFFFF) - 1)


_NONE = _Pass(0, 0, -1)
