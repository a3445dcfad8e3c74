"""Random state of batches, derived from the seed, the epoch and each sample's index."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.arguments import checked_integer
from pinfeed.batches import IndexBatch, SampleBatch
from pinfeed.memory.shared_file import SharedIntegers
from pinfeed.ranks import group_ranks
from pinfeed.sources.dataset import Rows

# Sample numbers hold the index below this bit, and above it how often the epoch repeated the sample.
_COPY_BIT = 42


class BatchRandomState:
    """Random state of one batch: a 64-bit key and a number per sample.

    Without a ``key``, the first use draws one from torch's default generator.

    Attributes:
        samples: Number that identifies each sample, int64 of shape (B,).
        crops: The crops drawn so far, by geometry and random stream. Entries with the same geometry
            and stream share them.
    """

    def __init__(self, samples: npt.NDArray[np.int64], key: int | None = None) -> None:
        self.samples = samples
        self._key = key
        self.crops: dict[Any, _core.ImageCrops] = {}

    def key(self, stream: int) -> int:
        """Returns a 64-bit key, a different one for each stream."""
        if self._key is None:
            self._key = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
        return self._key if stream == 0 else _key(self._key, stream)


class CollateRandomState:
    """Random state of a `Collate` in all its workers, from its ``seed`` and ``id_key``."""

    def __init__(self, seed: int | None, entry: Any = None) -> None:
        self.seed = None if seed is None else checked_integer(seed, "Collate: seed", 0)
        self.entry = entry
        if seed is None and entry is not None:
            raise ValueError("Collate: id_key needs a seed; pass seed too, or leave id_key out")
        # Shared with workers: the epoch and the state of `_watch`.
        self._integers: Any = None if seed is None else SharedIntegers([0] * 10)

    @property
    def epoch(self) -> int:
        """The epoch of batches that don't carry one."""
        return 0 if self._integers is None else int(self._integers.values[0])

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch in this process and in all workers."""
        epoch = checked_integer(epoch, "Collate: epoch", 0, sys.maxsize)
        if self._integers is not None:
            self._integers.values[:3] = epoch, 1, 0

    def of(self, samples: Sequence[Any], epoch: int | None) -> BatchRandomState:
        """Returns the random state of a batch.

        Args:
            samples: The samples of the batch.
            epoch: The epoch that the samples or their stream carry; None if they carry none.
        """
        last_batch = IndexBatch.last_read(len(samples))
        if self.seed is None:
            return BatchRandomState(np.arange(len(samples)))
        batch = samples if isinstance(samples, SampleBatch) else None
        if self.entry is not None:
            numbers = _integers(samples, self.entry)
        elif batch is not None and batch.indices is not None:
            numbers = batch.indices
        else:
            raise ValueError(
                f"Collate: seed={self.seed} needs the index of each sample, got a plain "
                f"{type(samples).__name__} of samples; wrap the loader's dataset: "
                "DataLoader(pinfeed.IndexedDataset(dataset), ...); or name the key of an integer in each "
                'sample: Collate(..., id_key="id"); or leave out seed; to call the Collate yourself, pass '
                "dataset.__getitems__([0, 1, ...]) of an IndexedDataset or an ArrayDataset"
            )
        copies = None if batch is None else batch.copies
        if epoch is None and last_batch is not None:
            epoch, copies = last_batch.epoch, last_batch.copies
        if epoch is None:
            epoch = self.epoch
            self._watch(numbers, None if batch is None else batch.dataset_length)
            if self.entry is None:  # with id_key, equal numbers are intended
                self._watch_copies(numbers)
        if copies is not None:
            numbers = numbers + (copies << _COPY_BIT)
        return BatchRandomState(
            numbers, _key(self.seed, epoch, 2)
        )  # 2: a stream that samplers don't use

    def _watch(self, numbers: npt.NDArray[np.int64], dataset_length: int | None) -> None:
        """Warns once when the samples of an epoch come for the second time.

        The epoch is over when its first sample comes again after a whole dataset of samples. An
        earlier repetition means that a loop stopped early, or that samples are drawn with replacement.
        If a `Collate` serves several datasets, the longest is watched. If the dataset length is
        unknown, as with a ``Subset``, and `set_epoch` was never called, it warns when the first sample
        and one of a later batch have both come again.
        """
        length = sys.maxsize if dataset_length is None else dataset_length
        integers = self._integers.values
        epoch, was_set, watched_length, first, since, times, has_warned, other, others = integers[
            :9
        ].tolist()
        if has_warned or length < watched_length:
            return
        if length > watched_length:
            integers[2:9] = length, numbers[0], len(numbers), 1, 0, 0, 0
            return
        is_first_again = first in numbers
        times += is_first_again
        if others == 0 and not is_first_again:
            other, others = numbers[0], 1
        elif others == 1 and other in numbers:
            others = 2
        _, world_size = group_ranks() or (0, 1)
        is_over = is_first_again and since >= length // world_size
        if is_over or (not was_set and times > 1 and others > 1):
            integers[6] = 1
            warnings.warn(
                f"Collate: samples repeat in epoch {epoch}, with the same random draws as before; "
                "call Collate.set_epoch(epoch) before each epoch, or use a batch_sampler of pinfeed, such "
                "as ShuffleSampler, over pinfeed.IndexedDataset(dataset), whose batches carry their epoch",
                stacklevel=2,
            )
        integers[4:6] = (0 if is_first_again else since) + len(numbers), times
        integers[7:9] = other, others

    def _watch_copies(self, numbers: npt.NDArray[np.int64]) -> None:
        """Warns once if a batch repeats samples and its sampler didn't count the copies.

        A single copy is fine, because samplers repeat one to give ranks equally many samples.
        """
        if self._integers.values[9]:
            return
        copies = len(numbers) - len({*numbers.tolist()})
        if copies > 1 and copies >= len(numbers) // 16:
            self._integers.values[9] = 1
            warnings.warn(
                f"Collate: {copies} samples of a batch are copies of other samples, with the same random draws; "
                "use pinfeed.samplers.WeightedSampler, which counts copies, as batch_sampler over an "
                "ArrayDataset or an IndexedDataset, or leave out seed",
                stacklevel=2,
            )


def _integers(samples: Sequence[Any], entry: Any) -> npt.NDArray[np.int64]:
    """Returns this entry of all samples, an integer each."""
    if isinstance(samples, Rows) and isinstance(samples.sources, Mapping):
        sources = {key: samples.sources[key] for key in samples.sources if key == entry}
        samples = Rows(sources, samples.indices) if sources else [{}]  # skip all other entries
    numbers = []
    for position, sample in enumerate(samples):
        if not isinstance(sample, Mapping) or entry not in sample:
            raise ValueError(
                f"Collate: id_key={entry!r} must be a key of every sample, but sample {position} lacks it; "
                "add it to the samples, or leave out id_key and wrap the dataset in "
                "pinfeed.IndexedDataset"
            )
        name = f"Collate: entry [{entry!r}] of sample {position}, which id_key names,"
        numbers.append(checked_integer(sample[entry], name, -(2**63), 2**63 - 1))
    return np.array(numbers, np.int64)


@functools.lru_cache(maxsize=16)
def _key(seed: int, *more: int) -> int:
    """Returns 64 bits derived from these numbers, in a way that NumPy keeps stable."""
    sequence = np.random.SeedSequence(seed, spawn_key=more)
    return int(sequence.generate_state(1, np.uint64)[0])
