"""`EpochClock`: the epoch of each pass over samples, and where in it the pass begins."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

from torch.utils.data import get_worker_info

from pinfeed.memory.shared_file import SharedIntegers

#: The maximum epoch of a shared clock, because shared values are packed into 64 bits.
MAX_EPOCH = 2**30

# Indices of the stored values: the last `set`, the last pass, and earlier passes; their number.
_SET, _LAST, _EARLIER, _COUNT = 0, 1, 2, 9


class EpochClock:
    """Determines the epoch of each pass over the samples of a sampler or a stream.

    The next pass is in one of three states:

    - counted: it has epoch n, the number after the last pass.
    - set: `set` chose its epoch e.
    - loaded: `load` restored its epoch e and its ``start``, a position in that epoch.

    The columns of the table are these states, the rows are events:

    | event                           | counted: next is n | set to e           | loaded: e, from start  |
    |---------------------------------|--------------------|--------------------|------------------------|
    | ``next`` returns                | n                  | e                  | e                      |
    | ``set(f)``                      | set to f           | set to f           | loaded if f == e, else set to f |
    | ``load(f, start)``              | loaded: f, start   | loaded: f, start   | loaded: f, start       |
    | ``load(f)``, f is finished      | counted, f + 1     | counted, f + 1; set to e if e > f | counted, f + 1 |
    | ``begin`` returns; state after  | n; counted, n + 1  | e; counted, e + 1  | e, start; counted, e + 1 |
    | ``continue_pass(p)``            | counted, n         | counted, p + 1 if e == p is running, else set to e | loaded |

    Discarded passes: `load` ignores the state of a finished epoch if a later epoch was set. A loader may
    discard the pass that begins after an ignored `load`. So the pass after it repeats its epoch, unless `end`
    was called.

    Workers: a DataLoader creates new workers for each pass, with copies of its dataset, and calls nothing in
    the main process. If ``is_shared``, these copies therefore share the values of the clock. The workers of
    one pass have the same base seed of their DataLoader: the first worker to begin takes the next epoch, and
    the others find it by the seed. If torch is reseeded before each pass, the epoch repeats, as with
    ``shuffle=True`` of a DataLoader. Each worker has its own loaded state, because workers can be threads. A
    state that the main process loaded applies to all workers until a pass has begun.
    """

    def __init__(self, *, is_shared: bool = False) -> None:
        # The last `set`. The first pass of a worker uses this copy, from the worker's creation, because
        # the main process may have called `set` again since. Later passes use the shared value.
        self._last_set = _NONE
        self.sets = 0  # number of calls of `set`
        self._begun_count: dict[int | None, int] = {}  # passes in this copy, by worker
        self._loaded: dict[tuple[int, int] | None, tuple[int, Any]] = {}
        # An epoch, where its workers begin, and the last pass at the time of loading.
        self._loaded_for_workers: tuple[int, Any, _Pass] | None = None
        # Of a state that `set` overrode, until a pass begins.
        self._ignored_epoch: int | None = None
        self._repeats: int | None = None  # the epoch of a pass that may be discarded
        self._passes: Any = (SharedIntegers if is_shared else _LocalIntegers)(
            [_NONE.packed()] * _COUNT
        )

    @property
    def next(self) -> int:
        """The epoch of the next pass."""
        if self._repeats is not None:
            return self._repeats
        loaded = self._pending_load()
        if loaded is not None:
            return loaded[0]
        return self._current_set().epoch_after(self._get(_LAST))

    @property
    def loaded(self) -> Any:
        """The loaded position of the next pass, or None."""
        loaded = self._pending_load()
        return None if loaded is None else loaded[1]

    @property
    def is_set(self) -> bool:
        """Whether the next epoch was set by `set`."""
        is_counted = self._current_set().call == self._get(_LAST).call
        return not is_counted and worker_key() not in self._loaded

    @property
    def has_begun(self) -> bool:
        """Whether a pass has begun, here or in another process."""
        return self._get(_LAST).epoch >= 0

    @property
    def is_loaded_into_main(self) -> bool:
        """Whether a state was loaded in the main process that workers can't use."""
        return None in self._loaded and self._loaded_for_workers is None

    def set(self, epoch: int) -> None:
        """Sets the epoch of the next pass."""
        loaded = self._pending_load()
        if loaded is not None and loaded[0] != epoch:
            self._loaded.pop(worker_key(), None)
            self._loaded_for_workers = None
        self._repeats = None
        self.sets += 1
        self._last_set = _Pass(0, self._last_set.call % 255 + 1, epoch)
        self._put(_SET, self._last_set)

    def load(self, epoch: int, start: Any = None, worker_start: Any = None) -> bool:
        """Loads the position of the next pass: ``start`` in an epoch, or its end if ``start`` is None.

        ``worker_start`` is the position for workers, if this is the main process.

        Returns:
            False if the epoch is finished and a later one was `set`, so that the state is ignored.
        """
        if start is None and self.is_set and self._last_set.epoch > epoch:
            self._ignored_epoch = self._last_set.epoch
            return False
        self._repeats = self._ignored_epoch = None
        key = worker_key()
        if start is not None:
            self._loaded[key] = epoch, start
        else:
            self._loaded.pop(key, None)
        last = self._get(_LAST)
        if start is None:
            last = last._replace(epoch=epoch)
        if key is None:  # overrides an earlier `set`
            last = last._replace(call=self._last_set.call)
            self._put(_LAST, last)
            self._loaded_for_workers = None if worker_start is None else (epoch, worker_start, last)
        return True

    def begin(self, draw: Callable[[], int] | None = None) -> tuple[int, Any]:
        """Begins a pass, in this worker or without workers.

        ``draw`` replaces counting: it returns the epoch.

        Returns:
            The epoch, and the loaded position or None.
        """
        info = get_worker_info()
        epoch, start = self._pending_load() or (None, None)
        last_at_load = None
        if info is None:
            self._loaded_for_workers = None
        elif worker_key() not in self._loaded and self._loaded_for_workers is not None:
            epoch, start, last_at_load = self._loaded_for_workers
        self._loaded.pop(worker_key(), None)
        if self._repeats is not None:
            epoch, self._repeats = self._repeats, None
            return epoch, start
        last_set = self._current_set()
        worker = None if info is None else info.id
        self._begun_count[worker] = self._begun_count.get(worker, 0) + 1
        while True:
            key = 0
            if info is not None:
                identity = (
                    info.seed - info.id,
                    self._begun_count[worker],
                    last_set.call,
                    epoch is None,
                )
                key = 1 + hash(identity) % (2**24 - 1)
            last, *earlier = map(self._get, range(_LAST, _COUNT))
            for other in (last, *earlier) if epoch is None else (last,):
                if key == other.key != 0 and epoch in (None, other.epoch):
                    return other.epoch, start
            if last_at_load not in (None, last):  # a pass has used the state already
                epoch = start = last_at_load = None
                continue
            is_counted = last_set.call == last.call
            next_epoch = last_set.epoch_after(last) if epoch is None else epoch
            if draw is not None and epoch is None and is_counted:
                next_epoch = draw()
            is_as_set = epoch is None or epoch == last_set.epoch
            new_pass = _Pass(key, last_set.call if is_as_set else last.call, next_epoch)
            self._put(_EARLIER + last.epoch % len(earlier), last)
            if self._passes.compare_exchange(_LAST, last.packed(), new_pass.packed()):
                if self._ignored_epoch == next_epoch:
                    self._repeats = next_epoch
                self._ignored_epoch = None
                return next_epoch, start

    def continue_pass(self, epoch: int) -> None:
        """Continues the pass of this epoch: if the last `set` chose the same epoch, it meant this pass."""
        last = self._get(_LAST)
        if self._last_set.epoch == epoch and self._last_set.call != last.call:
            self._put(_LAST, last._replace(call=self._last_set.call, epoch=epoch))

    def end(self) -> None:
        """Ends the last pass, finished or not."""
        self._repeats = None

    def __getstate__(self) -> dict[str, Any]:
        # A worker's copy shares the stored values; other copies are independent.
        copies = {
            name: copy.copy(self.__dict__[name]) for name in ("_passes", "_begun_count", "_loaded")
        }
        return self.__dict__ | copies

    def _get(self, index: int) -> _Pass:
        return _Pass.unpacked(int(self._passes.values[index]))

    def _put(self, index: int, value: _Pass) -> None:
        self._passes.values[index] = value.packed()

    def _pending_load(self) -> tuple[int, Any] | None:
        """Returns the epoch and position loaded for this worker, or None."""
        key, for_workers = worker_key(), self._loaded_for_workers
        if for_workers is not None and self._get(_LAST) != for_workers[2]:
            for_workers = None  # a pass has used it already
            if key is None:
                self._loaded_for_workers = None
                self._loaded.pop(None, None)
        if key in self._loaded or key is None:
            return self._loaded.get(key)
        return None if for_workers is None else for_workers[:2]

    def _current_set(self) -> _Pass:
        info = get_worker_info()
        if (None if info is None else info.id) not in self._begun_count:
            return self._last_set
        return self._get(_SET)


