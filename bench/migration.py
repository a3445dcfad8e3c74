"""Users' loops, before and after the two changed lines of docs/migrate.md."""

import warnings
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, default_collate

import pinfeed
from bench import peers
from bench.data import MEAN, ONE, STD, normalized, smooth_images
from bench.harness import Job, at_least, difference, other, ours, reference, workload

BATCH, COUNT = 32, 64
LEVELS = 2.02  # levels of difference, because Pillow and torch round differently


class Photographs:
    """Decoded PIL images with a transform and a label."""

    def __init__(self, images: list[Any], transform: Any = None) -> None:
        self.images, self.transform = images, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        image = self.images[index]
        return (image if self.transform is None else self.transform(image)), index


def of_timm() -> Any:
    """Returns timm's transform for evaluation: Resize(256), CenterCrop(224)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its imports of torchvision
        from timm.data import create_transform
    return create_transform(224)


def of_torchvision() -> Any:
    """Returns the transform of a tutorial, for evaluation."""
    peers.v2()
    from torchvision import transforms

    steps = [transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()]
    return transforms.Compose([*steps, transforms.Normalize(MEAN, STD)])


def by_processor(processor: Any, samples: list[Any]) -> Any:
    """Returns a batch in the form of collate functions for transformers."""
    images, labels = zip(*samples, strict=True)
    values = processor(list(images), return_tensors="pt")["pixel_values"]
    return values, torch.tensor(labels)


@workload(
    at_least(4, "torchvision, as it was", "torchvision, two lines"),
    at_least(4, "timm, as it was", "timm, two lines"),
    at_least(3, "transformers, as it was", "transformers, two lines"),
)
def migrate():
    """A batch of 32 PIL images of 500×375, resized, cropped to 224×224, normalized, by DataLoader."""
    import PIL.Image
    import transformers

    photos = [PIL.Image.fromarray(one) for one in smooth_images(COUNT, 375, 500)]
    out = torch.empty(BATCH, 3, 224, 224)

    def shown(size, window):
        """Returns each image, resized and cropped by Pillow, as bytes."""
        resized = (photo.resize(size, PIL.Image.Resampling.BILINEAR) for photo in photos)
        return np.stack([np.asarray(photo.crop(window)) for photo in resized])

    def check(expected, batches):
        images, labels = zip(*batches, strict=True)
        return difference(torch.cat(images), expected) + difference(
            torch.cat(labels), torch.arange(COUNT)
        )

    cropped = partial(check, normalized(shown((341, 256), (58, 16, 282, 240))))
    halves = torch.from_numpy(shown((224, 224), (0, 0, 224, 224))).permute(peers.ORDER)
    squashed = partial(check, halves.contiguous().float() / 127.5 - 1)
    epoch = lambda images, collate: partial(iter, DataLoader(images, BATCH, collate_fn=collate))
    alternatives = [reference("fill the output (`out.fill_`)", lambda: out.fill_(0.5))]
    for library, make in ("torchvision", of_torchvision), ("timm", of_timm):
        rest, image = pinfeed.Image.from_torchvision(make())
        about = {
            "job": library,
            "expected": cropped,
            "tolerance": LEVELS * ONE,
            "units": COUNT // BATCH,
        }
        before = epoch(Photographs(photos, make()), default_collate)
        after = epoch(Photographs(photos, rest), pinfeed.Collate((image, None)))
        alternatives += [
            other(f"{library}, as it was", before, **about),
            ours(f"{library}, two lines", after, **about),
        ]
    processor = transformers.ViTImageProcessor()
    image = pinfeed.Image.from_processor(processor)
    about = {
        "job": "transformers",
        "expected": squashed,
        "tolerance": LEVELS / 127.5,
        "units": COUNT // BATCH,
    }
    before = epoch(Photographs(photos), partial(by_processor, processor))
    after = epoch(Photographs(photos), pinfeed.Collate((image, None)))
    alternatives += [
        other("transformers, as it was", before, **about),
        ours("transformers, two lines", after, **about),
    ]
    return Job(*alternatives)
