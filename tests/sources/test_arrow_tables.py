"""ArrayDataset.from_arrow: table rows as samples, in Arrow's own memory."""

from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from torch.utils.data import DataLoader

from pinfeed import ArrayDataset, Collate, Pad

TABLE = pa.table(
    {
        "tokens": pa.array([[1, 2], [], [3, 4, 5], [6]], pa.list_(pa.int32())),
        "label": [0, 1, 0, 1],
        "image": pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(24).reshape(4, 2, 3)),
        "name": ["a", "b", "c", "d"],
    }
)
NUMBERS = ["tokens", "label", "image"]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_memory_mapped_file(tmp_path, workers):
    path = str(tmp_path / "x.arrow")
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, TABLE.schema) as writer:
        for batch in TABLE.to_batches(max_chunksize=3):
            writer.write_batch(batch)
    before = pa.total_allocated_bytes()
    table = pa.ipc.open_file(pa.memory_map(path)).read_all()
    dataset = ArrayDataset.from_arrow(table, NUMBERS)
    del table
    assert pa.total_allocated_bytes() <= before  # files of other tests can disappear meanwhile
    collate = Collate({"tokens": Pad(lengths=False)})
    (batch,) = DataLoader(dataset, 4, collate_fn=collate, num_workers=workers)
    assert batch["tokens"].tolist() == [[1, 2, 0], [0, 0, 0], [3, 4, 5], [6, 0, 0]]
    assert batch["image"].flatten().tolist() == list(range(24))


def test_custom_subclasses():
    class Own(ArrayDataset):
        pass

    assert type(Own.from_arrow(TABLE, ["label"])) is Own
    with pytest.raises(TypeError, match=r"^Own\.from_arrow: column 'x'"):
        Own.from_arrow(pa.table({"x": [{"a": 1}]}))