class _Pass(NamedTuple):
    """A pass that has begun, or the argument of `EpochClock.set`; can be packed into one integer."""

    key: int  # 24 bits that identify the workers of a pass, or 0
    call: int  # 8 bits: the number of the last `EpochClock.set` before the pass
    epoch: int  # 31 bits; -1 before the first pass

    def epoch_after(self, last: _Pass) -> int:
        """Returns the epoch of the pass after ``last``, if ``self`` is the last `set`."""
        return last.epoch + 1 if self.call == last.call else self.epoch

    def packed(self) -> int:
        return self.epoch + 1 << 32 | self.call << 24 | self.key

    @classmethod
    def unpacked(cls, number: int) -> _Pass:
        return cls(number & 0xFFFFFF, number >> 24 & 0xFF, (number >> 32) - 1)


_NONE = _Pass(0, 0, -1)


class _LocalIntegers:
    """Integers like `SharedIntegers`, but of one process, and of any size."""

    def __init__(self, values: list[int]) -> None:
        self.values = [*values]

    def compare_exchange(self, index: int, expected: int, desired: int) -> bool:
        self.values[index] = desired
        return True

    def __copy__(self) -> _LocalIntegers:
        return _LocalIntegers(self.values)


def worker_key() -> tuple[int, int] | None:
    """Returns the number of this DataLoader worker and the number of workers; None outside of workers."""
    info = get_worker_info()
    return None if info is None else (info.id, info.num_workers)
