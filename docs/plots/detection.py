"""Draws a batch for a detector: ``PYTHONPATH=. python docs/plots/detection.py``."""

import numpy as np
import PIL.Image
import PIL.ImageDraw
import sklearn.datasets
import torch
from drawing import ASSETS

import pinfeed
from pinfeed import augment

BOXES = [[[62, 28, 372, 395], [546, 135, 640, 400]], [[170, 80, 440, 360]]]
COLORS = ["#e4572e", "#2e86ab"]


def main() -> None:
    """Draws a padded batch of six crops with their boxes."""
    photos = sklearn.datasets.load_sample_images().images
    samples = [
        {"image": photo, "boxes": boxes, "labels": list(range(len(boxes)))}
        for photo, boxes in zip(photos, BOXES, strict=True)
    ]
    view = augment.Compose(
        [
            augment.RandomZoomOut(fill=114, side_range=(1, 2), p=0.3),
            augment.RandomIoUCrop(),
            augment.RandomShortestSize((120, 160, 200), max_size=280),
            augment.RandomHorizontalFlip(),
        ]
    )
    image = pinfeed.Image(output="HWC", dtype=torch.uint8, augment=view, pad_value=255)
    indexed = pinfeed.IndexedDataset(samples * 3).__getitems__(range(6))
    batch = pinfeed.Collate({"image": image, "boxes": pinfeed.Boxes()}, seed=5)(indexed)
    tiles = []
    for pixels, boxes, labels in zip(
        batch["image"], batch["boxes"].unbind(), batch["labels"].unbind(), strict=True
    ):
        tile = PIL.Image.fromarray(pixels.numpy())
        draw = PIL.ImageDraw.Draw(tile)
        for box, label in zip(boxes.tolist(), labels.tolist(), strict=True):
            draw.rectangle(box, outline=COLORS[label], width=3)
        tiles.append(np.asarray(tile))
    rows = [np.concatenate(tiles[i : i + 3], axis=1) for i in (0, 3)]
    path = ASSETS / "detection.jpg"
    PIL.Image.fromarray(np.concatenate(rows)).save(path, quality=85, optimize=True)
    print(path)


if __name__ == "__main__":
    main()