NUMBERED = pd.DataFrame({"a": [1.0, 2.0]}, index=[5, 6])
NAMED = pd.DataFrame({"a": [1, 2], "id": [7, 8], "of": ["x", "y"]}).set_index(["id", "of"])
INDEXES = {  # a frame, and its columns
    "without a name": (NUMBERED, {"a": [1, 2]}),
    "with a name": (NUMBERED.rename_axis("id"), {"a": [1, 2], "id": [5, 6]}),
    "of two levels": (NAMED, {"a": [1, 2], "id": [7, 8], "of": ["x", "y"]}),
    "with and without a name": (NAMED.rename_axis(["id", None]), {"a": [1, 2], "id": [7, 8]}),
    "of a column's name": (NUMBERED.rename_axis("a"), {"a": [1, 2]}),
}
READERS = {
    "frame": lambda frame, path: frame,
    "Table": lambda frame, path: pa.Table.from_pandas(frame),
    "RecordBatch": lambda frame, path: pa.RecordBatch.from_pandas(frame),
    "datasets": lambda frame, path: datasets.Dataset.from_pandas(frame),
    "Parquet": lambda frame, path: frame.to_parquet(path) or path,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("index", INDEXES)
def test_indexes_of_pandas(index, reader, tmp_path):
    frame, columns = INDEXES[index]
    rows = ArrayDataset.from_arrow(READERS[reader](frame, tmp_path / "x.parquet"))
    assert {key: [*rows[key]] for key in rows[0]} == columns
    for key, column in columns.items():
        rows = ArrayDataset.from_arrow(READERS[reader](frame, tmp_path / "x.parquet"), [key])
        assert {key: [*rows[key]] for key in rows[0]} == {key: column}


def test_an_index_without_a_name_can_be_selected():
    table = pa.Table.from_pandas(NUMBERED)
    dataset = datasets.Dataset(table).with_format("numpy", columns=table.column_names[::-1])
    for rows in (
        ArrayDataset.from_arrow(table, table.column_names),
        ArrayDataset.from_arrow(dataset),
    ):
        assert {key: [*rows[key]] for key in rows[0]} == {"a": [1, 2], "__index_level_0__": [5, 6]}


def test_fixes_for_indexes():
    frame = NUMBERED.set_index(pd.DatetimeIndex(["2020-01-01", "2020-01-02"], name="day"))
    call = lambda *columns: ArrayDataset.from_arrow(frame, *columns)
    assert [*call()[0]] == ["a"]  # dates label rows
    with pytest.raises(TypeError, match=r"column 'day'.*, or leave it out") as caught:
        call(["a", "day"])
    fix = str(caught.value).partition("; ")[2].partition(" has its numbers")[0]
    assert ArrayDataset.from_arrow(eval(fix))[1]["day"] > 10**9
    assert [*ArrayDataset.from_arrow(frame, ["a"])[0]] == ["a"]
    frame = NUMBERED.set_index(pd.Index([1.0, None], name="x"))
    with pytest.raises(ValueError, match="'x': 1 of 2 rows are null") as caught:
        call()
    drop, _, fill = (
        str(caught.value).partition("drop them with ")[2].partition(", or fill them with ")
    )
    fill, _, keep = fill.partition("; ")
    assert values(ArrayDataset.from_arrow(eval(drop))) == [1]
    assert values(ArrayDataset.from_arrow(eval(fill))) == [1, 0]
    assert np.isnan(values(eval(keep.removesuffix(" keeps NaN")))[1])


REFUSED = [
    (pa.table({"x": [{"a": 1}]}), None, TypeError, "column 'x': expected numbers, bools, .*got struct<a: int64>; .*leave it out"),
    (TABLE, ["labels"], ValueError, r"the table has no column 'labels'; it has \['tokens', 'label'"),
    (TABLE, "label", TypeError, "columns must be a list of names, got 'label'"),
    (TABLE, [1], ValueError, "the table has no column 1; it has"),
    (TABLE, [], ValueError, "expected at least one column, got none"),
    (pa.table({}), None, ValueError, "expected at least one column, got none"),
    (pa.Table.from_arrays([pa.array([1])] * 2, names=["x", "x"]), None, ValueError, "the table has 2 columns called 'x'"),
    (TABLE["label"], None, TypeError, "table: expected a pyarrow.Table, .* got ChunkedArray"),
    ({"label": [1]}, None, TypeError, "table: expected a pyarrow.Table, .* got dict"),
    (pa.table({"x": [1, None]}), None,
        ValueError, "column 'x': 1 of 2 rows are null, the first is row 1; drop them with table.filter"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "columns", "error", "message"), REFUSED)
def test_bad_tables(table, columns, error, message):
    with pytest.raises(error, match=rf"^ArrayDataset\.from_arrow: {message}"):
        ArrayDataset.from_arrow(table, columns)


PAIR = pa.list_(pa.int8(), 2)
# A column with a null, and its values if the null is dropped, or filled.
NULLS = {
    "strings": (pa.array(["a", None]), ["a"], ["a", ""]),
    "binaries": (pa.array([b"a", None], pa.large_binary()), [b"a"], [b"a", b""]),
    "ints": (pa.array([1, None]), [1], [1, 0]),
    "floats": (pa.array([0.5, None]), [0.5], [0.5, 0]),
    "bools": (pa.array([True, None]), [True], [True, False]),
    "lists": (pa.array([[1], None]), [[1]], [[1], []]),
    "pairs": (pa.array([[1, 2], None], PAIR), [[1, 2]], [[1, 2], [0, 0]]),
    "tensors": (pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int8(), [2]), pa.array([[1, 2], None], PAIR)), [[1, 2]], None),
}  # fmt: skip
SOURCES = {
    "Table": lambda table, path: table,
    "RecordBatch": lambda table, path: table.to_batches()[0],
    "pandas": lambda table, path: table.to_pandas(),
    "datasets": lambda table, path: datasets.Dataset(table),
    "Parquet": lambda table, path: path,
}


def values(dataset):
    return [getattr(row["x"], "tolist", lambda row=row: row["x"])() for row in dataset]


# datasets and pandas have no type of tensors.
BOTH = [(k, s) for k in NULLS for s in SOURCES if k != "tensors" or s not in ("datasets", "pandas")]


@pytest.mark.parametrize(("kind", "source"), BOTH)
def test_fixes_for_nulls(kind, source, tmp_path):
    column, dropped, filled = NULLS[kind]
    path = str(tmp_path / "x.parquet")
    pa.parquet.write_table(pa.table({"y": [1.0, 2.0], "x": column}), path)
    table = pa.parquet.read_table(path)
    given = SOURCES[source](table, path)
    with pytest.raises(ValueError, match="'x': 1 of 2 rows are null, the first is row 1") as caught:
        ArrayDataset.from_arrow(given)
    fixes = str(caught.value).partition("drop them with ")[2].partition("; ")[0]
    names = {"table": table if source == "Parquet" else given, "pyarrow": pa}
    names |= {"frame": given, "dataset": given}
    drop, _, fill = fixes.partition(", where ")[0].partition(", or fill them with ")
    assert values(ArrayDataset.from_arrow(eval(drop, names))) == dropped
    has_fill = filled is not None and source != "datasets"
    has_fill &= source != "pandas" or kind not in ("lists", "pairs")
    assert bool(fill) == has_fill
    if fill:
        rows = ArrayDataset.from_arrow(eval(fill, names))
        assert values(rows) == filled
        assert [row["y"] for row in rows] == [1, 2]


