"""`EpochSampler`: epochs, ranks and states, for all samplers."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from pinfeed import _core
from pinfeed.arguments import (
    check_plain,
    checked_integer,
    is_finished,
    require_flags,
    require_state,
    states_within,
)
from pinfeed.batches import IndexBatch
from pinfeed.ranks import checked_ranks, different_steps, is_accelerate_in_charge, ranks_now
from pinfeed.samplers.epoch_clock import EpochClock


class EpochSampler(Sampler[Any]):
    """Batch sampler whose batches depend only on its settings, the epoch and the rank.

    A subclass plans epochs: an order of units (samples, whole batches, or packed rows), of which all ranks
    together take `step` at a time. Samplers with the same identity have the same plans. So a state is an
    epoch and the number of consumed units, from which any number of ranks can resume. All ranks get the
    same number of batches, in every epoch.

    Each pass starts the next epoch, unless `set_epoch` or `load_state_dict` sets it. A pass counts once
    its first batch is taken.

    For the arguments, see `ShuffleSampler`; ``flags`` must be True or False. Public attributes are
    read-only.
    """

    #: Increased when the planning of epochs changes, because an old state would continue another plan.
    PLANNING: ClassVar[int] = 2

    #: The attributes that plans depend on, besides the epoch and the data.
    SETTINGS: ClassVar[tuple[str, ...]] = ()

    #: The attributes that `repr` shows before them.
    SHOWN: ClassVar[tuple[str, ...]] = ()

    #: The identity of the data in a state: the number of samples, and a checksum if it has one.
    _data_identity: Mapping[str, int]

    def __init__(self, seed: Any, rank: Any, world_size: Any, /, **flags: Any) -> None:
        require_flags(self._name, **flags)
        self.seed = checked_integer(seed, f"{self._name}: seed", 0)
        #: Whether the last incomplete batch is dropped; accelerate and Lightning read it.
        self.drop_last: bool = flags.get("drop_last", False)
        self._given_ranks = checked_ranks(rank, world_size, self._name)
        self._detected_ranks: tuple[int, int] | None = None  # during a pass
        self._plan_cache: tuple[tuple[int, int], Any] | None = None
        self._clock = EpochClock()
        self._pass = _Pass(0)  # the pass of state_dict, unless the clock was set

    if not TYPE_CHECKING:  # otherwise mypy allows assignment to any attribute

        def __setattr__(self, name: str, value: Any) -> None:
            if name[0] != "_":  # private ones change with every batch
                attribute = getattr(type(self), name, None)
                is_fixed = isinstance(attribute, property) and attribute.fset is None
                before = self.__dict__.get(name, value)
                is_changed = type(before) is not type(value) or before != value
                settings = ("drop_last", "uneven", *self.SETTINGS, *self.SHOWN)
                if is_fixed or (is_changed and name in settings):
                    raise AttributeError(
                        f"{self._name}: {name} can't be changed, because the batches of an epoch "
                        f"depend on it; create a new {self._name}"
                    )
            object.__setattr__(self, name, value)

    @property
    @abstractmethod
    def step(self) -> int:
        """The number of units that all ranks take at a time."""

    @abstractmethod
    def units(self, epoch: int) -> int:
        """The number of units in the plan of an epoch."""

    @abstractmethod
    def batches(self, epoch: int, start: int = 0) -> int:
        """The number of batches of this rank, after all ranks together have consumed ``start`` units."""

    @abstractmethod
    def batch(self, epoch: int, number: int, start: int = 0) -> IndexBatch:
        """The samples of one of these batches."""

    def steps(self, epoch: int, start: int = 0) -> int:
        """The maximum number of batches over all ranks."""
        return self.batches(epoch, start)

    def consumed(self, batches: int, start: int) -> int:
        """The number of units that all ranks have consumed after a number of batches."""
        return start + batches * self.step

    def batches_from(self, epoch: int, start: int) -> Iterator[IndexBatch]:
        """Returns this rank's batches after ``start`` consumed units."""
        numbers = range(self.batches(epoch, start))
        return (self.batch(epoch, number, start) for number in numbers)

    @property
    def draw_epoch(self) -> Callable[[], int] | None:
        """A function that draws the epoch of a pass if it wasn't set. None: epochs are counted."""
        return None

    def _plan(self, epoch: int, world_size: int) -> Any:
        """Returns a subclass's plan of an epoch."""
        raise NotImplementedError

    def _cached_plan(self, epoch: int) -> Any:
        """Returns the plan of an epoch, and caches the last one."""
        key = epoch, self.world_size
        cached = self._plan_cache
        if cached is None or cached[0] != key:
            self._plan_cache = None  # free the memory of the old plan first
            cached = self._plan_cache = key, self._plan(*key)
        return cached[1]

    @property
    def rank(self) -> int:
        """The data-parallel rank of this process."""
        return self._ranks()[0]

    @property
    def world_size(self) -> int:
        """The number of data-parallel ranks."""
        return self._ranks()[1]

    @property
    def batch_size(self) -> Any:
        """The size of all batches but the last; None if batches differ in size.

        Raises:
            AttributeError: If they differ and accelerate is active, whose ``split_batches`` cuts each
                batch into equal parts.
        """
        if is_accelerate_in_charge():
            raise AttributeError(f"{self._name}: batches differ in size; leave out split_batches")
        return None

    @property
    def sampler(self) -> Self:
        """The sampler itself, because frameworks call ``batch_sampler.sampler.set_epoch``.

        Raises:
            RuntimeError: If accelerate would shard already sharded batches.
        """
        if self.world_size > 1 and is_accelerate_in_charge():
            raise RuntimeError(
                f"{self._name}: accelerator.prepare, which HF Trainer calls too, splits batches among "
                f"processes, but these are already split among {self.world_size}; pass rank=0, "
                "world_size=1 to the sampler, or leave the DataLoader out of prepare: "
                "pinfeed.DeviceLoader(loader, accelerator.device)"
            )
        return self

    @property
    def epoch(self) -> int:
        """The epoch of the next pass."""
        return self._clock.next

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass.

        The next pass starts at the beginning of the epoch or, if a state of this epoch was loaded, at the
        state's position. A running pass keeps its epoch, and `state_dict` describes it until it ends.
        Setting the epoch of the running pass has an effect only if its loop takes no further batch: the next
        pass then repeats this epoch.

        Args:
            epoch: Non-negative integer, the same on all ranks.

        Raises:
            TypeError: If ``epoch`` is not an integer.
            ValueError: If ``epoch`` is negative.
        """
        self._clock.set(checked_integer(epoch, f"{self._name}: epoch", 0))

    @property
    def current_epoch(self) -> int:
        """The epoch of the running pass, or else of the next."""
        return self._pass.epoch if self._pass.is_running else self.epoch

    def __len__(self) -> int:
        return self.batches(self.current_epoch)

    def __iter__(self) -> Iterator[IndexBatch]:
        # This generator begins a pass with its first batch, because a DataLoader with workers creates two
        # iterators and uses only the second.
        self._detected_ranks = self._ranks()
        epoch, start = self._clock.begin(self.draw_epoch)
        current = self._pass = _Pass(epoch, start or 0, is_running=True)
        try:
            sets = self._clock.sets
            for batch in self.batches_from(epoch, current.start):
                if sets != self._clock.sets and self._pass is current:
                    sets = self._clock.sets
                    self._clock.continue_pass(epoch)
                current.yielded += 1
                yield batch
            current.finished = True
        finally:
            self._detected_ranks = None
            current.is_running = False
            if self._pass is current:
                self._clock.end()

    def state_dict(self) -> dict[str, Any]:
        """Returns the position in the epoch, and the settings that the order depends on.

        Returns:
            Dict of ints, strings, bools and None, the same on all ranks: the ``epoch``; the number of
            samples, batches or rows that all ranks together have ``consumed``; whether the epoch is
            ``finished``, so that the next pass starts the next epoch; and the settings.
        """
        if self._clock.is_set and not self._pass.is_running:
            return self._state(_Pass(self.epoch))
        return self._state(self._pass)

    def state_after(self, batches: int) -> dict[str, Any]:
        """Returns the state after a number of batches of the last pass.

        Use it with a plain DataLoader. Its workers prefetch, so `state_dict` is ahead of your loop.

        Args:
            batches: Number of batches that your loop has received. After a complete loop add 1, for the
                state of a finished epoch: the next loop then starts the next epoch.

        Returns:
            A state as from `state_dict`.

        Raises:
            TypeError: If ``batches`` is not an integer.
            ValueError: If ``batches`` is negative.

        Example:
            >>> sampler = pinfeed.samplers.ShuffleSampler(10, batch_size=2)
            >>> loader = torch.utils.data.DataLoader(range(10), batch_sampler=sampler)
            >>> for batches, batch in enumerate(loader, 1):
            ...     if batches == 3:
            ...         state = sampler.state_after(batches)
            >>> sampler.load_state_dict(state)
            >>> len(list(loader))
            2
        """
        batches = checked_integer(batches, f"{self._name}: batches", 0)
        last = self._pass
        if not (last.is_running or last.yielded or last.finished):
            return self.state_dict()
        is_over = batches > self.batches(last.epoch, last.start)
        return self._state(_Pass(last.epoch, last.start, batches, is_over))

    @property
    def is_set(self) -> bool:
        """Whether `set_epoch` has set the epoch of the next pass."""
        return self._clock.is_set

    def load_state_dict(self, state: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
        """Restores a saved position: the next pass yields the remaining batches.

        After the state of a finished epoch, the next pass starts the next epoch, or a later one passed to
        `set_epoch`. The number of ranks may change, except for `PackSampler` with ``balance``; so may the
        batch size, except there and for `LengthBucketSampler`. New ranks split the rest of the epoch.

        Args:
            state: State of any rank; or a list of the states of all ranks, which must be equal. States of
                torchdata's ``StatefulDataLoader`` are accepted in a list, also with another number of
                workers.

        Raises:
            TypeError: If ``state`` is not a dict, or a value has the wrong type.
            ValueError: If the state is incomplete or from a sampler with other settings or data, or if
                the states of the ranks differ.
        """
        loaded: Any = self._state_of_all(state)
        needed = ("epoch", "consumed", "finished")
        require_state(loaded, needed, self._identity(), self._name, "sampler")
        epoch = checked_integer(loaded["epoch"], f"{self._name}: state['epoch']", 0)
        start = checked_integer(loaded["consumed"], f"{self._name}: state['consumed']", 0)
        units = self.units(epoch)
        if start > units:
            raise ValueError(
                f"{self._name}: state['consumed'] must be at most {units}, the size of epoch {epoch}, "
                f"got {start}; load an unchanged result of state_dict()"
            )
        finished = bool(loaded["finished"])
        is_over = finished or self.steps(epoch, start) == 0
        if is_over and not self._clock.load(epoch):
            return
        if not finished:
            self._clock.load(epoch, start)
        self._pass = _Pass(epoch, start, finished=finished)

    def _state_of_all(self, state: Any) -> Any:
        states = [*states_within(state, {"consumed", "finished"}, self._name)]
        if state in ([], ()):
            raise ValueError(f"{self._name}: state must have at least one rank's state, got none")
        if not states:
            return state
        positions = [(inner.get("epoch"), inner.get("consumed")) for inner in states]
        if len({*positions}) > 1:
            texts = [f"consumed {consumed} of epoch {epoch}" for epoch, consumed in positions]
            raise different_steps(self._name, enumerate(texts))
        # The state of a loader with workers has the sampler's state from before the end of the loop.
        finished = is_finished(state) or all(inner["finished"] for inner in states)
        return states[0] | {"finished": finished}

    def _state(self, position: _Pass) -> dict[str, Any]:
        consumed = position.start
        if position.finished or (
            position.yielded and position.yielded >= self.steps(position.epoch, position.start)
        ):
            consumed = self.units(position.epoch)
        elif position.yielded:
            consumed = self.consumed(position.yielded, position.start)
        return {
            "epoch": position.epoch,
            "consumed": consumed,
            "finished": position.finished,
            **self._identity(),
        }

    def __getstate__(self) -> dict[str, Any]:
        # Without the plan, which is large and quickly recomputed.
        copies = {name: copy.copy(self.__dict__[name]) for name in ("_clock", "_pass")}
        return self.__dict__ | copies | {"_plan_cache": None, "_detected_ranks": None}

    def __repr__(self) -> str:
        names = (*self.SHOWN, *self.SETTINGS)
        settings = ", ".join(f"{name.lstrip('_')}={getattr(self, name)!r}" for name in names)
        return (
            f"{self._name}({self._data_identity['samples']} samples, {settings}, rank={self.rank}, "
            f"epoch={self.epoch})"
        )

    @property
    def _name(self) -> str:
        """The prefix of messages."""
        return type(self).__name__

    def _identity(self) -> dict[str, Any]:
        """Returns the settings and data that determine batches."""
        return {
            **{name.lstrip("_"): getattr(self, name) for name in self.SETTINGS},
            **self._data_identity,
            "planning": self.PLANNING,
        }

    def _ranks(self) -> tuple[int, int]:
        return self._given_ranks or self._detected_ranks or ranks_now(self._name)


@dataclass
class _Pass:
    """The position of a pass."""

    epoch: int
    start: int = 0  # number of units that all ranks together consumed before
    yielded: int = 0  # number of batches that this rank has yielded
    finished: bool = False  # whether the pass has ended by exhaustion
    is_running: bool = False


#: The hint for a framework that recreates the sampler with its own arguments.
NOT_RECREATED = (
    "if a framework recreated the sampler for its ranks, disable that (Lightning: "
    "use_distributed_sampler=False), because this sampler shards over ranks by itself; to predict, "
    "pass a DataLoader without a batch sampler"
)


def require_no_sampler(data: Any, name: str) -> None:
    """Raises TypeError if a sampler was passed as data."""
    if isinstance(data, Sampler):
        raise TypeError(f"{name}, got a {type(data).__name__}; {NOT_RECREATED}")


def checked_column(
    values: Any, name: str, kind: Literal["integers", "numbers", "labels"]
) -> npt.NDArray[Any]:
    """Validates one value per sample, as a 1-D array; labels may have any dtype."""
    require_no_sampler(values, f"{name} must be {kind}")
    check_plain(values, name)
    try:
        if isinstance(values, np.ndarray):
            _core.require_whole_file(values)
        are_texts = kind == "labels" and getattr(values, "string_type", None) is not None
        array = np.asarray([*values] if are_texts else values)  # a column of an ArrayDataset
    except ValueError as error:
        raise ValueError(f"{name} must be 1-D {kind}: {error}") from error
    except (TypeError, RuntimeError) as error:  # tensors that NumPy can't represent
        raise TypeError(f"{name} must be 1-D {kind} in CPU memory: {error}") from error
    if array.ndim != 1:
        is_one_hot = kind == "labels" and array.ndim == 2
        hint = "; convert one-hot labels with .argmax(1)" if is_one_hot else ""
        raise ValueError(f"{name} must be 1-D, got shape {array.shape}{hint}")
    if array.size == 0:
        raise ValueError(f"{name} must have one item per sample, got none")
    if array.dtype.kind not in {"integers": "iu", "numbers": "biuf"}.get(kind, array.dtype.kind):
        raise TypeError(f"{name} must be {kind}, got dtype {array.dtype}")
    return array
