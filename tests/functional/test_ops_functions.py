"""The functions through the torch ops, as for CUDA tensors, in host memory."""

import itertools

import numpy as np
import pytest
import torch

import op_cases
import pinfeed
from arrays import assert_same_bits
from messages import check
from pinfeed.functional import arrays, sequences

pytestmark = pytest.mark.kernels

MEAN, STD = op_cases.MEAN, op_cases.STD
IMAGES = op_cases.images(shape=(4, 9, 11, 3))
SAMPLES = [np.arange(n) for n in (3, 0, 17, 5)]
JAGGED = pinfeed.Collate(pinfeed.Jagged())(SAMPLES)


@pytest.fixture
def use_torch_ops(monkeypatch):
    """Returns a function that makes tensors use the torch ops."""

    def patch():
        for module in (arrays, sequences):
            monkeypatch.setattr(
                module, "uses_torch_ops", lambda array: isinstance(array, torch.Tensor)
            )

    return patch


def assert_same(result, expected):
    assert type(result) is type(expected)
    pairs = (
        zip(result, expected, strict=True) if isinstance(result, tuple) else [(result, expected)]
    )
    for one, other in pairs:
        assert type(one) is type(other)
        if one is not None:
            assert one.dtype == other.dtype
            assert_same_bits(one, other)


def calls():
    """Yields functions and arguments."""
    constants = [(), (0.5, 0.25), (MEAN, STD), (MEAN,), (0, STD)]
    dtypes, outputs = [torch.float32, np.float16, "bfloat16"], ["NCHW", "NHWC"]
    for some, dtype, output in itertools.product(constants, dtypes, outputs):
        options = {"dtype": dtype, "output": output}
        yield pinfeed.functional.normalize, (IMAGES, *map(np.array, some)), options
    for letters in [("NHWC", "NCHW"), ("NHWC", "CWHN"), ("αβγδ", "δβαγ")]:
        yield pinfeed.functional.permute, (IMAGES, *letters), {}
    pairs = pinfeed.Collate(pinfeed.Jagged())([np.stack([s, s], 1) for s in SAMPLES])
    for side, axes, most, dtype, lengths in itertools.product(
        ["right", "left"], [None, 0, (0,), -2, (-2,)], [None, 6], [None, torch.float64], [0, 1]
    ):
        requested = {"lengths": bool(lengths), "mask": not lengths}
        shape = {"side": side, "axes": axes, "max_length": most, "multiple_of": 4, "dtype": dtype}
        yield pinfeed.functional.pad, (pairs, 7), shape | requested
        yield pairs.to_padded, (7,), shape | requested
    values = {
        "int64": [0, -1, 2**53, -(2**63), 2.0, True],
        "uint64": [0, 2**63, 2**53],
        "float16": [0, 0.1, float("nan"), -0.0, 65504],
        "complex64": [1, 2.5, 3 + 0j],
        "bool": [True, False, 1.0],
    }
    for dtype, some in values.items():
        batch = pinfeed.Collate(pinfeed.Jagged(dtype))([s.astype(dtype) for s in SAMPLES])
        for value, mask in itertools.product(some, [False, True]):
            yield pinfeed.functional.pad, (batch, value), {"mask": mask}
    for side in ("right", "left"):
        padded = pinfeed.functional.pad(JAGGED, side=side, multiple_of=4)
        yield pinfeed.JaggedBatch.from_padded, (padded,), {}


def test_results_equal_the_functions_bit_for_bit(use_torch_ops):
    expected = [function(*args, **options) for function, args, options in calls()]
    use_torch_ops()
    for (function, args, options), one in zip(calls(), expected, strict=True):
        assert_same(function(*args, **options), one)


@pytest.mark.parametrize("mask", [False, True])
def test_out(use_torch_ops, mask):
    memory = torch.zeros(4, 23, dtype=torch.int64)
    cases = [
        (pinfeed.functional.normalize, (IMAGES, MEAN), torch.zeros(4, 3, 9, 11)),
        (pinfeed.functional.permute, (IMAGES,), torch.zeros(4, 3, 9, 11, dtype=torch.uint8)),
        (
            lambda *args, out: pinfeed.functional.pad(*args, mask=mask, out=out).values,
            (JAGGED, 7),
            memory,
        ),
    ]
    expected = [function(*args, out=out.clone()) for function, args, out in cases]
    use_torch_ops()
    for (function, args, out), one in zip(cases, expected, strict=True):
        assert function(*args, out=out) is out
        assert_same(out, one)


