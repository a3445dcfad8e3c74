"""What the samplers share: epochs, ranks, and a state to resume from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from pinfeed.arguments import checked_integer, require_flags, require_state, truth
from pinfeed.files.mapped import require_whole_file
from pinfeed.ranks import checked_ranks, group_ranks

_P = TypeVar("_P")


class EpochSampler(Sampler[Any]):
    """A ``batch_sampler`` whose batches follow from its settings, the epoch and the rank alone.

    A subclass says how many batches a rank has in an epoch, which samples are in each, and what two
    samplers must have in common to agree on that. The state is then the epoch and a number.

    Args:
        seed: Not negative; the same on all ranks.
        rank: Which of the ranks this is. None: asked of ``torch.distributed`` each time, and 0 until
            it is initialized, so that the sampler may be made before.
        world_size: How many ranks there are; likewise, else 1. Give both or neither.
        **flags: Arguments that must be True or False.
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
        self._given_ranks = checked_ranks(rank, world_size, self._name)
        self._kept_plan: tuple[tuple[int, int], Any] | None = None
        self._epoch = 0
        self._position = EpochPosition(0)  # what state_dict tells: of the iterator created last
        self._loaded: EpochPosition | None = None  # where the next iteration starts, if not at 0
        self._epoch_is_new = False  # set_epoch was called and no iteration has begun since

    @abstractmethod
    def batches(self, epoch: int) -> int:
        """The number of batches of this rank in an epoch."""

    @abstractmethod
    def batch(self, epoch: int, number: int) -> Any:
        """The samples of one of this rank's batches."""

    @abstractmethod
    def data_identity(self) -> dict[str, Any]:
        """What tells the data that batches are made of from other data: ints, bools, None."""

    def _kept(self, plan: Callable[[int], _P], epoch: int) -> _P:
        """What ``plan`` makes of an epoch, kept until another one is asked for."""
        key = epoch, self.world_size
        if self._kept_plan is None or self._kept_plan[0] != key:
            self._kept_plan = None  # one is enough memory
            self._kept_plan = key, plan(epoch)
        return self._kept_plan[1]

    @property
    def rank(self) -> int:
        """Which of the ranks this is."""
        return self._ranks()[0]

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return self._ranks()[1]

    @property
    def sampler(self) -> Self:
        """Itself: on this attribute of a batch sampler, Lightning and others call ``set_epoch``."""
        return self

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration is of."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Goes to another epoch, which has another order.

        The next iteration starts at its beginning. The epoch that the sampler is in already changes
        nothing, so that a training loop may call this after `load_state_dict` too. An iteration
        that is under way stays in its epoch.

        Raises:
            TypeError: ``epoch`` is no integer.
            ValueError: ``epoch`` is negative.
        """
        epoch = checked_integer(epoch, f"{self._name}: epoch", 0)
        self._epoch_is_new = True
        if epoch != self._epoch:
            self._epoch = epoch
            self._position = EpochPosition(epoch)
            self._loaded = None

    def __len__(self) -> int:
        return self.batches(self._epoch)

    def __iter__(self) -> Iterator[Any]:
        loaded = self._loaded
        self._position = EpochPosition(self._epoch, 0 if loaded is None else loaded.yielded)
        return self._batches_from(self._position, loaded)

    def _batches_from(self, position: EpochPosition, loaded: EpochPosition | None) -> Iterator[Any]:
        # A loaded position is used up here, at the first batch, and not in __iter__: a DataLoader
        # with workers creates two iterators, and only the second one is used.
        if self._loaded is loaded:
            self._loaded = None
        self._epoch_is_new = False
        for number in range(position.yielded, self.batches(position.epoch)):
            batch = self.batch(position.epoch, number)
            position.yielded += 1
            yield batch
        position.yielded = 0
        position.finished = True

    def state_dict(self) -> dict[str, Any]:
        """Where the sampler is, and what its batches depend on.

        Returns:
            ``epoch``, the number of batches ``yielded`` in it, whether it is ``finished`` (then
            nothing is yielded of the next iteration), and the settings; ints, strings, bools and
            None. The same on all ranks. Of several iterators the one created last counts.
        """
        return {
            "epoch": self._position.epoch,
            "yielded": self._position.yielded,
            "finished": self._position.finished,
            **self._identity(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to where `state_dict` was taken: the next iteration yields the batches left.

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
        finished = truth(state["finished"], f"{self._name}: finished") and yielded == 0
        if (finished or yielded == batches) and self._epoch_is_new and self._epoch > epoch:
            return
        self._epoch = epoch
        self._epoch_is_new = False
        self._position = self._loaded = EpochPosition(epoch, yielded, finished)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept_plan": None}  # a plan is large and soon made again

    def __repr__(self) -> str:
        names = (*self.SHOWN, *self.SETTINGS)
        settings = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
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
            **{name: getattr(self, name) for name in self.SETTINGS},
            **self.data_identity(),
            "planning": self.PLANNING,
        }

    def _ranks(self) -> tuple[int, int]:
        return self._given_ranks or group_ranks() or (0, 1)


@dataclass
class EpochPosition:
    """How far an iteration is."""

    epoch: int
    yielded: int = 0
    finished: bool = False


def checked_column(
    values: Any, name: str, what: Literal["integers", "numbers", "labels"]
) -> npt.NDArray[Any]:
    """One value for each sample, as a 1-D array.

    Args:
        values: An ndarray, a memmap, a list, a CPU tensor.
        name: What messages call it.
        what: Of which kind the values must be; labels may be of any.

    Raises:
        TypeError: The values are of another kind, or NumPy can't have them.
        ValueError: There are none, or more axes than one.
        OSError: They are mapped from a file that was cut short.
    """
    try:
        if isinstance(values, np.ndarray):
            require_whole_file(values)
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be 1-D {what}: {error}") from error
    except (TypeError, RuntimeError) as error:  # tensors that NumPy can't have
        raise TypeError(f"{name} must be 1-D {what} in CPU memory: {error}") from error
    if array.ndim != 1:
        raise ValueError(f"{name} must be 1-D, got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} must not be empty: expected one for each sample, got none")
    if array.dtype.kind not in {"integers": "iu", "numbers": "biuf"}.get(what, array.dtype.kind):
        raise TypeError(f"{name} must be {what}, got dtype {array.dtype}")
    return array
