"""pinfeed.functional.permute compared with np.transpose: dtypes, letters, strides."""

import numpy as np
import pytest
import torch
from hypothesis import given

import op_batches
import pinfeed
import reference
from arrays import assert_same_bits, random_array, unwritten

pytestmark = pytest.mark.kernels


@given(op_batches.permutations(("ndarray", "read-only", "tensor")))
def test_any_dtype_letters_and_strides(isa, permutation):
    array, input, output, expected = permutation
    result = pinfeed.functional.permute(array, input, output)
    assert type(result) is type(array)
    assert result.dtype == array.dtype
    assert_same_bits(result, expected)
    kind = "tensor" if isinstance(array, torch.Tensor) else "ndarray"
    out = unwritten(kind, expected.shape, np.asarray(array).dtype.name)
    assert pinfeed.functional.permute(array, input, output, out=out) is out
    assert_same_bits(out, expected)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 8, 100])
@pytest.mark.parametrize("letters", [("NHWC", "NCHW"), ("NCHW", "NHWC")], ids=str)
@pytest.mark.parametrize("out_is_channels_last", [False, True])
def test_bytes_of_images(channels, letters, out_is_channels_last):
    input, output = letters
    images = random_array((2, 19, 27, channels) if input == "NHWC" else (2, channels, 19, 27))
    expected = reference.permute(images, input, output)
    assert_same_bits(pinfeed.functional.permute(images, input, output), expected)
    if out_is_channels_last and output == "NCHW":
        out = torch.zeros(expected.shape, dtype=torch.uint8).to(memory_format=torch.channels_last)
        assert pinfeed.functional.permute(torch.from_numpy(images), input, output, out=out) is out
        assert_same_bits(out, expected)


@pytest.mark.parametrize("input", ["NHWC", "NTHWC"])
def test_bfloat16(input):
    shape = dict(zip("NTHWC", (2, 3, 5, 7, 4), strict=True))
    tensor = torch.randn([shape[letter] for letter in input]).to(torch.bfloat16)
    result = pinfeed.functional.permute(tensor, input, input[0] + "C" + input[1:-1])
    assert result.dtype == torch.bfloat16
    assert_same_bits(result, tensor.movedim(-1, 1))


@pytest.mark.parametrize(
    ("dtype", "input", "output", "shape"),
    [
        ("u1", "NHWC", "NCHW", (12, 601, 803, 3)),
        ("u1", "NCHW", "NHWC", (12, 3, 601, 803)),
        ("f4", "NHWC", "NCHW", (3, 301, 403, 3)),
        ("c16", "NCHW", "NHWC", (3, 3, 301, 403)),
        ("f4", "NHWC", "NWHC", (3, 301, 403, 3)),
        ("f4", "HW", "WH", (1051, 1053)),
        ("c16", "NHW", "HNW", (301, 3, 1211)),
    ],
    ids=str,
)
def test_streaming(dtype, input, output, shape):
    array = random_array(shape, dtype)
    mirrored = array[(..., *[slice(None, None, -1)] * 2)]
    for one in (array, mirrored):
        assert_same_bits(
            pinfeed.functional.permute(one, input, output), reference.permute(one, input, output)
        )


def test_sources_that_are_not_aligned_to_their_items():
    memory = random_array((1 + 8 * 5 * 7 * 3,))
    array = np.ndarray((5, 7, 3), np.float64, memory, offset=1)
    assert_same_bits(
        pinfeed.functional.permute(array, "HWC", "CHW"), reference.permute(array, "HWC", "CHW")
    )


def test_no_axes():
    result = pinfeed.functional.permute(np.array(7.5), "", "")
    assert result.shape == ()
    assert result == 7.5
