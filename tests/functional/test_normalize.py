"""pinfeed.functional.normalize compared with exact arithmetic: every byte, layout, dtype and instruction set."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
import reference
from arrays import as_kind, assert_same_bits, bits, random_array, unwritten, views

pytestmark = pytest.mark.kernels

INPUTS = ["NHWC", "NCHW", "NHW"]
OUTPUTS = ["NCHW", "NHWC"]
DTYPES = ["float32", "float16", "bfloat16"]
KINDS = ["ndarray", "read-only", "tensor"]

# Possible arithmetic errors, and constants that show them.
CONSTANTS = {
    "imagenet": {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
    "none": {},
    "bytes as they are": {"scale": 1},
    "cancellation": {"mean": 0.5, "std": 1e-3},
    "cancellation to float32 subnormals": {"mean": 1e-38 / 3, "scale": 1e-40},
    "a product and a bias of very different size": {"mean": (1e-9, 1e9, 1e-20), "scale": 1 / 256},
    "float32 subnormals": {"std": 1e38, "scale": 1 / 256},
    "float16 subnormals": {"mean": 2**-17, "scale": 2**-24 / 3},
    "bfloat16 subnormals": {"scale": 2.0**-134},
    "half way between two float16": {"scale": 1 + 2**-11},
    "half way between two bfloat16": {"scale": 1 + 2**-8},
    "half way between two float16 subnormals": {"mean": 2**-25, "scale": 2**-24},
    "float16 overflow": {"mean": (-65000.0, 65000.0, 0.0), "scale": 65519.99 / 255},
    "float32 overflow": {"mean": (1.0, -3e38, 3e38), "scale": 1.5e36},
    "negative scale": {"mean": None, "scale": -1.0},
}


def shape_of(layout, n, h, w, c):
    return tuple({"N": n, "H": h, "W": w, "C": c}[letter] for letter in layout)


def every_byte(layout, channels):
    """Returns two images with all 256 values in each channel; no vector width divides their sizes."""
    height, width = 19, 27
    pixel = np.arange(2 * height * width).reshape(2, height, width, 1)
    batch = (pixel * 7 + np.arange(channels) * 31).astype(np.uint8)
    assert all(len(np.unique(batch[0, :, :, c])) == 256 for c in range(channels))
    if layout == "NHW":
        return batch[..., 0]
    return np.ascontiguousarray(reference.permute(batch, "NHWC", layout))


def per_channel(channels):
    mean = [0.485 - 0.04 * c for c in range(channels)]
    std = [0.229 + 0.01 * c for c in range(channels)]
    return {"mean": mean, "std": std}


def normalized(images, dtype, **arguments):
    """Calls normalize, with a tensor for dtypes that NumPy lacks."""
    if dtype == "bfloat16" and isinstance(images, np.ndarray):
        images = torch.from_numpy(images)
    return pinfeed.functional.normalize(images, dtype=getattr(torch, dtype), **arguments)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize(
    ("input", "channels"),
    [("NHW", 1), *((layout, c) for layout in ("NHWC", "NCHW") for c in (1, 2, 3, 4, 5, 8))],
)
def test_every_byte(isa, input, channels, output, dtype):
    images = every_byte(input, channels)
    layouts = {"input": input, "output": output}
    result = normalized(images, dtype, **per_channel(channels), **layouts)
    expected = reference.images(images, dtype=dtype, **per_channel(channels), **layouts)
    assert_same_bits(result, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("constants", CONSTANTS.values(), ids=CONSTANTS.keys())
def test_every_byte_with_difficult_constants(constants, output, dtype):
    images = every_byte("NHWC", 3)
    result = normalized(images, dtype, output=output, **constants)
    assert_same_bits(result, reference.images(images, dtype=dtype, output=output, **constants))


@st.composite
def image_batches(draw):
    """Draws images of any size, layout and strides, and their arguments."""
    kind = draw(st.sampled_from(KINDS))
    input = draw(st.sampled_from(INPUTS))
    channels = 1 if input == "NHW" else draw(st.integers(1, 8))
    size = st.one_of(st.integers(1, 5), st.integers(1, 70))
    shape = shape_of(input, draw(st.integers(1, 4)), draw(size), draw(size), channels)
    images = as_kind(kind, draw(views(shape, mirrored=kind != "tensor")))
    arguments = {
        "input": input,
        "output": draw(st.sampled_from(OUTPUTS)),
        "dtype": draw(st.sampled_from(DTYPES if kind == "tensor" else DTYPES[:2])),
    }
    arguments |= draw(st.sampled_from([per_channel(channels), {"mean": 0.5, "std": 0.25}, {}]))
    return images, arguments


@given(image_batches(), st.booleans())
def test_any_size_and_strides(batch, channels_last):
    images, arguments = batch
    result = normalized(images, **arguments)
    expected = reference.images(np.asarray(images), **arguments)
    assert_same_bits(result, expected)
    assert type(result) is type(images)
    kind = "tensor" if isinstance(images, torch.Tensor) else "ndarray"
    if arguments["output"] == "NCHW" and channels_last:
        out = unwritten(kind, reference.permute(expected, "NCHW", "NHWC").shape, arguments["dtype"])
        out = np.moveaxis(out, 3, 1) if kind == "ndarray" else out.movedim(3, 1)
    else:
        out = unwritten(kind, expected.shape, arguments["dtype"])
    assert normalized(images, out=out, **arguments) is out
    assert_same_bits(out, expected)


EXTREME = "1×1×1×1 1×1×1×3 3×1×1×17 4×1×300×3 4×300×1×4 2×3×5×100 1×2×2×4096 1×1×2×4097 1×1×1×5000"
EMPTY = "2×0×5×3 2×5×0×3 2×5×5×0"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("shape", f"{EXTREME} 1×1×9001×3 300×2×2×3 {EMPTY}".split())
def test_extreme_shapes(shape, output, dtype):
    layouts = {"input": "NHWC", "output": output}
    images = random_array([int(size) for size in shape.split("×")])
    expected = reference.images(images, 0.5, 0.25, dtype=dtype, output=output)
    assert_same_bits(normalized(images, dtype, mean=0.5, std=0.25, **layouts), expected)
    mirrored = images[:, :, ::-1, ::-1]
    if dtype != "bfloat16":  # tensors have no negative strides
        expected = reference.images(mirrored, 0.5, 0.25, dtype=dtype, output=output)
        assert_same_bits(normalized(mirrored, dtype, mean=0.5, std=0.25, **layouts), expected)


VIEWS = {
    "plain": lambda a: a,
    "crop": lambda a: a[:, 3:-4, 5:-2],
    "mirrored": lambda a: a[:, :, ::-1],
    "BGR": lambda a: a[..., ::-1],
    "every second pixel": lambda a: np.concatenate([a] * 4)[:, ::2, ::2],
    "gray": lambda a: a.reshape(-1, 601, 803, 1),
    "4 channels": lambda a: np.concatenate([a, a[..., :1]], axis=-1),
}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize(
    ("view", "offset"),
    [*((view, 4) for view in VIEWS), *(("plain", offset) for offset in (0, 1, 60))],
)
def test_streaming(view, offset, dtype, output):
    """Outputs from 16 MiB bypass the cache, at any alignment."""
    images = VIEWS[view](random_array((12 // np.dtype(dtype).itemsize, 601, 803, 3)))
    expected = reference.images(images, 0.5, 0.25, output=output, dtype=dtype)
    assert expected.nbytes > 16 << 20
    memory = np.full(expected.nbytes + 128, 0xA5, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    out = np.ndarray(expected.shape, dtype, memory, begin)
    pinfeed.functional.normalize(images, 0.5, 0.25, output=output, dtype=dtype, out=out)
    np.testing.assert_array_equal(bits(out), bits(expected))
    assert (memory[:begin] == 0xA5).all()
    assert (memory[begin + expected.nbytes :] == 0xA5).all()


@pytest.mark.parametrize(
    ("mean", "std"),
    [
        (0.5, 0.25),
        (np.float32(0.5), np.float64(0.25)),
        ([0.5, 0.5, 0.5], 0.25),
        (0.5, (0.25, 0.25, 0.25)),
        (np.full(3, 0.5, np.float32), np.full(3, 0.25)),
        (torch.tensor([0.5, 0.5, 0.5]), torch.tensor(0.25)),
        (torch.tensor([0.5], dtype=torch.bfloat16).expand(3), torch.tensor(0.25)),
        (torch.full((3,), 0.5, requires_grad=True), 0.25),
        (np.array(0.5), [np.float32(0.25)] * 3),
    ],
    ids=repr,
)
def test_types_of_mean_and_std(mean, std):
    images = random_array((2, 4, 5, 3))
    assert_same_bits(
        pinfeed.functional.normalize(images, mean, std), reference.images(images, 0.5, 0.25)
    )


def test_changes_of_a_mean_array_take_effect():
    images = random_array((2, 4, 5, 3))
    for kind in (list, np.array, torch.tensor):
        mean = kind([0.1, 0.2, 0.3])
        pinfeed.functional.normalize(images, mean)
        mean[0] = 0.7
        expected = reference.images(images, [float(value) for value in mean])
        assert_same_bits(pinfeed.functional.normalize(images, mean), expected)
    scalar = torch.tensor(0.1)
    for means in ((scalar,) * 3, [scalar] * 3):
        scalar.fill_(0.1)
        pinfeed.functional.normalize(images, means)
        scalar.fill_(0.5)
        assert_same_bits(pinfeed.functional.normalize(images, means), reference.images(images, 0.5))


def test_signs_of_zero_are_cached_separately():
    images = np.zeros((1, 1, 1, 1), np.uint8)
    for mean in (0.0, -0.0, 0.0):
        for form in (mean, [mean]):  # cached for the next call, unlike an array
            expected = pinfeed.functional.normalize(images, np.array(form), scale=-1)
            assert_same_bits(pinfeed.functional.normalize(images, form, scale=-1), expected)
            assert np.signbit(expected).all() != np.signbit(mean)


def test_cached_constants_that_equal_non_numbers_still_raise():
    images = np.zeros((1, 2, 2, 3), np.uint8)
    pinfeed.functional.normalize(images, mean=1, std=1)
    with pytest.raises(TypeError, match="mean must be a number"):
        pinfeed.functional.normalize(images, mean=True, std=1)


@pytest.mark.parametrize("dtype", ["float16", np.float16, np.dtype("f2"), torch.float16], ids=repr)
def test_names_of_dtypes(dtype):
    images = random_array((2, 4, 5, 3))
    expected = reference.images(images, dtype="float16")
    assert_same_bits(pinfeed.functional.normalize(images, dtype=dtype), expected)
    result = pinfeed.functional.normalize(torch.from_numpy(images), dtype="bfloat16")
    assert_same_bits(result, reference.images(images, dtype="bfloat16"))


@pytest.mark.parametrize("make", [np.zeros, torch.zeros])
@pytest.mark.parametrize(("input", "output"), [("NHWC", "NCHW"), ("NCHW", "NHWC"), ("NHW", "NHW")])
def test_no_images(make, input, output):
    shape = {"N": 0, "H": 5, "W": 4, "C": 3}
    dtype = np.uint8 if make is np.zeros else torch.uint8
    images = make(tuple(shape[letter] for letter in input), dtype=dtype)
    expected = tuple(shape[letter] for letter in output)
    batch = pinfeed.functional.normalize(images, 0.5, 0.25, input=input, output=output)
    assert (type(batch), tuple(batch.shape)) == (type(images), expected)
    out = pinfeed.functional.normalize(images, input=input, output=output, out=batch)
    assert out is batch
    assert pinfeed.functional.permute(images, input, output).shape == expected
    if "C" in input:
        field = pinfeed.Image(0.5, 0.25, input=input[1:], output=output[1:])
        tensor = torch.as_tensor(images)
        assert field.apply(tensor, tensor, pinfeed.FieldContext("x")).shape == expected
        with pytest.raises(ValueError, match="channels, one for each value of mean and std, got"):
            pinfeed.functional.normalize(images, [0.5, 0.5], input=input, output=output)


def test_integers_beyond_float16():
    """Casts raise, as in `pad`; results of arithmetic become infinite."""
    images = np.full((2, 9, 7, 3), 65519, np.uint16)
    batch = pinfeed.functional.normalize(images, scale=1, dtype="float16")
    assert (batch == 65504).all()
    images[1, 8, 6, 2] = 65520
    assert np.isinf(pinfeed.functional.normalize(images, 1.0, scale=1.5, dtype="float16")).any()
    assert pinfeed.functional.normalize(images, dtype="float16").max() == 1
    with pytest.raises(ValueError, match="normalize: images: expected integers that float16 can"):
        pinfeed.functional.normalize(images, scale=1, dtype="float16")
    collate = pinfeed.Collate(pinfeed.Image(scale=1, dtype=torch.float16))
    with pytest.raises(ValueError, match="expected integers that float16 can hold"):
        collate([*images])


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_bfloat16_of_arrays(layout):
    """NumPy lacks it, so the result goes into a tensor."""
    images = random_array((2, 4, 5, 3))[::-1, :, ::-1]
    out = torch.empty((2, 3, 4, 5), dtype=torch.bfloat16, memory_format=layout)
    assert pinfeed.functional.normalize(images, 0.5, 0.25, dtype="bfloat16", out=out) is out
    assert_same_bits(out, reference.images(images, 0.5, 0.25, dtype="bfloat16"))
