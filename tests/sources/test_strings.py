"""Strings as samples: in a RaggedArray in memory, in files and over Arrow, and in batches."""

import os
import pickle

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import default_collate

import reference
from messages import check
from pinfeed import ArrayDataset, Collate, ConcatArray, Jagged, Keep, Pad, RaggedArray, Stack

from_strings = RaggedArray.from_strings

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=12)
BYTES = st.lists(st.binary(), min_size=1, max_size=12)
STRINGS = st.one_of(TEXTS, BYTES)
SOME = ["é", "", "x\0y\0", "日本", "a"]
SOME_BYTES = [b"\xff", b"", b"x\0y\0", b"abc", b"a"]


def saved(strings, folder):
    folder.mkdir(exist_ok=True)
    from_strings(strings).save(folder / "strings", overwrite=True)
    return RaggedArray.open(folder / "strings")


def arrow(strings, kind):
    suffix = "string" if isinstance(strings[0], str) else "binary"
    name = {"": suffix, "large": f"large_{suffix}"}[kind]
    return pa.array(strings, getattr(pa, name)())


SOURCES = {
    "list": lambda strings, _: from_strings(strings),
    "generator": lambda strings, _: from_strings(string for string in strings),
    "objects": lambda strings, _: from_strings(np.array(strings, object)),
    "RaggedArray": lambda strings, _: from_strings(from_strings(strings)),
    "files": saved,
    "parts": lambda strings, _: ConcatArray([from_strings(strings[:1]), from_strings(strings)]),
    "Arrow": lambda strings, _: RaggedArray.from_arrow(arrow(strings, "")),
    "large Arrow": lambda strings, _: RaggedArray.from_arrow(arrow(strings, "large")),
    "Arrow slice": lambda strings, _: RaggedArray.from_arrow(arrow(strings * 2, "")[1:])[len(strings) - 1 :],
}  # fmt: skip


def as_arrays(strings):
    bytes_ = [text.encode() if isinstance(text, str) else text for text in strings]
    return [np.frombuffer(text, np.uint8) for text in bytes_]


@pytest.mark.parametrize("kind", SOURCES)
@given(strings=STRINGS, data=st.data())
def test_strings_are_unchanged(kind, strings, data, tmp_path):
    source = SOURCES[kind](strings, tmp_path)
    if kind == "parts":
        strings = [strings[0], *strings]
    assert list(source) == strings
    assert {*map(type, source)} == {type(strings[0])}
    assert source.lengths.tolist() == [len(array) for array in as_arrays(strings)]
    dataset = ArrayDataset({"x": source})
    chosen = data.draw(st.lists(st.integers(0, len(strings) - 1), min_size=1, max_size=20))
    expected = [strings[i] for i in chosen]
    for samples in (dataset[chosen], [dataset[i] for i in chosen], list(dataset[chosen])):
        for collate in (Collate(), Collate({"x": Keep()}), default_collate):
            batch = collate(samples)["x"]
            assert (type(batch), batch) == (list, expected)
            assert {*map(type, batch)} == {type(strings[0])}


