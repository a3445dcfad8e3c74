"""The dtypes of padding: casts in the same pass, values that must fit, and what lists count as."""

import math
import warnings

import numpy as np
import pytest
import torch

import pinfeed
from arrays import fitting

pytestmark = pytest.mark.kernels

NAN, INF = math.nan, math.inf
DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.uint16,
    torch.int16,
    torch.uint32,
    torch.int32,
    torch.uint64,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]
PAIRS = [(source, target) for source in DTYPES for target in DTYPES]


def numbers(dtype):
    """Numbers with an odd count, the dtype's extremes among them."""
    if dtype == torch.bool:
        return torch.arange(37) % 3 == 0
    if dtype.is_complex:
        return torch.complex(*(numbers(dtype.to_real()).flip(0) for _ in range(2)))
    info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    some = [0, 1, 2, 100, info.max, info.min, info.max // 3]
    if dtype.is_floating_point:
        some += [NAN, INF, -INF, 0.1, info.tiny, 65519.9, 65520]
    return torch.tensor([some[i % len(some)] for i in range(37)], dtype=dtype)


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda d: str(d).removeprefix("torch."))
def test_casts(source, target):
    sample = fitting(numbers(source), target)
    if not torch.can_cast(source, target):
        with pytest.raises(TypeError, match=r"sequences of sample 0: can't cast \w+ to \w+"):
            pinfeed.pad([sample], dtype=target)
        return
    values, lengths = pinfeed.pad([sample, sample[:5]], value=1, dtype=target)
    assert values.dtype == target
    assert lengths.tolist() == [37, 5]
    for row, length in zip(values, (37, 5), strict=True):
        torch.testing.assert_close(
            row[:length], sample[:length].to(target), rtol=0, atol=0, equal_nan=True
        )
        assert (row[length:] == 1).all()


def test_a_dtype_lets_samples_differ_in_theirs():
    samples = [np.array([1, 2], np.int8), np.array([0.5], np.float16), [3], [True], [0.25], []]
    values = pinfeed.pad(samples, dtype=np.float64, lengths=False)
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, [[1, 2], [0.5, 0], [3, 0], [1, 0], [0.25, 0], [0, 0]])


@pytest.mark.parametrize("dtype", ["int16", np.int16, np.dtype("<i2"), torch.int16])
def test_dtypes_of_numpy_torch_or_by_name(dtype):
    assert pinfeed.pad([np.array([1])], dtype=dtype, lengths=False).dtype == np.int16
    assert pinfeed.pad([torch.tensor([1])], dtype=dtype, lengths=False).dtype == torch.int16


@pytest.mark.parametrize(
    "bad", [torch.complex32, torch.float8_e4m3fn, "longdouble", "U3", object, 3]
)
def test_dtypes_that_are_none(bad):
    with pytest.raises(TypeError, match="pad: dtype must be"):
        pinfeed.pad([[1]], dtype=bad)
    with pytest.raises(TypeError, match="Pad: dtype must be"):
        pinfeed.Pad(dtype=bad)


def test_numpy_has_no_bfloat16():
    with pytest.raises(TypeError, match=r"pad: .*NumPy has no bfloat16"):
        pinfeed.pad([np.ones(3, np.float32)], dtype=torch.bfloat16)
    field = pinfeed.Pad(dtype=torch.bfloat16)  # whose batches are tensors, whatever the samples are
    assert pinfeed.Collate(field)([np.ones(3, np.float32)]).values.dtype == torch.bfloat16


def test_complex_numbers_of_two_float16_are_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls them experimental
        sample = torch.zeros(1, dtype=torch.complex32)
    for dtype in (None, torch.complex64):
        with pytest.raises(TypeError, match=r"pad: .*complex32"):
            pinfeed.pad([sample], dtype=dtype)


# Values. Each dtype with what fits it, as an item of the batch, and what doesn't.

