"""Mistakes in augmentations, such as torchvision's conventions, and the hints in their errors."""

import numpy as np
import pytest
import torch
from torchvision.transforms import v2

from hints import PHOTOS, PLANES, Hints, check_hint, done, first_image, of
from pinfeed import Collate, Image, augment

CROP, MIDDLE = augment.CenterCrop(4), np.s_[:1, :, 2:6, 1:5]
PHOTO = torch.from_numpy(PLANES[:1])

HINTS: Hints = {
    "a transform for a field": (of([PHOTOS[0]]), CROP, Image(augment=CROP), Collate(Image())([PHOTOS[0, 2:6, 1:5]]),
        TypeError, r"got CenterCrop; Image\(augment=CenterCrop\(4\)\) applies it"),
    "torchvision's transform for a field": (lambda given: Collate(given[0])([given[1]]),
        (v2.CenterCrop(4), PHOTO[0]), (Image(input="CHW"), v2.CenterCrop(4)(PHOTO[0])),
        Collate(Image())([PHOTOS[0, 2:6, 1:5]]),
        TypeError, r"got CenterCrop; call functions of one sample, .* in the dataset"),
    "the class of a transform": (lambda view: first_image(augment=view).sort(-1)[0], augment.RandomHorizontalFlip,
        augment.RandomHorizontalFlip(), PHOTO.sort(-1)[0],
        TypeError, r"got a class; create it with parentheses: RandomHorizontalFlip\(...\)$"),
    "colors before a crop": (lambda views: first_image(augment=views), [augment.ColorJitter((1, 1)), CROP],
        [CROP, augment.ColorJitter((1, 1))], PHOTO[MIDDLE],
        ValueError, r"crops, flips and resizes, then colors, then RandomErasing, got CenterCrop\(4\) after ColorJitter\(.*; move it before"),
    "colors after erasing": (lambda views: first_image(augment=views), [augment.RandomErasing(0), augment.ColorJitter((1, 1))],
        [augment.ColorJitter((1, 1)), augment.RandomErasing(0)], PHOTO,
        ValueError, r"got ColorJitter\(.* after RandomErasing\(.*; move it before"),
    "two rectangles": (lambda views: first_image(augment=views), [augment.RandomErasing(0)] * 2, [augment.RandomErasing(0)], PHOTO,
        ValueError, r"augment must have at most one RandomErasing, got 2; leave out the others"),
    "a choice of no transform": (lambda views: first_image(augment=views), [CROP, None], [CROP], PHOTO[MIDDLE],
        TypeError, r"augment must be a transform of pinfeed.augment, or a list of them, got NoneType"),
    "transforms without a list": (lambda views: first_image(augment=augment.Compose(*views)),
        (CROP, augment.CenterCrop(2)), ([CROP, augment.CenterCrop(2)],), PHOTO[:, :, 3:5, 2:4],
        TypeError, r"^Compose: .*, got 2; transforms go into one list: Compose\(\[a, b\]\)$"),
    "an interpolation of a resize": (done, lambda: augment.Resize((4, 4), v2.InterpolationMode.NEAREST),
        lambda: first_image(augment=augment.Resize((4, 4)), interpolation="nearest"),
        v2.Resize((4, 4), v2.InterpolationMode.NEAREST)(PHOTO),
        TypeError, r"got 2; interpolation is an argument of Image: Image\(augment=..., interpolation="),
    "an antialiased resize": (done, lambda: augment.RandomResizedCrop(4, antialias=True),
        lambda: first_image(augment=augment.Resize((4, 4))), v2.Resize((4, 4), antialias=True)(PHOTO),
        TypeError, r"^RandomResizedCrop: got an unknown argument 'antialias'; resizing is antialiased"),
    "a hue": (done, lambda: augment.ColorJitter(0, 0, 0, 0.2),
        lambda: Collate(Image(input="CHW", dtype=torch.uint8))([v2.ColorJitter(hue=(0.2, 0.2))(PHOTO[0])]),
        v2.functional.adjust_hue(PHOTO, 0.2),
        TypeError, "hue is not available: call torchvision's ColorJitter in the dataset"),
    "a call": (done, lambda: augment.CenterCrop(4)(PHOTOS[0]),
        lambda: Collate(Image(augment=augment.CenterCrop(4)))([PHOTOS[0]]), Collate(Image())([PHOTOS[0, 2:6, 1:5]]),
        TypeError, r"^CenterCrop: a transform can't be called; .*: Collate\(Image\(augment=CenterCrop\(4\)\)\)$"),
    "a call among transforms of torchvision": (done, lambda: v2.Compose([augment.RandomHorizontalFlip(1)])(PHOTO[0]),
        lambda: first_image(augment=augment.Compose([augment.RandomHorizontalFlip(1)])), PHOTO.flip(-1),
        TypeError, r"^RandomHorizontalFlip: a transform can't be called; .*Image\(augment=RandomHorizontalFlip\(p=1.0\)"),
    "a call with a mask": (done, lambda: augment.Compose([CROP])(PHOTO[0], mask=PHOTO[0]),
        lambda: first_image(augment=augment.Compose([CROP])), PHOTO[MIDDLE], TypeError, r"Image\(augment=Compose\(\[Center"),
    "a call of colors": (done, lambda: augment.ColorJitter((1, 1))(PHOTO[0]),
        lambda: first_image(augment=augment.ColorJitter((1, 1))), PHOTO, TypeError, r"Image\(augment=ColorJitter\("),
    "a call of erasing": (done, lambda: augment.RandomErasing(0)(PHOTO[0]),
        lambda: first_image(augment=augment.RandomErasing(0)), PHOTO, TypeError, r"Image\(augment=RandomErasing\(p=0"),
    "two sizes": (done, lambda: augment.Resize(4, 5), lambda: first_image(augment=augment.Resize((4, 5))),
        v2.Resize((4, 5))(PHOTO), TypeError,
        r"^Resize: expected a height and a width in one pair, got 4 and 5; write Resize\(\(4, 5\)\)$"),
    "two sizes of a crop": (done, lambda: augment.CenterCrop(4, 4), lambda: first_image(augment=augment.CenterCrop((4, 4))),
        PHOTO[MIDDLE], TypeError, r"write CenterCrop\(\(4, 4\)\)$"),
    "two sizes of a resized crop": (done, lambda: augment.RandomResizedCrop(4, 5),
        lambda: first_image(augment=augment.RandomResizedCrop((4, 5))).shape, torch.Size((1, 3, 4, 5)),
        TypeError, r"write RandomResizedCrop\(\(4, 5\)\)$"),
    "two sizes of a jitter": (done, lambda: augment.ScaleJitter(4, 5),
        lambda: first_image(augment=augment.ScaleJitter((4, 5), (1.0, 1.0)), pad_value=0).shape[:2], torch.Size((1, 3)),
        TypeError, r"write ScaleJitter\(\(4, 5\)\)$"),
    "height and width": (done, lambda: augment.Resize(height=4, width=5), lambda: first_image(augment=augment.Resize((4, 5))),
        v2.Resize((4, 5))(PHOTO), TypeError, r"unknown argument 'height'; both go into one pair: size=\(height, width\)$"),
    "a size of images": (lambda options: first_image(**options), {"size": 4}, {"augment": augment.Resize((4, 4))},
        v2.Resize((4, 4))(PHOTO),
        TypeError, r"got an unknown argument 'size'; Image\(augment=pinfeed.augment.Resize\(size\)\) resizes"),
    "a flip by a shorter name": (done, lambda: augment.HorizontalFlip(1), lambda: first_image(augment=augment.RandomHorizontalFlip(1)),
        PHOTO.flip(-1), AttributeError, r"no HorizontalFlip; did you mean RandomHorizontalFlip\?$"),
    "mixtures of images": (done, lambda: augment.MixUp(num_classes=3),
        lambda: [x.shape for x in v2.MixUp(num_classes=3)(*Collate((Image(), None))([(PHOTOS[0], 1), (PHOTOS[1], 2)]))],
        [torch.Size((2, 3, 8, 6)), torch.Size((2, 3))], AttributeError, r"no MixUp; call torchvision's on batches: mixup\(\*collate\(samples\)\)$"),
    "a transform to normalize": (done, lambda: augment.Normalize(0.5, 0.5),
        lambda: Collate(Image(0.5, 0.5))([PHOTOS[0]]), torch.from_numpy(PLANES[:1] / np.float32(255) * 2 - 1),
        AttributeError, r"no Normalize; pinfeed.Image\(mean, std\) converts images to normalized floats"),
}  # fmt: skip


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS)
def test_hints(hint):
    check_hint(*hint)
