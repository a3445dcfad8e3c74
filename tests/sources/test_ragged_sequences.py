"""RaggedArray.from_sequences: inputs, results, and peak memory."""

import array
import collections
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arrays import NUMPY_DTYPES, views
from pinfeed.sources.ragged import RaggedArray
from programs import run_program
from samples import assert_same


@given(st.data())
def test_sequences_are_unchanged(data):
    dtype = data.draw(st.sampled_from(NUMPY_DTYPES))
    inner = data.draw(st.sampled_from([(), (3,), (2, 2), (0,)]))
    lengths = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=12))
    sequences = [data.draw(views((length, *inner), dtype)) for length in lengths]
    ragged = RaggedArray.from_sequences(iter(sequences))
    assert_same(list(ragged), sequences)
    assert ragged.values.shape == (sum(lengths), *inner)
    assert ragged.offsets.dtype == np.int64
    assert not any(np.shares_memory(ragged.values, sequence) for sequence in sequences)


INT, FLOAT = np.dtype(np.int64), np.dtype(np.float32)

TAKEN = {
    "lists of ints": ([[1, 2], [], [3]], INT, [[1, 2], [], [3]]),
    "lists of floats": ([[0.5], [1, 0.25]], FLOAT, [[0.5], [1, 0.25]]),
    "lists of bools": ([[True], [False, True]], np.dtype(bool), [[True], [False, True]]),
    "lists of complex numbers": ([[1j]], np.dtype(np.complex64), [[1j]]),
    "empty lists first": ([[], (), [0.5]], FLOAT, [[], [], [0.5]]),
    "empty lists among pairs": ([[], [[1, 2]], []], INT, [[], [[1, 2]], []]),
    "empty arrays of floats first": ([np.zeros(0), [], np.ones(2, int)], INT, [[], [], [1, 1]]),
    "empty tensors of floats among ints": ([[1], torch.zeros(0), [2]], INT, [[1], [], [2]]),
    "empty arrays of floats among pairs": ([[[1, 2]], np.zeros(0)], INT, [[[1, 2]], []]),
    "empty arrays alone": ([[], np.zeros(0, "f2"), np.zeros(0)], np.dtype("f2"), [[], [], []]),
    "tuples and ranges": ([(1, 2), range(3)], INT, [[1, 2], [0, 1, 2]]),
    "lists of NumPy's numbers": ([[np.uint8(3)]], np.dtype(np.uint8), [[3]]),
    "large ints": ([[2**63 - 1]], INT, [[2**63 - 1]]),
    "NumPy's large ints": ([[np.uint64(2**63)]], np.dtype(np.uint64), [[2**63]]),
    "large floats": ([[2.0**63, 1, float("inf")]], FLOAT, [[2.0**63, 1, float("inf")]]),
    "array.array": ([array.array("h", [1, 2])], np.dtype(np.int16), [[1, 2]]),
    "bytearray": ([memoryview(b"ab"), bytearray(b"c")], np.dtype(np.uint8), [[97, 98], [99]]),
    "float64 arrays": ([np.array([0.5])], np.dtype(np.float64), [[0.5]]),
    "rows of an array": (np.eye(2, dtype=int), INT, [[1, 0], [0, 1]]),
    "a deque": (collections.deque([[1]]), INT, [[1]]),
    "values of a dict": ({"a": [1]}.values(), INT, [[1]]),
    "a RaggedArray": (RaggedArray(np.arange(3), np.array([0, 1, 3])), INT, [[0], [1, 2]]),
}


@pytest.mark.parametrize("kind", TAKEN)
def test_types_of_input(kind):
    sequences, dtype, expected = TAKEN[kind]
    ragged = RaggedArray.from_sequences(sequences)
    assert ragged.dtype == dtype
    assert [sequence.tolist() for sequence in ragged] == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.bool, torch.uint16])
def test_tensors_stay_tensors(dtype):
    sequences = [torch.ones(2, 3).to(dtype), torch.ones(3, 4).t()[:, ::1].to(dtype)]
    sequences[1] = sequences[1][:1, :3]
    ragged = RaggedArray.from_sequences(sequences)
    assert_same(list(ragged), sequences)
    mixed = RaggedArray.from_sequences([[], *sequences, sequences[0].numpy()])
    assert_same(list(mixed)[1:], [*sequences, sequences[0]])
    assert isinstance(RaggedArray.from_sequences([sequences[0].numpy(), *sequences])[2], np.ndarray)
    assert_same(list(RaggedArray.from_sequences([sequences[0][:0, 0]])), [sequences[0][:0, 0]])


