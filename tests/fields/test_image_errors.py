"""Image: messages for invalid arguments and samples."""

import numpy as np
import PIL.Image
import pytest
import torch

import pinfeed
from arrays import random_array
from messages import check
from pinfeed import Collate, Image, augment

pytestmark = pytest.mark.kernels

HW = {"input": "HW", "output": "HW"}
PADDED = {"pad_value": 0}

# Constants are checked like normalize's, padding values and multiples like pad's.
BAD_ARGUMENTS = {
    "input": ({"input": "HCW"}, ValueError, "input", "'HWC'", "'HCW'"),
    "input of clips": ({"input": "THWC"}, ValueError, "one of ['CTHW', 'TCHW', 'THWC']"),
    "output": ({"output": "HW"}, ValueError, "one of ['CHW', 'HWC'] with input='HWC', got 'HW'"),
    "dtype float64": ({"dtype": torch.float64}, TypeError, "dtype", "float64"),
    "mean of uint8": ({"mean": 0.5, "dtype": torch.uint8}, ValueError, "uint8", "mean"),
    "mean of int64": ({"mean": 0.5, "dtype": torch.int64}, ValueError, "int64 keeps values as they"),
    "scale of uint8": ({"scale": 2, "dtype": torch.uint8}, ValueError, "uint8", "scale"),
    "channels_last": ({"channels_last": True, "output": "HWC"}, ValueError, "output must be 'CHW'", "got 'HWC'"),
    "channels_last of none": ({"channels_last": True, **HW}, ValueError, "output must be 'CHW'"),
    "std zero": ({"std": [1, 0, 1]}, ValueError, "std", "must be positive"),
    "uint8 too large": ({"pad_value": 256, "dtype": torch.uint8}, ValueError, "pad_value", "uint8"),
    "text": ({"pad_value": "0"}, TypeError, "pad_value", "number", "'0'"),
    "text of a channel": ({"pad_value": [0, "0", 0]}, TypeError, "pad_value", "number", "'0'"),
    "too large in a channel": ({"pad_value": [0, 0, 256], "dtype": torch.uint8}, ValueError, "pad_value", "uint8"),
    "of no channel": ({"pad_value": []}, ValueError, "pad_value must be one number or one for each channel"),
    "of pixels": ({"pad_value": np.zeros((3, 3))}, TypeError, "pad_value", "number"),
    "multiple of 0": ({"multiple_of": 0, **PADDED}, ValueError, "multiple_of", "got 0"),
    "three": ({"multiple_of": (8, 8, 8), **PADDED}, ValueError, "multiple_of", "(8, 8, 8)"),
    "float": ({"multiple_of": 8.0, **PADDED}, TypeError, "multiple_of", "8.0"),
    "multiple alone": ({"multiple_of": 8}, ValueError, "multiple_of", "pad_value"),
    "sizes alone": ({"sizes": True}, ValueError, "sizes", "pad_value"),
    "mask alone": ({"mask": "mask"}, ValueError, "mask", "pad_value"),
    "sizes": ({"sizes": 1, **PADDED}, TypeError, "sizes", "True, False or the key", "got 1"),
    "mask": ({"mask": None, **PADDED}, TypeError, "mask", "True, False or the key", "None"),
    "one key": ({"sizes": "a", "mask": "a", **PADDED}, ValueError, "sizes and mask must have different keys", "'a'"),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS.keys())
def test_bad_arguments(bad):
    arguments, error, *words = bad
    check(lambda: Image(**arguments), error, "Image: ", *words)


IMAGE, OTHER = random_array((4, 5, 3)), random_array((3, 6, 3))
PIXELS = PIL.Image.new("RGB", (5, 4))
FLOATS = np.zeros((4, 5, 3), np.float32)
CLIP = np.zeros((2, 4, 5, 3), np.uint8)
CROP = augment.RandomCrop(4)

