"""What the samplers share: epochs, ranks, and a state to resume from."""

from __future__ import annotations

import copy
import functools
import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from pinfeed import _core
from pinfeed.arguments import (
    checked_integer,
    is_finished,
    require_flags,
    require_state,
    states_within,
)
from pinfeed.batches import IndexBatch
from pinfeed.ranks import checked_ranks, is_accelerate_in_charge, ranks_now
from pinfeed.samplers.epoch_clock import EpochClock

_P = TypeVar("_P")


@functools.cache
def _arguments_of(kind: type) -> frozenset[str]:
    """The names of the arguments of a sampler's class that is ours; a subclass may have others."""
    ours = [one for one in kind.__mro__ if one.__module__.partition(".")[0] == "pinfeed"]
    names = {name for one in ours for name in inspect.signature(one).parameters}
    return frozenset(names - {"count", "dataset", "flags", "lengths", "weights"} | {"drop_last"})


class EpochSampler(Sampler[Any]):
    """A ``batch_sampler`` whose batches follow from its settings, the epoch and the rank alone.

    A subclass plans epochs: an order of units (samples, whole batches, or rows that documents share), of
    which all ranks together take `step` at a time. What two samplers must have in common to have the
    same plans is their identity. So a state is an epoch and the number of units that were consumed,
    and any number of ranks can go on from it. All ranks get the same number of batches, in every epoch.

    Each pass is of the epoch after the one before, unless `set_epoch` or `load_state_dict` says
    otherwise. It counts once its first batch is taken.

    Its arguments are those of `ShuffleSampler`; ``flags`` must be True or False. Public attributes
    are read-only.
    """

    #: Goes up with every change of how epochs are planned: an old state would continue another plan.
    PLANNING: ClassVar[int] = 2

    #: The attributes that plans depend on, beside the epoch and the data itself.
    SETTINGS: ClassVar[tuple[str, ...]] = ()

    #: What `repr` shows before them.
    SHOWN: ClassVar[tuple[str, ...]] = ()

    def __init__(self, seed: Any, rank: Any, world_size: Any, /, **flags: Any) -> None:
        require_flags(self._name, **flags)
        self.seed = checked_integer(seed, f"{self._name}: seed", 0)
        #: Whether a last batch that isn't full is left out: accelerate and Lightning ask for it.
        self.drop_last: bool = flags.get("drop_last", False)
        self._given_ranks = checked_ranks(rank, world_size, self._name)
        self._found_ranks: tuple[int, int] | None = None  # while a pass is under way
        self._kept_plan: tuple[tuple[int, int], Any] | None = None
        self._clock = EpochClock()
        self._pass = _Pass(0)  # what state_dict tells of, unless the clock was set

    if not TYPE_CHECKING:  # or any attribute could be assigned to

        def __setattr__(self, name: str, value: Any) -> None:
            if name[0] != "_":  # private ones change with every batch
                own = getattr(type(self), name, None)
                is_fixed = isinstance(own, property) and own.fset is None
                before = self.__dict__.get(name, value)
                is_changed = type(before) is not type(value) or before != value
                if is_fixed or (is_changed and name in _arguments_of(type(self))):
                    raise AttributeError(
                        f"{self._name}: {name} can't be changed, because the batches of an epoch "
                        f"follow from it; make a new {self._name}"
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
        """The number of batches of this rank, once all ranks together have had ``start`` units."""

    @abstractmethod
    def batch(self, epoch: int, number: int, start: int = 0) -> IndexBatch:
        """The samples of one of these batches."""

    def steps(self, epoch: int, start: int = 0) -> int:
        """The number of batches of the rank that has the most."""
        return self.batches(epoch, start)

    def consumed(self, batches: int, start: int) -> int:
        """How many units all ranks together have had after so many batches more."""
        return start + batches * self.step

    def batches_from(self, epoch: int, start: int) -> Iterator[IndexBatch]:
        """This rank's batches from there on."""
        numbers = range(self.batches(epoch, start))
        return (self.batch(epoch, number, start) for number in numbers)

    @property
    def draw_epoch(self) -> Callable[[], int] | None:
        """Returns the epoch of a pass that begins, where nobody has said it. None: it is counted."""
        return None

    @abstractmethod
    def data_identity(self) -> dict[str, Any]:
        """What tells the data that batches are made of from other data: ints, bools, None."""

    def _kept(self, plan: Callable[[int, int], _P], epoch: int) -> _P:
        """What ``plan`` makes of an epoch and a number of ranks, kept until another one is asked for."""
        key = epoch, self.world_size
        kept = self._kept_plan
        if kept is None or kept[0] != key:
            self._kept_plan = None  # one is enough memory
            kept = self._kept_plan = key, plan(*key)
        return kept[1]

    @property
    def rank(self) -> int:
        """Which of the ranks this is."""
        return self._ranks()[0]

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return self._ranks()[1]

    @property
    def batch_size(self) -> Any:
        """The size of all batches but the last one; None where they differ.

        Raises:
            AttributeError: They differ, and accelerate asks, which with ``split_batches`` would cut
                each into equal parts.
        """
        if is_accelerate_in_charge():
            raise AttributeError(f"{self._name}: batches differ in size")
        return None

    @property
    def sampler(self) -> Self:
        """Itself: frameworks ask a batch sampler for it, to call ``set_epoch``, or before they split.

        Raises:
            RuntimeError: accelerate is about to split among its processes what is split already.
        """
        if self.world_size > 1 and is_accelerate_in_charge():
            raise RuntimeError(
                f"{self._name}: accelerator.prepare, which HF Trainer calls too, splits batches among "
                f"processes, and these are split among {self.world_size} already; make the sampler with "
                "rank=0, world_size=1, or leave the DataLoader out of prepare: "
                "pinfeed.DeviceLoader(loader, accelerator.device)"
            )
        return self

    @property
    def epoch(self) -> int:
        """The epoch that the next pass is of."""
        return self._clock.next

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next pass is of, where that isn't the one after the last.

        The next pass starts at the beginning of the epoch; or, after `load_state_dict` with a state of
        the same epoch, where that says. A pass that is under way stays in its epoch, and so does the
        state until it ends. If it is of this epoch and goes on, nothing was said of the next one.

        Raises:
            TypeError: ``epoch`` is no integer.
            ValueError: ``epoch`` is negative.
        """
        self._clock.set(checked_integer(epoch, f"{self._name}: epoch", 0))

    @property
    def epoch_at_hand(self) -> int:
        """The epoch of the pass that is under way, else of the next."""
        return self._pass.epoch if self._pass.is_under_way else self.epoch

    def __len__(self) -> int:
        return self.batches(self.epoch_at_hand)

    def __iter__(self) -> Iterator[IndexBatch]:
        # A pass begins with its first batch, and not here: a DataLoader with workers creates two
        # iterators, and only the second one is used.
        self._found_ranks = self._ranks()
        epoch, start = self._clock.begin(self.draw_epoch)
        current = self._pass = _Pass(epoch, start or 0, is_under_way=True)
        try:
            sets = self._clock.sets
            for batch in self.batches_from(epoch, current.start):
                if sets != self._clock.sets and self._pass is current:
                    sets = self._clock.sets
                    self._clock.goes_on(epoch)
                current.taken += 1
                yield batch
            current.finished = True
        finally:
            self._found_ranks = None
            current.is_under_way = False
            if self._pass is current:
                self._clock.end()

    def state_dict(self) -> dict[str, Any]:
        """Where the sampler is, and what its plans depend on.

        Returns:
            ``epoch``; the number of units that all ranks together have ``consumed`` of its plan, which
            are samples, batches or rows; whether it is ``finished`` (then the next pass is of the next
            epoch), and the settings; ints, strings, bools and None. The same on all ranks. Of several
            passes the one that began last counts.
        """
        if self._clock.is_set and not self._pass.is_under_way:
            return self._state(_Pass(self.epoch))
        return self._state(self._pass)

    def state_after(self, batches: int) -> dict[str, Any]:
        """The state after so many batches of the pass that began last, for a loop that gets them later.

        The workers of a DataLoader are some batches ahead of the loop, and with them the sampler.

        Args:
            batches: How often the loop has asked for a batch; the end of the loop counts like one.
        """
        batches = checked_integer(batches, f"{self._name}: batches", 0)
        last = self._pass
        if not last.has_begun:
            return self.state_dict()
        is_over = batches > self.batches(last.epoch, last.start)
        return self._state(_Pass(last.epoch, last.start, batches, is_over))

    @property
    def is_set(self) -> bool:
        """Whether `set_epoch` has said the epoch of the next pass."""
        return self._clock.is_set

    def load_state_dict(self, state: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
        """Goes to where `state_dict` was taken: the next pass yields what was left.

        After the state of a finished epoch it is the next epoch. The state may be of another number of
        ranks, and of another batch size where samples or rows are dealt out one by one; the rest of the
        epoch is dealt out anew.

        One exception: the state of an epoch that is over doesn't take back a later one, if
        `set_epoch` was just called. (StatefulDataLoader loads only when its iteration starts.)

        Args:
            state: The state of any rank; or a list of the states of all ranks, which must be equal. They may
                be those of torchdata's ``StatefulDataLoader``, if the number of workers has changed.

        Raises:
            TypeError: ``state`` is no dict, or a value is of the wrong kind.
            ValueError: The state is of a sampler with other settings or other data, or it isn't
                complete; ranks are not at the same step.
        """
        one: Any = self._state_of_all(state)
        needed = ("epoch", "consumed", "finished")
        require_state(one, needed, self._identity(), self._name, "sampler")
        epoch = checked_integer(one["epoch"], f"{self._name}: epoch of the state", 0)
        start = checked_integer(one["consumed"], f"{self._name}: consumed of the state", 0)
        units = self.units(epoch)
        if start > units:
            raise ValueError(
                f"{self._name}: consumed of the state must be at most {units}, which epoch {epoch} has in "
                f"all, got {start}"
            )
        finished = bool(one["finished"])
        is_over = finished or self.steps(epoch, start) == 0
        if is_over and not self._clock.load(epoch):
            return
        if not finished:
            self._clock.load(epoch, start)
        self._pass = _Pass(epoch, start, finished=finished)

    def _state_of_all(self, state: Any) -> Any:
        states = [*states_within(state, {"consumed", "finished"}, self._name)]
        if state in ([], ()):
            raise ValueError(f"{self._name}: state must be that of at least one rank, got none")
        if not states:
            return state
        places = [(one.get("epoch"), one.get("consumed")) for one in states]
        if len({*places}) > 1:
            named = ", ".join(
                f"rank {rank} has consumed {consumed} of epoch {epoch}"
                for rank, (epoch, consumed) in enumerate(places)
            )
            raise ValueError(
                f"{self._name}: the states of all ranks must be at the same step, got {named}; load states "
                "that all ranks saved after the same step"
            )
        # The state of a loader with workers holds the sampler's before the loop ended.
        finished = is_finished(state) or all(one["finished"] for one in states)
        return states[0] | {"finished": finished}

    def _state(self, at: _Pass) -> dict[str, Any]:
        consumed = at.start
        if at.finished or (at.taken and at.taken >= self.steps(at.epoch, at.start)):
            consumed = self.units(at.epoch)
        elif at.taken:
            consumed = self.consumed(at.taken, at.start)
        return {
            "epoch": at.epoch,
            "consumed": consumed,
            "finished": at.finished,
            **self._identity(),
        }

    def __getstate__(self) -> dict[str, Any]:
        # A plan is large and soon made again.
        own = {name: copy.copy(self.__dict__[name]) for name in ("_clock", "_pass")}
        return self.__dict__ | own | {"_kept_plan": None, "_found_ranks": None}

    def __repr__(self) -> str:
        names = (*self.SHOWN, *self.SETTINGS)
        settings = ", ".join(f"{name.lstrip('_')}={getattr(self, name)!r}" for name in names)
        return (
            f"{self._name}({self.data_identity()['samples']} samples, {settings}, rank={self.rank}, "
            f"epoch={self.epoch})"
        )

    @property
    def _name(self) -> str:
        """What messages begin with."""
        return type(self).__name__

    def _identity(self) -> dict[str, Any]:
        """What two samplers must have in common to have the same batches."""
        return {
            **{name.lstrip("_"): getattr(self, name) for name in self.SETTINGS},
            **self.data_identity(),
            "planning": self.PLANNING,
        }

    def _ranks(self) -> tuple[int, int]:
        return self._given_ranks or self._found_ranks or ranks_now(self._name)


@dataclass
class _Pass:
    """How far a pass is.

    Attributes:
        epoch: The epoch that it is of.
        start: How many units of the plan all ranks together had before.
        taken: The number of this rank's batches that it has yielded.
        finished: Whether the last one was asked for another.
        is_under_way: Whether more may be asked for.
    """

    epoch: int
    start: int = 0
    taken: int = 0
    finished: bool = False
    is_under_way: bool = False

    @property
    def has_begun(self) -> bool:
        return self.is_under_way or self.taken > 0 or self.finished


#: The hint where a trainer makes a sampler like ours with arguments of its own.
NOT_ANEW = (
    "if a trainer passed it, for its ranks, tell that not to make samplers anew (Lightning: "
    "use_distributed_sampler=False), because this one divides batches among ranks by itself; and predict "
    "without a batch sampler"
)


def require_no_sampler(data: Any, name: str) -> None:
    """Raises TypeError if the data that a sampler is made for is another sampler."""
    if isinstance(data, Sampler):
        raise TypeError(f"{name}, got a {type(data).__name__}; {NOT_ANEW}")


def checked_column(
    values: Any, name: str, what: Literal["integers", "numbers", "labels"]
) -> npt.NDArray[Any]:
    """One value for each sample, as a 1-D array of this kind; labels may be of any."""
    require_no_sampler(values, f"{name} must be {what}")
    try:
        if isinstance(values, np.ndarray):
            _core.require_whole_file(values)
        are_texts = what == "labels" and getattr(values, "string_type", None) is not None
        array = np.asarray([*values] if are_texts else values)  # a column of an ArrayDataset
    except ValueError as error:
        raise ValueError(f"{name} must be 1-D {what}: {error}") from error
    except (TypeError, RuntimeError) as error:  # tensors that NumPy can't have
        raise TypeError(f"{name} must be 1-D {what} in CPU memory: {error}") from error
    if array.ndim != 1:
        is_one_hot = what == "labels" and array.ndim == 2
        hint = "; .argmax(1) makes labels of what is one-hot" if is_one_hot else ""
        raise ValueError(f"{name} must be 1-D, got shape {array.shape}{hint}")
    if array.size == 0:
        raise ValueError(f"{name} must not be empty: expected one for each sample, got none")
    if array.dtype.kind not in {"integers": "iu", "numbers": "biuf"}.get(what, array.dtype.kind):
        raise TypeError(f"{name} must be {what}, got dtype {array.dtype}")
    return array
