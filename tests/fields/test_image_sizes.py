"""pinfeed.Image with images of different sizes in one batch: padding, sizes and masks."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
import reference
from arrays import as_kind, assert_same_bits, bits, random_array, views
from pinfeed.fields.field import Beside

pytestmark = pytest.mark.kernels

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
DTYPES = ["float32", "float16", "bfloat16", "uint8"]
PAD_VALUES = {
    "float32": [0, -0.0, 1, 0.1, math.nan, math.inf, -math.inf, 3e38, 1e-45],
    "float16": [0, -0.0, 1, 0.1, math.nan, math.inf, -math.inf, 65504, 6e-8],
    "bfloat16": [0, -0.0, 1, 0.1, math.nan, math.inf, -math.inf, 3e38, 1e-40],
    "uint8": [0, 1, 127.0, 255],
}


def image_field(dtype="float32", mean=None, std=None, **arguments):
    if dtype == "uint8":
        mean = std = None
    return pinfeed.Image(mean, std, dtype=getattr(torch, dtype), **arguments)


def constants_of(dtype):
    return {} if dtype == "uint8" else {"mean": MEAN, "std": STD}


def images_of(*sizes, channels=3):
    return [random_array((*size, channels), seed=i) for i, size in enumerate(sizes)]


def assert_same_padding(padded, expected):
    """The values, lengths and mask of a Padded are, bit for bit, those of the reference."""
    for part, expected_part in zip(padded, expected, strict=True):
        assert_same_bits(part, expected_part)
    assert padded.lengths.dtype == torch.int64
    assert padded.mask.dtype == torch.bool


@st.composite
def image_lists(draw):
    """Images of any sizes, each with strides of its own, and the arguments for their batch."""
    input = draw(st.sampled_from(["HWC", "CHW", "HW"]))
    channels = draw(st.integers(1, 6)) if "C" in input else 1
    size = st.one_of(st.integers(0, 5), st.integers(1, 60))
    images = []
    for _ in range(draw(st.integers(1, 5))):
        axes = {"H": draw(size), "W": draw(size), "C": channels}
        kind = draw(st.sampled_from(["ndarray", "read-only", "tensor"]))
        view = views(tuple(axes[letter] for letter in input), mirrored=kind != "tensor")
        images.append(as_kind(kind, draw(view)))
    dtype = draw(st.sampled_from(DTYPES))
    multiple = st.integers(1, 40)
    arguments = {
        "input": input,
        "output": draw(st.sampled_from(["CHW", "HWC"])),
        "dtype": dtype,
        "pad_value": draw(st.sampled_from(PAD_VALUES[dtype])),
        "multiple_of": draw(st.one_of(multiple, st.tuples(multiple, multiple))),
    }
    if dtype != "uint8":
        arguments["mean"] = [0.5 - 0.04 * c for c in range(channels)]
        arguments["std"] = draw(st.sampled_from([0.25, None]))
    return images, arguments


@given(image_lists(), st.booleans())
def test_any_sizes(isa, image_list, channels_last):
    images, arguments = image_list
    channels_last = channels_last and arguments["output"] == "CHW"
    field = image_field(**arguments, channels_last=channels_last, sizes=True, mask=True)
    padded = pinfeed.Collate(field)(images)
    arrays = [np.asarray(image) for image in images]
    assert_same_padding(padded, reference.padded_images(arrays, **arguments))
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    assert padded.values.is_contiguous(memory_format=memory_format)


# The native tests write around the cache with every instruction set; here it is chosen by size.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("output", ["CHW", "HWC"])
@pytest.mark.parametrize(
    ("view", "multiple_of"), [(np.s_[3:-4, 5:-2], 1), (np.s_[:, ::-1], 32)], ids=str
)
def test_streaming(view, multiple_of, output, dtype):
    sizes = [(601, 803), (401, 700), (599, 100), (20, 795), (300, 803), (601, 802)]
    images = [image[view] for image in images_of(*sizes * (2 if dtype == "uint8" else 1))]
    arguments = {"output": output, "dtype": dtype, "multiple_of": multiple_of, "pad_value": 7}
    arguments |= constants_of(dtype)
    batch = pinfeed.Collate(image_field(**arguments))(images)
    expected = reference.padded_images(images, **arguments)[0]
    assert expected.nbytes > 16 << 20  # large enough on any machine
    np.testing.assert_array_equal(bits(batch), bits(expected))


def test_rows_too_wide_to_be_put_together_before_they_are_streamed():
    images = images_of((1500, 2900), (700, 3001))
    batch = pinfeed.Collate(pinfeed.Image(MEAN, STD, pad_value=-1))(images)
    expected = reference.padded_images(images, -1, mean=MEAN, std=STD)[0]
    np.testing.assert_array_equal(bits(batch), bits(expected))


def test_images_of_one_size_are_as_without_padding():
    images = images_of((9, 21), (9, 21), (9, 21))
    for output in ("CHW", "HWC"):
        field = pinfeed.Image(MEAN, STD, output=output, pad_value=3)
        plain = pinfeed.Image(MEAN, STD, output=output)
        assert_same_bits(pinfeed.Collate(field)(images), pinfeed.Collate(plain)(images))


def test_no_pixels_at_all():
    field = pinfeed.Image(pad_value=0, multiple_of=8, sizes=True, mask=True)
    batch, sizes, mask = pinfeed.Collate(field)([np.zeros((0, 0, 3), np.uint8)] * 2)
    assert batch.shape == (2, 3, 0, 0)
    assert mask.shape == (2, 0, 0)
    assert sizes.tolist() == [[0, 0], [0, 0]]
    batch, sizes, mask = pinfeed.Collate(field)([np.zeros((5, 9, 0), np.uint8)])
    assert batch.shape == (1, 0, 8, 16)
    assert mask.sum() == 45


@pytest.mark.parametrize("sizes", [False, True, "size"])
@pytest.mark.parametrize("mask", [False, True, "where"])
def test_what_was_asked_for(sizes, mask):
    images = images_of((4, 9), (6, 3))
    expected = reference.padded_images(images, 0)
    field = pinfeed.Image(pad_value=0, sizes=sizes, mask=mask)
    assert field.names() == tuple(key for key in (sizes, mask) if isinstance(key, str))
    result = field.collate(images, pinfeed.Leaf("images"))
    leaf, siblings = result if isinstance(result, Beside) else (result, {})
    asked = (sizes is True, mask is True)
    assert isinstance(leaf, pinfeed.Padded if any(asked) else torch.Tensor)
    values, *parts = leaf if any(asked) else (leaf, None, None)
    assert_same_bits(values, expected[0])
    for part, is_asked, expected_part in zip(parts, asked, expected[1:], strict=True):
        assert_same_bits(part, expected_part) if is_asked else None
        assert (part is not None) == is_asked
    assert siblings.keys() == set(field.names())
    if sizes == "size":
        assert_same_bits(siblings["size"], expected[1])
    if mask == "where":
        assert_same_bits(siblings["where"], expected[2])


@pytest.mark.parametrize(
    "pad_value",
    [np.float32(0.5), np.float64(0.5), np.array(1)[()], torch.tensor(0.5), True],
    ids=repr,
)
def test_numbers_of_other_kinds(pad_value):
    batch = pinfeed.Collate(pinfeed.Image(pad_value=pad_value))(images_of((1, 1), (1, 2)))
    assert batch[0, 0, 0, 1] == float(pad_value)