# The field, samples, and the error; samples after the first have another size.
BAD_SAMPLES = {
    "float": (Image(), [IMAGE.astype(float)], TypeError, "uint8", "(H, W, C)", "float64 (4, 5, 3)"),
    "a row of pixels": (Image(), [IMAGE[0]], ValueError, "(H, W, C)", "(5, 3)", "ConcatArray(paths, samples=True)"),
    "padding of other channels": (Image(pad_value=[1, 2]), [IMAGE], ValueError, "pad_value must be one number or one for each of 3 channels, got 2"),
    "shapes": (Image(), [IMAGE, IMAGE, IMAGE[:3]], ValueError, "sample 2", "expected shape (4, 5, 3) as in sample 0, got (3, 5, 3); pass pad_value"),
    "channels": (Image(), [IMAGE, IMAGE[..., :2]], ValueError, "got (4, 5, 2); PIL"),
    "ranks": (Image(), [IMAGE, IMAGE[0]], ValueError, "sample 1", "(4, 5, 3)", "(5, 3)"),
    "PIL sizes": (Image(), [PIXELS, PIXELS.resize((4, 5))], ValueError, "sample 1", "(5, 4, 3)"),
    "PIL modes": (Image(), [PIXELS, PIXELS.convert("RGBA")], ValueError, "sample 1", "(4, 5, 4)"),
    "a clip": (Image(), [CLIP], ValueError, "sample 0", 'for clips pass input="THWC", and output="CTHW" to Image'),
    "constants": (Image([0.5] * 4), [IMAGE], ValueError, "4 channels", "got 3"),
    "padded, float": (Image(**PADDED), [IMAGE / 255], TypeError, "expected uint8", "float64 (4, 5, 3)"),
    "padded, a row of pixels": (Image(**PADDED), [IMAGE[0]], ValueError, "expected images of shape", "uint8 (5, 3)"),
    "padded, channels": (Image(**PADDED), [IMAGE, OTHER[..., :2]], ValueError, "sample 1", "3 channels as in sample 0, got shape (3, 6, 2)"),
    "padded, PIL modes": (Image(**PADDED), [IMAGE, PIL.Image.new("L", (6, 3))], ValueError, "sample 1", "3 axes as in sample 0"),
    "padded, CHW": (Image(**PADDED), [IMAGE, OTHER.transpose(2, 0, 1)], ValueError, "sample 1", "3 channels as in sample 0"),
    "padded, constants": (Image([0.5] * 4, **PADDED), [IMAGE, OTHER], ValueError, "expected 4 channels, one for each value of mean and std, got 3"),
    "floats as classes": (Image(dtype=torch.int64), [FLOATS], TypeError, "integers that int64 can hold, of shape (H, W, C), got float32 (4, 5, 3)"),
    "between classes": (Image(**HW, dtype=torch.int64, augment=augment.Resize(2), interpolation="bilinear"), [IMAGE[..., 0]], TypeError, 'use interpolation="nearest-exact" for masks, dtype=torch.float32 for images'),
    "colors of floats": (Image(augment=augment.ColorJitter(1)), [FLOATS], TypeError, "color transforms need uint8 images with dtype=torch.uint8 or a floating one, got images of float32"),
    "frames": (Image(input="THWC", output="TCHW", augment=CROP), [CLIP, CLIP[:1]], ValueError, "3 channels and 2 frames as in sample 0"),
    "a fill": (Image(augment=augment.RandomCrop(8, padding=4, fill=-1), scale=1), [IMAGE], ValueError, "fill", "uint8 can hold"),
    **{
        f"PIL mode {mode}": (Image(), [PIXELS, PIL.Image.new(mode, (5, 4))], TypeError, "sample 1", "'RGB'", f"got {mode!r}")
        for mode in ("P", "1", "I")
    },
    **{f"PIL mode {mode}": (Image(), [PIL.Image.new(mode, (5, 4))], TypeError, f".convert({mode.upper()!r}) undoes") for mode in ("La", "RGBa")},
    "axes of PIL": (Image(input="CHW"), [PIXELS], TypeError, "sample 0: expected an array or a tensor with the axes CHW, got a PIL image; leave input"),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD_SAMPLES.values(), ids=BAD_SAMPLES.keys())
def test_bad_samples(bad):
    field, samples, error, *words = bad
    collate = Collate({"views": (field,)})
    batch = [{"views": (sample,)} for sample in samples]
    check(lambda: collate(batch), error, "Collate: entry ['views'][0]", *words)


def test_rows_that_are_not_images():
    for images, field, error, words in (
        (np.zeros((2, 4, 5, 3)), Image(), TypeError, "got float64 (4, 5, 3)"),
        (np.zeros((2, 4, 5, 3), np.uint8), Image([0.5] * 4), ValueError, "4 channels"),
    ):
        rows = pinfeed.ArrayDataset({"image": images}).__getitems__([1, 0])
        collate = Collate({"image": field})
        check(lambda c=collate, r=rows: c(r), error, "entry ['image']", words)


def test_a_fill_that_floats_can_hold():
    view = augment.RandomCrop(8, padding=4, fill=-1)
    collate = Collate(Image(augment=view, scale=1))
    assert float(collate([np.zeros((4, 4, 3), np.float32)]).min()) == -1


@pytest.mark.parametrize("multiple_of", [2**13 + 1, 2**62, 2**63 - 1, (2**40, 2**40)], ids=str)
def test_outputs_of_too_many_pixels(multiple_of):
    collate = Collate(Image(multiple_of=multiple_of, mask=True, **PADDED))
    multiples = multiple_of if isinstance(multiple_of, tuple) else (multiple_of, multiple_of)
    words = f"sample 1: an image of (3, 6) would be padded to {multiples}, more than 2**26 pixels"
    check(lambda: collate([IMAGE, OTHER]), ValueError, words, "pass a smaller multiple_of")


def test_too_little_memory_raises():
    with pytest.raises(MemoryError):
        Collate(Image(augment=augment.Resize((2**22, 2**22))))([IMAGE, OTHER])
