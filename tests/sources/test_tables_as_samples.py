"""Tables, columns and groups of arrays where samples or arrays are expected."""

import pandas
import pyarrow
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
def test_a_table_is_no_iterable_of_samples(table, tmp_path):
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
    check(lambda: ArrayDataset.from_arrow(column), TypeError, ".to_frame() converts it")
    assert ArrayDataset.from_arrow(column.to_frame())[1]["x"] == 2
    polars = pytest.importorskip("polars")
    lazy = polars.LazyFrame({"x": [1, 2]})
    check(lambda: ArrayDataset(lazy), TypeError, "call its .collect(), and ArrayDataset.from_arrow")
    assert ArrayDataset.from_arrow(lazy.collect())[1]["x"] == 2
