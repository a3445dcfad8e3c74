"""`WeightedSampler`: samples drawn in proportion to weights."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import checked_integer, with_hints
from pinfeed.batches import IndexBatch
from pinfeed.samplers.epoch_sampler import checked_column
from pinfeed.samplers.order_sampler import MAX_SAMPLES, OrderSampler, random_keys

_DRAWS = 2**16  # counted at a time

# The second argument of torch's WeightedRandomSampler is num_samples, not batch_size.
_BY_NAME = "pass numbers by name: batch_size=..., num_samples=..."


class WeightedSampler(OrderSampler):
    """Batch sampler that draws samples in proportion to their weights.

    The draws depend only on the weights, the seed and the epoch. They are the same on every machine
    and for any number of ranks. Epochs advance as in `ShuffleSampler`; one loop at a time.

    With replacement, a table of 16 bytes per weight is built once (Walker's alias method), and draws
    take constant time. Without replacement, each epoch reads all weights once (Efraimidis–Spirakis
    keys).

    Args:
        weights: Finite, non-negative numbers, not all 0: a 1-D ndarray, memmap, list or CPU tensor.
            float64 weights are not copied, so don't change them; create a new sampler for other weights.
        batch_size: Samples per batch and rank; the last batch may be smaller.
        num_samples: Samples per epoch, over all ranks. None: the number of weights.
        replacement: Whether a sample may be drawn more than once per epoch.
        seed: Non-negative integer, the same on all ranks.
        drop_last: Whether to drop the last incomplete batch.
        rank: Data-parallel rank of this process, as in `ShuffleSampler`.
        world_size: Number of data-parallel ranks, as in `ShuffleSampler`.
        uneven: How to equalize ranks, ``"repeat"``, ``"drop"`` or ``"keep"``, as in `ShuffleSampler`.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, a weight is negative, infinite or NaN, or, without
            replacement, fewer than ``num_samples`` weights are above 0.

    Example:
        >>> weights = np.array([0, 1, 1, 8])
        >>> sampler = pinfeed.samplers.WeightedSampler(
        ...     weights, batch_size=5_000, num_samples=10_000
        ... )
        >>> np.bincount(np.concatenate(list(sampler)), minlength=4).round(-3).tolist()
        [0, 1000, 1000, 8000]
    """

    SETTINGS = ("num_samples", "replacement", *OrderSampler.SETTINGS)

    @with_hints(_BY_NAME)
    def __init__(
        self,
        weights: Any,
        *,
        batch_size: int,
        num_samples: int | None = None,
        replacement: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        uneven: Literal["repeat", "drop", "keep"] = "repeat",
    ) -> None:
        self._weights = _checked_weights(weights, self._name)
        checksum = zlib.crc32(self._weights.data)
        self._data_identity = {"samples": len(self._weights), "weights_crc32": checksum}
        count = len(self._weights) if num_samples is None else num_samples
        self.num_samples = checked_integer(count, f"{self._name}: num_samples", 1, MAX_SAMPLES)
        self.replacement = replacement
        ranks = rank, world_size, drop_last, uneven
        super().__init__(self.num_samples, batch_size, seed, *ranks, replacement=replacement)
        positive = np.count_nonzero(self._weights)
        if not replacement and self.num_samples > positive:
            raise ValueError(
                f"{self._name}: num_samples must be at most {positive}, the number of weights "
                f"above 0, got {self.num_samples}; draw fewer, or pass replacement=True"
            )
        self._table: npt.NDArray[np.uint64] | None = None

    @classmethod
    def balanced(
        cls,
        labels: Any,
        *,
        batch_size: int,
        num_samples: int | None = None,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        uneven: Literal["repeat", "drop", "keep"] = "repeat",
    ) -> Self:
        """Creates a sampler that draws every class equally often, on average.

        A sample's weight is the reciprocal of its class's size, and samples are drawn with replacement.

        Args:
            labels: Class of each sample: 1-D integers, strings or other input of ``np.unique``, or a
                column of an `ArrayDataset`.
            batch_size: Samples per batch and rank; the last batch may be smaller.
            num_samples: Samples per epoch, over all ranks. None: the number of labels.
            seed: Non-negative integer, the same on all ranks.
            drop_last: Whether to drop the last incomplete batch.
            rank: Data-parallel rank of this process, as in `ShuffleSampler`.
            world_size: Number of data-parallel ranks, as in `ShuffleSampler`.
            uneven: How to equalize ranks, as in `ShuffleSampler`.

        Raises:
            TypeError, ValueError: If an argument has the wrong type or is out of range.

        Example:
            >>> labels = np.array([0] * 900 + [1] * 90 + [2] * 10)
            >>> sampler = pinfeed.samplers.WeightedSampler.balanced(
            ...     labels, batch_size=30_000, num_samples=30_000
            ... )
            >>> np.bincount(labels[next(iter(sampler))]).round(-3).tolist()
            [10000, 10000, 10000]
        """
        name = f"{cls.__name__}.balanced"
        kinds = {*map(type, labels)} if isinstance(labels, list | tuple) else set()
        are_texts = {(issubclass(kind, str), issubclass(kind, bytes)) for kind in kinds}
        if len(are_texts) > 1:  # NumPy makes strings of the others
            labels = np.fromiter(labels, object, len(labels))
        array = checked_column(labels, f"{name}: labels", "labels")
        if array.dtype.kind in "fO":
            for index, label in enumerate(array.tolist()):
                if label is None or (isinstance(label, float) and math.isnan(label)):
                    raise TypeError(
                        f"{name}: labels must be of one sortable type, got {label!r} at index {index}; "
                        "give samples without a label a class of their own, or leave them out"
                    )
        try:
            _, classes, counts = np.unique(array, return_inverse=True, return_counts=True)
        except TypeError as error:
            raise TypeError(
                f"{name}: labels must be of one sortable type, such as integers or strings, but {error}; pass "
                "one label per sample, such as dataset['label']"
            ) from error
        return cls(
            (1 / counts)[classes],
            batch_size=batch_size,
            num_samples=num_samples,
            seed=seed,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
            uneven=uneven,
        )

    @override
    def order(self, epoch: int, start: int, stop: int) -> npt.NDArray[np.int64]:
        (key,) = random_keys(self.seed, (epoch,), 1)
        if self.replacement:
            if self._table is None:
                self._table = _core.alias_table(self._weights)
            return _core.draw_from_table(self._table, key, start, stop)
        return self._cached_plan(epoch)[start:stop]

    @override
    def batches_from(self, epoch: int, start: int) -> Iterator[IndexBatch]:
        """Yields the batches, with the number of earlier draws of each sample."""
        if not self.replacement:
            yield from super().batches_from(epoch, start)
            return
        counts = np.zeros(len(self._weights), np.int64)
        counted = 0
        for number in range(self.batches(epoch, start)):
            first, last = self._span(number, start)
            while counted < first:  # the draws of other ranks and earlier batches
                stop = min(first, counted + _DRAWS)
                np.add.at(counts, self.samples_at(epoch, counted, stop), 1)
                counted = stop
            batch = self.batch(epoch, number, start)
            batch.copies = counts[batch.indices]
            np.add.at(counts, batch.indices, 1)
            counted = last
            if (counts[batch.indices] - batch.copies).max() > 1:
                batch.copies += _earlier_in(batch.indices)
            yield batch

    @override
    def _plan(self, epoch: int, world_size: int) -> npt.NDArray[np.int64]:
        """Returns an epoch's samples without replacement: the smallest keys, in order."""
        (key,) = random_keys(self.seed, (epoch,), 1)
        keys = _core.draw_keys(self._weights, key, 0)
        chosen = np.argpartition(keys, self.num_samples - 1)[: self.num_samples]
        return chosen[np.lexsort((chosen, keys[chosen]))]

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_table": None}  # large, and quickly rebuilt


def _earlier_in(indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns for each number its count earlier in the array."""
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    earlier = np.empty(len(indices), np.int64)
    earlier[order] = np.arange(len(indices)) - np.repeat(
        starts, np.diff(np.append(starts, len(indices)))
    )
    return earlier


def _checked_weights(weights: Any, name: str) -> npt.NDArray[np.float64]:
    column = checked_column(weights, f"{name}: weights", "numbers")
    array = np.ascontiguousarray(column, np.float64)
    wrong = np.flatnonzero(~((array >= 0) & (array < np.inf)))
    if wrong.size:
        raise ValueError(
            f"{name}: weights must be finite and not negative, got {array[wrong[0]]} at index "
            f"{wrong[0]}; a sample of weight 0 is never drawn"
        )
    if not array.any():
        raise ValueError(
            f"{name}: weights must not all be 0; pass a larger weight for samples to draw"
        )
    return array
