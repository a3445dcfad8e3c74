"""to_numpy: errors, and the files that remain after a failure."""

import itertools
import json

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import pinfeed
from messages import check
from pinfeed import JaggedBatch, Padded, to_numpy
from samples import FrozenError, Point, assert_same

X, F4, THREE = np.zeros(2), np.zeros((2, 3), "f4"), np.zeros(3)
FIRST = {"x": F4, "y": ["a", "b"]}
FIVE, Y = torch.arange(10.0).reshape(5, 2), np.arange(5, dtype=np.int8)
ONE = np.array([0, 3])
PADDED = pinfeed.functional.pad([[1], [2, 3]])
NO_LOADER = "loader: expected an iterable of batches"
NO_DTYPE = "dtype must be a numeric or bool dtype of NumPy"


def jagged(offsets, values=THREE):
    return JaggedBatch(values, np.array(offsets))


def nested():
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)


# The loader, keywords, and the message after "to_numpy: ".
TYPES = [
    (3, {}, f"{NO_LOADER}, got int"),
    (F4, {}, f"{NO_LOADER}, got ndarray"),
    (torch.zeros(2, 3), {}, f"{NO_LOADER}, got Tensor"),
    ({"x": X}, {}, f"{NO_LOADER}, got dict"),
    (jagged([0, 3]), {}, f"{NO_LOADER}, got JaggedBatch"),
    (PADDED, {}, f"{NO_LOADER}, got Padded"),
    (TensorDataset(torch.zeros(2)), {}, "loader: .* got TensorDataset; wrap it in a DataLoader"),
    ([X], {"max_samples": 1.5}, "max_samples must be an integer, got 1.5"),
    ([X], {"max_samples": True}, "max_samples must be an integer, got True"),
    ([F4], {"out": np.zeros((8, 3))}, "out: expected a path or None, got ndarray"),
    (lambda start: [F4], {}, f"{NO_LOADER}, got function"),
    ([F4], {"dtype": "S3"}, f"{NO_DTYPE}, got bytes24"),
    ([F4], {"dtype": torch.bfloat16}, f"{NO_DTYPE}, got bfloat16"),
    ([FIRST], {"dtype": {"y": "f4"}}, r"entry \['y'\] of batch 0: dtype: expected numbers, got list"),
    ([FIRST], {"dtype": {"x": "i4"}}, r"entry \['x'\] of batch 0: expected numbers that can be cast to int32, got float32"),
    # First batches.
    ([np.float32(1)], {}, "batch 0: expected a tensor, an ndarray, or a list .*got float32"),
    ([{"x": X, "n": 2}], {}, r"entry \['n'\] of batch 0: expected a tensor.*got int"),
    (["ab"], {}, "batch 0: expected a tensor.*got str"),
    ([np.ma.masked_array([1], [True])], {}, r"an array without a mask, .*pass \.filled\(value\)"),
    ([np.zeros(2, [("a", object)])], {}, "expected a dtype of fixed size"),
    ([np.zeros(2, "V0")], {}, "expected a dtype of fixed size"),
    ([torch.zeros(2, device="meta")], {}, "expected a tensor with values, got one on the meta device"),
    ([torch.eye(2).to_sparse()], {}, r"a dense tensor, got torch\.sparse_coo; use \.to_dense\(\)"),
    ([torch.eye(2).to(torch.float8_e4m3fn)], {}, r"NumPy has no float8_e4m3fn.*view\(torch\.uint8"),
    ([nested()], {}, r"nested one; use pinfeed\.JaggedBatch\(tensor\.values\(\), tensor\.offsets"),
    ([jagged([0.0, 3])], {}, "batch 0: .*offsets: expected int64 or int32, got float64"),
    ([jagged([0, 3], np.zeros(3, "M8[s]"))], {}, "batch 0: .*expected a numeric or bool dtype"),
    ([Padded(np.zeros((2, 2)), np.array([1.0, 2]))], {}, "lengths: expected integers, got float64"),
    ([{"x": 3}], {"dtype": "f2"}, r"entry \['x'\] of batch 0: expected a tensor, .*got int"),
    # Later batches.
    ([[1], ["a"]], {"dtype": "f2"}, "batch 1: expected numbers that can be cast to float16"),
    ([FIRST, FIRST | {"x": np.zeros((2, 3))}], {}, r"\['x'\] of batch 1: expected float32 as in batch 0"),
    ([FIRST, FIRST | {"x": torch.ones(2, 3).half()}], {}, "expected float32.*got float16"),
    ([FIRST, FIRST | {"y": "cd"}], {}, "expected a list as in batch 0, got str"),
    ([FIRST, FIRST | {"x": [0, 0]}], {}, "expected a tensor or an ndarray, got list"),
    ([jagged([0, 3]), ["a"]], {}, "batch 1: expected a JaggedBatch, .* as in batch 0, got list"),
    ([F4, jagged([0, 3])], {}, "batch 1: expected a tensor or an ndarray, got JaggedBatch"),
    ([jagged(ONE, np.zeros(3, t)) for t in ("f4", "f8")], {}, "batch 1: expected float32 as in batch 0"),
    ([FIVE, FIVE.double()], {}, "batch 1: expected float32 as in batch 0"),
    ([Y, Y.astype(">i2")], {}, "batch 1: expected int8 as in batch 0"),
]  # fmt: skip
VALUES = [
    ([], {}, "loader: expected at least one batch, got none"),
    (iter([]), {}, "loader: expected at least one batch, got none"),
    (itertools.cycle([X]), {}, "loader: expected one that ends, got an infinite one; pass max_samples"),
    ([X], {"max_samples": 0}, "max_samples must be at least 1, got 0"),
    ([FIRST], {"dtype": {"z": "f4"}}, r"dtype: expected entries of a batch, \['x', 'y'"),
    ([X, X + 7e4], {"dtype": "f2"}, "batch 1: 70000.0 does not fit in float16; set a wider one with"),
    ([X], {"out": "x.npz"}, "expected a path that ends in .npy, .* got 'x.npz'; np.savez"),
    # First batches.
    ([torch.tensor(1.0)], {}, "batch 0: expected an axis that counts samples, got a 0-d"),
    ([{"loss": torch.tensor(1.0), "y": X}], {}, r"entry \['loss'\] of batch 0: expected an axis"),
    ([[torch.tensor(1.0), X]], {}, r"entry \[0\] of batch 0: expected an axis"),
    ([None], {}, "batch 0: expected at least one array or list, got none"),
    ([{}], {}, "batch 0: expected at least one array or list, got none"),
    ([{"x": X, "y": np.zeros(3)}], {}, r"\['y'\] of batch 0: expected 2 samples, as \['x'\] has"),
    ([jagged([0, 2, 1])], {}, r"batch 0: .*offsets\[2\] must be from 2 .* to 3 .*, got 1"),
    ([jagged([0, 4])], {}, r"batch 0: .*offsets\[1\] must be from 0 .* to 3 .*, got 4"),
    ([jagged([-1, 3])], {}, r"batch 0: .*offsets\[0\] must be from 0 to 3 .*, got -1"),
    ([jagged([[0, 3]])], {}, r"batch 0: .*offsets: expected shape"),
    ([Padded(np.zeros((3, 2)), ONE)], {}, r"batch 0: .*lengths: expected shape \(3,\)"),
    ([Padded(np.zeros((2, 2)), np.array([1, 3]))], {}, "lengths of sample 1: expected from 0 to 2, got 3"),
    ([Padded(F4, ONE, np.ones((2, 4), bool))], {}, "expected a mask that agrees with lengths, got another"),
    ([[70000]], {"dtype": "f2"}, "batch 0: 70000 does not fit in float16; set a wider one with"),
    ([{"x": [[1, 70000]]}], {"dtype": {"x": "f2"}}, r"\['x'\] of batch 0: 70000 does not fit"),
    ([[[1, 2], [3]]], {"dtype": "f4"}, r"batch 0: .* inhomogeneous .*; Collate\(Jagged\(\)\) makes batches of lists"),
    ([(FIVE[:2], Y[:3]), (FIVE[2:], Y[3:])], {}, r"\[1\] of batch 0: expected 2 samples"),  # equal totals
    # Later batches.
    ([FIVE, FIVE[:, :1, None]], {}, r"of shape \(2,\) as in batch 0, got \(1, 1\)"),
    ([[1], [[2]]], {"dtype": "f4"}, r"of shape \(\) as in batch 0, got \(1,\)"),
    ([FIRST, FIRST | {"x": F4[..., None]}], {}, r"of shape \(3,\) as in batch 0, got \(3, 1\); for s"),
    ([FIRST, FIRST | {"y": ["c"]}], {}, r"\['y'\] of batch 1: expected 2 samples"),
    ([FIRST, {"x": F4}], {}, r"batch 1: expected the entries \['x'\], \['y'\] as in batch 0, got \['x'\]"),
    ([FIRST, [F4, ["c", "d"]]], {}, r"batch 1: expected the entries .* got \[0\], \[1\]"),
    ([FIRST, {}], {}, "batch 1: expected the entries .* as in batch 0, got none"),
    ([FIRST, None], {}, "batch 1: expected the entries .* got the batch itself"),
    ([FIRST, F4], {}, "batch 1: expected the entries .* got the batch itself"),
    ([(X, None), (X, X)], {}, r"entry \[1\] of batch 1: expected None as in batch 0, got ndarray"),
    ([np.zeros((1, 3, n)) for n in (2, 4)], {}, r"batch 1: .* \(3, 2\) as in batch 0, got \(3, 4\)"),
    ([jagged(ONE, np.zeros((3, n))) for n in (2, 3)], {}, r"shape \(\*, 2\) as in batch 0, got \(\*, 3\)"),
]  # fmt: skip
REFUSED = [(*case, TypeError) for case in TYPES] + [(*case, ValueError) for case in VALUES]


