"""Random crops and flips in the pass that normalizes, beside the same pass without them."""

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset, default_collate

import pinfeed
from bench.epoch import Epoch, exhaust
from bench.harness import Role, Way, Workload
from bench.image_ways import MEAN, STD, largest_difference
from bench.peers import dali, ffcv
from bench.peers.torchvision import transforms
from pinfeed import augment

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


def _per_sample(
    epoch: Epoch, transform: Callable[[Any], Any], collate: Callable[[Any], Any]
) -> Callable[[], Any]:
    """A loader whose collate function transforms one image after the other."""
    samples = list(zip(epoch.images, epoch.labels, strict=True))
    loader = epoch.loader(samples, lambda batch: collate([(transform(x), y) for x, y in batch]))
    return lambda: iter(loader)


def _with_numpy(epoch: Epoch) -> Callable[[], Any]:
    random, size = np.random.default_rng(0), epoch.images.shape[1]

    def transform(image: Any) -> Any:
        padded = np.pad(image, ((PADDING, PADDING), (PADDING, PADDING), (0, 0)))
        top, left, flipped = random.integers((2 * PADDING + 1, 2 * PADDING + 1, 2))
        crop = padded[top : top + size, left : left + size]
        return crop[:, ::-1] if flipped else crop

    return _per_sample(epoch, transform, pinfeed.Collate((pinfeed.Image(MEAN, STD), None)))


def _with_torch(epoch: Epoch) -> Callable[[], Any]:
    """The windows of a batch as indices."""
    places = torch.arange(epoch.images.shape[1])

    def cropped(images: torch.Tensor) -> torch.Tensor:
        padded = torch.nn.functional.pad(images, (0, 0, PADDING, PADDING, PADDING, PADDING))
        top, left = torch.randint(0, 2 * PADDING + 1, (2, len(images), 1))
        columns = torch.where(torch.rand(len(images), 1) < 0.5, places, places.flip(0)) + left
        rows, samples = places + top, torch.arange(len(images))
        return padded[samples[:, None, None], rows[:, :, None], columns[:, None, :]]

    loader = epoch.loader(TensorDataset(*epoch.tensors))
    return lambda: ((epoch.normalize(cropped(images)), labels) for images, labels in loader)


def _with_torchvision(epoch: Epoch) -> Callable[[], Any]:
    v2 = transforms()
    steps = [
        v2.ToImage(),
        v2.RandomCrop(epoch.images.shape[1], padding=PADDING),
        v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, STD),
    ]
    return _per_sample(epoch, v2.Compose(steps), default_collate)


def _with_albumentations(epoch: Epoch) -> Callable[[], Any]:
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # or importing it asks the network
    import albumentations as A
    import cv2

    cv2.setNumThreads(torch.get_num_threads())
    size = epoch.images.shape[1]
    transform = A.Compose(
        [A.Pad(PADDING), A.RandomCrop(size, size), A.HorizontalFlip(), A.Normalize(MEAN, STD)]
    )

    def planes(image: Any) -> torch.Tensor:
        return torch.from_numpy(transform(image=image)["image"].transpose(2, 0, 1))

    return _per_sample(epoch, planes, default_collate)


def _peers(epoch: Epoch) -> list[Way]:
    return [
        Way("torch on the batch, by indices", lambda: _with_torch(epoch), tolerance=2e-6),
        Way("FFCV's technique (numba, NHWC out)", lambda: ffcv.cropped_epoch(epoch, PADDING)),
        Way(
            "NVIDIA DALI CPU",
            lambda: dali.cropped_epoch(epoch, PADDING),
            tolerance=2e-6,
            error=lambda batches: epoch.error(
                (torch.from_numpy(images), torch.from_numpy(indices)) for images, indices in batches
            ),
        ),
        Way("NumPy per sample, `Collate(Image)`", lambda: _with_numpy(epoch)),
        Way("albumentations per sample", lambda: _with_albumentations(epoch), tolerance=4e-6),
        Way(
            "DataLoader, torchvision v2 per sample",
            lambda: _with_torchvision(epoch),
            tolerance=2e-6,
        ),
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


def images_mixed(name: str, size: int) -> Workload:
    """Batches that are normalized already, mixed in place, again and again."""
    torch.manual_seed(0)
    images, labels = torch.rand(256, len(MEAN), size, size), torch.randint(10, (256,))

    def build(mix: Callable[[Any, Any], Any]) -> Callable[[], Any]:
        batch = images.clone()
        return lambda: mix(batch, labels)

    def seed() -> None:
        torch.manual_seed(1)

    def reference(kind: str) -> Callable[[Any], float]:
        def difference(result: Any) -> float:
            seed()
            expected = getattr(transforms(), kind)(num_classes=10)(images, labels)
            return max(map(largest_difference, result, expected))

        return difference

    def ours(mix: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: build(lambda batch, labels: mix(batch, labels, num_classes=10))

    def torchvisions(kind: str) -> Callable[[], Any]:
        return lambda: build(getattr(transforms(), kind)(num_classes=10))

    mixup, cutmix = reference("MixUp"), reference("CutMix")
    ways = [
        Way(
            "physical limit: `mul_` in place", lambda: partial(images.clone().mul_, 0.5), Role.LIMIT
        ),
        Way("**pinfeed** `mixup`", ours(augment.mixup), Role.PINFEED),
        Way("**pinfeed** `cutmix`", ours(augment.cutmix), Role.PINFEED, error=cutmix),
        Way("torchvision v2 `MixUp`", torchvisions("MixUp")),
        Way("torchvision v2 `CutMix`", torchvisions("CutMix"), error=cutmix),
    ]
    title = f"256 float32 images of {size}x{size} mixed, {torch.get_num_threads()} thread(s)"
    return Workload(name, title, ways, error=mixup, prepare=seed, images=len(images))


def workloads() -> dict[str, tuple[int, Callable[[str], Workload]]]:
    """Return the workloads here by name: their number of threads and what makes them."""
    return {
        "epoch-augmented": (1, epoch_augmented),
        "images-flipped": (1, images_flipped),
        "mixed-32x32": (1, partial(images_mixed, size=32)),
        "mixed-224x224": (1, partial(images_mixed, size=224)),
    }
