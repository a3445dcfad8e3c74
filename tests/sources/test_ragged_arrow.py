"""RaggedArray.from_arrow: the memory of pyarrow's arrays of lists, and no copy of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pinfeed
from pinfeed.sources.ragged import RaggedArray

LISTS = [[1, 2], [], [3, 4, 5], [6]]

KINDS: dict[str, Callable[[], Any]] = {
    "ListArray": lambda: pa.array(LISTS, pa.list_(pa.int32())),
    "LargeListArray": lambda: pa.array(LISTS, pa.large_list(pa.int32())),
    "slice": lambda: pa.array([[9], *LISTS, [8, 7]], pa.list_(pa.int32()))[1:5],
    "slice of values": lambda: pa.ListArray.from_arrays(
        pa.array([0, 2, 2, 5, 6], pa.int32()), pa.array([0, 1, 2, 3, 4, 5, 6, 7], pa.int32())[1:]
    ),
    "slice beside nulls": lambda: pa.array([[9, None], *LISTS, None, [None]], pa.list_(pa.int32()))[
        1:5
    ],
    "one chunk": lambda: pa.chunked_array([pa.array(LISTS, pa.list_(pa.int32()))]),
    "column": lambda: pa.table({"x": pa.array(LISTS, pa.list_(pa.int32()))})["x"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_copied(kind: str) -> None:
    array = KINDS[kind]()
    ragged = RaggedArray.from_arrow(array)
    chunk = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    values = chunk.values
    start = values.buffers()[1].address + 4 * values.offset
    assert ragged.values.ctypes.data == start
    offsets_start = chunk.buffers()[1].address + ragged.offsets.itemsize * chunk.offset
    assert ragged.offsets.ctypes.data == offsets_start


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "list": (lambda: LISTS, TypeError, "expected a pyarrow array of lists or strings, got list"),
    "table": (lambda: pa.table({"x": LISTS}), TypeError, "expected a pyarrow array .*got Table"),
    "numbers": (
        lambda: pa.array([1, 2]),
        TypeError,
        "expected lists of different lengths, or strings, got int64; ArrayDataset.from_arrow takes",
    ),
    "struct": (lambda: pa.array([{"a": [1]}]), TypeError, "expected numbers, .*, got struct"),
    "strings": (lambda: pa.array([["a"]]), TypeError, "expected lists of numbers, .*, got list<"),
    "chunks": (
        lambda: pa.chunked_array([LISTS, LISTS]),
        ValueError,
        r"expected at most one chunk, got 2; .*combine_chunks\(\)",
    ),
    "nulls in a slice": (
        lambda: pa.array([[1], [None, 2], [None]])[:2],
        ValueError,
        "1 values are null",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused(kind: str) -> None:
    make, error, message = REFUSED[kind]
    with pytest.raises(error, match=rf"^RaggedArray\.from_arrow: {message}"):
        RaggedArray.from_arrow(make())


def test_lists_of_one_size() -> None:
    array = pa.array([[9, 9], [1, 2], [3, 4]], pa.list_(pa.int32(), 2))[1:]
    with pytest.raises(
        TypeError, match=r"got fixed_size_list.*; ArrayDataset\.from_arrow takes it"
    ):
        RaggedArray.from_arrow(array)
    dataset = pinfeed.ArrayDataset.from_arrow(pa.table({"x": array}))
    assert np.asarray(dataset["x"]).tolist() == [[1, 2], [3, 4]]


def test_the_ways_out_for_lists_that_are_null() -> None:
    array = pa.array([[1, 2], None, [3]])
    with pytest.raises(
        ValueError,
        match=r"1 of 3 rows are null, the first is row 1; .*drop_null\(\).*fill_null\(\)",
    ):
        RaggedArray.from_arrow(array)
    dropped = RaggedArray.from_arrow(array.drop_null())
    assert [part.tolist() for part in dropped] == [[1, 2], [3]]
    filled = RaggedArray.from_arrow(array.fill_null([]))
    assert [part.tolist() for part in filled] == [[1, 2], [], [3]]
    assert len(RaggedArray.from_arrow(array[2:])) == 1