@pytest.mark.parametrize(("loader", "keywords", "message", "error"), REFUSED)
def test_bad_loaders_and_arguments(loader, keywords, message, error):
    for way in (list, iter) if isinstance(loader, list) else (lambda same: same,):
        with pytest.raises(error, match=f"^to_numpy: .*{message}") as caught:
            to_numpy(way(loader), **keywords)
        if message.startswith("batch 1: expected the entries") or r"\['x'\] of batch 1" in message:
            assert_same(caught.value.partial, FIRST)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit, MemoryError])
def test_loader_errors_carry_the_batches_so_far(error):
    def batches():
        for i in range(3):
            yield Point(torch.full((2, 2), i), [i, i])
        raise error("of the loader")

    with pytest.raises(error, match="of the loader") as caught:
        to_numpy(batches())
    expected = Point(np.repeat(np.arange(3), 4).reshape(6, 2), [0, 0, 1, 1, 2, 2])
    assert_same(caught.value.partial, expected)


def test_errors_without_attributes_pass_through():
    def batches():
        yield X
        raise FrozenError(3)

    with pytest.raises(FrozenError):
        to_numpy(batches())


def test_partial_results_of_sequences():
    batches = [jagged([0, 2, 3]), jagged([0, 1]), jagged([0, 1], np.zeros(1, np.int8))]
    with pytest.raises(TypeError) as caught:
        to_numpy(batches)
    assert_same(list(caught.value.partial), [np.zeros(2), np.zeros(1), np.zeros(1)])


