"""column_array: an entry for every type of column, with the values that pyarrow reads."""

import gc
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfeed.sources.arrow import column_array
from pinfeed.sources.concat import ConcatArray
from pinfeed.sources.ragged import RaggedArray


def numpy_dtype(kind):
    return pa.array([], kind).to_numpy(zero_copy_only=False).dtype


NUMBERS = {
    **{
        kind: st.integers(np.iinfo(numpy_dtype(kind)).min, 127)
        for kind in (
            *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
            *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        )
    },
    pa.float16(): st.floats(width=16, allow_nan=False),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
}


@st.composite
def columns(draw):
    """Draws columns of every supported type, as arrays or chunks, with slices anywhere."""
    kind = draw(st.sampled_from(list(NUMBERS)))
    values = NUMBERS[kind]
    for _ in range(draw(st.integers(0, 2))):
        size = draw(st.integers(0, 3))
        kind, values = pa.list_(kind, size), st.lists(values, min_size=size, max_size=size)
    make = draw(st.sampled_from([None, pa.list_, pa.large_list]))
    if make is not None:
        kind, values = make(kind), st.lists(values, max_size=4)
    rows = st.lists(st.none() | values, max_size=3), st.lists(values, max_size=5)
    chunks = []
    for _ in range(draw(st.integers(0, 3))):
        around, inside = map(draw, rows)
        chunk = pa.array([*around, *inside, *around], kind)
        chunks.append(chunk[len(around) : len(around) + len(inside)])
    if len(chunks) == 1 and draw(st.booleans()):
        return chunks[0]
    column = pa.chunked_array(chunks, kind)
    start = draw(st.integers(0, len(column)))
    return column[start:] if draw(st.booleans()) else column


@given(columns())
def test_values_dtypes_and_types(column):
    entry = column_array(column, "column 'x'")
    assert len(entry) == len(column)
    assert [entry[i].tolist() for i in range(len(entry))] == column.to_pylist()
    chunks = [c for c in column.chunks if len(c)] if isinstance(column, pa.ChunkedArray) else []
    kind, shape = column.type, []
    is_ragged = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if is_ragged:
        kind = kind.value_type
    while pa.types.is_fixed_size_list(kind):
        shape.append(kind.list_size)
        kind = kind.value_type
    assert entry.dtype == numpy_dtype(kind)
    if len(chunks) > 1:
        assert isinstance(entry, ConcatArray)
    elif is_ragged:
        assert isinstance(entry, RaggedArray)
        assert entry.values.shape[1:] == tuple(shape)
    else:
        assert entry.shape == (len(column), *shape)


def addresses(array):
    """Returns the addresses of an Arrow array's buffers."""
    for buffer in array.buffers():
        if buffer is not None:
            yield range(buffer.address, buffer.address + buffer.size)


LISTS = [[i] * i for i in range(10)]
VIEWED = {
    "numbers": lambda: pa.array(range(10), pa.int16()),
    "fixed-size lists": lambda: pa.array([[i, i] for i in range(10)], pa.list_(pa.float32(), 2)),
    "nested": lambda: pa.array([[[i, i]] * 3 for i in range(10)], pa.list_(pa.list_(pa.int8(), 2), 3)),
    "tensors": lambda: pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(60).reshape(10, 2, 3)),
    "lists": lambda: pa.array(LISTS, pa.list_(pa.int64())),
    "large lists": lambda: pa.array(LISTS, pa.large_list(pa.uint8())),
    "lists beside nulls": lambda: pa.array([[9, None], *LISTS, None, [None]])[1:11],
    "lists of a slice": lambda: pa.ListArray.from_arrays(pa.array(range(11), pa.int32()), pa.array(range(20))[1:]),
    "lists of fixed-size lists": lambda: pa.array([[[i, i]] * i for i in range(10)], pa.list_(pa.list_(pa.int32(), 2))),
}  # fmt: skip


@pytest.mark.parametrize("kind", VIEWED)
@pytest.mark.parametrize("part", [slice(None), slice(3, 8)])
def test_nothing_is_copied(kind, part):
    column = VIEWED[kind]()[part]
    entry = column_array(column, "column 'x'")
    entries = [entry]
    if isinstance(entry, RaggedArray):
        arrays = column, pa.chunked_array([column])
        entries += [RaggedArray.from_arrow(array) for array in arrays]
    for one in entries:
        views = [one.values if isinstance(one, RaggedArray) else one]
        if isinstance(one, RaggedArray) and column.offset == 0:
            views.append(one.offsets)
        for array in views:
            assert any(array.ctypes.data in buffer for buffer in addresses(column))
            assert not array.flags.writeable
        assert [row.tolist() for row in one] == column.to_pylist() or kind == "tensors"


@pytest.mark.parametrize("order", [None, [0, 1, 2]])
def test_tensors(order):
    values = np.arange(5 * 24, dtype=np.int32)
    storage = pa.array(values.reshape(5, 24).tolist(), pa.list_(pa.int32(), 24))
    kind = pa.fixed_shape_tensor(pa.int32(), [2, 3, 4], permutation=order)
    entry = column_array(pa.ExtensionArray.from_storage(kind, storage)[1:], "column 'x'")
    assert np.array_equal(entry, values.reshape(5, 2, 3, 4)[1:])
    assert len(column_array(pa.chunked_array([], kind), "column 'x'")) == 0


