"""What is random in a batch follows from the seed, the epoch and each sample's index."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.arguments import checked_integer
from pinfeed.memory.shared_cells import SharedCells
from pinfeed.sources.dataset import Rows, WrappedDataset


class Chance:
    """What the random numbers of one batch follow from.

    Args:
        samples: int64 of shape (B,); the numbers of a sample follow from its entry.
        key: 64 bits from which they follow too. None: drawn from torch's default generator, when it
            is first asked for.

    Attributes:
        sizes: By geometry, the sizes of the images that it was applied to, int64 of shape (B, 2), and
            the name of their leaf.
    """

    def __init__(self, samples: npt.NDArray[np.int64], key: int | None = None) -> None:
        self.samples = samples
        self._key = key
        self.sizes: dict[Any, tuple[npt.NDArray[np.int64], str]] = {}

    def key(self, stream: int) -> int:
        """64 bits, others for each stream."""
        if self._key is None:
            self._key = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
        return self._key if stream == 0 else _key(self._key, stream)


class SeededChance:
    """What is random in the batches of a `Collate`, in all its workers.

    Args:
        seed: Not negative. None: each batch draws a number from torch's default generator.
        leaf: Under which key samples have the integer that stands for their index, or None.
    """

    def __init__(self, seed: int | None, leaf: Any = None) -> None:
        self.seed = None if seed is None else checked_integer(seed, "Collate: seed", 0)
        self.leaf = leaf
        if seed is None and leaf is not None:
            raise ValueError("Collate: key is for a seed; give seed too, or leave key out")
        self._epoch = (
            None if seed is None else SharedCells([0], "Collate")
        )  # which the workers share

    @property
    def epoch(self) -> int:
        """The epoch of the batches that are made from now on."""
        return 0 if self._epoch is None else int(self._epoch.values)

    def set_epoch(self, epoch: int) -> None:
        """Goes to another epoch, here and in all workers."""
        epoch = checked_integer(epoch, "Collate: epoch", 0, sys.maxsize)
        if self._epoch is not None:
            self._epoch.values[0] = epoch

    def of(self, samples: Sequence[Any]) -> Chance:
        """The numbers of a batch.

        Raises:
            ValueError: There is a seed, and nothing says which samples these are.
        """
        if self.seed is None:
            return Chance(np.arange(len(samples)))
        key = _key(self.seed, self.epoch, 2)  # samplers take others
        if self.leaf is not None:
            return Chance(_integers(samples, self.leaf), key)
        if isinstance(samples, Rows | IndexedList):
            return Chance(samples.indices, key)
        raise ValueError(
            "Collate: with a seed, what is random follows from each sample's index, and this batch "
            "doesn't know it; wrap the dataset in pinfeed.augment.IndexedDataset and hand on the lists "
            "that it gives, or say by key which leaf names a sample, or leave out seed"
        )


def _integers(samples: Sequence[Any], leaf: Any) -> npt.NDArray[np.int64]:
    """That leaf of all samples."""
    if isinstance(samples, Rows) and isinstance(samples.sources, Mapping):
        sources = {key: samples.sources[key] for key in samples.sources if key == leaf}
        samples = Rows(sources, samples.indices) if sources else [{}]  # no view of each image
    numbers = []
    for position, sample in enumerate(samples):
        if not isinstance(sample, Mapping) or leaf not in sample:
            raise ValueError(
                f"Collate: key={leaf!r} is the leaf that names each sample, and sample {position} has "
                "none; add it to the samples, or leave out key and wrap the dataset in "
                "pinfeed.augment.IndexedDataset"
            )
        name = f"Collate: leaf [{leaf!r}] of sample {position}, which key names,"
        numbers.append(checked_integer(sample[leaf], name, -(2**63), 2**63 - 1))
    return np.array(numbers, np.int64)


class IndexedList(list[Any]):
    """The samples of a batch, with their indices in the dataset.

    Attributes:
        indices: int64 of shape (B,).
    """

    indices: npt.NDArray[np.int64]


class IndexedDataset(WrappedDataset):
    """A dataset whose batches know the indices of their samples, which random crops depend on.

    An `ArrayDataset`, and a ``Subset`` of one, needs none. Others don't tell the collate function
    where samples came from.

    Args:
        dataset: Any map-style dataset. It is asked for a whole batch where it has ``__getitems__``.

    Example:
        >>> photos = [np.zeros((height, 40, 3), np.uint8) for height in (32, 48, 64)]
        >>> collate = pinfeed.Collate(
        ...     pinfeed.Image(augment=pinfeed.augment.RandomCrop(32)), seed=0
        ... )
        >>> loader = torch.utils.data.DataLoader(
        ...     pinfeed.augment.IndexedDataset(photos), batch_size=3, collate_fn=collate
        ... )
        >>> next(iter(loader)).shape
        torch.Size([3, 3, 32, 32])
    """

    def __getitems__(self, indices: Sequence[int]) -> Any:
        """The samples of one batch, with their indices."""
        samples = self._samples(indices)
        if isinstance(samples, Rows):
            return samples
        indexed = IndexedList(samples)
        indexed.indices = _core.as_indices(indices, len(self.dataset), "IndexedDataset: indices")
        return indexed


@functools.lru_cache(maxsize=16)
def _key(seed: int, *more: int) -> int:
    """64 bits that follow from these numbers, as NumPy promises."""
    sequence = np.random.SeedSequence(seed, spawn_key=more)
    return int(sequence.generate_state(1, np.uint64)[0])