@pytest.mark.parametrize(
    ("sequence", "dtype", "expected"),
    [
        ([1, 2], np.uint16, np.array([1, 2], np.uint16)),
        ([0, 65535], torch.uint16, np.array([0, 65535], np.uint16)),
        ([0.1], "float64", np.array([0.1])),
        ([2**63], np.uint64, np.array([2**63], np.uint64)),
        ([1e300], np.float64, np.array([1e300])),
        ([1e300, -1e300j], "c16", np.array([1e300, -1e300j])),
        (np.array([np.inf, np.nan, -np.inf]), "f2", np.array([np.inf, np.nan, -np.inf], "f2")),
        ([65504], np.float16, np.array([65504], np.float16)),
        ([1], "f2", np.array([1], np.float16)),
        ([True], np.int8, np.array([1], np.int8)),
        ([-1.5], np.complex128, np.array([-1.5 + 0j])),
        (np.array([-3]), np.int8, np.array([-3], np.int8)),
        (np.array([1, 2], ">i4"), np.int32, np.array([1, 2], np.int32)),
        (np.array([0.1]), np.float32, np.array([0.1], np.float32)),
        (torch.tensor([1, 2]), torch.float32, torch.tensor([1.0, 2.0])),
        (torch.tensor([1, 2]), np.uint8, torch.tensor([1, 2], dtype=torch.uint8)),
        ([], np.int32, np.empty(0, np.int32)),
    ],
)
def test_dtype(sequence, dtype, expected):
    for count in (1, 3):
        ragged = RaggedArray.from_sequences([sequence] * count, dtype=dtype)
        assert_same(list(ragged), [expected] * count)


def test_no_sequences():
    ragged = RaggedArray.from_sequences([], dtype=np.int32)
    assert len(ragged) == 0
    assert ragged.dtype == np.int32
    assert ragged.values.shape == (0,)
    for sequences, got in (([], "no sequences"), ([[], ()], "2 empty lists")):
        with pytest.raises(ValueError, match=rf"has a dtype, got {got}; set it"):
            RaggedArray.from_sequences(sequences)


ONE = np.ones(1, np.int32)
BFLOAT16 = torch.ones(1).bfloat16()

