"""What the samplers share: epochs, ranks, and a state to resume from."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
from torch.utils.data import BatchSampler, Sampler

from pinfeed import _core
from pinfeed.arguments import checked_integer, require_flags, require_state
from pinfeed.batches import IndexBatch
from pinfeed.ranks import checked_ranks, is_accelerate_in_charge, ranks_now

_P = TypeVar("_P")
_Said = Literal["set_epoch", "state", "set_epoch, and not the state"] | None


class EpochSampler(Sampler[Any]):
    """A ``batch_sampler`` whose batches follow from its settings, the epoch and the rank alone.

    A subclass says how many batches a rank has in an epoch, which samples are in each, and what two
    samplers must have in common to agree on that. The state is then the epoch and a number.

    Each iteration is of the epoch after the one before, unless `set_epoch` or `load_state_dict` says
    otherwise. It counts once its first batch is taken.

    Its arguments are those of `ShuffleSampler`; ``flags`` must be True or False. Public attributes
    are read-only.
    """

    #: Goes up with every change of how epochs are planned: an old state would continue another plan.
    PLANNING: ClassVar[int] = 1

    #: The attributes that batches depend on, beside the epoch and the data itself.
    SETTINGS: ClassVar[tuple[str, ...]] = ()

    #: What `repr` shows before them.
    SHOWN: ClassVar[tuple[str, ...]] = ()

    def __init__(self, seed: Any, rank: Any, world_size: Any, /, **flags: Any) -> None:
        require_flags(self._name, **flags)
        self.seed = checked_integer(seed, f"{self._name}: seed", 0)
        #: Whether a last batch that isn't full is left out: accelerate and Lightning ask for it.
        self.drop_last: bool = flags.get("drop_last", False)
        self._given_ranks = checked_ranks(rank, world_size, self._name)
        self._found_ranks: tuple[int, int] | None = None  # while an iteration goes on
        self._kept_plan: tuple[tuple[int, int], Any] | None = None
        self._epoch = 0  # of the next iteration
        self._start = 0  # at which of its batches that begins
        self._position = EpochPosition(0)  # what state_dict tells
        self._said_by: _Said = None  # what said so since the last iteration began

    if not TYPE_CHECKING:  # or any attribute could be assigned to

        def __setattr__(self, name: str, value: Any) -> None:
            if name[0] != "_":  # private ones change with every batch
                is_property = isinstance(getattr(type(self), name, None), property)
                if is_property or name in self.__dict__:
                    raise AttributeError(
                        f"{self._name}: {name} can't be changed, because the batches of an epoch "
                        f"follow from it; make a new {self._name}"
                    )
            object.__setattr__(self, name, value)

    @abstractmethod
    def batches(self, epoch: int) -> int:
        """The number of batches of this rank in an epoch."""

    @abstractmethod
    def batch(self, epoch: int, number: int) -> IndexBatch:
        """The samples of one of this rank's batches."""

    def batches_from(self, epoch: int, start: int) -> Iterator[IndexBatch]:
        """This rank's batches of an epoch, from a number on."""
        return (self.batch(epoch, number) for number in range(start, self.batches(epoch)))

    def next_epoch(self) -> int:
        """The epoch of an iteration that begins now, where nobody has said it."""
        return self._epoch

    @abstractmethod
    def data_identity(self) -> dict[str, Any]:
        """What tells the data that batches are made of from other data: ints, bools, None."""

    def _kept(self, plan: Callable[[int], _P], epoch: int) -> _P:
        """What ``plan`` makes of an epoch, kept until another one is asked for."""
        key = epoch, self.world_size
        kept = self._kept_plan
        if kept is None or kept[0] != key:
            self._kept_plan = None  # one is enough memory
            kept = self._kept_plan = key, plan(epoch)
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
        """The epoch that the next iteration is of."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next iteration is of, where that isn't the one after the last.

        The next iteration starts at its beginning; or, after `load_state_dict` with a state of the
        same epoch, where that says. An iteration that is under way stays in its epoch.

        Raises:
            TypeError: ``epoch`` is no integer.
            ValueError: ``epoch`` is negative.
        """
        epoch = checked_integer(epoch, f"{self._name}: epoch", 0)
        if epoch != self._epoch:
            self._start = 0
        self._epoch = epoch
        self._said_by = "set_epoch"
        self._position = EpochPosition(epoch, self._start)

    @property
    def epoch_at_hand(self) -> int:
        """The epoch of the iteration that is under way, else of the next."""
        return self._position.epoch if self._position.is_under_way else self._epoch

    def __len__(self) -> int:
        return self.batches(self.epoch_at_hand)

    def __iter__(self) -> Iterator[IndexBatch]:
        # Nothing but its frame tells who asks. Some datasets take a batch of batches without a word.
        asking = sys._getframe(1).f_locals.get("self")
        if isinstance(asking, BatchSampler) and getattr(asking, "sampler", None) is self:
            raise TypeError(
                f"{self._name}: expected to be a DataLoader's batch_sampler, got to be its sampler, whose "
                "items it puts into batches; write DataLoader(dataset, batch_sampler=sampler), without "
                "batch_size"
            )
        self._position = EpochPosition(self._epoch, self._start)
        return self._iterate(self._position)

    def _iterate(self, position: EpochPosition) -> Iterator[IndexBatch]:
        # It begins here, at the first batch, and not in __iter__: a DataLoader with workers creates
        # two iterators, and only the second one is used.
        # To ask for each batch would take as long as computing it.
        self._found_ranks = self._ranks()
        position.epoch = self.next_epoch() if self._said_by is None else self._epoch
        position.start = position.yielded = self._start
        position.has_begun = position.is_under_way = True
        self._position = position
        # After a state that is over, StatefulDataLoader with workers throws one iteration away.
        self._epoch = position.epoch + (self._said_by != "set_epoch, and not the state")
        self._start, self._said_by = 0, None
        try:
            for batch in self.batches_from(position.epoch, position.start):
                position.yielded += 1
                yield batch
            position.yielded = 0
            position.finished = True
        finally:
            self._found_ranks = None
            position.is_under_way = False
            if self._position is position:
                self._epoch = position.epoch + 1

    def state_dict(self) -> dict[str, Any]:
        """Where the sampler is, and what its batches depend on.

        Returns:
            ``epoch``, the number of batches ``yielded`` in it, whether it is ``finished`` (then the
            next iteration is of the next epoch), and the settings; ints, strings, bools and None.
            The same on all ranks. Of several iterations the one that began last counts.
        """
        return {
            "epoch": self._position.epoch,
            "yielded": self._position.yielded,
            "finished": self._position.finished,
            **self._identity(),
        }

    def state_after(self, taken: int) -> dict[str, Any]:
        """The state of a loop that runs behind this sampler, for a loader that fetches ahead.

        Args:
            taken: How often the loop has asked the loader, in the iteration that began last; the end
                of the loop counts like a batch.
        """
        state = self.state_dict()
        if not self._position.has_begun:
            return state
        yielded = self._position.start + taken
        is_over = yielded > self.batches(self._position.epoch)
        return state | {"yielded": 0 if is_over else yielded, "finished": is_over}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to where `state_dict` was taken: the next iteration yields the batches left.

        After the state of a finished epoch it is the next epoch.

        One exception: the state of an epoch that is over doesn't take back a later one, if
        `set_epoch` was just called. (StatefulDataLoader loads only when its iteration starts.)

        Raises:
            TypeError: ``state`` is no dict, or a value is of the wrong kind.
            ValueError: The state is of a sampler with other settings or other data, or it isn't
                complete.
        """
        needed = ("epoch", "yielded", "finished")
        require_state(state, needed, self._identity(), self._name, "sampler")
        epoch = checked_integer(state["epoch"], f"{self._name}: epoch of the state", 0)
        yielded = checked_integer(state["yielded"], f"{self._name}: yielded of the state", 0)
        batches = self.batches(epoch)
        if yielded > batches:
            raise ValueError(
                f"{self._name}: yielded of the state must be at most {batches}, the number of "
                f"batches in epoch {epoch}, got {yielded}"
            )
        finished = bool(state["finished"]) and yielded == 0
        is_over = finished or yielded == batches
        if is_over and self._said_by == "set_epoch" and self._epoch > epoch:
            self._said_by = "set_epoch, and not the state"
            return
        self._epoch, self._start = (epoch + 1, 0) if finished else (epoch, yielded)
        self._said_by = None if finished else "state"
        self._position = EpochPosition(epoch, yielded, finished=finished)

    def __getstate__(self) -> dict[str, Any]:
        # A plan is large and soon made again.
        return self.__dict__ | {"_kept_plan": None, "_found_ranks": None}

    def __repr__(self) -> str:
        names = (*self.SHOWN, *self.SETTINGS)
        settings = ", ".join(f"{name.lstrip('_')}={getattr(self, name)!r}" for name in names)
        return (
            f"{self._name}({self.data_identity()['samples']} samples, {settings}, rank={self.rank}, "
            f"epoch={self._epoch})"
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
class EpochPosition:
    """How far an iteration is.

    Attributes:
        epoch: The epoch that it is of.
        start: At which batch of the epoch it begins.
        yielded: How many batches of the epoch were yielded, those before ``start`` included; 0 again
            once all were.
        finished: Whether all were.
        has_begun: Whether a batch was asked for.
        is_under_way: Whether more may be asked for.
    """

    epoch: int
    start: int = 0
    yielded: int = 0
    finished: bool = False
    has_begun: bool = False
    is_under_way: bool = False

    def __post_init__(self) -> None:
        self.yielded = self.start


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
