"""`LengthBucketSampler`: batches of samples of similar length."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset
from typing_extensions import override

from pinfeed.arguments import checked_integer, positive_integer, rounded_up, with_hints
from pinfeed.batches import IndexBatch
from pinfeed.ranks import prepared_loader
from pinfeed.samplers.epoch_sampler import EpochSampler, checked_column
from pinfeed.samplers.order_sampler import ROUNDS, permutation, random_keys

_MAX_LENGTH = np.iinfo(np.int64).max

# Batches per group: neighbors in length that stay together in an epoch, for the ranks of a step. The
# first size that leaves _MIN_GROUPS is used, for any number of ranks, because the order must not
# depend on it.
_GROUPS = (48, 24, 8)
_MIN_GROUPS = 32


class LengthBucketSampler(EpochSampler):
    """Batch sampler that groups samples of similar length to reduce padding.

    Each epoch is planned ahead: samples are distributed over large buckets at random, sorted by length
    within each bucket and cut into batches; then groups of batches are shuffled. The plan depends only
    on the lengths, the settings, the seed and the epoch, so all machines agree. Planning takes
    a few tenths of a second for a million samples. Epochs advance as in `ShuffleSampler`; one loop at a
    time.

    In each step, all ranks get batches of similar lengths. This is guaranteed if the number of ranks
    divides 48, 24 or 8: 48 if an epoch has at least 1,536 batches over all ranks, 24 if it has at least 768,
    else 8. All ranks get the same number of batches: if the last step has too few, it repeats batches of
    the step before or, with ``drop_last``, is dropped.

    Args:
        lengths: Length of each sample: 1-D integers in a list, an ndarray or a CPU tensor, or an object
            with a ``lengths`` attribute. They are copied.
        batch_size: Maximum number of samples per batch.
        max_tokens: Maximum size of a padded batch: padded length × number of samples. An empty sample
            counts as one token. Pass at least one of ``batch_size`` and ``max_tokens``; with both,
            both limits apply.
        multiple_of: The ``multiple_of`` of `Pad`: batches are padded to multiples of it.
        max_length: The ``max_length`` of `Pad`: longer samples are cut.
        shuffle: Whether to shuffle. False keeps the order, except for sorting within buckets.
        seed: Non-negative integer, the same on all ranks.
        bucket_batches: Bucket size in batches, approximately. Larger buckets reduce padding, smaller
            ones are closer to random order; 1 disables sorting. If shuffled, a bucket has at most a
            quarter of the samples, so that batches differ between epochs.
        drop_last: Whether to drop the last incomplete batch, and a last step with too few batches for
            all ranks. Otherwise every sample is yielded at least once.
        rank: Data-parallel rank of this process, as in `ShuffleSampler`.
        world_size: Number of data-parallel ranks, as in `ShuffleSampler`.

    ``len()`` is the number of batches per rank and epoch, the same in every epoch.

    To resume within an epoch, save the ``state_dict()`` of the loader, if it is a `DeviceLoader` or
    torchdata's ``StatefulDataLoader``. With a plain DataLoader, whose workers prefetch, save
    ``sampler.state_after(batches_trained)``. After ``load_state_dict`` the next loop yields the
    remaining batches, on any number of ranks.

    Raises:
        TypeError: If an argument has the wrong type, or ``lengths`` is a sampler, as when Lightning
            recreates samplers for its ranks: pass ``Trainer(use_distributed_sampler=False)``.
        ValueError: If an argument is out of range, ``batch_size`` and ``max_tokens`` are both None, or a
            single sample exceeds ``max_tokens``.

    Example:
        >>> lengths = np.arange(10_000) % 512 + 1
        >>> sampler = pinfeed.samplers.LengthBucketSampler(lengths, max_tokens=4096)
        >>> loader = torch.utils.data.DataLoader(lengths, batch_sampler=sampler)
        >>> for epoch in range(2):
        ...     for batch in loader:
        ...         assert len(batch) * max(batch) <= 4096

        The fraction of padding, compared with random order:

        >>> in_random_order = pinfeed.samplers.LengthBucketSampler(
        ...     lengths, max_tokens=4096, bucket_batches=1
        ... )
        >>> f"{sampler.padding_fraction:.0%} instead of {in_random_order.padding_fraction:.0%}"
        '1% instead of 44%'
    """

    PLANNING = 4
    SHOWN = ("multiple_of", "max_length", "world_size")
    # Not batch_size, which accelerate expects to be constant.
    SETTINGS = ("_batch_size", "max_tokens", "shuffle", "seed", "bucket_batches", "drop_last")

    @with_hints()
    def __init__(
        self,
        lengths: Any,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        *,
        multiple_of: int | None = None,
        max_length: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        bucket_batches: int = 800,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        name = "LengthBucketSampler"
        checked = lengths_of_samples(lengths, name)
        if batch_size is None and max_tokens is None:
            raise ValueError(
                f"{name}: batch_size, max_tokens or both must be given, got neither; pass max_tokens=..."
            )
        super().__init__(seed, rank, world_size, shuffle=shuffle, drop_last=drop_last)
        self._batch_size = positive_integer(batch_size, f"{name}: batch_size", None)
        self.max_tokens = positive_integer(max_tokens, f"{name}: max_tokens", None)
        self.multiple_of = positive_integer(multiple_of, f"{name}: multiple_of")
        self.max_length = positive_integer(max_length, f"{name}: max_length")
        self.shuffle = shuffle
        self.bucket_batches = checked_integer(bucket_batches, f"{name}: bucket_batches", 1)
        self._lengths = np.minimum(checked, self.max_length or _MAX_LENGTH)
        self._padded_lengths = _padded(self._lengths, self.multiple_of or 1)
        checksum = zlib.crc32(self._padded_lengths.data)
        self._data_identity = {"samples": len(self._lengths), "lengths_crc32": checksum}
        self._first_cuts: tuple[int, bool] | None = None  # number of cuts in epoch 0, and is_full
        if self.max_tokens is not None and self._padded_lengths.max() > self.max_tokens:
            index = int(self._padded_lengths.argmax())
            raise ValueError(
                f"{name}: sample {index}: expected at most max_tokens={self.max_tokens} tokens, got "
                f"{self._padded_lengths[index]}; raise max_tokens, cut samples with max_length=, or "
                "leave long ones out"
            )

    @property
    @override
    def step(self) -> int:
        return self.world_size

    @override
    def units(self, epoch: int) -> int:
        return len(self._cached_plan(epoch).batches)

    @override
    def batches(self, epoch: int, start: int = 0) -> int:
        left = self.units(epoch) - start
        return left // self.world_size if self.drop_last else -(-left // self.world_size)

    @override
    def batch(self, epoch: int, number: int, start: int = 0) -> IndexBatch:
        rank, world_size = self._ranks()
        order, cuts, batches = self._cached_plan(epoch)
        # The last step ends with the last batch, and repeats some of the step before.
        first = min(start + number * world_size, max(0, len(batches) - world_size))
        batch = batches[(first + rank) % len(batches)]
        return IndexBatch(order[cuts[batch] : cuts[batch + 1]], epoch)

    @override
    def batches_from(self, epoch: int, start: int) -> Iterator[IndexBatch]:
        if getattr(prepared_loader(), "batch_sampler", None) is self:
            raise RuntimeError(
                f"{self._name}: accelerate's dispatch_batches cuts batches into equal parts and drops "
                "the rest, but these batches differ in size; leave out dispatch_batches"
            )
        return super().batches_from(epoch, start)

    @property
    def padding_fraction(self) -> float:
        """The fraction of padding in this epoch's batches over all ranks, 0 to 1.

        A batch of n samples has n × (padded length) positions; those without a token are padding.
        """
        plan = self._cached_plan(self.current_epoch)
        count, world_size = len(plan.batches), self.world_size
        if self.batches(self.current_epoch) == 0:
            return 0.0
        starts = plan.cuts[:-1]
        lengths = self._lengths[plan.order].astype(np.float64)  # so that sums don't overflow
        longest = np.maximum.reduceat(self._padded_lengths[plan.order], starts)
        padded = longest.astype(np.float64) * np.diff(plan.cuts)
        tokens = np.add.reduceat(lengths, starts)
        firsts = np.arange(self.batches(self.current_epoch)) * world_size
        firsts = np.minimum(firsts, max(0, count - world_size))
        batches = plan.batches[(firsts[:, None] + np.arange(world_size)) % count]
        all_padded = padded[batches].sum()
        return float(1 - tokens[batches].sum() / all_padded) if all_padded > 0 else 0.0

    @override
    def _plan(self, epoch: int, world_size: int) -> _Plan:
        order, cuts, is_full = self._ordered_cuts(epoch)
        batches = len(cuts) - 1
        if self.drop_last and not is_full:
            batches -= 1
        if not self.shuffle:
            return _Plan(order, cuts, np.arange(batches))
        size = next((group for group in _GROUPS if batches >= _MIN_GROUPS * group), _GROUPS[-1])
        groups = permutation(batches // size, random_keys(self.seed, (epoch,), 2 * ROUNDS)[ROUNDS:])
        shuffled = (groups[:, None] * size + np.arange(size)).reshape(-1)
        return _Plan(order, cuts, np.append(shuffled, np.arange(len(shuffled), batches)))

    def _ordered(self, epoch: int) -> npt.NDArray[np.int64]:
        """Returns the samples of an epoch in sorted buckets."""
        count, bucket = len(self._padded_lengths), self._bucket()
        keys = random_keys(self.seed, (epoch,), 2 * ROUNDS)
        order = permutation(count, keys[:ROUNDS]) if self.shuffle else np.arange(count)
        if bucket == 1:
            return order
        # Alternately up and down: lengths continue where a batch has samples of two buckets.
        lengths, buckets = self._padded_lengths[order], np.arange(count) // bucket
        return order[np.lexsort((np.where(buckets % 2 == 0, lengths, -lengths), buckets))]

    def _ordered_cuts(
        self, epoch: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], bool]:
        """Returns the samples of an epoch and the batch boundaries, whose number is the first epoch's.

        If an epoch needs more batches, the smallest sufficient number of first buckets is sorted
        together, because sorting all samples, longest first, needs the minimum. If it needs fewer,
        large batches are halved.
        """
        order = self._ordered(epoch)
        cuts, is_full = self._cut(order)
        if not self.shuffle or self.max_tokens is None:
            return order, cuts, is_full
        if self._first_cuts is None:
            first, is_first_full = self._cut(self._ordered(0)) if epoch else (cuts, is_full)
            self._first_cuts = len(first), is_first_full
        target, is_full = self._first_cuts
        stop = self._bucket()
        while len(cuts) > target:
            stop *= 2  # an even number of buckets, so that the next one begins with its shortest
            first = order[:stop]
            longest_first = np.argsort(-self._padded_lengths[first], kind="stable")
            order = np.concatenate((first[longest_first], order[stop:]))
            cuts, _ = self._cut(order)
        while len(cuts) < target:
            sizes = np.diff(cuts)
            largest = np.argsort(-sizes, kind="stable")[: target - len(cuts)]
            largest = largest[sizes[largest] > 1]
            cuts = np.sort(np.append(cuts, cuts[largest] + sizes[largest] // 2))
        return order, cuts, is_full

    def _bucket(self) -> int:
        """Returns the number of samples sorted together; 1 without sorting."""
        if self.bucket_batches == 1:
            return 1
        count, batch_size, max_tokens = len(self._padded_lengths), self._batch_size, self.max_tokens
        samples = count if batch_size is None else batch_size
        if max_tokens is not None:
            sizes = np.maximum(self._padded_lengths, 1)
            # By 32-bit halves, because the sum of a few large sizes exceeds 64 bits.
            total = (int((sizes >> 32).sum()) << 32) + int((sizes & 0xFFFFFFFF).sum())
            samples = min(samples, max_tokens * count // total)
        limit = max(count // 4, samples) if self.shuffle else count
        return max(2, min(samples * self.bucket_batches, limit, count))

    def _cut(self, order: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], bool]:
        # An empty sample counts as one token, so that no batch has endless empty samples.
        sizes = np.maximum(self._padded_lengths[order], 1)
        count, batch_size = len(sizes), self._batch_size
        if self.max_tokens is not None:
            return _cut(sizes, batch_size or self.max_tokens, self.max_tokens)
        assert batch_size is not None
        cuts = np.append(np.arange(0, count, min(batch_size, count)), count)
        return cuts, count % batch_size == 0


class _Plan(NamedTuple):
    """The batches of one epoch, of all ranks."""

    order: npt.NDArray[np.int64]  # int64 of shape (N,): the samples, batch after batch
    # int64 of shape (B + 1,): the begin of each batch in ``order``, and the end of the last.
    cuts: npt.NDArray[np.int64]
    # int64: batch numbers in the order in which ranks take them in turn.
    batches: npt.NDArray[np.int64]


def _cut(
    sizes: npt.NDArray[np.int64], batch_size: int, max_tokens: int
) -> tuple[npt.NDArray[np.int64], bool]:
    """Returns the batch boundaries, and whether the last batch is full.

    Each batch is as large as longest × count <= max_tokens and batch_size allow.
    """
    cuts = []
    longest = end = 0  # of the current batch: its longest sample, and its end at the latest
    start = 0
    for position, size in enumerate(sizes.tolist()):
        if size > longest:
            longest = size
            end = start + min(batch_size, max_tokens // size)
        if position >= end:
            cuts.append(position)
            start = position
            longest = size
            end = start + min(batch_size, max_tokens // size)
    return np.array([0, *cuts, len(sizes)]), end == len(sizes)


def lengths_of_samples(lengths: Any, function: str) -> npt.NDArray[np.int64]:
    """Validates and copies the lengths of samples; raises TypeError or ValueError."""
    name = f"{function}: lengths"
    if isinstance(lengths, Dataset) and not hasattr(lengths, "lengths"):
        raise TypeError(
            f"{name} must be the length of each sample, got the {type(lengths).__name__} itself; pass a "
            "column of an ArrayDataset, such as dataset['tokens'], or else "
            "[len(sample) for sample in dataset] (len(sample['tokens']) where samples are dicts)"
        )
    is_column = hasattr(lengths, "is_ragged")
    if not is_column and not hasattr(lengths, "lengths") and _are_samples(lengths):
        hint = "pass [len(d) for d in samples]"
        if type(lengths).__module__.partition(".")[0] == "datasets":
            hint += ", or, faster, a column of pinfeed.ArrayDataset.from_arrow(dataset)"
        raise ValueError(
            f"{name} must be the length of each sample, got samples in a {type(lengths).__name__}; {hint}"
        )
    are_numbers = not getattr(lengths, "is_ragged", True)  # a column of an ArrayDataset
    column = lengths if are_numbers else getattr(lengths, "lengths", lengths)
    array = checked_column(column, name, "integers")
    wrong = np.flatnonzero((array < 0) | (array > _MAX_LENGTH))
    if wrong.size:
        raise ValueError(
            f"{name} must be from 0 to {_MAX_LENGTH}, got {array[wrong[0]]} at index {wrong[0]}"
        )
    return np.array(array, np.int64)


def _are_samples(lengths: Any) -> bool:
    """Whether a column holds sequences, of any type."""
    if isinstance(lengths, np.ndarray | torch.Tensor) and lengths.dtype != object:
        return False
    try:
        first = next(iter(lengths))
        return len(first) >= 0 and not isinstance(first, str | bytes)
    except (TypeError, StopIteration):  # numbers, 0-d arrays among them, or nothing
        return False


def _padded(lengths: npt.NDArray[np.int64], multiple: int) -> npt.NDArray[np.int64]:
    if rounded_up(int(lengths.max()), multiple) > _MAX_LENGTH:
        raise ValueError(
            f"LengthBucketSampler: lengths rounded up to a multiple_of={multiple} must be at most "
            f"{_MAX_LENGTH}, got {lengths.max()}"
        )
    # Pad gives a batch of empty samples at least one multiple.
    return lengths if multiple == 1 else np.asarray(rounded_up(np.maximum(lengths, 1), multiple))
