"""Draws augmentations of two images: ``PYTHONPATH=. python docs/plots/augmentation.py``."""

import numpy as np
import PIL.Image
import sklearn.datasets
import torch
from drawing import ASSETS

import pinfeed
from pinfeed import augment

SIZE, DRAWS, GAP = 150, 6, 6


def main() -> None:
    """Draws one row per recipe: the image, and its random augmentations."""
    temple, flower = sklearn.datasets.load_sample_images().images
    flip, resized = augment.RandomHorizontalFlip(), augment.RandomResizedCrop(SIZE)
    color = augment.ColorJitter(brightness=0.4)
    recipes = [
        (temple, {"augment": [augment.RandomCrop(400, padding=50), augment.Resize(SIZE), flip]}),
        (flower, {"augment": [resized, flip]}),
        (temple, {"augment": [resized, flip], "color": color, "erase": augment.RandomErasing(1)}),
    ]
    rows = []
    for photo, options in recipes:
        whole = [augment.Resize(SIZE), augment.CenterCrop(SIZE)]
        tiles = [*_seen([photo], augment=whole), *_seen([photo] * DRAWS, **options)]
        gaps = ((0, GAP), (0, GAP), (0, 0))
        rows.append(np.concatenate([np.pad(t, gaps, constant_values=255) for t in tiles], axis=1))
    path = ASSETS / "augmentation.jpg"
    PIL.Image.fromarray(np.concatenate(rows)[:-GAP, :-GAP]).save(path, quality=85, optimize=True)
    print(path)


def _seen(photos: list[np.ndarray], **options: object) -> np.ndarray:
    options["augment"] = augment.Compose(options["augment"])
    image = pinfeed.Image(dtype=torch.uint8, output="HWC", **options)
    indexed = pinfeed.IndexedDataset(photos).__getitems__(range(len(photos)))
    return pinfeed.Collate(image, seed=3)(indexed).numpy()


if __name__ == "__main__":
    main()