@pytest.mark.parametrize("kind", ["categories", "times"])
def test_numbers_of_pandas(kind):
    times = pd.to_datetime(["1970-01-01", "1970-01-02"]).astype("datetime64[s]")
    frame = pd.DataFrame({"x": pd.Categorical(["b", "a"]) if kind == "categories" else times})
    with pytest.raises(
        TypeError, match=r"has its numbers, or leave it out with columns=$"
    ) as caught:
        ArrayDataset.from_arrow(frame)
    call = str(caught.value).partition("; ")[2].partition(" has its")[0]
    numbers = [1, 0] if kind == "categories" else [0, 86400]
    assert values(ArrayDataset.from_arrow(eval(call, {"frame": frame}))) == numbers


def test_nan_of_pandas():
    frame = pd.DataFrame({0: [0.5, np.nan]})
    with pytest.raises(ValueError, match=r"keeps NaN$") as caught:
        ArrayDataset.from_arrow(frame)
    call = str(caught.value).rpartition("; ")[2].removesuffix(" keeps NaN")
    dataset = eval(call, {"ArrayDataset": ArrayDataset, "frame": frame})
    assert [str(row["0"]) for row in dataset] == ["0.5", "nan"]


def test_nulls_of_other_types():
    for column in (
        pa.nulls(2),
        pa.array(["a", None]).dictionary_encode(),
        pa.array([{"a": 1}, None]),
    ):
        with pytest.raises(TypeError, match=r"leave it out with columns=$"):
            ArrayDataset.from_arrow(pa.table({"x": column, "y": [1, 2]}))
        assert len(ArrayDataset.from_arrow(pa.table({"x": column, "y": [1, 2]}), ["y"])) == 2


@pytest.mark.parametrize("chunks", [1, 2])
def test_fixes_for_dictionary_columns(chunks):
    words = [pa.array(part).dictionary_encode() for part in (["b", "a", "b"], ["c", "a"])]
    column = pa.chunked_array(words[:chunks])
    tags = pa.chunked_array([pa.ListArray.from_arrays([0, 2], part) for part in words[:chunks]])
    for entry, codes_of in (
        (column, "column.combine_chunks().indices"),
        (tags, "type(array).from"),
    ):
        with pytest.raises(TypeError, match=r"column 'x': .*expected .*dictionary<.*; ") as error:
            ArrayDataset.from_arrow(pa.table({"x": entry}))
        assert codes_of in str(error.value)
    codes = column.combine_chunks().indices
    names = column.combine_chunks().dictionary.to_pylist()
    samples = ArrayDataset.from_arrow(pa.table({"x": codes}))
    assert [names[row["x"]] for row in samples] == column.to_pylist()
    array = tags.combine_chunks()
    codes = type(array).from_arrays(array.offsets, array.values.indices)
    samples = ArrayDataset.from_arrow(pa.table({"x": codes}))
    assert [[names[code] for code in row["x"]] for row in samples] == tags.to_pylist()
    plain = column.cast(column.type.value_type)
    samples = ArrayDataset.from_arrow(pa.table({"x": plain}))
    assert [row["x"] for row in samples] == column.to_pylist()


@pytest.mark.parametrize("kind", [str, Path])
def test_the_path_of_a_parquet_file(kind, tmp_path):
    table = pa.table({"x": [[1, 2], [3], []], "y": [4, 5, 6], "text": ["a", "b", "c"]})
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(table, path, row_group_size=2)
    dataset = ArrayDataset.from_arrow(kind(path), ["y", "x"])
    assert [list(sample) for sample in dataset] == [["y", "x"]] * 3
    assert [(int(sample["y"]), sample["x"].tolist()) for sample in dataset] == [
        (4, [1, 2]),
        (5, [3]),
        (6, []),
    ]
    with pytest.raises(FileNotFoundError):
        ArrayDataset.from_arrow(kind(tmp_path / "y.parquet"))
    with pytest.raises(
        ValueError, match=r"the table has no column 'z'; it has \['x', 'y', 'text'\]"
    ):
        ArrayDataset.from_arrow(path, ["x", "z"])
