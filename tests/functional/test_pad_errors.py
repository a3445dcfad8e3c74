"""Padding: dtypes and values that don't fit raise before a byte is written."""

import itertools
import math
import re
import warnings

import numpy as np
import pytest
import torch

import pinfeed
from arrays import TORCH_DTYPES, fitting, unwritten
from messages import check

pytestmark = pytest.mark.kernels

TOKENS = [np.array([1, 2, 3]), np.array([4])]
BOXES = [np.zeros((2, 4), np.float32), np.zeros((3, 4), np.float32)]
HUGE = np.broadcast_to(np.uint8(1), (2**62,))

# Samples, keywords, the error, and words of its message.
BAD = {
    "no samples": ([], {}, ValueError, "at least one sample, got none"),
    "no rows": (np.zeros((0, 3)), {}, ValueError, "at least one sample, got none"),
    "0-d array": ([np.array(1.0)], {}, ValueError, "sample 0", "0-d array", "Stack()"),
    "0-d tensor": ([torch.ones(2), torch.tensor(1.0)], {}, ValueError, "sample 1", "0-d"),
    "scalar": ([np.float32(1)], {}, TypeError, "sample 0", "float32"),
    "int": ([1, 2], {}, TypeError, "sample 0", "got int"),
    "array of scalars": (np.zeros(3), {}, ValueError, "at least one axis", "(3,)"),
    "no sequence": ({1}, {}, TypeError, "list of arrays", "set"),
    "dict": ({"a": [1]}, {}, TypeError, "list of arrays", "dict"),
    "text": ("abc", {}, TypeError, "list of arrays", "str"),
    "generator": (iter(TOKENS), {}, TypeError, "list of arrays", "list_iterator"),
    "ranks": ([*TOKENS, np.zeros((1, 1))], {}, ValueError, "sample 2", "1-D", "(1, 1)"),
    "ranks of lists": ([np.zeros((1, 1)), [1]], {}, ValueError, "sample 1", "2-D", "(1,)"),
    "dtypes": ([*TOKENS, np.ones(1)], {}, TypeError, "sample 2", "int64 as in sample 0, got float64", "pass dtype= to convert all to one"),
    "dtypes of lists": ([[1], [], [1.5]], {}, TypeError, "sample 2", "int64", "float32"),
    "bools and ints": ([[True], [1]], {}, TypeError, "sample 1", "bool", "int64"),
    "conjugated": ([torch.ones(1) * 1j, (torch.ones(1) * 1j).conj()], {}, TypeError, "sample 1"),
    "a view without memory": ([torch.ones(2), torch._efficientzerotensor((9000,))[8000:]], {}, TypeError, "sample 1", "memory of its own"),
    "fixed axis": ([*BOXES, np.zeros((1, 5), np.float32)], {"axes": 0}, ValueError, "sample 2", "4 items along axis 1", "got 5", "axes=0"),
    "fixed axes": ([np.zeros((3, 2, 2)), np.zeros((1, 2, 3))], {"axes": (1, 2)},
        ValueError, "sample 1", "3 items along axis 0", "got 1", "axes=(1, 2)"),
    "a mask of all axes": ([np.zeros((1, 1)), np.zeros((1, 2))], {"mask": True}, ValueError, "axis 1 differs", "axes=(0, 1)"),
    "axis out of range": (TOKENS, {"axes": 1}, ValueError, "axes=1", "1-D"),
    "negative axis": (BOXES, {"axes": (-3, 1)}, ValueError, "axes=(-3, 1)", "2-D"),
    "axis beyond integers": (TOKENS, {"axes": 2**70}, ValueError, "axes", str(2**70)),
    "axis twice": (BOXES, {"axes": (1, -1)}, ValueError, "in order, each once", "(1, -1)"),
    "axes out of order": (BOXES, {"axes": (1, 0)}, ValueError, "in order", "(1, 0)"),
    "no axes": (TOKENS, {"axes": ()}, TypeError, "axes", "integer", "()"),
    "axes by name": (TOKENS, {"axes": "L"}, TypeError, "axes", "'L'"),
    "axes of floats": (TOKENS, {"axes": (0.0,)}, TypeError, "axes", "(0.0,)"),
    "axes of bools": (TOKENS, {"axes": True}, TypeError, "axes", "True"),
    "side": (TOKENS, {"side": "top"}, ValueError, "side must be one of ('right', 'left')", "'top'"),
    "side None": (TOKENS, {"side": None}, ValueError, "side must be", "None"),
    "list of numbers beyond": ([[300]], {"dtype": np.uint8}, ValueError, "sample 0", "uint8"),
    "negative in a list": ([[0], [3, -1]], {"dtype": np.uint64}, ValueError, "sample 1", "got -1"),
    "list of fractions": ([[1], [0.5]], {"dtype": int}, TypeError, "sample 1", "cast to int64, got float32"),
    "too long": ([HUGE, HUGE], {}, ValueError, "(2, 4611686018427387904)", "too large for any memory"),
    "no memory": ([HUGE[: 2**50]], {}, MemoryError, "(1, 1125899906842624)"),
    "multiple of eight bytes": (TOKENS, {"multiple_of": 2**62}, ValueError, "too large for any memory"),
    "multiple of bytes": ([HUGE[:1]], {"multiple_of": 2**62}, MemoryError, "no memory"),
    "multiple beyond": ([HUGE[: 2**61]], {"multiple_of": 2**63 - 1, "mask": True}, MemoryError),
    "multiple of multiples": ([HUGE[:5]], {"multiple_of": 2**63 - 1, "dtype": "i2"}, ValueError),
    "a multiple for each of two axes": (TOKENS, {"multiple_of": (8, 6)},
        ValueError, "multiple_of must be an integer, or one for each of the 1 axes"),
    "three multiples": (BOXES, {"multiple_of": (8, 6, 1), "axes": (0, 1)},
        ValueError, "multiple_of must be an integer, or one for each of the 2 axes"),
    "multiples": ([np.zeros((2, 2), np.uint8)], {"multiple_of": 2**62, "axes": (0, 1)}, ValueError, "too large for any memory"),
    "a mask of nothing": ([np.zeros((3, 0), np.uint8)], {"multiple_of": 2**62, "mask": True}, MemoryError),
}  # fmt: skip
BAD |= {
    f"{keyword}={value}": (TOKENS, {keyword: value}, ValueError if type(value) is int else TypeError, keyword, str(value))
    for keyword in ("max_length", "multiple_of")
    for value in (0, -1, 2**63, 2**64 + 1, 1.0, True, "8", np.float64(1))
}  # fmt: skip
OFFSETS = {
    "that decrease": ([0, 3, 2], ValueError, "3 and 2 for sample 1"),
    "beyond the values": ([0, 3, 5], ValueError, "from 0 to 4", "3 and 5 for sample 1"),
    "far beyond": ([0, 2**62, 4], ValueError, "0 and 4611686018427387904 for sample 0"),
    "negative": ([-1, 3, 4], ValueError, "-1 and 3 for sample 0"),
    "floats": ([0.0, 4.0], TypeError, "int64 or int32", "float64"),
    "none": (np.zeros(0, np.int64), TypeError, "(N + 1,)", "(0,)"),
    "2-D": ([[0, 4]], TypeError, "(N + 1,)", "(1, 2)"),
    "of no sample": ([4], ValueError, "at least one sample"),
}
BAD |= {
    f"offsets {name}": (pinfeed.JaggedBatch(np.arange(4), np.array(offsets)), {}, error, "pad: sequences", *words)
    for name, (offsets, error, *words) in OFFSETS.items()
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_bad_input(bad):
    samples, keywords, error, *words = bad
    check(lambda: pinfeed.functional.pad(samples, **keywords), error, "pad", *words)
    for dtype, shape in itertools.product(
        ("int64", "float32", "uint8"), [(2, 3), (3, 3), (2, 3, 4), (1, 0)]
    ):
        out = unwritten("ndarray", shape, dtype)
        before = out.tobytes()
        with pytest.raises((TypeError, ValueError, MemoryError)):
            pinfeed.functional.pad(samples, **keywords, out=out)
        assert out.tobytes() == before


def test_out_can_be_longer_along_axes_only():
    samples = [np.ones((2, 3)), np.ones((1, 3))]
    for axes, shape in [(None, (2, 2, 4)), (0, (2, 2, 4)), (1, (2, 3, 3)), ((0,), (3, 2, 3))]:
        with pytest.raises(ValueError, match=re.escape("pad: out must have shape (2, 2, 3)")):
            pinfeed.functional.pad(
                samples if axes != 1 else samples[:1] * 2, axes=axes, out=np.zeros(shape)
            )


def test_out_that_overlaps_the_input():
    memory = np.arange(24, dtype=np.int64)
    out = memory[:6].reshape(2, 3)
    before = memory.copy()
    for samples in (
        [memory[5:7], memory[10:13]],
        [memory[10:13], memory[5:6]],
        [memory[9:4:-2], memory[10:13]],
        pinfeed.JaggedBatch(memory[4:], np.array([0, 3, 4])),
        memory[3:9].reshape(2, 3),
        [torch.from_numpy(memory[:3]), [1]],
    ):
        with pytest.raises(ValueError, match="pad: out must not overlap the input"):
            pinfeed.functional.pad(samples, out=out)
        np.testing.assert_array_equal(memory, before)
    pinfeed.functional.pad([memory[6:9], memory[23:]], out=out)
    np.testing.assert_array_equal(out, [[6, 7, 8], [23, 0, 0]])


def test_out_can_contain_truncated_and_empty_samples():
    memory = np.arange(24, dtype=np.int64)
    out = memory[:12].reshape(2, 6)
    pinfeed.functional.pad([memory[6:], memory[3:4][:0]], -1, max_length=6, side="left", out=out)
    np.testing.assert_array_equal(out, [range(18, 24), [-1] * 6])


def test_empty_samples_times_more_than_memory():
    for sample in (np.zeros((0, 1, 1), np.uint8), torch.zeros(0, 1, 1, dtype=torch.uint8)):
        with pytest.raises(ValueError, match="too large for any memory"):
            pinfeed.functional.pad([sample], axes=(0, 1, 2), multiple_of=2**62)


def test_more_axes_than_numpy_has():
    large = np.zeros((1, 100_000), np.uint8)
    address = pinfeed.functional.pad([large], lengths=False).ctypes.data
    with pytest.raises(ValueError, match="number of dimensions"):
        pinfeed.functional.pad([large.reshape((1,) * 63 + (100_000,))])
    assert pinfeed.functional.pad([large], lengths=False).ctypes.data == address  # no memory leaked


@pytest.mark.parametrize("keyword", ["lengths", "mask"])
@pytest.mark.parametrize("value", ["name", 1, None, np.True_])
def test_flags_must_be_bool(keyword, value):
    with pytest.raises(TypeError, match=f"pad: {keyword} must be True or False, got"):
        pinfeed.functional.pad([[1]], **{keyword: value})


def test_list_integers_beyond_float16():
    assert pinfeed.functional.pad([[65519, -65519]], dtype="float16", lengths=False).tolist() == [
        [65504.0, -65504.0]
    ]
    with pytest.raises(ValueError, match="expected integers that float16 can hold, got 65520"):
        pinfeed.functional.pad([[1, 65520]], dtype="float16")


@pytest.mark.parametrize("dtype", [None, "float32", "float16", "bfloat16", "complex64"])
def test_list_floats_that_would_become_infinite(dtype):
    with pytest.raises(
        ValueError, match=r"sample 1: expected numbers that \w+ can hold, got 1e\+300"
    ):
        pinfeed.functional.pad([[1.5], [math.inf, -1e300]], dtype=dtype)
    assert pinfeed.functional.pad([[math.inf, math.nan]], dtype=dtype, lengths=False).shape == (
        1,
        2,
    )
    wide = pinfeed.functional.pad([[1.5], [1e300]], dtype="float64", lengths=False)
    assert wide.tolist() == [[1.5], [1e300]]


# Dtypes.


NAN, INF = math.nan, math.inf
PAIRS = [(source, target) for source in TORCH_DTYPES for target in TORCH_DTYPES]


def numbers(dtype):
    """Returns an odd number of values, including the dtype's extremes."""
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
        with pytest.raises(
            TypeError,
            match=r"sequences of sample 0: expected numbers that can be cast to \w+, got \w+",
        ):
            pinfeed.functional.pad([sample], dtype=target)
        return
    values, lengths, _ = pinfeed.functional.pad([sample, sample[:5]], pad_value=1, dtype=target)
    assert values.dtype == target
    assert lengths.tolist() == [37, 5]
    for row, length in zip(values, (37, 5), strict=True):
        torch.testing.assert_close(
            row[:length], sample[:length].to(target), rtol=0, atol=0, equal_nan=True
        )
        assert (row[length:] == 1).all()


def test_with_a_dtype_samples_can_have_different_dtypes():
    samples = [np.array([1, 2], np.int8), np.array([0.5], np.float16), [3], [True], [0.25], []]
    values = pinfeed.functional.pad(samples, dtype=np.float64, lengths=False)
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, [[1, 2], [0.5, 0], [3, 0], [1, 0], [0.25, 0], [0, 0]])