# Batches that to_numpy(batches, folder / name) can't write.
UNWRITTEN = [
    ([X], "no/x.npy", FileNotFoundError, r"out: No such file or directory: '.*no/x\.npy'$"),
    ([X], ".npy", ValueError, r"out: expected a name before \.npy, got '.*/\.npy'"),
    ([[X, X]], "x.npy", ValueError, "a .npy file holds one array; pass the path of a directory"),
    ([[1, 2]], "x", TypeError, r"batch 0: string 0: .* got int; .* np.array\(numbers\)"),
    ([[0.5, 2]], "x", TypeError, r"batch 0: string 0: .* got float; .* np.array\(numbers\)"),
    ([["a", float("nan")]], "x", TypeError, "string 1: .* got float; leave it out"),
    ([["a", "b"]], "x.npy", TypeError, "batch 0: expected an array for a .npy file, got a list; .* directory"),
    ([["a", None]], "x", TypeError, "batch 0: string 1: expected str like the first, got None"),
    ([FIRST, FIRST | {"y": ["c", b"d"]}], "x", TypeError, r"\['y'\] of batch 1: string 1: expect"),
    ([FIRST, FIRST | {"y": [b"c", b"d"]}], "x", TypeError, "expected str as in earlier batches, got bytes"),
    ([[[1], [2]]], "x", TypeError, "batch 0: string 0: expected str or bytes, got list"),
    ([jagged([0, 3])], "x.npy", ValueError, "different lengths; pass the path of a directory"),
    ([{"a": {"b": X}, "a.b": X}], "x", ValueError, "another entry is already written to a.b; rena"),
    ([{"a": X, "a.npy": X}], "x", ValueError, r"entry \['a.npy'\] .* already written to a.npy"),
]  # fmt: skip


@pytest.mark.parametrize(("batches", "name", "error", "message"), UNWRITTEN)
def test_values_that_files_cannot_store(tmp_path, batches, name, error, message):
    with pytest.raises(error, match=message):
        to_numpy(batches, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_lists_of_strings_are_written_as_strings(tmp_path):
    lists = [[], ["ab", "c"]]
    batches = [{"a": [strings]} for strings in lists]
    with pytest.raises(TypeError, match=r"string 0: .* got list; json.dumps\(strings\) converts"):
        to_numpy(batches, tmp_path / "x")
    assert to_numpy(batches)["a"] == lists
    texts = [{"a": [json.dumps(strings)]} for strings in lists]
    assert [json.loads(text) for text in to_numpy(texts, tmp_path / "x")["a"]] == lists
    for samples in lists, lists[1:]:
        with pytest.raises(TypeError, match=r"got a list of str; json.dumps\(strings\) converts"):
            pinfeed.write_array(tmp_path / "y", samples)
    written = pinfeed.write_array(tmp_path / "y", map(json.dumps, lists))
    assert [json.loads(text) for text in written] == lists


@pytest.mark.parametrize(("shape", "got"), [((3,), "()"), ((), "a 0-d array")])
def test_a_squeezed_batch_of_one(shape, got):
    batches = [torch.ones(count, 1, *shape) for count in (4, 1)]
    words = f"got {got}; squeeze() drops the batch axis ", " squeeze(1)"
    check(lambda: to_numpy([batch.squeeze() for batch in batches]), ValueError, *words)
    assert to_numpy([batch.squeeze(1) for batch in batches]).shape == (5, *shape)