FITS = {
    "bool": [(True, True), (0, False), (1.0, True)],
    "uint8": [(255, 255), (True, 1), (7.0, 7), (np.uint16(9), 9), (torch.tensor(3), 3)],
    "int8": [(-128, -128), (127, 127), (-0.0, 0)],
    "uint64": [(2**64 - 1, 2**64 - 1), (2.0**63, 2**63)],
    "int64": [(-(2**63), -(2**63)), (2**63 - 1, 2**63 - 1), (-(2.0**63), -(2**63))],
    "float16": [(65519, 65504), (1e-30, 0), (INF, INF), (0.1, np.float16(0.1)), (True, 1)],
    "bfloat16": [(1, 1), (256.5, 256), (-INF, -INF), (3e38, float.fromhex("0x1.c4p127"))],
    "float32": [(1e-50, 0), (0.1, np.float32(0.1)), (2**100, 2.0**100), (np.float16(0.5), 0.5)],
    "float64": [(2**1023, 2.0**1023), (-INF, -INF), (5e-324, 5e-324)],
    "complex64": [(1 + 2j, 1 + 2j), (3, 3), (complex(INF, 1), complex(INF, 1))],
    "complex128": [(1e300j, 1e300j), (True, 1), (0.5, 0.5)],
}
UNFIT = {
    "bool": [2, -1, 0.5, NAN, 1j],
    "uint8": [256, -1, 0.5, NAN, INF, 1j, 1 + 0j],
    "int8": [128, -129, 1e10, -INF],
    "uint64": [2**64, -1, 2.0**64],
    "int64": [2**63, -(2**63) - 1, 2.0**63, NAN, 10**400],
    "float16": [65520, -1e6, 10**400, 1j],
    "bfloat16": [3.4e38, 1e39, 10**400],
    "float32": [1e39, -(2**128), 10**400, 0j],
    "float64": [10**400, 2**1024, 1j],
    "complex64": [1e39, 1e39j, 10**400],
    "complex128": [10**400],
}


@pytest.mark.parametrize(
    ("dtype", "value", "item"), [(dtype, *pair) for dtype, pairs in FITS.items() for pair in pairs]
)
def test_values_that_fit(dtype, value, item):
    sample = torch.zeros(0, dtype=getattr(torch, dtype))
    for values in (
        pinfeed.pad([sample], value, multiple_of=1, out=torch.zeros(1, 3, dtype=sample.dtype)),
        pinfeed.pad([[], [True]], value, dtype=sample.dtype, side="left", max_length=1),
    ):
        assert values.values.dtype == sample.dtype
        assert values.values[0, 0].item() == item
        if item == 0:
            assert math.copysign(1, values.values[0, 0].item().real) == 1 or value < 0


@pytest.mark.parametrize(
    ("dtype", "value"), [(dtype, value) for dtype, values in UNFIT.items() for value in values]
)
def test_values_that_do_not_fit(dtype, value):
    sample = torch.zeros(3, dtype=getattr(torch, dtype))
    message = f"pad: value must be a value that {dtype} can hold, got "
    with pytest.raises(ValueError, match=message):
        pinfeed.pad([sample, sample[:1]], value)
    with pytest.raises(ValueError, match=message):
        pinfeed.pad([sample], value)  # nothing to pad
    with pytest.raises(ValueError, match="Pad: value must be"):
        pinfeed.Pad(value, dtype=dtype)


@pytest.mark.parametrize("value", [None, "0", [0], np.zeros(1), torch.zeros(1), np.longdouble(1)])
def test_values_that_are_no_number(value):
    for function in (lambda: pinfeed.pad([[1]], value), lambda: pinfeed.Pad(value)):
        with pytest.raises(TypeError, match="value must be a number"):
            function()


@pytest.mark.parametrize("value", [NAN, complex(1, NAN)])
def test_nan(value):
    dtype = np.complex64 if isinstance(value, complex) else np.float16
    values = pinfeed.pad([np.zeros(0, dtype), np.ones(2, dtype)], value, lengths=False)
    np.testing.assert_array_equal(values, np.array([[value] * 2, [1, 1]], dtype))
