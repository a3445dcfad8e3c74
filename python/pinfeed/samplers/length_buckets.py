"""Batches of samples of similar length."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from pinfeed.arguments import checked_integer
from pinfeed.files.mapped import require_whole_file
from pinfeed.ranks import checked_ranks, group_ranks
from pinfeed.samplers.epoch_plan import EpochPlan, plan_epoch

_MOST_LENGTH = np.iinfo(np.int64).max

# What a plan depends on, beside the epoch and the lengths themselves.
_SETTINGS = (
    "batch_size",
    "max_tokens",
    "shuffle",
    "seed",
    "bucket_batches",
    "drop_last",
    "world_size",
)

# Goes up with every change of how epochs are planned: an old state would continue another plan.
_PLANNING = 1


class LengthBucketSampler(Sampler[list[int]]):
    """Batches of samples of similar length, so that little padding is left; a ``batch_sampler``.

    An epoch is planned ahead: samples are shuffled, sorted by length within large buckets, cut into
    batches, and the batches are shuffled. The plan follows from the lengths, the seed and the epoch
    alone, on every machine, and planning takes a few tenths of a second for a million samples.

    With several ranks, each group of neighbouring batches is dealt out one per rank, so that ranks
    work on similar lengths at the same time. All ranks get the same number of batches: where these
    don't suffice, the last group repeats batches of the one before, or with ``drop_last`` is left
    out.

    Args:
        lengths: 1-D integers, the length of each sample: a list, an ndarray, a CPU tensor, or
            anything that has such an attribute ``lengths``. They are copied.
        batch_size: The largest number of samples in a batch.
        max_tokens: The largest size of a padded batch: its longest sample × its number of samples.
            An empty sample counts as one token. At least one of ``batch_size`` and ``max_tokens``
            must be given; with both, both hold.
        shuffle: False keeps the order given but for the sorting within buckets.
        seed: Not negative; the same on all ranks.
        bucket_batches: About how many batches' worth of samples (of each rank) are sorted together.
            More leave less padding; fewer are closer to random order; 1 sorts nothing, which is
            random order. If shuffled, a bucket has at most a quarter of the samples, so that each
            epoch has other batches.
        drop_last: Leave out a last batch that isn't full, and batches that don't suffice for all
            ranks. Otherwise every sample comes at least once.
        rank: Which of the ranks this is. None: asked of ``torch.distributed`` each time, and 0 until
            it is initialized, so that the sampler may be made before.
        world_size: How many ranks there are; likewise, else 1. Give both or neither.

    ``len()`` is the exact number of batches of this rank in a whole epoch. With ``max_tokens`` it
    may differ between epochs.

    To resume within an epoch, save ``state_dict()``; after ``load_state_dict`` the next iteration
    yields the batches that were left. torchdata's ``StatefulDataLoader`` does both by itself, with
    any number of workers. The workers of a plain DataLoader fetch batches ahead, which the state
    counts as yielded, so save ``sampler.state_dict() | {"yielded": batches_trained}`` there.

    Raises:
        TypeError: An argument is of the wrong kind; another sampler in the place of lengths, as when
            Lightning makes samplers anew for its ranks: ``Trainer(use_distributed_sampler=False)``.
        ValueError: An argument is out of range, or a sample is longer than ``max_tokens``.

    Example:
        >>> lengths = np.arange(10_000) % 512 + 1
        >>> sampler = pinfeed.LengthBucketSampler(lengths, max_tokens=4096)
        >>> loader = torch.utils.data.DataLoader(lengths, batch_sampler=sampler)
        >>> for epoch in range(2):
        ...     sampler.set_epoch(epoch)
        ...     for batch in loader:
        ...         assert len(batch) * max(batch) <= 4096

        The share of padding in all batches, against that of random order:

        >>> in_random_order = pinfeed.LengthBucketSampler(
        ...     lengths, max_tokens=4096, bucket_batches=1
        ... )
        >>> f"{sampler.padding_fraction():.0%} instead of {in_random_order.padding_fraction():.0%}"
        '2% instead of 44%'
    """

    def __init__(
        self,
        lengths: Any,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        *,
        shuffle: bool = True,
        seed: int = 0,
        bucket_batches: int = 100,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        if isinstance(lengths, Sampler):
            raise TypeError(
                "LengthBucketSampler: lengths must be integers, got a "
                f"{type(lengths).__name__}; if that is a trainer's, for its ranks, tell it not to "
                "make samplers anew (Lightning: use_distributed_sampler=False), for this one divides "
                "batches among ranks by itself; and predict without a batch sampler"
            )
        if batch_size is None and max_tokens is None:
            raise ValueError(
                "LengthBucketSampler: expected batch_size or max_tokens or both, got neither"
            )
        for name, flag in (("shuffle", shuffle), ("drop_last", drop_last)):
            if not isinstance(flag, bool):
                raise TypeError(f"LengthBucketSampler: {name} must be True or False, got {flag!r}")
        self.batch_size = (
            None
            if batch_size is None
            else checked_integer(batch_size, "LengthBucketSampler: batch_size", 1)
        )
        self.max_tokens = (
            None
            if max_tokens is None
            else checked_integer(max_tokens, "LengthBucketSampler: max_tokens", 1)
        )
        self.shuffle = shuffle
        self.seed = checked_integer(seed, "LengthBucketSampler: seed", 0)
        self.bucket_batches = checked_integer(
            bucket_batches, "LengthBucketSampler: bucket_batches", 1
        )
        self.drop_last = drop_last
        self._given_ranks = checked_ranks(rank, world_size, "LengthBucketSampler")
        self._lengths = _checked_lengths(lengths)
        self._checksum = zlib.crc32(self._lengths.data)
        if self.max_tokens is not None and self._lengths.max() > self.max_tokens:
            index = int(self._lengths.argmax())
            raise ValueError(
                f"LengthBucketSampler: sample {index} has {self._lengths[index]} tokens, more than "
                f"max_tokens={self.max_tokens}; raise max_tokens, or shorten or leave out such samples"
            )
        self._epoch = 0
        self._position = _Position(0)  # what state_dict tells: of the iterator created last
        self._loaded: _Position | None = None  # where the next iteration starts, if not at 0
        self._epoch_is_new = False  # set_epoch was called and no iteration has begun since
        self._kept_plan: tuple[tuple[int, int], EpochPlan] | None = None

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
        epoch = checked_integer(epoch, "LengthBucketSampler: epoch", 0)
        self._epoch_is_new = True
        if epoch != self._epoch:
            self._epoch = epoch
            self._position = _Position(epoch)
            self._loaded = None

    def __len__(self) -> int:
        return len(self._plan(self._epoch).groups)

    def __iter__(self) -> Iterator[list[int]]:
        loaded = self._loaded
        self._position = _Position(self._epoch, 0 if loaded is None else loaded.yielded)
        return self._batches(self._position, loaded)

    def _batches(self, position: _Position, loaded: _Position | None) -> Iterator[list[int]]:
        # A loaded position is used up here, at the first batch, and not in __iter__: a DataLoader
        # with workers creates two iterators, and only the second one is used.
        if self._loaded is loaded:
            self._loaded = None
        self._epoch_is_new = False
        plan = self._plan(position.epoch)
        for number in plan.groups[position.yielded :, self.rank].tolist():
            position.yielded += 1
            yield plan.batch(number).tolist()
        position.yielded = 0
        position.finished = True

    def padding_fraction(self) -> float:
        """The share of padding in this epoch's batches, of all ranks together.

        Returns:
            1 - tokens / padded tokens, where a batch has as many padded tokens as its longest
            sample × its number of samples. 0.0 if there is no token.
        """
        plan = self._plan(self._epoch)
        starts = plan.cuts[:-1]
        if len(plan.groups) == 0:
            return 0.0
        lengths = self._lengths[plan.order].astype(np.float64)  # no sum of these overflows
        padded = np.maximum.reduceat(lengths, starts) * np.diff(plan.cuts)
        tokens = np.add.reduceat(lengths, starts)
        all_padded = padded[plan.groups].sum()
        return float(1 - tokens[plan.groups].sum() / all_padded) if all_padded > 0 else 0.0

    def state_dict(self) -> dict[str, Any]:
        """Where the sampler is, and what its plan depends on.

        Returns:
            ``epoch``, the number of batches ``yielded`` in it, whether it is ``finished`` (then
            nothing is yielded of the next iteration), and the settings; ints, bools and None. The
            same on all ranks. Of several iterators the one created last counts.
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
            ValueError: The state is of a sampler with other settings or other lengths, or it isn't
                complete.
        """
        if not isinstance(state, dict):
            raise TypeError(
                f"LengthBucketSampler: state must be a dict, got {type(state).__name__}"
            )
        identity = self._identity()
        missing = [key for key in ("epoch", "yielded", "finished", *identity) if key not in state]
        if missing:
            raise ValueError(
                f"LengthBucketSampler: state must be what state_dict() returned, but has no "
                f"{', '.join(missing)}"
            )
        others = [
            f"{key} is {state[key]!r} there and {value!r} here"
            for key, value in identity.items()
            if _truth(state[key] != value, key)
        ]
        if others:
            raise ValueError(
                f"LengthBucketSampler: the state is of another sampler: {', '.join(others)}"
            )
        epoch = checked_integer(state["epoch"], "LengthBucketSampler: epoch of the state", 0)
        yielded = checked_integer(state["yielded"], "LengthBucketSampler: yielded of the state", 0)
        batches = len(self._plan(epoch).groups)
        if yielded > batches:
            raise ValueError(
                f"LengthBucketSampler: yielded of the state must be at most {batches}, the number "
                f"of batches in epoch {epoch}, got {yielded}"
            )
        finished = _truth(state["finished"], "finished") and yielded == 0
        if (finished or yielded == batches) and self._epoch_is_new and self._epoch > epoch:
            return
        self._epoch = epoch
        self._epoch_is_new = False
        self._position = self._loaded = _Position(epoch, yielded, finished)

    def _identity(self) -> dict[str, Any]:
        """What two samplers must have in common to have the same plans."""
        return {
            **{name: getattr(self, name) for name in _SETTINGS},
            "samples": len(self._lengths),
            "lengths_crc32": self._checksum,
            "planning": _PLANNING,
        }

    def _plan(self, epoch: int) -> EpochPlan:
        key = epoch, self.world_size
        if self._kept_plan is None or self._kept_plan[0] != key:
            self._kept_plan = None  # one is enough memory
            settings = {name: getattr(self, name) for name in _SETTINGS}
            self._kept_plan = key, plan_epoch(self._lengths, epoch, **settings)
        return self._kept_plan[1]

    def _ranks(self) -> tuple[int, int]:
        return self._given_ranks or group_ranks() or (0, 1)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept_plan": None}  # a plan is large and soon made again

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={getattr(self, name)!r}" for name in _SETTINGS)
        return (
            f"LengthBucketSampler({len(self._lengths)} samples, {settings}, rank={self.rank}, "
            f"epoch={self._epoch})"
        )


@dataclass
class _Position:
    """How far an iteration is."""

    epoch: int
    yielded: int = 0
    finished: bool = False


def _truth(value: Any, key: str) -> bool:
    try:
        return bool(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"LengthBucketSampler: {key} of the state must be one value, as state_dict() has it, "
            f"got {type(value).__name__}: {error}"
        ) from error


def _checked_lengths(lengths: Any) -> npt.NDArray[np.int64]:
    name = "LengthBucketSampler: lengths"
    try:
        lengths = getattr(lengths, "lengths", lengths)
        if isinstance(lengths, np.ndarray):
            require_whole_file(lengths)
        array = np.asarray(lengths)
    except ValueError as error:
        raise ValueError(f"{name} must be 1-D integers: {error}") from error
    except (TypeError, RuntimeError) as error:  # tensors that NumPy can't have
        raise TypeError(f"{name} must be 1-D integers in CPU memory: {error}") from error
    if array.ndim != 1:
        raise ValueError(f"{name} must be 1-D, got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} must not be empty: expected the length of each sample, got none")
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got dtype {array.dtype}")
    wrong = np.flatnonzero((array < 0) | (array > _MOST_LENGTH))
    if wrong.size:
        raise ValueError(
            f"{name} must be from 0 to {_MOST_LENGTH}, got {array[wrong[0]]} at index {wrong[0]}"
        )
    return np.array(array, np.int64)
