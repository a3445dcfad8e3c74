"""Images of which each epoch has other crops, and what becomes of each of them."""

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
    """What is seen of each sample that came, where it came first."""
    found = {}
    for batch in batches:
        for index, image in zip(batch["index"].tolist(), batch["image"], strict=True):
            found.setdefault(index, image.tolist())
    return found


@functools.cache
def crops_of_epochs():
    """The images of each epoch."""
    collate = new_collate()
    found = []
    for epoch in range(4):
        collate.set_epoch(epoch)
        found.append(by_index([collate(ARRAYS.__getitems__(range(COUNT)))]))
    assert sum(found[0][i] != found[1][i] for i in range(COUNT)) > 30
    return found
