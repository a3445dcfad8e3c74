"""Lists of numbers as samples: dtypes, and numbers whose conversion runs code."""

import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
from programs import run_program

pytestmark = pytest.mark.kernels

INTEGERS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-5, 300))


def padded(*lists, **keywords):
    return pinfeed.functional.pad(list(lists), lengths=False, **keywords)


# float32 represents all of them, except infinities and NaNs.
_LARGEST = float(np.finfo(np.float32).max)
FLOATS = st.one_of(st.floats(-_LARGEST, _LARGEST), st.sampled_from([math.inf, -math.inf, math.nan]))


@given(st.lists(st.lists(INTEGERS), min_size=1))
def test_integers_are_int64(lists):
    values, lengths, _ = pinfeed.functional.pad(lists, pad_value=-100)
    assert values.dtype == torch.int64
    assert lengths.tolist() == [len(numbers) for numbers in lists]
    longest = max(lengths.tolist())
    assert values.tolist() == [numbers + [-100] * (longest - len(numbers)) for numbers in lists]


@given(st.lists(st.lists(st.one_of(FLOATS, st.booleans(), INTEGERS))))
def test_one_float_makes_a_list_floats(lists):
    lists = [[*numbers, 0.5] for numbers in [*lists, []]]
    rounded, exact = padded(*lists), padded(*lists, dtype=np.float64)
    assert (rounded.dtype, exact.dtype) == (torch.float32, torch.float64)
    for row, exact_row, numbers in zip(rounded.numpy(), exact.numpy(), lists, strict=True):
        count, doubles = len(numbers), np.array([float(number) for number in numbers])
        np.testing.assert_array_equal(exact_row[:count], doubles)
        np.testing.assert_array_equal(row[:count], doubles.astype(np.float32))
        assert not row[count:].any()


@given(st.lists(st.lists(st.booleans()), min_size=1))
def test_bools_are_bool(lists):
    values = padded(*lists, [True], pad_value=True)
    assert values.dtype == torch.bool
    for row, numbers in zip(values.tolist(), lists, strict=False):
        assert row == numbers + [True] * (len(row) - len(numbers))


def test_bools_among_integers_are_integers():
    assert padded([True, 2]).tolist() == [[1, 2]]
    assert padded([True, 2, 0.5]).tolist() == [[1, 2, 0.5]]
    assert padded([True, False], dtype=np.int8).dtype == torch.int8


def test_only_empty_lists():
    for value, dtype in [(0, torch.int64), (0.0, torch.float32)]:
        values, lengths, _ = pinfeed.functional.pad([[], ()], value)
        assert values.dtype == dtype
        assert values.shape == (2, 0)
        assert lengths.tolist() == [0, 0]
    assert padded([], dtype=np.float16).dtype == torch.float16


NUMPY_SCALARS = [
    (np.int8(-3), torch.int64),
    (np.uint64(2**63 - 1), torch.int64),
    (np.float16(0.5), torch.float32),
    (np.float32(0.1), torch.float32),
    (np.float64(0.25), torch.float32),
    (np.longdouble(0.25), torch.float32),
    (np.bool_(True), torch.bool),
    (np.bool_(False), torch.bool),
]


@pytest.mark.parametrize(("scalar", "dtype"), NUMPY_SCALARS, ids=lambda x: type(x).__name__)
def test_numpy_scalars(scalar, dtype):
    values = padded([scalar, scalar])
    assert values.dtype == dtype
    assert values.tolist() == [[scalar.item()] * 2]


@pytest.mark.parametrize(
    "bad",
    [
        "1",
        b"1",
        None,
        1j,
        [1],
        (),
        {},
        np.ones(2),
        np.ones(()),
        torch.ones(2),
        np.complex64(1 + 2j),
        np.str_("1"),
        np.datetime64("2020"),
        object(),
    ],
)
@pytest.mark.filterwarnings("ignore:Casting complex values:numpy.exceptions.ComplexWarning")
def test_entries_that_are_not_numbers(bad):
    for position in (0, 2):
        numbers = [1, 2, 3]
        numbers[position] = bad
        message = (
            rf"sequences of sample 1: expected a list of numbers, got \w+ at position {position}"
        )
        with pytest.raises(TypeError, match=message):
            padded([1], numbers)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30, np.uint64(2**63)])
