"""Draws the pictures of transforms, padding and packing: ``PYTHONPATH=. python docs/plots/gallery.py``."""

from typing import Any

import numpy as np
import PIL.Image
import sklearn.datasets
import torch
from drawing import ASSETS

import pinfeed
from pinfeed import augment

TEMPLE, FLOWER = sklearn.datasets.load_sample_images().images
SMALL, MEAN_COLOR = augment.Resize((90, 120)), (124, 116, 104)


def show(name: str, *steps: Any, photo: np.ndarray = FLOWER, count: int = 5) -> None:
    """Saves random draws of the transform from one image, side by side."""
    image = pinfeed.Image(dtype=torch.uint8, output="HWC", augment=[*steps])
    samples = pinfeed.IndexedDataset([photo] * count).__getitems__(range(count))
    batch = pinfeed.Collate(image, seed=1)(samples).numpy()
    save(name, np.concatenate([np.pad(one, ((0, 0), (0, 6), (0, 0))) for one in batch], axis=1))


def save(name: str, pixels: np.ndarray) -> None:
    """Saves a picture, without the gap on the right."""
    PIL.Image.fromarray(pixels[:, :-6]).save(ASSETS / "gallery" / f"{name}.png")


def blocks(numbers: Any) -> np.ndarray:
    """Returns a block of pixels with one color per number; -1 is light gray."""
    colors = np.random.default_rng(2).integers(60, 230, (64, 3))
    colors[-1] = 235
    return np.kron(colors[np.asarray(numbers)].astype(np.uint8), np.ones((4, 4, 1), np.uint8))


def main() -> None:
    """Draws all pictures."""
    show("resized", SMALL, count=1)
    show("random-crop", augment.RandomCrop(300), augment.Resize(110))
    show("resized-crop", augment.RandomResizedCrop(110))
    padded = augment.RandomCrop((427, 640), padding=120, fill=MEAN_COLOR)
    show("padded-crop", padded, augment.Resize(80), count=4)
    zoom = augment.RandomZoomOut(fill=MEAN_COLOR, p=1)
    show("zoom-out", zoom, augment.Resize((80, 120)), count=4)
    flips = augment.RandomHorizontalFlip(), augment.RandomVerticalFlip()
    show("flips", SMALL, *flips, photo=TEMPLE)
    show("jitter", SMALL, augment.ColorJitter(brightness=0.6, contrast=0.6, saturation=0.8))
    show("gray", SMALL, augment.RandomGrayscale(p=0.5))
    show("erase", SMALL, augment.RandomErasing(p=1, value=MEAN_COLOR))

    lengths = np.random.default_rng(0).lognormal(3, 0.6, 640).astype(int).clip(4, 120)
    texts = [np.full(length, i % 40) for i, length in enumerate(lengths)]
    pad = pinfeed.Collate(pinfeed.Pad(pad_value=-1))
    save("random-batch", blocks(pad(texts[:32]).values))
    sampler = pinfeed.samplers.LengthBucketSampler(lengths, batch_size=32, seed=0)
    by_length = sorted(sampler, key=lambda indices: lengths[list(indices)].max())
    save("bucket-batch", blocks(pad([texts[i] for i in by_length[len(sampler) // 2]]).values))

    rows = pinfeed.samplers.PackSampler(lengths, seq_length=128, batch_size=16, seed=0)
    samples = pinfeed.IndexedDataset(texts).__getitems__(next(iter(rows)))
    save("packed", blocks(pinfeed.Collate(pinfeed.Pack(seq_length=128, pad_value=-1))(samples)))


if __name__ == "__main__":
    main()
