"""Feeds: the two ways from the same .npy files to the same float32 NCHW batches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import pinfeed
from pinfeed.demo.patches import PatchFiles

BATCH_SIZE = 256
# The constants that torchvision's documentation gives for ImageNet.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


class TorchvisionPatches(Dataset[dict[str, Any]]):
    """Patches as a torchvision user reads them: ``ToTensor`` and ``Normalize``, sample by sample.

    The arithmetic is torchvision's, written out in torch so that the demo doesn't need torchvision.
    The constants are made once and the last two operations work in place, which is kinder to this
    side than torchvision itself.
    """

    def __init__(self, files: PatchFiles) -> None:
        """Opens the files; no patch is read yet."""
        self.images = np.load(files.images, mmap_mode="r")
        self.labels = np.load(files.labels)
        self.mean = torch.tensor(MEAN).view(3, 1, 1)
        self.std = torch.tensor(STD).view(3, 1, 1)

    def __len__(self) -> int:
        """Counts the patches."""
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Makes one sample: a float32 image (3, 64, 64) and its label."""
        pixels = np.ascontiguousarray(self.images[index].transpose(2, 0, 1))
        image = torch.from_numpy(pixels).to(torch.float32).div_(255)
        image.sub_(self.mean).div_(self.std)
        return {"image": image, "label": int(self.labels[index])}


def stock_loader(files: PatchFiles, **options: Any) -> DataLoader[Any]:
    """Makes the stock loader: normalized sample by sample, stacked by ``default_collate``."""
    return DataLoader(TorchvisionPatches(files), **options)


def pinfeed_loader(files: PatchFiles, **options: Any) -> DataLoader[Any]:
    """Makes the same loader with pinfeed's dataset and collation."""
    dataset = pinfeed.ArrayDataset({"image": files.images, "label": files.labels})
    collate = pinfeed.Collate({"image": pinfeed.Image(MEAN, STD)})
    return DataLoader(dataset, collate_fn=collate, **options)


FEEDS: dict[str, Callable[..., DataLoader[Any]]] = {
    "stock": stock_loader,
    "pinfeed": pinfeed_loader,
}


def training_loader(feed: str, files: PatchFiles, seed: int) -> DataLoader[dict[str, Tensor]]:
    """Makes a shuffling loader; the seed alone decides the order, whatever the feed."""
    generator = torch.Generator().manual_seed(seed)
    return FEEDS[feed](files, batch_size=BATCH_SIZE, shuffle=True, generator=generator)


def evaluation_loader(feed: str, files: PatchFiles) -> DataLoader[dict[str, Tensor]]:
    """Makes a loader that reads the patches in the order of the file."""
    return FEEDS[feed](files, batch_size=BATCH_SIZE)