def test_offsets_stay_in_host_memory_for_any_default_device(use_torch_ops):
    use_torch_ops()
    with torch.device("meta"):
        batch = pinfeed.JaggedBatch.from_padded(torch.ones(3, 4, device="cpu"), [1, 0, 4])
    assert batch.offsets.is_cpu


NONE = pinfeed.JaggedBatch(JAGGED.values, JAGGED.offsets[:1])
COMPLEX = pinfeed.JaggedBatch(JAGGED.values.to(torch.complex64), JAGGED.offsets)
BAD = [
    (lambda: pinfeed.functional.normalize(IMAGES.float()), TypeError, "normalize: images must be uint8"),
    (lambda: pinfeed.functional.normalize(IMAGES[0]), ValueError, "uint8 with shape (N, H, W, C), got"),
    (lambda: pinfeed.functional.normalize(IMAGES, [0.5]), ValueError, "expected 1 channels, one for each value of mean and std, got 3"),
    (lambda: pinfeed.functional.normalize(IMAGES, std=0), ValueError, "std must be positive"),
    (lambda: pinfeed.functional.normalize(IMAGES, out=np.zeros(3)), ValueError, "out must be float32 (4, 3, 9"),
    (lambda: pinfeed.functional.pad(JAGGED, axes=1), ValueError, "axes must be 0 or None"),
    (lambda: pinfeed.functional.pad(NONE), ValueError, "expected at least one sample"),
    (lambda: pinfeed.functional.pad(JAGGED, dtype=bool), TypeError, "expected numbers that can be cast to bool, got int64; cast them in the"),
    (lambda: pinfeed.functional.pad(JAGGED, 0.5), ValueError, "int64 can hold, got 0.5"),
    (lambda: pinfeed.functional.pad(JAGGED, 2**53 + 1), ValueError, "on cpu pad_value must be", f"{2**53 + 1}"),
    (lambda: pinfeed.functional.pad(COMPLEX, 2j), ValueError, "float64 holds, got 2j; pad on the CPU"),
    (lambda: pinfeed.functional.pad(JAGGED, out=np.zeros((4, 17), int)), ValueError, "pad: out must be int64 (4, 17) on cpu, got"),
    (lambda: pinfeed.functional.pad(JAGGED, lengths="yes"), TypeError, "lengths must be True or False"),
    (lambda: pinfeed.functional.pad(JAGGED, lengths=False, out=torch.zeros(3, 17, dtype=torch.int64)),
        ValueError, "pad: out must be int64 (4, 17) on cpu, got int64 (3, 17) on cpu"),
    (lambda: pinfeed.functional.permute(IMAGES, out=torch.zeros(4, 3, 9, 11)), ValueError, "permute: out must be uint8 (4, 3, 9, 11)"),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD)
def test_errors(use_torch_ops, bad):
    use_torch_ops()
    check(*bad)


def test_too_little_memory_raises_torchs_own_error(use_torch_ops):
    """It isn't the stable ABI's generic error."""
    use_torch_ops()
    images = torch.zeros(1, 1, 1, 3, dtype=torch.uint8).expand(1 << 26, 1 << 10, 1 << 10, 3)
    padded = torch.zeros(1, 1, 1).expand(1, 1 << 22, 1 << 23)
    for call, size in (
        (lambda: pinfeed.functional.pad(JAGGED, lengths=False, multiple_of=1 << 45), 4 * 8 << 45),
        (lambda: pinfeed.functional.pad(JAGGED, multiple_of=1 << 45, mask=True), 4 * 8 << 45),
        (lambda: pinfeed.functional.normalize(images, MEAN, STD), 3 * 4 << 46),
        (lambda: pinfeed.functional.permute(images), 3 << 46),
        (lambda: pinfeed.JaggedBatch.from_padded(padded, [1 << 22]), 4 << 45),
    ):
        with pytest.raises(RuntimeError, match=f"DefaultCPUAllocator: .* allocate {size} bytes"):
            call()
    assert pinfeed.functional.pad(JAGGED).values.shape == (4, 17)
