"""Random crops and flips in the pass that normalizes, beside the same pass without them."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

import pinfeed
from bench.peers.torchvision import transforms
from pinfeed import augment
from pinfeed.bench.epoch import Epoch, exhaust
from pinfeed.bench.harness import Role, Way, Workload
from pinfeed.bench.images import MEAN, STD, largest_difference

PADDING = 4


class AugmentedEpoch(Epoch):
    """An epoch whose images are padded with zeros, cropped to their size at random, and flipped."""

    def error(self, batches: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> float:
        """Check the first image of each batch: it has to be one of its windows, flipped or not."""
        size, channels = self.images.shape[1], torch.arange(len(MEAN))
        seen = torch.zeros(self.count, dtype=torch.int64)
        worst = 0.0
        for images, labels in batches:
            seen[labels] += 1
            image = self.tensors[0][labels[0]]
            padded = torch.zeros(
                size + 2 * PADDING, size + 2 * PADDING, len(MEAN), dtype=torch.uint8
            )
            padded[PADDING:-PADDING, PADDING:-PADDING] = image
            whole = self._table[padded.int(), channels].permute(2, 0, 1)
            windows = whole.unfold(1, size, 1).unfold(2, size, 1).flatten(1, 2).transpose(0, 1)
            differences = [
                (images[0] - candidates).abs().amax((1, 2, 3)).min()
                for candidates in (windows, windows.flip(3))
            ]
            worst = max(worst, float(min(differences)))
        return worst if bool((seen == 1).all()) else float("inf")


def _pinfeed(epoch: Epoch, view: Any) -> Callable[[], Any]:
    dataset = pinfeed.ArrayDataset((epoch.images, epoch.labels))
    image = pinfeed.Image(MEAN, STD, augment=view)
    loader = epoch.loader(dataset, pinfeed.Collate((image, pinfeed.Stack()), seed=0))
    return lambda: iter(loader)


class ByHand(torch.utils.data.Dataset[Any]):
    """Crops and flips of one sample after the other, by NumPy."""

    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self._random = np.random.default_rng(0)

    def __len__(self) -> int:
        return self._epoch.count

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = self._epoch.images[index]
        size = len(image)
        padded = np.pad(image, ((PADDING, PADDING), (PADDING, PADDING), (0, 0)))
        top, left, flipped = self._random.integers((2 * PADDING + 1, 2 * PADDING + 1, 2))
        crop = padded[top : top + size, left : left + size]
        return crop[:, ::-1] if flipped else crop, index


def _peers(epoch: Epoch) -> list[Way]:
    def by_hand() -> Callable[[], Any]:
        loader = epoch.loader(ByHand(epoch), pinfeed.Collate((pinfeed.Image(MEAN, STD), None)))
        return lambda: iter(loader)

    def torchvision() -> Callable[[], Any]:
        v2 = transforms()
        size = epoch.images.shape[1]
        transform = v2.Compose(
            [
                v2.ToImage(),
                v2.RandomCrop(size, padding=PADDING),
                v2.RandomHorizontalFlip(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(MEAN, STD),
            ]
        )
        samples = [(image, label) for label, image in enumerate(epoch.images)]

        def collate(batch: list[Any]) -> Any:
            images = [transform(image) for image, _ in batch]
            return torch.stack(images), torch.tensor([label for _, label in batch])

        loader = epoch.loader(samples, collate)
        return lambda: iter(loader)

    return [
        Way("NumPy per sample, `Collate(Image)`", by_hand),
        Way("DataLoader, torchvision v2 per sample", torchvision, tolerance=2e-6),
    ]


def epoch_augmented(name: str) -> Workload:
    """The recipe of CIFAR-10."""
    epoch = AugmentedEpoch()
    size = epoch.images.shape[1]
    view = augment.Compose(
        [augment.RandomCrop(size, padding=PADDING), augment.RandomHorizontalFlip()]
    )
    ways = [
        Way("**pinfeed** without augmentation", lambda: _pinfeed(epoch, None), Role.LIMIT),
        Way("**pinfeed** `Image(augment=)`", lambda: _pinfeed(epoch, view), Role.PINFEED),
        *_peers(epoch),
    ]
    title = (
        f"Epoch over {'x'.join(map(str, epoch.images.shape))} uint8 in memory, shuffled, padded by "
        f"{PADDING}, cropped and flipped at random, {torch.get_num_threads()} thread(s)"
    )
    return Workload(name, title, ways, error=epoch.error, consume=exhaust, images=epoch.count)


def images_flipped(name: str) -> Workload:
    """Whole photographs, flipped or not."""
    images = np.random.default_rng(0).integers(0, 256, (256, 224, 224, 3), dtype=np.uint8)
    rows = pinfeed.ArrayDataset(images).__getitems__(np.arange(len(images)))

    def build(p: float) -> Callable[[], Any]:
        flip = augment.RandomHorizontalFlip(p) if p else None
        collate = pinfeed.Collate(pinfeed.Image(MEAN, STD, augment=flip), seed=0)
        return lambda: collate(rows)

    def error(p: float) -> Callable[[Any], float]:
        flips = torch.zeros(len(images), dtype=torch.bool)

        def difference(result: torch.Tensor) -> float:
            expected = pinfeed.normalize(torch.from_numpy(images), MEAN, STD)
            flips[:] = (result[:, :, :, 0] != expected[:, :, :, 0]).flatten(1).any(1)
            expected[flips] = expected[flips].flip(3)
            share = float(flips.float().mean())
            return largest_difference(result, expected) if abs(share - p) < 0.2 else float("inf")

        return difference

    ways = [
        Way("**pinfeed** without a flip", lambda: build(0), Role.LIMIT),
        Way("**pinfeed** half of them flipped", lambda: build(0.5), Role.PINFEED, error=error(0.5)),
        Way("**pinfeed** all of them flipped", lambda: build(1), Role.PINFEED, error=error(1)),
    ]
    title = f"256 images of 224x224x3 flipped at random, {torch.get_num_threads()} thread(s)"
    return Workload(name, title, ways, error=error(0.5), images=len(images))


def workloads() -> dict[str, tuple[int, Callable[[str], Workload]]]:
    """Return the workloads here by name: their number of threads and what makes them."""
    return {"epoch-augmented": (1, epoch_augmented), "images-flipped": (1, images_flipped)}
