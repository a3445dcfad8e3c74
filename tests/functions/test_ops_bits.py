"""torch.ops.pinfeed on the CPU against plain NumPy, bit for bit: every option, any strides."""

import pytest
import torch
from hypothesis import given

import op_batches
import op_cases
import pinfeed
from arrays import assert_same_bits, random_array, unwritten

pytestmark = pytest.mark.kernels

P = torch.ops.pinfeed


@given(op_batches.image_calls())
def test_normalize_images(isa, call):
    images, constants, options, expected = call
    result = P.normalize_images(images, **constants, **options)
    assert_same_bits(result, expected)
    if options.get("channels_last") and result.numel() > 0:
        assert result.is_contiguous(memory_format=torch.channels_last)
    elif not options.get("channels_last"):
        assert result.is_contiguous()
    is_channels_last = options.pop("channels_last", False)  # as out says
    shape = tuple(expected.shape)
    order = [0, 2, 3, 1] if is_channels_last else range(4)
    memory = unwritten("tensor", [shape[axis] for axis in order], str(options["dtype"])[6:])
    out = memory.permute(0, 3, 1, 2) if is_channels_last else memory
    P.normalize_images(images, **constants, **options, out=out)
    assert_same_bits(out, expected)


@given(op_batches.permutations())
def test_permute(isa, call):
    images, input, output, expected = call
    result = P.permute(images, input, output)
    assert result.dtype == images.dtype
    assert result.is_contiguous()
    assert_same_bits(result, expected)


@given(op_batches.jagged_calls())
def test_pad_jagged_and_back(isa, call):
    values, offsets, length, options, expected = call
    assert_same_bits(P.pad_jagged(values, offsets, length, **options), expected[0])
    parts = P.pad_jagged_with_mask(values, offsets, length, **options)
    for part, expected_part in zip(parts, expected, strict=True):
        assert_same_bits(part, expected_part)
    del options["pad_value"]
    back = P.unpad_to_jagged(parts[0], offsets, len(values), **options)
    assert_same_bits(back, op_batches.unpadded(values, offsets, options))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.uint8])
def test_streaming_and_threads(dtype):
    images = torch.from_numpy(random_array((12, 601, 803, 3)))
    constants = {} if dtype == torch.uint8 else {"mean": op_cases.MEAN, "std": op_cases.STD}
    threads = torch.get_num_threads()
    for count in (1, 3):
        torch.set_num_threads(count)
        batch = P.normalize_images(images, **constants, dtype=dtype, channels_last=count == 3)
        if dtype == torch.uint8:
            expected = images.permute(0, 3, 1, 2)
        else:
            expected = pinfeed.normalize(images, op_cases.MEAN, op_cases.STD, dtype=dtype)
        assert torch.equal(batch, expected)
    torch.set_num_threads(threads)


def test_large_jagged_batches_and_threads():
    values, lengths = torch.arange(3_000_000), torch.arange(0, 3000, 3)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    for time_major in (False, True):
        padded = P.pad_jagged(values, offsets, 3000, pad_value=-1, time_major=time_major)
        batch = pinfeed.JaggedBatch(values, offsets)
        expected = batch.to_padded(-1, lengths=False, multiple_of=3000, time_major=time_major)
        assert torch.equal(padded, expected)
        back = P.unpad_to_jagged(padded, offsets, len(values), time_major=time_major)
        assert torch.equal(back[: offsets[-1]], values[: offsets[-1]])
        assert not back[offsets[-1] :].any()
