"""Tables, columns and groups of arrays instead of samples or arrays."""

import glob
import re

import datasets
import pandas
import pyarrow
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.json
import pyarrow.parquet
import pytest

import pinfeed
from messages import check
from pinfeed import ArrayDataset

TABLES = {
    "pandas": lambda: pandas.DataFrame({"x": [1, 2, 3], "y": [4, 5, 6]}),
    "pyarrow": lambda: pyarrow.table({"x": [1, 2, 3], "y": [4, 5, 6]}),
    "a record batch": lambda: pyarrow.table({"x": [1, 2, 3]}).to_batches()[0],
}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_not_an_iterable_of_samples(table, tmp_path):
    """Iteration yields its columns, or their names."""
    table = TABLES[table]()
    for make in (
        pinfeed.RaggedArray.from_sequences,
        pinfeed.RaggedArray.from_strings,
        lambda samples: pinfeed.write_array(tmp_path / "x", samples),
    ):
        check(
            lambda make=make: make(table), TypeError, "iterate ArrayDataset.from_arrow(table) for"
        )
    rows = ArrayDataset.from_arrow(table)
    assert [*pinfeed.write_array(tmp_path / "x", rows)["x"]] == [1, 2, 3]


@pytest.mark.parametrize("suffix", ["zarr", "h5"])
def test_paths_of_arrays_in_a_file(suffix, tmp_path):
    library = {"zarr": "zarr.open", "h5": "h5py.File"}[suffix]
    check(lambda: ArrayDataset(str(tmp_path / f"x.{suffix}")), ValueError, f"{library}(path)['x']")


def test_columns_of_a_table_and_lazy_tables():
    column = pandas.Series([1, 2], name="x")
    check(lambda: ArrayDataset.from_arrow(column), TypeError, "pass x.to_frame()")
    assert ArrayDataset.from_arrow(column.to_frame())[1]["x"] == 2
    polars = pytest.importorskip("polars")
    lazy = polars.LazyFrame({"x": [1, 2]})
    check(lambda: ArrayDataset(lazy), TypeError, "ArrayDataset.from_arrow(x.collect()) accepts it")
    assert ArrayDataset.from_arrow(lazy.collect())[1]["x"] == 2


TABLE = pyarrow.table({"x": [1, 2, 3], "y": [[1], [2, 3], []]})
SOURCES = {
    "a dataset": lambda: pyarrow.dataset.dataset("x.parquet"),
    "a scanner": lambda: pyarrow.dataset.dataset(TABLE).scanner(),
    "a reader": TABLE.to_reader,
    "a file": lambda: pyarrow.parquet.ParquetFile("x.parquet"),
    "files": lambda: pyarrow.parquet.ParquetDataset("x.parquet"),
    "paths": lambda: ["x.parquet"],
    "tables": lambda: [TABLE[:1], TABLE[1:]],
    "batches": TABLE.to_batches,
    "frames": lambda: [TABLE.to_pandas()],
    "datasets": lambda: [datasets.Dataset(TABLE[:2]), datasets.Dataset(TABLE[2:])],
}


@pytest.mark.parametrize("source", SOURCES)
def test_hints_with_the_call_for_a_table(source, tmp_path, monkeypatch):
    """Messages contain the whole call."""
    monkeypatch.chdir(tmp_path)
    pyarrow.parquet.write_table(TABLE, "x.parquet")
    for make, pattern in (
        (ArrayDataset.from_arrow, "; pass (.*)$"),
        (ArrayDataset, r"ArrayDataset.from_arrow\((.*?)\) accepts it; for one column, "),
    ):
        x = SOURCES[source]()
        with pytest.raises(TypeError, match=pattern) as caught:
            make(x)
        call = re.search(pattern, str(caught.value))[1]
        scope = {"pyarrow": pyarrow, "pandas": pandas, "datasets": datasets, "x": x}
        rows = ArrayDataset.from_arrow(eval(call, scope))
        assert [[sample["x"], sample["y"].tolist()] for sample in rows] == [
            [1, [1]],
            [2, [2, 3]],
            [3, []],
        ]


def test_hints_with_the_calls_for_a_ragged_array():
    hint = "ArrayDataset.from_arrow(table)['x'] is a column of a table or a Parquet file, pyarrow.array(x) "
    check(lambda: pinfeed.RaggedArray.from_arrow(TABLE), TypeError, hint)
    lists = [[1], [2, 3], []]
    for ragged in (
        ArrayDataset.from_arrow(TABLE)["y"],
        pinfeed.RaggedArray.from_arrow(pyarrow.array(pandas.Series(lists))),
        pinfeed.RaggedArray.from_sequences(lists),
    ):
        assert [sequence.tolist() for sequence in ragged] == lists


FILES = {
    "x.parquet": pyarrow.parquet.write_table,
    "x.pq": pyarrow.parquet.write_table,
    "x.feather": pyarrow.feather.write_feather,
    "x.arrow": pyarrow.feather.write_feather,
    "x.csv": lambda table, path: pyarrow.csv.write_csv(table.select(["x"]), path),
    "x.jsonl": lambda table, path: pandas.DataFrame({"x": table["x"]}).to_json(
        path, orient="records", lines=True
    ),
}


@pytest.mark.parametrize("path", [*FILES, "*.parquet"])
def test_hints_with_the_call_for_a_file(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FILES.get(path, pyarrow.parquet.write_table)(TABLE, path.replace("*", "x"))
    for make in (lambda: ArrayDataset(path), lambda: ArrayDataset({"x": path})):
        with pytest.raises(
            ValueError, match=r"; ArrayDataset.from_arrow\(.*\) (reads|accepts)"
        ) as caught:
            make()
    call = re.search(r"from_arrow\((.*?)\) (reads|accepts)", str(caught.value))[1]
    rows = ArrayDataset.from_arrow(eval(call, {"pyarrow": pyarrow, "glob": glob, "path": path}))
    assert [sample["x"] for sample in rows] == [1, 2, 3]