REFUSED = (
    ([ONE, np.ones(1)], None, TypeError, "1: expected int32 like the first, got float64; set the dtype"),
    ([[1], [0.5]], None, TypeError, "1: expected int64 like the first, got float32; set the dtype"),
    ([ONE, np.empty(0, np.int64)], None, TypeError, "1: expected int32 like the first, got int64"),
    ([ONE, ["a"]], None, TypeError, "1: expected int32 like the first, got <U1"),
    ([["a"]], None, TypeError, "0: expected a numeric or bool dtype, got dtype <U1"),
    (["abc"], None, TypeError, "0: expected an array or a list of numbers, got str"),
    ([[None]], None, TypeError, "0: expected a numeric or bool dtype, got dtype object"),
    ([{"a": 1}], None, TypeError, "0: expected an array or a list of numbers, got dict"),
    ([[2**64]], None, TypeError, "0: expected a numeric or bool dtype, got dtype object"),
    ([np.ones(1, ">f4")], None, TypeError, "0: expected the machine's byte order"),
    ([[1], np.ma.ones(1)], None, TypeError, "1: expected an array without a mask"),
    ([ONE, torch.ones(1, device="meta")], None, TypeError, r"1: .*on the CPU.*\.cpu"),
    ([torch.eye(3).to_sparse()], None, TypeError, "0: expected a dense tensor"),
    ([torch.ones(1, requires_grad=True)], None, TypeError, r"0: .*without gradients.*\.detach\("),
    ([BFLOAT16], None, TypeError, r"0: NumPy has no bfloat16; convert .* bits .*uint16"),
    ([BFLOAT16], np.float32, TypeError, "0: NumPy has no bfloat16"),
    ([1, 2], None, TypeError, "0: expected an array or a list of numbers, got int"),
    ([[], ONE, 5], None, TypeError, "2: expected an array or a list of numbers, got int"),
    (np.arange(3), None, TypeError, "0: expected an array or a list of numbers, got int64"),
    ([ONE, np.array(1)], None, ValueError, "1: expected at least one axis, got a 0-d array"),
    (torch.arange(3), None, ValueError, "0: expected at least one axis, got a 0-d array"),
    ([ONE, np.ones((1, 2), np.int32)], None, ValueError, r"1: expected shape \(\*\) .* \(1, 2\)"),
    ([[[1, 2]], [[1, 2, 3]]], None, ValueError, r"1: expected shape \(\*, 2\) .*, got \(1, 3\)"),
    ([ONE, [[1], [1, 2]]], None, ValueError, r"1: setting an array element.*inhomogeneous.*; np\.concatenate\(list\) joins lists"),
    ([ONE, [0.5]], np.int32, TypeError, "1: expected numbers that can be cast to int32, got float64"),
    ([[1j]], np.float32, TypeError, "0: expected numbers that can be cast to float32, got complex128"),
    ([[1]], bool, TypeError, "0: expected numbers that can be cast to bool, got int64"),
    ([["a"]], np.int32, TypeError, "0: expected numbers that can be cast to int32, got <U1"),
    ([["1"]], np.float32, TypeError, "0: expected numbers that can be cast to float32, got <U1"),
    ([[0], [1, 65536]], np.uint16, ValueError, "1: 65536 does not fit in uint16"),
    ([[[1, -1]]], np.uint64, ValueError, "0: -1 does not fit in uint64"),
    ([[2**63]], None, ValueError, "0: expected 64-bit integers, got 9223372036854775808; set the dtype of all with dtype="),
    ([[[-1], [2**63]]], None, ValueError, "0: expected 64-bit integers, got 922337203685477580"),
    ([[1], [1e300]], None, ValueError, r"1: 1e\+300 does not fit in float32; .*wider.*dtype="),
    ([[1, 1e300j]], None, ValueError, r"0: 1e\+300j does not fit in complex64"),
    ([[0.5, 7e4]], "f2", ValueError, r"0: 70000\.0 does not fit in float16"),
    ([np.array([1, -70000])], "f2", ValueError, "0: -70000 does not fit in float16"),
    ([torch.tensor([1e300], dtype=torch.float64)], "f4", ValueError, r"0: 1e\+300 does not fit in float32"),
    ([torch.ones(1, dtype=torch.cfloat).conj().imag], None, TypeError, r"0: .*lazily conjugated or negated one; .*g\("),
    ([torch.ones(1, dtype=torch.cfloat).conj()], None, TypeError, r"0: .*a lazily conjugated or.*; .*j\("),
    ([[2**63]], np.int64, ValueError, "0: 9223372036854775808 does not fit in int64"),
    ([np.array([300])], np.int8, ValueError, "0: 300 does not fit in int8"),
)  # fmt: skip


@pytest.mark.parametrize(("sequences", "dtype", "error", "message"), REFUSED)
def test_bad_sequences(sequences, dtype, error, message):
    with pytest.raises(error, match=rf"^RaggedArray\.from_sequences: sequence {message}"):
        RaggedArray.from_sequences(sequences, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, "bfloat16", object, str, "M8[s]", 5, "nonsense"])
def test_bad_dtypes(dtype):
    with pytest.raises(TypeError, match=r"^RaggedArray\.from_sequences: dtype must be"):
        RaggedArray.from_sequences([[1]], dtype=dtype)


def test_errors_of_the_iterable_name_the_sequence():
    def sequences():
        yield [1]
        raise KeyError("from the generator")

    with pytest.raises(KeyError, match="from the generator") as caught:
        RaggedArray.from_sequences(sequences())
    assert caught.value.__notes__ == ["RaggedArray.from_sequences: raised at sequence 1"]
    with pytest.raises(TypeError, match="not iterable"):
        RaggedArray.from_sequences(5)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize(("count", "kind"), [(100, "generator"), (5000, "list")])
def test_the_data_is_never_held_twice(count, kind):
    peak, after = map(float, run_program("memory_of_sequences", str(count), kind).split())
    assert peak < 1.4
    assert after < 1.2