def test_the_memory_lives_as_long_as_the_views():
    gc.collect()
    before = pa.total_allocated_bytes()
    entry = column_array(pa.array([[i] * 100 for i in range(100)], pa.list_(pa.int64(), 100)), "x")
    assert pa.total_allocated_bytes() - before >= 80_000
    view = entry[50]
    del entry
    gc.collect()
    assert view.tolist() == [50] * 100
    del view
    gc.collect()
    assert pa.total_allocated_bytes() == before


REFUSED = {
    "list": (lambda: [1], TypeError, "expected a column of pyarrow, got list"),
    "scalar": (lambda: pa.scalar(1), TypeError, "expected a column of pyarrow, got Int64Scalar"),
    "nothing but nulls": (lambda: pa.nulls(3), TypeError, "expected numbers, .* got null$"),
    "nothing": (lambda: pa.nulls(0), TypeError, "expected .*got null$"),
    "struct": (lambda: pa.array([{"a": 1}]), TypeError, r"expected .*got struct<a: int64>; table\.flatten\(\) makes columns"),
    "times": (lambda: pa.array([1], pa.timestamp("ns")),
        TypeError, r"expected .*; take its numbers with column\.cast\(pyarrow\.int64\(\)\)"),
    "dates": (lambda: pa.array([1], pa.date32()), TypeError, r"expected .*; take its numbers with column\.cast\(pyarrow\.int32\(\)\)"),
    "decimals": (lambda: pa.array([1], pa.decimal128(5)), TypeError, r"expected .*; convert with column\.cast\(pyarrow\.float64\(\)\)"),
    "list views": (lambda: pa.array([[1]], pa.list_view(pa.int8())),
        TypeError, r"expected .*got list_view<.*; copy them with pyarrow\.array\(column\.to_pylist\(\), "),
    "string views": (lambda: pa.array(["a"], pa.string_view()),
        TypeError, r"expected .*got string_view; copy them with column\.cast\(pyarrow\.string\(\)\)"),
    "binaries of one size": (lambda: pa.array([b"ab"], pa.binary(2)),
        TypeError, r"expected .*got fixed_size_binary.*; copy them with column\.cast\(pyarrow\.binary\(\)\)"),
    "tensors with other axes": (
        lambda: pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int8(), [1, 2], permutation=[1, 0]), pa.array([[1, 2]], pa.list_(pa.int8(), 2))),
        TypeError, r"expected tensors whose axes .*; column\.cast\(column\.type\.storage_type\) returns their"),
    "an extension": (lambda: pa.array([b"0" * 16], pa.uuid()), TypeError, "expected .*got extension<arrow.uuid>"),
    "lists of strings": (lambda: pa.array([["a"]]), TypeError, "expected lists of numbers, or of lists of one length, got list<"),
    "lists of lists": (lambda: pa.array([[[1]]]),
        TypeError, r"expected .*; if they have one length, cast the column to pyarrow\.list_\(type, length\)"),
    "fixed-size lists of lists": (lambda: pa.array([[[1]]], pa.list_(pa.list_(pa.int8()), 1)),
        TypeError, "expected numbers, bools, or lists of them, got list<"),
    "null": (lambda: pa.chunked_array([[1, None], [None, 2]]),
        ValueError, r"2 of 4 rows are null, the first is row 1; drop these rows with drop_null\(\)"),
    "null in a fixed-size list": (lambda: pa.array([[1, 2], [None, 3]], pa.list_(pa.int8(), 2)),
        ValueError, r"1 values in its lists are null; fill them: pyarrow\.FixedSizeListArray\.from_arrays\(col"),
    "null list in a fixed-size list": (lambda: pa.array([[[1], None]], pa.list_(pa.list_(pa.int8(), 1), 2)),
        ValueError, "1 of 2 values are null"),
    "null in a list in a chunk": (lambda: pa.chunked_array([[[1]], [[2, None]]]),
        ValueError, r"chunk 1: 1 values are null; fill them: .*fill_null\(0\)\), where array is column.combine_"),
    "null in a list of bools": (lambda: pa.array([[True, None]]), ValueError, r"1 values are null; fill them: .*\.fill_null\(False\)"),
    "null in a fixed-size list of bools": (lambda: pa.chunked_array([[[True, None]]], pa.list_(pa.bool_(), 2)), ValueError, r".*fill_null\(False\), 2\)"),
    "intervals": (lambda: pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        TypeError, "expected numbers, .* got month_day_nano_interval$"),
    "null in a list of fixed-size lists": (lambda: pa.array([[[1, None]]], pa.list_(pa.list_(pa.int8(), 2))),
        ValueError, "1 of 2 values are null"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_bad_columns(kind):
    make, error, message = REFUSED[kind]
    with pytest.raises(error, match=f"^column 'x': {message}"):
        column_array(make(), "column 'x'")


NO_LISTS = {
    "list": (lambda: LISTS, TypeError, "expected a column of pyarrow, got list"),
    "table": (lambda: pa.table({"x": LISTS}), TypeError, "expected a column of pyarrow, got Table"),
    "numbers": (lambda: pa.array([1, 2]),
        TypeError, r"expected lists of different lengths, or strings, got int64; ArrayDataset\.from_arrow accepts"),
    "lists of one size": (lambda: pa.array([[1, 2]], pa.list_(pa.int32(), 2)),
        TypeError, r"expected .*got fixed_size_list.*; ArrayDataset\.from_arrow accepts it"),
    "chunks": (lambda: pa.chunked_array([LISTS, LISTS]), ValueError, r"expected at most one chunk, got 2; .*combine_chunks\(\)"),
}  # fmt: skip


@pytest.mark.parametrize("kind", NO_LISTS)
def test_ragged_arrays_do_not_accept_columns(kind):
    make, error, message = NO_LISTS[kind]
    with pytest.raises(error, match=rf"^RaggedArray\.from_arrow: {message}"):
        RaggedArray.from_arrow(make())


def test_fixes_for_other_layouts():
    views = pa.array([[1, 2], [3]], pa.list_view(pa.int8()))
    lists = column_array(pa.array(views.to_pylist(), pa.list_(views.type.value_type)), "x")
    assert [part.tolist() for part in lists] == [[1, 2], [3]]
    for strings, kind, plain in (
        (["a", "bc"], pa.string_view(), pa.string()),
        ([b"a", b"bc"], pa.binary_view(), pa.binary()),
        ([b"ab", b"cd"], pa.binary(2), pa.binary()),
    ):
        assert list(column_array(pa.array(strings, kind).cast(plain), "x")) == strings
    kind = pa.fixed_shape_tensor(pa.int8(), [1, 2], permutation=[1, 0])
    storage = pa.array([[1, 2]], pa.list_(pa.int8(), 2))
    tensors = pa.chunked_array([pa.ExtensionArray.from_storage(kind, storage)])
    assert column_array(tensors.cast(tensors.type.storage_type), "x").tolist() == [[1, 2]]


NULLS, PAIRS = pa.array([1, None, 3]), pa.list_(pa.int64(), 2)
LISTS_AND_NULL, WITH_NULL = pa.array([[1, 2], None, [3]]), pa.array([[1, None], [3]])

# The suggested fix, and its samples.
WAYS_OUT = [
    (NULLS.drop_null(), [1, 3]),
    (pa.array([1, 2], pa.timestamp("ns")).cast(pa.int64()), [1, 2]),
    (pa.array([1, 2], pa.date32()).cast(pa.int32()), [1, 2]),
    (pa.array([1, 2], pa.time32("s")).cast(pa.int32()), [1, 2]),
    (pa.array([1, 2], pa.decimal128(5)).cast(pa.float64()), [1, 2]),
    (pa.array([[[1, 2]], [[3, 4], [5, 6]]]).cast(pa.list_(PAIRS)), [[[1, 2]], [[3, 4], [5, 6]]]),
    (pa.table({"x": [{"a": 1}, {"a": 2}]}).flatten()["x.a"], [1, 2]),
    (LISTS_AND_NULL.drop_null(), [[1, 2], [3]]),
]  # fmt: skip


@pytest.mark.parametrize(("column", "samples"), WAYS_OUT)
def test_fixes_in_messages_work(column, samples):
    makers = [lambda array: column_array(array, "x")]
    if pa.types.is_list(column.type):
        makers.append(RaggedArray.from_arrow)
    for make in makers:
        assert [sample.tolist() for sample in make(column)] == samples


WITH_NULLS = [
    NULLS,
    WITH_NULL,
    LISTS_AND_NULL,
    pa.array([True, None]),
    pa.array([[True, None]]),
    pa.array(["a", None]),
    pa.array([b"a", None], pa.large_binary()),
    pa.array([[1, 2], None], PAIRS),
    pa.array([[1, None], [3, 4]], PAIRS),
    pa.array([[[1, 2], None]], pa.list_(PAIRS)),
    pa.array([[[1, 2]], None], pa.list_(PAIRS, 1)),
]


@pytest.mark.parametrize("array", WITH_NULLS, ids=lambda array: str(array.type))
def test_nulls_are_filled_by_the_expression_in_the_message(array):
    column = pa.chunked_array([array])
    with pytest.raises(ValueError, match="null") as caught:
        column_array(column, "x")
    message = str(caught.value)
    call = re.search(r"(fill_null\(.*?\))$|fill them: (.*?\))(, where|$)", message)
    code = f"column.{call[1]}" if call[1] else call[2]
    filled = eval(code, {"column": column, "pyarrow": pa, "array": array, "type": type})
    assert len(column_array(pa.chunked_array([filled]) if isinstance(filled, pa.Array) else filled, "x")) == len(array)  # fmt: skip