@pytest.mark.parametrize("kind", ["list", "files", "parts", "Arrow slice"])
@given(strings=STRINGS, data=st.data())
def test_their_bytes_as_numbers(kind, strings, data, tmp_path):
    dataset = ArrayDataset(SOURCES[kind](strings, tmp_path))
    chosen = data.draw(st.lists(st.integers(0, len(strings) - 1), min_size=1, max_size=20))
    side = data.draw(st.sampled_from(["right", "left"]))
    cut = data.draw(st.one_of(st.none(), st.integers(1, 9)))
    dtype = data.draw(st.sampled_from([torch.uint8, torch.int64, torch.float16]))
    arrays = as_arrays([dataset[i] for i in chosen])
    values, lengths, _ = reference.pad(arrays, side=side, max_length=cut, pad_value=7)
    expected, offsets = reference.jagged(arrays, cut, side)
    pad = Collate(Pad(pad_value=7, side=side, max_length=cut, dtype=dtype))
    jagged = Collate(Jagged(dtype, max_length=cut, side=side))
    for samples in (dataset[chosen], [dataset[i] for i in chosen]):
        padded, joined = pad(samples), jagged(samples)
        assert padded.values.dtype == joined.values.dtype == dtype
        assert padded.values.tolist() == values.tolist()
        assert padded.lengths.tolist() == lengths.tolist()
        assert joined.values.tolist() == expected.tolist()
        assert joined.offsets.tolist() == offsets.tolist()


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array(SOME, object), SOME),
        (np.array(SOME), ["é", "", "x\0y", "日本", "a"]),  # NumPy drops trailing zeros
        (np.array(SOME)[::-2], ["a", "x\0y", "é"]),
        (np.array(SOME_BYTES), [b"\xff", b"", b"x\0y", b"abc", b"a"]),
        (np.array(SOME, np.dtypes.StringDType()), SOME),
        (np.array(["a", "b"], ">U1"), ["a", "b"]),
        (np.array([], "S3"), []),
    ],
)
def test_numpy_string_arrays(array, expected):
    assert list(from_strings(array)) == expected
    dataset = ArrayDataset({"x": array})
    assert [sample["x"] for sample in dataset] == expected
    assert repr(dataset) == f"ArrayDataset({len(expected)} samples: ['x'] {type_name(array)})"


def type_name(array):
    return "bytes" if array.dtype.kind == "S" else "str"


def test_more_strings_than_are_encoded_at_once():
    strings = [f"{i:x}" for i in range(150_000)]
    ragged = from_strings(iter(strings))
    assert list(ragged[[0, 65_535, 65_536, 149_999]]) == ["0", "ffff", "10000", "249ef"]
    assert len(ragged) == len(strings)
    strings[140_000] = "\ud800"
    check(lambda: from_strings(strings), ValueError, "string 140000: ", r"'\ud800' at position 0")


def test_no_strings(tmp_path):
    for empty, expected in (
        (from_strings([]), str),
        (from_strings(["a"])[:0], str),
        (from_strings([b"a"])[[]], bytes),
        (RaggedArray.from_arrow(pa.array([], pa.string())), str),
        (RaggedArray.from_arrow(pa.array(["a"])[1:]), str),
        (RaggedArray.from_arrow(pa.chunked_array([], pa.large_binary())), bytes),
    ):
        assert (len(empty), empty.string_type) == (0, expected)
        empty.save(tmp_path / "empty", overwrite=True)
        assert RaggedArray.open(tmp_path / "empty").string_type is expected
    assert list(RaggedArray.from_arrow(pa.array(["", ""]))) == ["", ""]


def test_arrow_is_not_copied():
    for array in (pa.array(SOME), pa.array(SOME, pa.large_string()), pa.array(SOME_BYTES)[2:]):
        ragged = RaggedArray.from_arrow(array)
        _, offsets, values = array.buffers()
        width = ragged.offsets.itemsize
        assert ragged.values.ctypes.data == values.address
        assert ragged.offsets.ctypes.data == offsets.address + array.offset * width


def test_files(tmp_path):
    for strings, name in ((SOME, "utf8.npy"), (SOME_BYTES, "binary.npy")):
        folder = tmp_path / name
        from_strings([strings[0], *strings])[1:].save(folder)
        assert sorted(os.listdir(folder)) == sorted([name, "offsets.npy"])
        assert np.load(folder / name).tobytes() == b"".join(map(bytes, as_arrays(strings)))
        assert list(RaggedArray.open(folder)) == strings
        dataset = ArrayDataset({"x": str(folder), "y": folder})
        assert dataset[2] == {"x": strings[2], "y": strings[2]}
        assert Collate()(dataset[[3]]) == {"x": [strings[3]], "y": [strings[3]]}
        assert len(pickle.dumps(dataset)) < 1500
        # Strings can become numbers, and numbers strings.
        RaggedArray.from_sequences([[1]]).save(folder, overwrite=True)
        assert RaggedArray.open(folder).string_type is None


NO_TEXT = RaggedArray(np.frombuffer(b"a\xff", np.uint8), np.array([0, 1, 2]), str)
PAIR = np.array([0, 1])

