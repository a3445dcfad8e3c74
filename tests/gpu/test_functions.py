"""Functions and ops on the device return the bits of the CPU."""

import itertools

import numpy as np
import pytest
import torch

import pinfeed
from samples import assert_same

pytestmark = pytest.mark.kernels

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
SHAPES = [(1, 1, 1), (2, 5, 7), (3, 16, 16), (2, 33, 31), (1, 64, 257)]


def images(shape, channels):
    rng = np.random.default_rng(sum(shape) + channels)
    return torch.from_numpy(rng.integers(0, 256, (*shape, channels), np.uint8))


def on_host(result):
    if isinstance(result, torch.Tensor):
        return result.cpu()
    if isinstance(result, tuple | list):
        return [on_host(part) for part in result]
    return result


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 16])
@pytest.mark.parametrize("layouts", list(itertools.product(("NHWC", "NCHW"), repeat=2)))
def test_normalize(layouts, channels, dtype, device):
    options = {"input": layouts[0], "output": layouts[1], "dtype": dtype}
    constants = [[0.4 + 0.1 * i / channels for i in range(channels)], 0.25]
    for shape in SHAPES:
        batch = images(shape, channels)
        if layouts[0] == "NCHW":
            batch = batch.permute(0, 3, 1, 2).contiguous()
        expected = pinfeed.functional.normalize(batch, *constants, **options)
        there = batch.to(device)
        result = pinfeed.functional.normalize(there, *constants, **options)
        assert result.device.type == device
        assert_same(on_host(result), expected)
        out = torch.full_like(result, 1)
        assert pinfeed.functional.normalize(there, *constants, **options, out=out) is out
        assert_same(on_host(out), expected)


@pytest.mark.parametrize("offset", range(1, 9))
def test_normalize_at_any_alignment(offset, device):
    memory = images((1, 1, 4000), 1).flatten()
    batch = memory[offset : offset + 3 * 17 * 23 * 3].view(3, 17, 23, 3)
    there = memory.to(device)[offset : offset + batch.numel()].view(batch.shape)
    for dtype in DTYPES:
        expected = pinfeed.functional.normalize(batch, dtype=dtype)
        assert_same(on_host(pinfeed.functional.normalize(there, dtype=dtype)), expected)


def test_views(device):
    batch = images((4, 20, 24), 3)
    there = batch.to(device)
    for view in (lambda x: x[:, 2:-3, 1::2], lambda x: x[::2], lambda x: x.transpose(1, 2)):
        expected = pinfeed.functional.normalize(view(batch), 0.5, 0.25)
        assert_same(on_host(pinfeed.functional.normalize(view(there), 0.5, 0.25)), expected)
        assert_same(
            on_host(pinfeed.functional.permute(view(there))),
            pinfeed.functional.permute(view(batch)),
        )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bfloat16, torch.complex128])
def test_permute(dtype, device):
    batch = images((3, 17, 29), 5).to(dtype)
    for letters in itertools.permutations("NHWC"):
        expected = pinfeed.functional.permute(batch, "NHWC", "".join(letters))
        assert_same(
            on_host(pinfeed.functional.permute(batch.to(device), "NHWC", "".join(letters))),
            expected,
        )


@pytest.mark.parametrize("options", [{}, {"side": "left"}, {"max_length": 9}, {"multiple_of": 8}])
@pytest.mark.parametrize("row", [(), (3,), (80,)])
def test_pad(row, options, device):
    rng = np.random.default_rng(0)
    lengths = [0, 1, 30, 5, *rng.integers(0, 60, 40).tolist()]
    offsets = torch.tensor(np.concatenate([[0], np.cumsum(lengths)]))
    for dtype in (torch.int64, torch.float32, torch.float16, torch.uint8):
        values = torch.from_numpy(rng.integers(0, 100, (int(offsets[-1]), *row))).to(dtype)
        batch = pinfeed.JaggedBatch(values, offsets)
        there = pinfeed.JaggedBatch(values.to(device), offsets.to(device))
        expected = pinfeed.functional.pad(batch, 7, mask=True, **options)
        result = pinfeed.functional.pad(there, 7, mask=True, **options)
        assert_same(on_host(tuple(result)), list(expected))
