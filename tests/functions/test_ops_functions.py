"""The functions as they go by way of the ops, as for CUDA tensors, but in host memory."""

import numpy as np
import pytest
import torch

import op_cases
import pinfeed
from arrays import assert_same_bits
from pinfeed.functions import arrays, sequences

pytestmark = pytest.mark.kernels

MEAN, STD = op_cases.MEAN, op_cases.STD
IMAGES = op_cases.images(shape=(4, 9, 11, 3))
SAMPLES = [np.arange(n) for n in (3, 0, 17, 5)]


@pytest.fixture
def by_ops(monkeypatch):
    """Calls a function both ways: natively, and by the ops."""

    def both(function, *args, **kwargs):
        expected = function(*args, **kwargs)
        with monkeypatch.context() as patch:
            for module in (arrays, sequences):
                patch.setattr(module, "by_ops", lambda array: isinstance(array, torch.Tensor))
            result = function(*args, **kwargs)
        return result, expected

    return both


def assert_same(result, expected):
    assert type(result) is type(expected)
    pairs = (
        [(result, expected)]
        if isinstance(result, torch.Tensor)
        else zip(result, expected, strict=True)
    )
    for one, other in pairs:
        assert (one is None) == (other is None)
        if one is None:
            continue
        assert one.dtype == other.dtype
        assert_same_bits(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, np.float16, "bfloat16"], ids=str)
@pytest.mark.parametrize("constants", [(), (0.5, 0.25), (MEAN, STD), (MEAN,), (0, STD)], ids=str)
@pytest.mark.parametrize("output", ["NCHW", "NHWC"])
def test_normalize(by_ops, constants, dtype, output):
    result, expected = by_ops(
        pinfeed.normalize, IMAGES, *map(np.array, constants), dtype=dtype, output=output
    )
    assert_same(result, expected)
    out = torch.zeros_like(expected)
    result, _ = by_ops(pinfeed.normalize, IMAGES, *constants, dtype=dtype, output=output, out=out)
    assert result is out
    assert_same(out, expected)


def test_normalize_errors(by_ops, monkeypatch):
    monkeypatch.setattr(arrays, "by_ops", lambda _: True)
    with pytest.raises(TypeError, match=r"normalize: images must be uint8 .* got float32"):
        pinfeed.normalize(IMAGES.float())
    with pytest.raises(ValueError, match=r"images must be uint8 with shape \(N, H, W, C\), got"):
        pinfeed.normalize(IMAGES[0])
    with pytest.raises(ValueError, match=r"got 3 channels and 1 values"):
        pinfeed.normalize(IMAGES, [0.5])
    with pytest.raises(ValueError, match="std must not be 0"):
        pinfeed.normalize(IMAGES, std=0)
    with pytest.raises(TypeError, match="out must be of the same kind"):
        pinfeed.normalize(IMAGES, out=np.zeros((4, 3, 9, 11), np.float32))


@pytest.mark.parametrize("letters", [("NHWC", "NCHW"), ("NHWC", "CWHN"), ("αβγδ", "δβαγ")])
def test_permute(by_ops, letters):
    result, expected = by_ops(pinfeed.permute, IMAGES, *letters)
    assert_same(result, expected)
    out = torch.zeros_like(expected)
    assert by_ops(pinfeed.permute, IMAGES, *letters, out=out)[0] is out
    assert_same(out, expected)


VALUES = {
    "int64": [0, -1, 2**53, -(2**63), 2.0, True],
    "uint64": [0, 2**63, 2**53],
    "float16": [0, 0.1, float("nan"), -0.0, 65504],
    "complex64": [1, 2.5, 3 + 0j],
    "bool": [True, False, 1.0],
}