@pytest.mark.parametrize(
    "bad", [torch.complex32, torch.float8_e4m3fn, "longdouble", "U3", object, 3]
)
def test_invalid_dtypes(bad):
    with pytest.raises(TypeError, match="pad: dtype must be"):
        pinfeed.functional.pad([[1]], dtype=bad)


def test_bfloat16_of_ndarrays():
    with pytest.raises(TypeError, match=r"pad: .*NumPy has no bfloat16"):
        pinfeed.functional.pad([np.ones(3, np.float32)], dtype=torch.bfloat16)
    field = pinfeed.Pad(dtype=torch.bfloat16)  # its batches are always tensors
    assert pinfeed.Collate(field)([np.ones(3, np.float32)]).values.dtype == torch.bfloat16


def test_complex_numbers_of_two_float16_raise():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # experimental in torch
        sample = torch.zeros(1, dtype=torch.complex32)
    for dtype in (None, torch.complex64):
        with pytest.raises(TypeError, match=r"pad: .*complex32"):
            pinfeed.functional.pad([sample], dtype=dtype)


# Values that fit each dtype, as an item of the batch, and values that don't.

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
        pinfeed.functional.pad(
            [sample], value, multiple_of=1, out=torch.zeros(1, 3, dtype=sample.dtype)
        ),
        pinfeed.functional.pad([[], [True]], value, dtype=sample.dtype, side="left", max_length=1),
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
    message = f"pad: pad_value must be a value that {dtype} can hold, got "
    with pytest.raises(ValueError, match=message):
        pinfeed.functional.pad([sample, sample[:1]], value)
    with pytest.raises(ValueError, match=message):
        pinfeed.functional.pad([sample], value)  # nothing to pad
    with pytest.raises(ValueError, match="Pad: pad_value must be"):
        pinfeed.Pad(pad_value=value, dtype=dtype)


@pytest.mark.parametrize("value", [None, "0", [0], np.zeros(1), torch.zeros(1), np.longdouble(1)])
def test_values_that_are_not_numbers(value):
    for function in (
        lambda: pinfeed.functional.pad([[1]], value),
        lambda: pinfeed.Pad(pad_value=value),
    ):
        with pytest.raises(TypeError, match="pad_value must be a number"):
            function()
