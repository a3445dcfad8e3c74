"""Augmentations where something else is expected or the other way round, and torchvision's habits."""

import numpy as np
import pytest
import torch
from torchvision.transforms import v2

from hints import PHOTOS, PLANES, check_hint, shown
from pinfeed import Collate, Image, augment

HINTS = {
    "a transform for a field": (
        lambda: Collate(augment.CenterCrop(4)),
        TypeError,
        r"got CenterCrop; Image\(augment=CenterCrop\(4\)\) makes batches of what it shows",
        lambda: Collate(Image(augment=augment.CenterCrop(4)))([PHOTOS[0]]),
        Collate(Image())([PHOTOS[0, 2:6, 1:5]]),
    ),
    "torchvision's transform for a field": (
        lambda: Collate(v2.CenterCrop(4)),
        TypeError,
        r"got CenterCrop; a function of one sample, .* is called by the dataset",
        lambda: Collate(Image(input="CHW"))([v2.CenterCrop(4)(torch.from_numpy(PLANES[0]))]),
        Collate(Image())([PHOTOS[0, 2:6, 1:5]]),
    ),
    "the class of a transform": (
        lambda: Image(augment=augment.RandomHorizontalFlip),
        TypeError,
        r"got a class; create it with parentheses: RandomHorizontalFlip\(...\)$",
        lambda: shown(augment=augment.RandomHorizontalFlip()).sort(-1)[0],
        torch.from_numpy(PLANES[:1]).sort(-1)[0],
    ),
    "a list of transforms": (
        lambda: Image(augment=[augment.CenterCrop(4)]),
        TypeError,
        r"augment must be of pinfeed.augment, several in Compose\(\[...\]\), got list",
        lambda: shown(augment=augment.Compose([augment.CenterCrop(4)])),
        torch.from_numpy(PLANES[:1, :, 2:6, 1:5]),
    ),
    "transforms without a list": (
        lambda: augment.Compose(augment.CenterCrop(4), augment.CenterCrop(2)),
        TypeError,
        r"^Compose.* 3 were given; transforms go into one list: Compose\(\[a, b\]\)$",
        lambda: shown(augment=augment.Compose([augment.CenterCrop(4), augment.CenterCrop(2)])),
        torch.from_numpy(PLANES[:1, :, 3:5, 2:4]),
    ),
    "an interpolation of a resize": (
        lambda: augment.Resize((4, 4), v2.InterpolationMode.NEAREST),
        TypeError,
        r"were given; interpolation is an argument of Image: Image\(augment=..., interpolation=",
        lambda: shown(augment=augment.Resize((4, 4)), interpolation="nearest"),
        v2.Resize((4, 4), v2.InterpolationMode.NEAREST)(torch.from_numpy(PLANES[:1])),
    ),
    "an antialiased resize": (
        lambda: augment.RandomResizedCrop(4, antialias=True),
        TypeError,
        r"^RandomResizedCrop: there is no argument 'antialias'; resizing is antialiased",
        lambda: shown(augment=augment.Resize((4, 4))),
        v2.Resize((4, 4), antialias=True)(torch.from_numpy(PLANES[:1])),
    ),
    "saturation": (
        lambda: augment.ColorJitter(0, 0, 0.4),
        TypeError,
        "saturation and hue are left out: call torchvision's ColorJitter in the dataset for them",
        lambda: Collate(Image(input="CHW", dtype=torch.uint8))(
            [v2.ColorJitter(saturation=(0, 0))(torch.from_numpy(PLANES[0]))]
        ),
        v2.functional.rgb_to_grayscale(torch.from_numpy(PLANES[:1]), num_output_channels=3),
    ),
    "a size of images": (
        lambda: Image(size=4),
        TypeError,
        r"there is no argument 'size'; Image\(augment=pinfeed.augment.Resize\(size\)\) resizes",
        lambda: shown(augment=augment.Resize((4, 4))),
        v2.Resize((4, 4))(torch.from_numpy(PLANES[:1])),
    ),
    "a transform to normalize": (
        lambda: augment.Normalize(0.5, 0.5),
        AttributeError,
        r"no Normalize; pinfeed.Image\(mean, std\) makes normalized floats of images",
        lambda: Collate(Image(0.5, 0.5))([PHOTOS[0]]),
        torch.from_numpy(PLANES[:1] / np.float32(255) * 2 - 1),
    ),
    "more classes than there are": (
        lambda: augment.mixup(torch.zeros(2, 3, 4, 4), torch.tensor([0, 3]), num_classes=3),
        ValueError,
        r"^mixup: labels must be from 0 to num_classes - 1, which is 2, got 0 to 3",
        lambda: augment.mixup(torch.zeros(2, 3, 4, 4), torch.tensor([0, 3]), num_classes=4)[
            1
        ].sum(),
        torch.tensor(2.0),
    ),
}


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS)
def test_hints(hint):
    check_hint(*hint)