REFUSED = {
    "one string": (lambda: from_strings("abc"), TypeError, ["strings must be an iterable of str"]),
    "a number": (lambda: from_strings(3), TypeError, ["iterable of str or of bytes, got one int"]),
    "numbers": (lambda: from_strings([3]), TypeError, ["string 0: expected str or bytes, got int"]),
    "a number later": (lambda: from_strings(["a", 3]), TypeError, ["string 1: expected str like the first"]),
    "None": (lambda: from_strings(["a", None]), TypeError, ["string 1: ", "put a string in its pl"]),
    "missing in pandas": (lambda: from_strings(["a", float("nan")]), TypeError, ["string 1: ", "got float; leave it out"]),
    "an array of pyarrow": (lambda: from_strings(pa.array(["a"])),
        TypeError, ["string 0: ", "pass arrays of pyarrow to RaggedArray.from_arrow"]),
    "mixed": (lambda: from_strings([b"a", "b"]), TypeError, ["string 1: expected bytes", "encode()"]),
    "surrogate": (lambda: from_strings(["a", "b", "c\udcff"]),
        ValueError, ["string 2: ", r"surrogate '\udcff' at position 1", "os.fsencode()"]),
    "a table": (lambda: from_strings(np.array([["a"]])), ValueError, ["(N,), got (1, 1)"]),
    "missing": (lambda: from_strings(np.array(["a", None], np.dtypes.StringDType(na_object=None))),
        TypeError, ["string 1: expected str like the first, got NoneType"]),
    "a mask": (lambda: from_strings(np.ma.masked_array(["a"])), TypeError, [".filled(value)"]),
    "objects": (lambda: ArrayDataset({"x": np.array(["a", {}], object)}),
        TypeError, ["ArrayDataset: entry ['x']: item 1: expected str like the first, got dict"]),
    "no UTF-8": (lambda: NO_TEXT[1], ValueError, ["string 1: ", "0xff", "string_type=bytes"]),
    "no UTF-8 in a batch": (lambda: Collate({"x": None})(ArrayDataset({"x": NO_TEXT})[[0, 1]]),
        ValueError, ["Collate: entry ['x'] of sample 1 of the batch (index 1): ", "string_type=bytes"]),
    "no bytes": (lambda: RaggedArray(PAIR, PAIR, str), TypeError, ["uint8 with shape (N,), got in"]),
    "no type": (lambda: RaggedArray(PAIR, PAIR, int), ValueError, ["string_type must be str, byte"]),
    "parts of two types": (lambda: ConcatArray([from_strings(["a"]), from_strings([b"a"])]),
        TypeError, ["part 1: expected a RaggedArray of str like part 0, got a RaggedArray of bytes"]),
    "pieces": (lambda: from_strings(["abc"]).split(2), TypeError, ["RaggedArray(ragged.values, "]),
    "sequences": (lambda: RaggedArray.from_sequences(["ab"]), TypeError, ["sequence 0: ", "RaggedArray.from_strings takes strings"]),
    "Stack to numbers": (lambda: Collate(Stack(torch.uint8))(ArrayDataset(from_strings(["a"]))[[0]]),
        TypeError, ["expected an array, a tensor or a number, got str; Keep()"]),
    "Pad": (lambda: Collate({"x": Pad()})([{"x": "a"}, {"x": [1]}]),
        TypeError, ["entry ['x'] of sample 1: expected str like the first, got list"]),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_strings(case):
    call, error, words = REFUSED[case]
    check(call, error, *words)


def test_fixes_in_messages_work():
    assert list(RaggedArray(NO_TEXT.values, NO_TEXT.offsets, string_type=bytes)) == [b"a", b"\xff"]
    name = os.fsdecode(b"\xff.png")
    assert list(from_strings([os.fsencode(name)])) == [b"\xff.png"]
    assert list(from_strings([name.encode(errors="replace")])) == [b"?.png"]
    text = from_strings(["abc"])
    assert RaggedArray(text.values, text.offsets).split(2)[1].tolist() == [ord("c")]
    array = pa.array(["a", None])
    assert list(RaggedArray.from_arrow(array.fill_null(""))) == ["a", ""]
    assert list(RaggedArray.from_arrow(array.drop_null())) == ["a"]