@pytest.mark.parametrize(("dtype", "value"), [(d, v) for d, vs in VALUES.items() for v in vs])
@pytest.mark.parametrize("time_major", [False, True])
def test_pad_values(by_ops, dtype, value, time_major):
    batch = pinfeed.Collate(pinfeed.Jagged())([s.astype(dtype) for s in SAMPLES])
    for mask in (False, True):
        options = {"mask": mask, "time_major": time_major}
        assert_same(*by_ops(pinfeed.pad, batch, value, **options))


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("axes", [None, 0, (0,), -2, (-2,)])
@pytest.mark.parametrize("max_length", [None, 6])
@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_pad(by_ops, side, axes, max_length, dtype):
    batch = pinfeed.Collate(pinfeed.Jagged())([np.stack([s, s], 1) for s in SAMPLES])
    options = {"side": side, "max_length": max_length, "dtype": dtype, "multiple_of": 4}
    if axes is None:
        values = pinfeed.pad(batch, 7, **options, lengths=False)
        out = torch.zeros(4, values.shape[1] + 3, 2, dtype=values.dtype)
        result, expected = by_ops(pinfeed.pad, batch, 7, **options, out=out)
        assert result.values is out
        assert_same(result, expected)
    for lengths in (False, True):
        options |= {"lengths": lengths, "mask": not lengths, "axes": axes}
        assert_same(*by_ops(pinfeed.pad, batch, 7, **options))
        assert_same(*by_ops(batch.to_padded, 7, **options))


@pytest.mark.parametrize("side", ["right", "left"])
def test_from_padded(by_ops, side):
    padded = pinfeed.pad(SAMPLES, side=side, multiple_of=4)
    padded = pinfeed.Padded(torch.as_tensor(padded.values), padded.lengths)
    assert_same(*by_ops(pinfeed.JaggedBatch.from_padded, padded, side=side))


def test_pad_errors(monkeypatch):
    for module in (arrays, sequences):
        monkeypatch.setattr(module, "by_ops", lambda _: True)
    batch = pinfeed.Collate(pinfeed.Jagged())(SAMPLES)
    with pytest.raises(ValueError, match=r"pads axis 0, got axes=1"):
        pinfeed.pad(batch, axes=1)
    with pytest.raises(ValueError, match="expected at least one sample"):
        pinfeed.pad(pinfeed.JaggedBatch(batch.values, batch.offsets[:1]))
    with pytest.raises(TypeError, match="can't cast int64 to bool; cast in the dataset"):
        pinfeed.pad(batch, dtype=bool)
    with pytest.raises(ValueError, match=r"int64 can hold, got 0\.5"):
        pinfeed.pad(batch, 0.5)
    for value in (2**53 + 1, -(2**63) + 1):
        with pytest.raises(ValueError, match=f"on cpu value must be .* float64 holds, got {value}"):
            pinfeed.pad(batch, value)
    floats = pinfeed.JaggedBatch(batch.values.to(torch.complex64), batch.offsets)
    with pytest.raises(ValueError, match=r"float64 holds, got 2j; pad on the CPU"):
        pinfeed.pad(floats, 2j)
    with pytest.raises(TypeError, match="out must be of the same kind"):
        pinfeed.pad(batch, out=np.zeros((4, 17), np.int64))
    with pytest.raises(TypeError, match="lengths must be True or False"):
        pinfeed.pad(batch, lengths="yes")
    with pytest.raises(ValueError, match="pad_jagged: out must be int64 with shape"):
        pinfeed.pad(batch, lengths=False, out=torch.zeros(3, 17, dtype=torch.int64))


def torchs_error(nbytes):
    """The one of torch's allocator, not the stable ABI's word that there was one."""
    return pytest.raises(RuntimeError, match=f"DefaultCPUAllocator: .* allocate {nbytes} bytes")


def test_out_of_memory(monkeypatch):
    monkeypatch.setattr(arrays, "by_ops", lambda _: True)
    monkeypatch.setattr(sequences, "by_ops", lambda _: True)
    batch = pinfeed.Collate(pinfeed.Jagged())(SAMPLES)
    with torchs_error(4 * 8 << 45):
        pinfeed.pad(batch, lengths=False, multiple_of=1 << 45)
    with torchs_error(4 * 8 << 45):
        pinfeed.pad(batch, multiple_of=1 << 45, mask=True)
    images = torch.zeros(1, 1, 1, 3, dtype=torch.uint8).expand(1 << 26, 1 << 10, 1 << 10, 3)
    with torchs_error(3 * 4 << 46):
        pinfeed.normalize(images, MEAN, STD)
    with torchs_error(3 << 46):
        pinfeed.permute(images)
    padded = torch.zeros(1, 1, 1).expand(1, 1 << 22, 1 << 23)
    with torchs_error(4 << 45):
        pinfeed.JaggedBatch.from_padded(padded, [1 << 22])
    assert pinfeed.pad(batch).values.shape == (4, 17)