def test_integers_of_more_than_64_bits(number):
    for numbers in ([number], [1, 2.5, number]):
        with pytest.raises(ValueError, match=r"sample 0: expected 64-bit integers, got -?\d+ at"):
            padded(numbers)


@pytest.mark.parametrize(
    "dtype", [np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64]
)
def test_integers_at_the_limits_of_a_dtype(dtype):
    smallest, largest = np.iinfo(dtype).min, min(np.iinfo(dtype).max, 2**63 - 1)
    assert padded([smallest, largest], dtype=dtype).tolist() == [[smallest, largest]]
    for number in (smallest - 1, largest + 1):
        with pytest.raises(ValueError, match=r"sample 1: expected (64-bit )?integers"):
            padded([smallest], [0, number, largest], dtype=dtype)


class Big(int):
    """A subclass of int."""


class Real(float):
    """A subclass of float."""

    def __float__(self):
        raise AssertionError("is a float already")


def test_subclasses_of_numbers_and_lists():
    class Tokens(list):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return 7

    assert padded(Tokens([1, 2, 3])).tolist() == [[1, 2, 3]]
    assert padded([Big(5), Big(2**62)]).tolist() == [[5, 2**62]]
    assert padded([Real(0.5)]).tolist() == [[0.5]]


# Numbers whose conversion runs code of the user.


class Calls:
    """An integer, or a float, that calls a function when it is converted."""

    def __init__(self, function, name="__index__"):
        self.function = function
        self.name = name


class Index(Calls):
    def __index__(self):
        return self.function()


class Float(Calls):
    def __float__(self):
        return self.function()


@pytest.mark.parametrize("kind", [Index, Float])
@pytest.mark.parametrize("nonsense", ["7", None, 1j, [1], object()])
def test_conversions_that_return_other_types(kind, nonsense):
    with pytest.raises(TypeError, match=f"expected a list of numbers, got {kind.__name__}"):
        padded([1, kind(lambda: nonsense)])


def test_conversions_that_return_numbers():
    assert padded([Index(lambda: 2**40), 1]).tolist() == [[2**40, 1]]
    assert padded([Float(lambda: 0.5), 1]).tolist() == [[0.5, 1]]
    with pytest.raises(ValueError, match="64-bit"):
        padded([Index(lambda: 2**64)])


@pytest.mark.parametrize("kind", [Index, Float])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ZeroDivisionError, SystemExit])
def test_conversion_errors_pass_through(kind, error):
    def fail():
        raise error("mine")

    with pytest.raises(error, match="mine"):
        padded([1, kind(fail)])


@pytest.mark.parametrize("before", [[], [[0] * 1000]])
@pytest.mark.parametrize("change", ["clear", "pop", "append", "extend"])
def test_conversions_that_change_their_list(change, before):
    arguments = {"append": [1], "extend": [range(100)]}.get(change, [])
    numbers = [1, None, 3]
    numbers[1] = Index(lambda: getattr(numbers, change)(*arguments) or 2)
    with pytest.raises(ValueError, match="the list changed while it was read"):
        padded(*before, numbers, [5])


@pytest.mark.parametrize("rest", [[], range(1000, 3000)])
def test_a_number_whose_finalizer_changes_its_list(rest):
    class Last:
        def __index__(self):
            numbers[1] = 7
            return 5

        def __del__(self):
            numbers.clear()

    numbers = [1]
    numbers += [Last(), *rest]
    with pytest.raises(ValueError, match="the list changed while it was read"):
        padded(numbers)


def test_reference_counts():
    token = 2**70 // 2**40  # a separate object
    numbers = [token, 0.5, Big(3)]
    before = [sys.getrefcount(number) for number in numbers]
    for _ in range(100):
        padded(numbers)
        with pytest.raises(TypeError):
            padded([*numbers, "1"])
    assert [sys.getrefcount(number) for number in numbers] == before


def test_conversions_that_free_the_memory_of_other_samples():
    run_program("samples_that_free_others")
