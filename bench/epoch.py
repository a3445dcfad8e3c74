"""An epoch over images in memory, through torch's own DataLoader, shuffled and normalized."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

import pinfeed
from bench.harness import Role, Way, Workload
from bench.image_ways import MEAN, STD, largest_difference, normalize_table

Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


def exhaust(batches: Iterable[Any]) -> None:
    """Run an epoch, holding one batch at a time."""
    for _ in batches:
        pass


class IndexDataset(Dataset[int]):
    """A dataset whose samples are their own indices: what is left is DataLoader itself."""

    def __init__(self, length: int) -> None:
        """Make a dataset of `length` indices."""
        self.length = length

    def __len__(self) -> int:
        """Return the number of samples."""
        return self.length

    def __getitems__(self, indices: list[int]) -> list[int]:
        """Return the indices as they came."""
        return indices


class Epoch:
    """Images with their own indices as labels, so that every shuffled batch can be checked.

    Args:
        count: Images.
        size: Height and width of one.
        batch_size: Images in one batch.
    """

    def __init__(self, count: int = 50_000, size: int = 32, batch_size: int = 256) -> None:
        """Draw random images."""
        self.count = count
        self.batch_size = batch_size
        self.images = np.random.default_rng(0).integers(
            0, 256, (count, size, size, len(MEAN)), dtype=np.uint8
        )
        self.labels = np.arange(count)
        self.tensors = torch.from_numpy(self.images), torch.from_numpy(self.labels)
        self.mean = torch.tensor(MEAN).view(-1, 1, 1) * 255
        self.std = torch.tensor(STD).view(-1, 1, 1) * 255
        self._table = normalize_table()

    def loader(self, dataset: Any, collate: Callable[[Any], Any] | None = None) -> Any:
        """Return torch's DataLoader, shuffling, without workers."""
        return DataLoader(dataset, self.batch_size, shuffle=True, collate_fn=collate)

    def normalize(self, images: torch.Tensor) -> torch.Tensor:
        """Normalize a batch as it is usually written in torch."""
        images = images.permute(0, 3, 1, 2).float()
        return images.sub_(self.mean).div_(self.std).contiguous()

    def error(self, batches: Batches) -> float:
        """Check every batch of an epoch by its labels; infinity unless each comes up once."""
        seen = torch.zeros(self.count, dtype=torch.int64)
        channels = torch.arange(len(MEAN))
        worst = 0.0
        for images, labels in batches:
            seen[labels] += 1
            expected = self._table[self.tensors[0][labels].int(), channels]
            difference = largest_difference(images, expected.permute(0, 3, 1, 2))
            if math.isnan(difference):  # max() would drop it
                return difference
            worst = max(worst, difference)
        return worst if bool((seen == 1).all()) else float("inf")

    def index_error(self, batches: Iterable[list[int]]) -> float:
        """Check that an epoch of bare indices names each once."""
        indices = sorted(index for batch in batches for index in batch)
        return 0.0 if indices == list(range(self.count)) else float("inf")


def _limit_ways(epoch: Epoch) -> list[Way]:
    _, height, width, channels = epoch.images.shape

    def whole() -> Callable[[], Any]:
        out = torch.zeros(epoch.count, channels, height, width)
        return lambda: [out.fill_(1)]

    def batchwise() -> Callable[[], Any]:
        out = torch.zeros(epoch.batch_size, channels, height, width)
        steps = range(0, epoch.count, epoch.batch_size)
        return lambda: (out.fill_(1) for _ in steps)

    return [
        Way("physical limit: fill all of the output once", whole, Role.LIMIT),
        Way("fill one batch's buffer, batch by batch", batchwise, Role.LIMIT),
    ]


def _pinfeed_way(epoch: Epoch) -> Way:
    def build() -> Callable[[], Batches]:
        dataset = pinfeed.ArrayDataset((epoch.images, epoch.labels))
        collate = pinfeed.Collate((pinfeed.Image(MEAN, STD), pinfeed.Stack()))
        loader = epoch.loader(dataset, collate)
        return lambda: iter(loader)

    return Way("**pinfeed** `ArrayDataset`, `Collate(Image)`", build, Role.PINFEED)


def _torch_way(epoch: Epoch) -> Way:
    def build() -> Callable[[], Batches]:
        loader = epoch.loader(TensorDataset(*epoch.tensors))
        return lambda: ((epoch.normalize(images), labels) for images, labels in loader)

    return Way("DataLoader(TensorDataset) + torch on the batch", build, tolerance=2e-6)


def epoch_workload(name: str, epoch: Epoch, more: list[Way] | None = None) -> Workload:
    """Return the epoch with the limits, the ways of pinfeed and torch, and `more`."""
    indices = epoch.loader(IndexDataset(epoch.count), list)
    overhead = Way(
        "DataLoader alone (indices only)",
        lambda: lambda: iter(indices),
        Role.OVERHEAD,
        error=epoch.index_error,
    )
    size = "x".join(map(str, epoch.images.shape))
    title = (
        f"Epoch over {size} uint8 in memory, shuffled, batches of {epoch.batch_size}, "
        f"0 workers, {torch.get_num_threads()} thread(s)"
    )
    ways = [*_limit_ways(epoch), overhead, _pinfeed_way(epoch), _torch_way(epoch)]
    return Workload(
        name,
        title,
        [*ways, *(more or [])],
        error=epoch.error,
        consume=exhaust,
        images=epoch.count,
    )
