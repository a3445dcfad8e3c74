"""Stack(dtype) compared with Tensor.to: dtype pairs, special values, strides, integers out of range."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch

import pinfeed
from arrays import TORCH_DTYPES, fitting
from messages import check
from pinfeed import ArrayDataset, Collate, Jagged, Pad, Stack
from samples import assert_same

pytestmark = pytest.mark.kernels

PAIRS = list(itertools.product(TORCH_DTYPES, TORCH_DTYPES))
ALLOWED = [pair for pair in PAIRS if torch.can_cast(*pair)]
FORBIDDEN = [pair for pair in PAIRS if not torch.can_cast(*pair)]
NUMPY_PAIRS = [pair for pair in ALLOWED if pair[0] != torch.bfloat16]


def pairs(of):
    return pytest.mark.parametrize(
        ("source", "target"), of, ids=lambda dtype: str(dtype).removeprefix("torch.")
    )


@functools.cache
def special_values(dtype):
    """Returns limits, halfway cases, infinities, subnormal numbers and random bits; an even number of values."""
    rng = np.random.default_rng(0)
    random = torch.from_numpy(rng.integers(0, 256, 4096, np.uint8))
    if dtype == torch.bool:
        return random > 127
    if not dtype.is_floating_point and not dtype.is_complex:
        info = torch.iinfo(dtype)
        edges = [sign * 2**bit + near for bit in range(64) for sign in (1, -1) for near in (-1, 1)]
        # Halfway between two numbers of 8, 11, 24 or 53 binary digits.
        edges += [
            2**bit + 2 ** (bit - digits) + near
            for digits in (8, 11, 24, 53)
            for bit in range(digits, 64)
            for near in (-1, 0, 1)
        ]
        edges += [0, 1, info.max, info.min, info.max - 1]
        values = torch.from_numpy(
            np.array(
                [edge for edge in edges if info.min <= edge <= info.max],
                str(dtype).removeprefix("torch."),
            )
        )
        return torch.cat([values, random.view(dtype)])[: -1 if len(values) % 2 else None]
    if dtype.is_complex:
        parts = special_values(dtype.to_real())
        return torch.complex(torch.cat([parts, parts]), torch.cat([parts.flip(0), parts]))
    powers = 2.0 ** torch.arange(-1074, 1024, dtype=torch.float64)
    factors = (1, 1 + 2**-8, 1 + 2**-11, 1 + 2**-24, 1 + 2**-11 + 2**-40, 2 - 2**-52)
    numbers = torch.cat([powers * factor for factor in factors])
    others = torch.tensor([0.0, math.inf, math.nan, 65519.99, 65520.0], dtype=torch.float64)
    values = torch.cat([numbers, others, -numbers, -others]).to(dtype)
    return torch.cat([values, random.view(dtype)])


def assert_same_values(got, expected):
    """Asserts equal dtype, shape and bits; any NaN equals any other."""
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    if got.is_complex():
        got, expected = torch.view_as_real(got), torch.view_as_real(expected)
    if got.is_floating_point():
        assert torch.equal(got.isnan(), expected.isnan())
        assert torch.equal(got.signbit() & ~got.isnan(), expected.signbit() & ~got.isnan())
        got = got.nan_to_num(0, math.inf, -math.inf)
        expected = expected.nan_to_num(0, math.inf, -math.inf)
    np.testing.assert_array_equal(as_numpy(got), as_numpy(expected))


def as_numpy(tensor):
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def rows_of(arrays):
    dataset = pinfeed.ArrayDataset(arrays)
    return dataset.__getitems__(range(len(dataset)))


@pairs(ALLOWED)
def test_tensors(source, target):
    collate = pinfeed.Collate(pinfeed.Stack(target))
    # Long enough for the native path; torch handles small tensors.
    batch = fitting(special_values(source), target).repeat(8).reshape(2, -1)
    assert_same_values(collate(list(batch)), batch.to(target))
    assert_same_values(collate(rows_of(batch)), batch.to(target))


@pairs(NUMPY_PAIRS)
def test_ndarrays(source, target):
    collate = pinfeed.Collate(pinfeed.Stack(target))
    batch = fitting(special_values(source), target).reshape(2, -1)
    assert_same_values(collate([*batch.numpy()]), batch.to(target))
    assert_same_values(collate(rows_of(batch.numpy())), batch.to(target))
    one_by_one = fitting(special_values(source), target)
    assert_same_values(collate(rows_of(one_by_one.numpy())), one_by_one.to(target))


@pairs(NUMPY_PAIRS)
def test_strided(source, target):
    collate = pinfeed.Collate(pinfeed.Stack(target))
    values = fitting(special_values(source), target)
    batch = values[: len(values) // 12 * 12].reshape(2, -1, 3, 2)
    for view in (
        batch.movedim(2, 1),
        batch.transpose(1, 3),
        batch[:, 1:-1, 1:],
        batch[:, ::2, ::2],
        batch[:, :1].expand(2, 700, 3, 2),
    ):
        assert_same_values(collate([*view.numpy()]), view.to(target))
        assert_same_values(collate(rows_of(view)), view.to(target))
    mirrored = batch.numpy()[:, ::-1, :, ::-1]
    expected = torch.from_numpy(mirrored.copy()).to(target)
    assert_same_values(collate([*mirrored]), expected)
    assert_same_values(collate(rows_of(mirrored)), expected)


@pairs(FORBIDDEN)
def test_forbidden_casts(source, target):
    collate = pinfeed.Collate({"x": pinfeed.Stack(target)})
    names = [str(dtype).removeprefix("torch.") for dtype in (source, target)]
    message = (
        rf"Collate: entry \['x'\]: expected numbers that can be cast to {names[1]}, got {names[0]}; "
        "cast them in the dataset"
    )
    batch = torch.ones(2, 3).to(source)
    samples = [[{"x": row} for row in batch], rows_of({"x": batch})]
    if source != torch.bfloat16:
        samples += [[{"x": row} for row in batch.numpy()], rows_of({"x": batch.numpy()})]
    for batch_of_samples in samples:
        with pytest.raises(TypeError, match=message):
            collate(batch_of_samples)


# A number that fits and one that doesn't; dtypes of samples and of the batch.
MISFITS = [
    (np.int64, torch.uint8, 255, 256),
    (np.int64, torch.uint8, 0, -1),
    (np.int64, torch.int32, -(2**31), 2**40),
    (np.int64, torch.int16, -(2**15), 70000),
    (np.int8, torch.uint8, 127, -1),
    (np.int8, torch.uint64, 127, -1),
    (np.uint8, torch.int8, 127, 200),
    (np.uint16, torch.int8, 127, 65480),
    (np.uint64, torch.int64, 2**63 - 1, 2**63),
    (np.int32, torch.uint16, 65535, 65536),
    (np.uint16, torch.float16, 65519, 65520),
    (np.int32, torch.float16, -65519, -65520),
    (np.uint32, torch.float16, 65504, 2**32 - 1),
    (np.int64, torch.float16, 65519, -(2**63)),
    (np.uint64, torch.float16, 65504, 2**64 - 1),
]
WAYS = {
    "Stack": lambda samples, dtype: Collate(Stack(dtype))(list(samples)),
    "Stack of rows": lambda samples, dtype: Collate(Stack(dtype))(ArrayDataset(samples).__getitems__(range(len(samples)))),
    "Stack of strided rows": lambda samples, dtype: Collate(Stack(dtype))(
        ArrayDataset(np.repeat(samples, 2, -1)[..., ::2]).__getitems__(range(len(samples)))
    ),
    "Pad": lambda samples, dtype: Collate(Pad(dtype=dtype, lengths=False))(list(samples)),
    "Jagged": lambda samples, dtype: Collate(Jagged(dtype))(list(samples)).values,
    "pad": lambda samples, dtype: pinfeed.functional.pad([torch.from_numpy(sample) for sample in samples], dtype=dtype, lengths=False),
}  # fmt: skip


@pytest.mark.parametrize("convert", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize(("source", "dtype", "fits", "wrong"), MISFITS)
def test_integers_that_do_not_fit(source, dtype, fits, wrong, convert):
    message = f"sample 2.*integers that {str(dtype)[6:]} can hold, got {wrong}"
    for position in (0, 37, 99):
        samples = np.ones((3, 100), source)
        samples[:, position] = fits
        assert_same(convert(samples, dtype).reshape(3, 100), torch.from_numpy(samples).to(dtype))
        samples[2, position] = wrong
        with pytest.raises(ValueError, match=message):
            convert(samples, dtype)


class Mask(torch.Tensor):
    """A subclass without attributes."""


FLOATS, CONTEXT = rows_of(np.zeros((2, 3), np.float32)), pinfeed.FieldContext("x")
SMALL, LARGE, HALF = np.array([65519]), np.array([70000]), np.array([1], np.float16)
MASKS = [torch.tensor([number]).as_subclass(Mask) for number in (3, 255)]
# The call, the error, and words of its message.
BAD = {
    "numbers": (lambda: Collate(Stack(torch.int64))([1.5, 2.5]), TypeError, "Collate: expected numbers that can be cast to int64, got float64; cast them in"),
    "rows to complex32": (lambda: Collate(Stack(torch.complex32))(FLOATS), TypeError, "expected numbers that can be cast to complex32, got float32"),
    "rows to float8": (lambda: Collate(Stack(torch.float8_e4m3fn))(FLOATS), TypeError, "expected numbers that can be cast to float8_e4m3fn, got float32"),
    "a number": (lambda: Collate(Stack(torch.uint8))([3, 300]), ValueError, "sample 1: expected integers that uint8 can hold, got 300"),
    "a list": (lambda: Collate(Stack(torch.int16))([[3, 4], [3, 70000]]), ValueError, "sample 1: expected integers that int16 can hold"),
    "a batch": (lambda: Stack(torch.uint8).apply(torch.tensor(300), None, CONTEXT), ValueError, "x", "expected integers that uint8 can hold, got 300"),
    "a subclass": (lambda: Collate(Stack(torch.uint8))([MASKS[0], MASKS[1] + 45]), ValueError, "sample 1: expected integers that uint8 can hold"),
    "beside float16": (lambda: Collate()([HALF, LARGE]), ValueError, "sample 1: expected integers that fit in float16", "70000"),
    "before float16": (lambda: Collate({"x": Stack()})([{"x": -LARGE}, {"x": HALF}]), ValueError, "sample 0: ", " takes both"),
    "to float16": (lambda: Collate(Stack(torch.float16))([HALF, LARGE]), ValueError, "sample 1"),
    # Beside floats, Python's numbers are stacked by torch.
    "beside a float": (lambda: Collate(Stack(torch.float16))([1.5, 70000]), ValueError, "sample 1: ", ", got 70000; ", "takes both"),
    "a negative one": (lambda: Collate(Stack(torch.float16))([1.5, -(2**40)]), ValueError, "sample 1: ", f", got {2**40}; ", "takes both"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_numbers_that_do_not_fit(case):
    check(*BAD[case])


def test_numbers_that_fit():
    assert type(Collate(Stack(torch.uint8))(MASKS)) is Mask
    assert_same(
        Stack(torch.uint8).apply(torch.tensor(255), None, CONTEXT), torch.tensor(255).byte()
    )
    assert Collate()([HALF, SMALL]).tolist() == [[1], [65504]]
    assert Collate()([HALF * np.inf, SMALL]).tolist() == [[np.inf], [65504]]
    fixed = LARGE.copy()
    fixed.flags.writeable = False
    for order in ([HALF, fixed], [torch.from_numpy(HALF), torch.tensor([70000])]):
        assert Collate(Stack(torch.float32))(order).tolist() == [[1], [70000]]
    assert Collate(Stack(torch.float16))([7e4, 1]).tolist() == [np.inf, 1]


def test_mixed_numbers():
    for numbers in ([1, 2.5, True], [2.5, 1], [True, 2]):
        expected = torch.utils.data.default_collate(numbers)
        assert_same(Collate()(numbers), expected)
