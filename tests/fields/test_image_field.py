"""pinfeed.Image in a Collate: lists of images of every kind against exact arithmetic."""

import itertools

import numpy as np
import PIL.Image
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
import reference
from arrays import as_kind, assert_same_bits, bits, random_array, views

pytestmark = pytest.mark.kernels

KINDS = ["ndarray", "read-only", "tensor"]
INPUTS = ["HWC", "CHW", "HW"]
OUTPUTS = ["CHW", "HWC"]
DTYPES = ["float32", "float16", "bfloat16", "uint8"]
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def image_field(dtype="float32", mean=None, std=None, **arguments):
    if dtype == "uint8":
        mean = std = None
    return pinfeed.Image(mean, std, dtype=getattr(torch, dtype), **arguments)


def expected_batch(images, input="HWC", output="CHW", **arguments):
    batch = np.stack([np.asarray(image) for image in images])
    return reference.images(batch, input="N" + input, output="N" + output, **arguments)


@st.composite
def image_lists(draw):
    """Images of one size, each with strides of its own, and the arguments that say so."""
    input = draw(st.sampled_from(INPUTS))
    size = st.one_of(st.integers(1, 5), st.integers(1, 60))
    sizes = {"H": draw(size), "W": draw(size), "C": draw(st.integers(1, 6))}
    shape = tuple(sizes[letter] for letter in input)
    images = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(KINDS))
        images.append(as_kind(kind, draw(views(shape, mirrored=kind != "tensor"))))
    arguments = {
        "input": input,
        "output": draw(st.sampled_from(OUTPUTS)),
        "dtype": draw(st.sampled_from(DTYPES)),
    }
    if arguments["dtype"] != "uint8":
        channels = sizes["C"] if "C" in input else 1
        arguments["mean"] = [0.5 - 0.04 * c for c in range(channels)]
        arguments["std"] = draw(st.sampled_from([0.25, None]))
    return images, arguments


@given(image_lists(), st.booleans())
def test_any_images(isa, image_list, channels_last):
    images, arguments = image_list
    channels_last = channels_last and arguments["output"] == "CHW"
    field = image_field(**arguments, channels_last=channels_last)
    batch = pinfeed.Collate(field)(images)
    assert batch.dtype == getattr(torch, arguments["dtype"])
    assert_same_bits(batch, expected_batch(images, **arguments))
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    assert batch.is_contiguous(memory_format=memory_format)


# The native tests write around the cache with every instruction set; here it is chosen by size.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("view", [np.s_[3:-4, 5:-2], np.s_[::-1, ::-1, ::-1]], ids=str)
def test_streaming(view, output, dtype):
    images = [
        random_array((601, 803, 3), seed=i)[view] for i in range(12 if dtype == "uint8" else 6)
    ]
    batch = pinfeed.Collate(image_field(dtype, MEAN, STD, output=output))(images)
    constants = {} if dtype == "uint8" else {"mean": MEAN, "std": STD}
    expected = expected_batch(images, output=output, dtype=dtype, **constants)
    np.testing.assert_array_equal(bits(batch), bits(expected))


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    "view",
    [np.s_[:], np.s_[:, ::-1], np.s_[..., ::-1], np.s_[:, ::-1, ::-1], np.s_[::2, ::-2]],
    ids=["plain", "mirrored", "BGR", "mirrored BGR", "mirrored step"],
)
def test_pixels_in_any_order(isa, view, channels):
    for size in [(1, 1), (2, 3), (9, 21), (33, 65)]:
        images = [random_array((*size, channels), seed=i)[view] for i in range(2)]
        for dtype, output in itertools.product(DTYPES, OUTPUTS):
            field = image_field(dtype, input="HWC", output=output)
            batch = pinfeed.Collate(field)(images)
            assert_same_bits(batch, expected_batch(images, dtype=dtype, output=output))


def test_images_of_different_strides_and_kinds():
    image = random_array((9, 21, 3))
    planes = np.ascontiguousarray(image.transpose(2, 0, 1)).transpose(1, 2, 0)
    images = [
        image,
        planes,
        np.asfortranarray(image),
        torch.from_numpy(image),
        PIL.Image.fromarray(image),
    ]
    batch = pinfeed.Collate(pinfeed.Image(MEAN, STD))(images)
    one = expected_batch([image], mean=MEAN, std=STD)
    assert_same_bits(batch, np.repeat(one, len(images), axis=0))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "CMYK", "YCbCr", "LAB", "HSV"])
def test_pil_modes(mode):
    bands = len(PIL.Image.new(mode, (1, 1)).getbands())
    arrays = [random_array((9, 21, bands), seed=i) for i in range(3)]
    images = [PIL.Image.frombytes(mode, (21, 9), array.tobytes()) for array in arrays]
    batch = pinfeed.Collate(pinfeed.Image(0.5, 0.25))(images)
    assert_same_bits(batch, expected_batch(arrays, mean=0.5, std=0.25))


def test_pil_grey():
    arrays = [random_array((9, 21), seed=i) for i in range(3)]
    images = [PIL.Image.fromarray(array) for array in arrays]
    batch = pinfeed.Collate(pinfeed.Image(0.5, 0.25, input="HW"))(images)
    assert_same_bits(batch, expected_batch(arrays, input="HW", mean=0.5, std=0.25))
