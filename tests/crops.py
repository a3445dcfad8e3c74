"""Images with new crops each epoch, and the expected crops of a batch."""

import functools
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, Subset

import pinfeed
from pinfeed import ArrayDataset, Collate, IndexedDataset, augment

COUNT = 40
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT, 8, 8, 3), dtype=np.uint8)
ARRAYS = ArrayDataset({"image": IMAGES, "index": np.arange(COUNT)})
VIEW = augment.Compose([augment.RandomCrop(8, padding=3), augment.RandomHorizontalFlip()])


class Photos(Dataset[Any]):
    """A dataset of one sample at a time."""

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return {"image": IMAGES[index], "index": index}


DATASETS = {
    "rows": ARRAYS,
    "indexed": IndexedDataset(Photos()),
    "subset": IndexedDataset(Subset(ARRAYS, range(COUNT))),
}


def new_collate(seed=0):
    return Collate({"image": pinfeed.Image(dtype=torch.uint8, augment=VIEW)}, seed=seed)


def by_index(batches):
    """Returns the crop of each sample, at its first occurrence."""
    result = {}
    for batch in batches:
        for index, image in zip(batch["index"].tolist(), batch["image"], strict=True):
            result.setdefault(index, image.tolist())
    return result


@functools.cache
def crops_of_epochs():
    """Returns the crops of each epoch."""
    collate = new_collate()
    result = []
    for epoch in range(4):
        collate.set_epoch(epoch)
        result.append(by_index([collate(ARRAYS.__getitems__(range(COUNT)))]))
    assert sum(result[0][i] != result[1][i] for i in range(COUNT)) > 30
    return result


def corners_of(image):
    """Returns x and y of the upper left and the lower right corner of (H, W, ...)."""
    height, width = image.shape[:2]
    return np.array([[0, 0], [width, height]])


def crops_from_corners(corners, image_size, size):
    """Returns the crops in image pixels, computed from where the corners moved in batches of a size.

    float64 of shape (B, 6): top, left, height, width, and 1 or 0 for flipped vertically and horizontally.
    """
    first, last = corners.double().numpy().reshape(-1, 2, 2)[..., ::-1].swapaxes(0, 1)
    scale = np.abs(last - first) / image_size
    is_mirrored = last < first
    begin = np.where(is_mirrored, first - size, -first) / scale
    return np.concatenate([begin, np.array(size) / scale, is_mirrored], axis=1)


def batch_and_crops(field, images, seed=None):
    """Returns a batch of images, and their crops as `crops_from_corners` computes them."""
    fields = {"image": field, "corners": pinfeed.Points()}
    samples = [{"image": image, "corners": corners_of(image)} for image in images]
    rows = IndexedDataset(samples).__getitems__(range(len(samples)))
    batch = Collate(fields, seed=seed)(rows)
    seen, sizes = batch["image"], [image.shape[:2] for image in images]
    height, width = (seen.shape[1 + field.output.index(axis)] for axis in "HW")
    return seen, crops_from_corners(batch["corners"].values, sizes, (height, width))
