"""Transforms raise for invalid arguments when they are created, and for samples that they don't fit."""

import math

import numpy as np
import pytest
import torch

import pinfeed
from messages import check
from pinfeed import augment

IMAGE = np.zeros((8, 8, 3), np.uint8)
# The call, the error, and words of its message.
BAD = [
    (lambda: augment.RandomCrop(0), ValueError, "RandomCrop: size must be at least 1, got 0"),
    (lambda: augment.RandomCrop((2, 0)), ValueError, "RandomCrop: size must be at least 1, got 0"),
    (lambda: augment.RandomCrop(2.5), ValueError, "RandomCrop: size as a fraction", "from 0 to 1, got 2.5"),
    (lambda: augment.RandomCrop((0.5, 0.0)), ValueError, "above 0 or a pair (height, width), got (0.5, 0.0)"),
    (lambda: augment.RandomCrop("32"), TypeError, "RandomCrop: size must be an integer, got '32'"),
    (lambda: augment.RandomCrop(2, padding="12"), TypeError, "padding must be an integer, got '12'"),
    (lambda: augment.Pad((1, 2, 3)), ValueError, "Pad: padding must be one number"),
    (lambda: augment.Pad(-1), ValueError, "Pad: padding must be"),
    (lambda: augment.Compose([augment.RandomCrop(8), augment.Pad(1)]), ValueError, "a crop after RandomCrop(8) must not be larger or pad, got Pad(1)"),
    (lambda: augment.CenterCrop(2, padding_mode="wrap"), ValueError, "CenterCrop: padding_mode must be one of"),
    (lambda: augment.CenterCrop((1, 2, 3)), ValueError, "CenterCrop: size", "pair (height, width)"),
    (lambda: augment.RandomCrop(2, padding=-1), ValueError, "RandomCrop: padding must be at least 0, got -1"),
    (lambda: augment.RandomCrop(2, padding=(1, 2, 3)), ValueError, "(left, top, right, bottom), got (1, 2, 3)"),
    (lambda: augment.RandomCrop(2, pad_if_needed=1), TypeError, "pad_if_needed must be True or False, got 1"),
    (lambda: augment.RandomCrop(2, padding_mode="symmetric"), ValueError, "padding_mode", "'symmetric'"),
    (lambda: augment.RandomCrop(2, fill="7"), ValueError, "RandomCrop: fill must be a number", "got '7'"),
    (lambda: augment.RandomCrop(2, fill=float("nan")), ValueError, "units of the image's values", "got nan"),
    (lambda: augment.RandomCrop(2, fill=[]), ValueError, "one for each channel, got []"),
    (lambda: augment.RandomHorizontalFlip(1.5), ValueError, "RandomHorizontalFlip: p must be from 0 to 1, got 1.5"),
    (lambda: augment.RandomHorizontalFlip(float("nan")), ValueError, "RandomHorizontalFlip: p must be from 0 to 1, got nan"),
    (lambda: augment.RandomHorizontalFlip("x"), TypeError, "RandomHorizontalFlip: p must be a number, got 'x'"),
    (lambda: augment.Compose([]), ValueError, "Compose: transforms must have at least one item"),
    (lambda: augment.Compose(augment.RandomCrop(2)), TypeError, "a list of transforms, got RandomCrop; write Compose([RandomCrop(2)])"),
    (lambda: augment.Compose([len]), TypeError, "crops, flips and resizes of pinfeed.augment", "builtin"),
    (lambda: augment.Compose([augment.ColorJitter(0.4)]), TypeError, "augment=[Compose(...), ColorJitter(...)]"),
    (lambda: augment.Compose([augment.RandomCrop(8), augment.RandomCrop(9)]), ValueError, "must not be larger or pad", "put the crop that pads first"),
    (lambda: augment.Compose([augment.RandomCrop(8), augment.RandomCrop(7, 1)]), ValueError, "RandomCrop(7, padding=1"),
    (lambda: augment.Compose([augment.RandomCrop(8), augment.CenterCrop(9)]), ValueError, "CenterCrop(9)"),
    (lambda: pinfeed.Collate(seed=-1), ValueError, "Collate: seed must be at least 0"),
    (lambda: pinfeed.Collate(seed=0).set_epoch(-1), ValueError, "Collate: epoch must be at least 0"),
    (lambda: augment.ColorJitter(-1), ValueError, "not negative, got -1"),
    (lambda: augment.ColorJitter((2, 1)), ValueError, "pair (min, max)"),
    (lambda: augment.ColorJitter("x"), TypeError, "brightness must be a number"),
    (lambda: augment.ColorJitter(0, (1, 2, 3)), ValueError, "contrast must be a number or a pair"),
    (lambda: augment.ColorJitter(0, 0, -1), ValueError, "saturation must be a number or a pair"),
    (lambda: augment.ColorJitter(p=2), ValueError, "ColorJitter: p must be", "got 2"),
    (lambda: augment.RandomGrayscale(-1), ValueError, "RandomGrayscale: p must be", "got -1"),
    (lambda: augment.RandomGrayscale("x"), TypeError, "RandomGrayscale: p must be", "'x'"),
    (lambda: augment.RandomErasing(1.5), ValueError, "RandomErasing: p must be from 0 to 1, got 1.5"),
    (lambda: augment.RandomErasing("x"), TypeError, "RandomErasing: p must be a number"),
    (lambda: augment.RandomErasing(scale=(0.3, 0.1)), ValueError, "scale must be a pair (min, max)", "0 to 1"),
    (lambda: augment.RandomErasing(scale=(0, 2)), ValueError, "got (0, 2)"),
    (lambda: augment.RandomErasing(ratio=(0, 1)), ValueError, "ratio must be a pair", "positive"),
    (lambda: augment.RandomErasing(ratio=3), TypeError, "ratio must be a pair", "got 3"),
    (lambda: augment.RandomErasing(value="normal"), TypeError, "value must be numbers or 'random', got 'normal'"),
    (lambda: pinfeed.Image(dtype=torch.uint8, augment=augment.RandomErasing(value="random")),
        ValueError, "value='random' writes Gaussian noise", "got torch.uint8; pass a number"),
    (lambda: pinfeed.Image(augment=augment.RandomErasing(), pad_value=0), ValueError, "pad_value", "leave one out"),
    (lambda: pinfeed.Image(dtype=torch.uint8, augment=augment.RandomErasing(value=256)), ValueError, "RandomErasing: value"),
    (lambda: pinfeed.Collate(pinfeed.Image(augment=augment.RandomErasing(value=(1, 2))))([IMAGE]),
        ValueError, "one for each of 3 channels, got 2"),
    (lambda: augment.Resize(0), ValueError, "Resize: size must be at least 1, got 0"),
    (lambda: augment.Resize((1, 2, 3)), ValueError, "Resize: size", "pair (height, width)"),
    (lambda: augment.Resize(None), ValueError, "size=None needs max_size"),
    (lambda: augment.Resize((4, 5), max_size=6), ValueError, "leave it out of size=(4, 5)"),
    (lambda: augment.Resize(6, max_size=6), ValueError, "larger than size", "got size=6, max_size=6"),
    (lambda: augment.RandomResizedCrop((2, 0)), ValueError, "RandomResizedCrop: size must be at least 1, got 0"),
    (lambda: augment.RandomResizedCrop(2, scale=(1, 0.5)), ValueError, "scale must be a pair", "got (1, 0.5)"),
    (lambda: augment.RandomResizedCrop(2, scale=(0, 1)), ValueError, "scale must be a pair", "got (0, 1)"),
    (lambda: augment.RandomResizedCrop(2, ratio=(2, 1)), ValueError, "ratio must be a pair (min, max)"),
    (lambda: augment.RandomResizedCrop(2, ratio=(1, math.nan)), ValueError, "ratio must be"),
    (lambda: augment.RandomResizedCrop(2, ratio=1), TypeError, "ratio must be a pair (min, max)", "got 1"),
    (lambda: augment.Compose([augment.RandomResizedCrop(8), augment.Resize(4)]), ValueError, "resize at most once", "leave one"),
    (lambda: augment.Compose([augment.Resize(8), augment.CenterCrop(6), augment.RandomCrop(4, 1)]),
        ValueError, "RandomCrop(4", "a crop after CenterCrop(6) must not be larger or pad"),
    (lambda: pinfeed.Image(interpolation="area"), ValueError, "interpolation", "got 'area'"),
    (lambda: pinfeed.Image(resize_dtype=torch.float16), TypeError, "resize_dtype must be torch.float32 or None, got torch.float16"),
    (lambda: pinfeed.Image(resize_dtype="float64"), TypeError, "resize_dtype must be torch.float32 or None, got torch.float64"),
    (lambda: pinfeed.Image(resize_dtype=torch.float32, dtype=torch.uint8),
        ValueError, "for images that become floats, got dtype=torch.uint8; leave one"),
    (lambda: pinfeed.Image(resize_dtype=torch.float32, augment=augment.ColorJitter(1)),
        ValueError, "changes bytes, and resize_dtype=torch.float32 converts them to floats"),
    (lambda: augment.RandomShortestSize((8, 9), 8), ValueError, "max_size must be at least min_size"),
    (lambda: augment.RandomShortestSize([]), ValueError, "min_size must be one number or several"),
    (lambda: augment.RandomResize(8, 8), ValueError, "max_size must be more than min_size"),
    (lambda: augment.ScaleJitter((8, 8), (0, 1)), ValueError, "scale_range", "positive"),
    (lambda: augment.ResizeKeepRatio(8, 2), ValueError, "ResizeKeepRatio: longest must be", "got 2"),
    (lambda: augment.ResizeKeepRatio(8, random_scale_prob=-1), ValueError, "random_scale_prob must be"),
    (lambda: augment.ResizeKeepRatio(8, random_scale_range=(0, 1)), ValueError, "random_scale_range", "positive"),
    (lambda: augment.ResizeKeepRatio(8, random_aspect_range=(2, 1)), ValueError, "random_aspect_range"),
    (lambda: augment.ResizeKeepRatio(8, random_scale_area=1), TypeError, "random_scale_area must be True or False"),
    (lambda: augment.RandomZoomOut(side_range=(0.5, 1)), ValueError, "begin at 1 or more"),
    (lambda: augment.RandomIoUCrop(sampler_options=[]), ValueError, "a list of overlaps"),
    (lambda: augment.RandomIoUCrop(trials=0), ValueError, "trials must be at least 1"),
    (lambda: augment.Compose([augment.Resize(8), augment.RandomIoUCrop()]), ValueError, "RandomIoUCrop() must come before Resize(8)"),
    (lambda: augment.Compose([augment.CenterCrop(8), augment.RandomZoomOut()]), ValueError, "a crop after CenterCrop(8) must not be larger or pad, got RandomZoomOut()"),
    (lambda: augment.Compose([augment.RandomCrop(0.5), augment.CenterCrop(8)]), ValueError, "a crop after RandomCrop(0.5) must not be larger or pad, got CenterCrop(8)"),
    (lambda: pinfeed.Image(fill=3), ValueError, "fill needs a crop, a resize or padding"),
    (lambda: pinfeed.Collate(pinfeed.Image(augment=augment.RandomShortestSize(800), pad_value=0))([IMAGE, np.zeros((1, 20_000, 3), np.uint8)]),
        ValueError, "sample 1: an image of (1, 20000) would be resized to (800, 16000000)", "limit the longer edge with max_size"),
    (lambda: pinfeed.Collate(id_key="id"), ValueError, "Collate: id_key needs a seed"),
    (lambda: pinfeed.Image(rng_stream=1), ValueError, "rng_stream needs augment"),
    (lambda: pinfeed.Image(augment=augment.RandomCrop(2), rng_stream=-1), ValueError, "rng_stream must be at least 0"),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_bad_arguments(bad):
    check(*bad)


crop, resize = augment.RandomCrop, augment.Resize
# A transform, the sizes of images, and words of the message.
BAD_SAMPLES = [
    (crop(5), [(5, 5, 3), (4, 6, 3)], "Collate: sample 1: an image of (4, 6) is too small for RandomCrop((5, 5))", "pad_if_needed=True"),
    (augment.RandomHorizontalFlip(), [(5, 5, 3), (4, 5, 3)], "sample 1: expected images of one size, or a crop", "(4, 5)"),
    (crop(5), [(5, 5, 3), (5, 5, 4)], "sample 1: expected 3 channels as in sample 0"),
    (crop(5, 1, fill=(1, 2)), [(5, 5, 3)], "one for each of 3 channels, got 2"),
    (crop(1, 4, padding_mode="reflect"), [(4, 5, 3)], "sample 0: an image of (4, 5)", '"edge"'),
    (crop(1, 1, padding_mode="edge"), [(0, 4, 3)], "no pixel to repeat", '"constant"'),
    (resize(4), [(6, 5, 3), (0, 5, 3)], "sample 1: an image of (0, 5) has no pixels to resize"),
    (augment.RandomResizedCrop(4), [(6, 5, 3), (5, 0, 3)], "sample 1: an image of (5, 0) has no pixels to resize"),
    (resize(None, max_size=3), [(3, 3, 3), (1, 9, 3)], "(1, 9) would be resized to a side of 0", "both height and width"),
    (resize(4), [(6, 6, 3), (6, 9, 3)], "sample 1: expected images of one size, or a crop", "(4, 6)", "pass pad_value to pad images of different sizes"),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_SAMPLES, ids=range(len(BAD_SAMPLES)))
def test_bad_samples(bad):
    view, sizes, *words = bad
    images = [np.zeros(size, np.uint8) for size in sizes]
    check(lambda: pinfeed.Collate(pinfeed.Image(augment=view))(images), ValueError, *words)
