"""Batches that are consecutive parts of an order, divided evenly over ranks; `ShuffleSampler`."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Sized
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import as_integer, checked_choice, checked_integer, with_hints
from pinfeed.batches import IndexBatch
from pinfeed.ranks import Uneven
from pinfeed.samplers.epoch_sampler import EpochSampler, require_no_sampler

MAX_SAMPLES = 2**62  # per epoch
ROUNDS = 6  # of kernels/permutation.h, which takes a key per round


class OrderSampler(EpochSampler):
    """An `EpochSampler` whose epochs are an order of ``count`` samples, defined by a subclass.

    The batches of all ranks in a step are consecutive in the order. For the arguments, see
    `ShuffleSampler`.
    """

    SETTINGS: ClassVar[tuple[str, ...]] = ("seed", "drop_last", "uneven")
    SHOWN: ClassVar[tuple[str, ...]] = ("batch_size", "world_size")

    batch_size: int = 0

    def __init__(
        self,
        count: int,
        batch_size: Any,
        seed: Any,
        rank: Any,
        world_size: Any,
        drop_last: Any,
        uneven: Any,
        /,
        **flags: Any,
    ) -> None:
        super().__init__(seed, rank, world_size, drop_last=drop_last, **flags)
        self._count = count
        self.batch_size = checked_integer(batch_size, f"{self._name}: batch_size", 1)
        self.uneven = checked_choice(uneven, get_args(Uneven), f"{self._name}: uneven")
        self.batches(0)  # raises if there are none

    @abstractmethod
    def order(self, epoch: int, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Returns the samples at these positions of an epoch's order, from 0 to ``count``."""

    @property
    @override
    def step(self) -> int:
        return self.batch_size * self.world_size

    @override
    def units(self, epoch: int) -> int:
        return self._count

    @override
    def consumed(self, batches: int, start: int) -> int:
        consumed = start + batches * self.step
        if self.uneven == "keep" and self.batch_size > 1 and batches and not self.drop_last:
            # Too few remain for a batch on each rank, so the step before passes some on.
            left = self._count - consumed
            consumed -= self.world_size - left if 0 < left < self.world_size else 0
        return consumed

    @override
    def batches(self, epoch: int, start: int = 0) -> int:
        rank, world_size = self._ranks()
        if self.uneven == "keep":
            steps, rest = divmod(self._count - start, self.step)
            is_last_shared = rank < rest or (steps > 0 and self.batch_size > 1)
            return steps + (rest > 0 and not self.drop_last and is_last_shared)
        samples = self._rank_count(world_size, start)
        batches = samples // self.batch_size
        if not self.drop_last and samples % self.batch_size:
            batches += 1
        if batches == 0 and start == 0:
            smaller = f"a batch_size of at most {samples}" if samples else "fewer ranks"
            larger = "drop_last=False" if self.drop_last else "uneven='repeat'"
            ranks = f" on each of {world_size} ranks" if world_size > 1 else ""
            raise ValueError(
                f"{self._name}: {self._count} samples are too few for a batch of {self.batch_size}"
                f"{ranks}; use {smaller}, or {larger}"
            )
        return batches

    @override
    def steps(self, epoch: int, start: int = 0) -> int:
        if self.uneven == "keep" and not self.drop_last:
            return -(-(self._count - start) // self.step)
        return self.batches(epoch, start)

    @override
    def batch(self, epoch: int, number: int, start: int = 0) -> IndexBatch:
        return IndexBatch(self.samples_at(epoch, *self._span(number, start)), epoch)

    def samples_at(self, epoch: int, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Returns the samples at these positions of an epoch's order, which repeats after its end."""
        if stop > self._count:
            if start < self._count:
                parts = (start, self._count), (0, stop - self._count)
                return np.concatenate([self.order(epoch, *part) for part in parts])
            start, stop = start % self._count, start % self._count + stop - start
        return self.order(epoch, start, stop)

    def _span(self, number: int, start: int) -> tuple[int, int]:
        """Returns begin and end of this rank's batch in the order."""
        rank, world_size = self._ranks()
        first = self.consumed(number, start)  # before this step
        if self.uneven == "keep":
            left = min(self.consumed(number + 1, start), self._count) - first
            each, rest = divmod(left, world_size)
            begin = first + rank * each + min(rank, rest)
            return begin, begin + each + (rank < rest)
        size = self._rank_count(world_size, start) - number * self.batch_size
        size = min(size, self.batch_size)
        begin = first + rank * size
        return begin, begin + size

    def _rank_count(self, world_size: int, start: int) -> int:
        """Returns the number of samples per rank from ``start`` on, before ``drop_last``."""
        left = self._count - start
        return left // world_size if self.uneven == "drop" else -(-left // world_size)


class ShuffleSampler(OrderSampler):
    """Batch sampler that shuffles without storing the permutation.

    The seed and the epoch determine the order. It is computed batch by batch, so the first batch and
    resuming take constant time, even for a billion samples. Each loop starts the next epoch, unless
    `set_epoch` sets it. Batches carry the epoch to `Collate`. A sampler serves one loop at a time; use
    one per thread.

    With several ranks, the samples of a step are consecutive in the epoch's order: the first part is rank
    0's, the next part rank 1's, and so on.

    Args:
        dataset: Number of samples, or a dataset with a length.
        batch_size: Samples per batch and rank; the last batch may be smaller.
        seed: Non-negative integer, the same on all ranks.
        shuffle: Whether to shuffle. False keeps the dataset's order.
        drop_last: Whether to drop the last incomplete batch.
        rank: Data-parallel rank of this process. Processes that share their batches, such as a
            tensor-parallel group, pass the same rank. None: taken from ``torch.distributed`` at each
            use, or, before that is initialized, from the environment that torchrun sets.
        world_size: Number of data-parallel ranks. None: as for ``rank``, or else 1. Pass both or
            neither.
        uneven: How to equalize ranks if samples don't divide evenly. ``"repeat"`` repeats up to
            ``world_size - 1`` samples from the epoch's beginning. ``"drop"`` drops up to
            ``world_size - 1`` samples, different ones each epoch. ``"keep"`` yields each sample exactly
            once, so ranks can differ by a sample. In two cases some ranks can get one batch fewer: if
            ``batch_size`` is 1, or fewer samples than ranks are left in the epoch.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or the sampler has no batch.

    Example:
        >>> dataset = pinfeed.ArrayDataset(np.arange(1_000) * 10)
        >>> sampler = pinfeed.samplers.ShuffleSampler(dataset, batch_size=256, seed=7)
        >>> loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler)
        >>> for epoch in range(2):
        ...     batches = list(loader)
        ...     print([len(batch) for batch in batches], int(torch.cat(batches).sum()))
        [256, 256, 256, 232] 4995000
        [256, 256, 256, 232] 4995000
    """

    SETTINGS = ("shuffle", *OrderSampler.SETTINGS)

    @with_hints(num_replicas="pass world_size")
    def __init__(
        self,
        dataset: int | Sized,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        uneven: Literal["repeat", "drop", "keep"] = "repeat",
    ) -> None:
        self.shuffle = shuffle
        count = _sample_count(dataset, self._name)
        self._data_identity = {"samples": count}
        options = drop_last, uneven
        super().__init__(count, batch_size, seed, rank, world_size, *options, shuffle=shuffle)

    @override
    def order(self, epoch: int, start: int, stop: int) -> npt.NDArray[np.int64]:
        if not self.shuffle:
            return np.arange(start, stop)
        return _core.permuted(self._count, random_keys(self.seed, (epoch,), ROUNDS), start, stop)


def _sample_count(dataset: Any, name: str) -> int:
    require_no_sampler(dataset, f"{name}: dataset must be a number of samples or have a length")
    count = as_integer(dataset)
    if count is None:
        try:
            count = len(dataset)
        except TypeError as error:
            raise TypeError(
                f"{name}: dataset must be a number of samples or have a length, got "
                f"{type(dataset).__name__}"
            ) from error
    return checked_integer(count, f"{name}: the number of samples", 1, MAX_SAMPLES)


@functools.lru_cache(maxsize=16)
def random_keys(seed: int, key: tuple[int, ...], count: int) -> list[int]:
    """Returns ``count`` random 64-bit numbers for a seed and a key, which NumPy keeps stable.

    The key begins with the epoch.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=key)
    return sequence.generate_state(count, np.uint64).tolist()


def permutation(count: int, keys: list[int]) -> npt.NDArray[np.int64]:
    """Returns the numbers below ``count`` in an order determined by `ROUNDS` keys."""
    return _core.permuted(count, keys, 0, count) if count else np.arange(0)
