"""`normalize` of given windows: the bits of the `Image` that has drawn them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
from arrays import as_kind, assert_same_bits, views
from messages import check
from pinfeed import augment

sizes = st.tuples(*[st.integers(1, 12)] * 2)


@st.composite
def geometries(draw, height, width):
    """What stays within images of a size and can be done again, and the size of the result."""
    flips = [augment.RandomVerticalFlip(), augment.RandomHorizontalFlip()]
    if draw(st.booleans()):
        size = draw(sizes)
        return [augment.RandomResizedCrop(size), *flips], size
    size = draw(st.integers(1, height)), draw(st.integers(1, width))
    return [flips[0], augment.RandomCrop(size), flips[1]], size


@st.composite
def cases(draw):
    count, height, width, channels = draw(st.tuples(*[st.integers(1, 12)] * 3, st.integers(1, 4)))
    input = draw(st.sampled_from(["HWC", "CHW", "HW", "THWC", "CTHW", "THW"]))
    outputs = ["CTHW", "TCHW", "THWC"] if "T" in input else ["CHW", "HWC"]
    lengths = {"H": height, "W": width, "C": channels, "T": 2}
    kind = draw(st.sampled_from(["ndarray", "tensor"]))
    shape = (count, *(lengths[letter] for letter in input))
    images = as_kind(kind, draw(views(shape, mirrored=kind != "tensor")))
    layouts = input, draw(st.sampled_from(outputs))
    return images, *layouts, *draw(geometries(height, width))


@given(
    cases(),
    st.sampled_from(["bilinear", "bicubic", "nearest"]),
    st.sampled_from(["float32", "float16"]),
    st.booleans(),
    st.sampled_from([None, torch.float32]),
    st.integers(0, 2**40),
)
def test_the_bits_of_the_field(case, interpolation, dtype, is_given, resize_dtype, seed):
    images, input, output, steps, size = case
    field = pinfeed.Image(
        0.4,
        0.25,
        input=input,
        output=output,
        dtype=getattr(torch, dtype),
        augment=augment.Compose(steps),
        interpolation=interpolation,
        resize_dtype=resize_dtype,
        windows=True,
    )
    rows = pinfeed.ArrayDataset(images).__getitems__(range(len(images)))
    expected, windows = pinfeed.Collate(field, seed=seed)(rows)
    out = None
    if is_given:
        out = np.empty(expected.shape, dtype)
        out = torch.from_numpy(out) if isinstance(images, torch.Tensor) else out
    batch = pinfeed.normalize(
        images,
        0.4,
        0.25,
        input="N" + input,
        output="N" + output,
        dtype=dtype,
        windows=windows,
        size=size,
        interpolation=interpolation,
        resize_dtype=resize_dtype,
        out=out,
    )
    assert out is None or batch is out
    assert type(batch) is type(images)
    assert_same_bits(batch, expected.numpy())


IMAGES = np.zeros((2, 6, 8, 3), np.uint8)
WHOLE = [0, 0, 6, 8, 0, 0]


def call(window=WHOLE, size=(6, 8), images=IMAGES, **options):
    windows = None if window is None else np.array([WHOLE, window], np.float64)
    return lambda: pinfeed.normalize(images, windows=windows, size=size, **options)


ERRORS = [
    (call([1, 0, 6, 8, 0, 0]), ValueError, "images of sample 1: expected a window", "1.0, 0.0, 6.0"),
    (call([0, -1, 6, 8, 0, 0]), ValueError, "within an image of (6, 8)", "Image(augment=...)"),
    (call([0, 0, 0, 8, 0, 0]), ValueError, "whole pixels"),
    (call([0.5, 0, 4, 8, 0, 0]), ValueError, "whole pixels", "got top, left, height, width 0.5"),
    (call([0, 0, np.nan, 8, 0, 0]), ValueError, "whole pixels", "nan"),
    (call([0, 0, np.inf, 8, 0, 0]), ValueError, "whole pixels", "inf"),
    (call(size=None), ValueError, "windows and size go together"),
    (call(None), ValueError, "windows and size go together"),
    (call(size=(0, 4)), ValueError, "normalize: size must be at least 1"),
    (call(size=4), ValueError, "size must be the batch's height and width"),
    (call(interpolation="cubic"), ValueError, "interpolation must be one of", "'cubic'"),
    (call(images=IMAGES[:1]), ValueError, "here (1, 6), got (2, 6)"),
    (call(size=(2**31, 2**31)), (ValueError, MemoryError), "memory"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "words"), [(c, e, w) for c, e, *w in ERRORS])
def test_errors(call, error, words):
    check(call, error, *words)
