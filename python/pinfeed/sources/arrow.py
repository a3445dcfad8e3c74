"""Arrow tables and columns as entries of a dataset."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed.arguments import ARRAYS, Problem, as_table, nearest
from pinfeed.imports import import_extra
from pinfeed.sources.arrow_lists import column_parts, zero
from pinfeed.sources.concat import ConcatArray
from pinfeed.sources.ragged import RaggedArray

pa: Any = import_extra("pyarrow", "arrow")


def table_columns(
    table: Any, columns: Sequence[str] | None, function: str
) -> tuple[dict[str, Any], npt.NDArray[np.int64] | None]:
    """Returns columns by name, each as an entry of a dataset.

    Args:
        table: pyarrow.Table, pyarrow.RecordBatch, datasets.Dataset, a DataFrame of pandas or polars,
            or the path of a Parquet file or of a directory of them.
        columns: Column names, in order; None: all columns except unnamed indexes of pandas.
        function: Name of the caller, for messages.

    Returns:
        The columns, and the row of each sample, or None if row i is sample i.
    """
    if isinstance(columns, str):
        raise TypeError(f"{function}: columns must be a list of names, got {columns!r}")
    given = table
    if isinstance(table, str | os.PathLike):
        parquet = import_extra("pyarrow.parquet", "arrow")
        try:
            file = parquet.ParquetDataset(table, memory_map=True)
        except FileNotFoundError as error:
            text = f"{function}: No such file or directory"
            raise FileNotFoundError(errno.ENOENT, text, os.fspath(table)) from error
        except pa.ArrowInvalid as error:
            hint = "pyarrow.csv.read_csv(path), pyarrow.json.read_json(path) or pyarrow.feather.read_table(path)"
            wrong = f"{table} is not a Parquet file: {str(error).rstrip('.')}"
            raise ValueError(Problem(function, wrong, hint=f"pass {hint} for others")) from error
        names = _wanted(columns, file.schema.names, function)
        table = file.read(None if names == file.schema.names else names)
    order = None
    datasets = sys.modules.get("datasets")
    if datasets is not None and isinstance(table, datasets.Dataset):
        table, columns, order = _hugging_face(table, columns, function)
    package = type(table).__module__.partition(".")[0]
    if package == "pandas" and hasattr(table, "columns"):
        names = [str(name) for name in table.columns]
        levels = [str(name) for name in table.index.names if name is not None]
        levels = [name for name in levels if name not in names]
        if columns is None:  # an index of dates or categories only labels rows
            types = sys.modules["pandas"].api.types
            of = {str(n): table.index.get_level_values(i) for i, n in enumerate(table.index.names)}
            levels = [
                name
                for name in levels
                if types.is_numeric_dtype(of[name]) or types.infer_dtype(of[name]) == "string"
            ]
        wanted = _wanted(columns, names + levels, function)
        table = table.iloc[:, [names.index(name) for name in wanted if name in names]]
        try:
            table = pa.Table.from_pandas(table, preserve_index=not {*levels}.isdisjoint(wanted))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            wrong = f"pyarrow can't convert the frame: {'; '.join(map(str, error.args))}"
            hint = "leave this column out with columns=, or, for arrays of one shape, pass np.stack(frame[name]) to ArrayDataset"
            raise TypeError(Problem(function, wrong, hint=hint)) from error
    elif package == "polars" and hasattr(table, "to_arrow") and hasattr(table, "columns"):
        table = table.to_arrow()
    if not isinstance(table, pa.Table | pa.RecordBatch):
        expected = (
            "a pyarrow.Table, a pyarrow.RecordBatch, a datasets.Dataset, a DataFrame, or the path of a "
            "Parquet file or of a directory of them"
        )
        got = type(table).__name__
        raise TypeError(Problem(f"{function}: table", expected, got, _table_of(table)))
    arrays = {}
    for name in _wanted(columns, table.column_names, function):
        column, hint = table.column(name), ""
        if column.null_count:
            hint = _null_hint(given, name, table.column_names.index(name), column.type)
        try:
            arrays[name] = column_array(column, f"{function}: column {name!r}", hint)
        except TypeError as error:
            problem = Problem.of(error)
            assert problem is not None
            fix = _conversion(given, name, column.type) or problem.hint
            problem.hint = f"{fix}{', or ' * bool(fix)}leave it out with columns="
            raise
    return arrays, order


def _wanted(columns: Sequence[str] | None, names: list[str], function: str) -> list[str]:
    """Returns the requested column names without duplicates, or all; raises if one is missing."""
    if columns is None:  # pandas stores an index without a name under such a name
        columns = [name for name in names if not re.fullmatch(r"__index_level_\d+__", name)]
    selected = list(dict.fromkeys(columns))
    for name in selected:
        count = names.count(name)
        if count != 1:
            got = "no column" if count == 0 else f"{count} columns called"
            text = f"the table has {got} {name!r}; it has {names}"
            raise ValueError(Problem(function, text, hint="" if count else nearest(name, names)))
    if not selected:
        raise ValueError(f"{function}: expected at least one column, got none")
    return selected


def _hugging_face(
    dataset: Any, columns: Any, function: str
) -> tuple[Any, Any, npt.NDArray[np.int64] | None]:
    """Returns the table of a datasets.Dataset, the columns of its format, and the row of each sample."""
    shown = dataset.format
    if shown["type"] == "custom":
        raise ValueError(
            f"{function}: the dataset has a transform, which would not be applied; remove it "
            "with dataset.with_format(None)"
        )
    order = None
    if dataset._indices is not None:  # the result of select(), filter() or shuffle()
        order = dataset._indices.column(0).to_numpy().view(np.int64)
    return dataset.data.table, dataset._format_columns if columns is None else columns, order


def _table_of(value: Any) -> str:
    """A hint how to convert an object to a table."""
    if type(value).__module__.startswith("datasets.") and "column_names" in dir(value):
        is_dict = isinstance(value, dict)
        return "choose a split: table['train']" if is_dict else "StreamDataset takes streams"
    if isinstance(value, ARRAYS):
        return "ArrayDataset(arrays) takes arrays"
    is_of_dicts = isinstance(value, list) and {*map(type, value)} == {dict}
    call = "pyarrow.Table.from_pylist(x)" if is_of_dicts else as_table(value)
    return f"pass {call}" if call else ""


def _place(frame: Any, name: str) -> tuple[str, Any]:
    """Returns the code of a DataFrame that has a column, which can be a level of the index, and its key."""
    columns = [*frame.columns]
    is_level = name not in map(str, columns)
    key = next(key for key in [*columns, *frame.index.names] if str(key) == name)
    return "frame.reset_index()" if is_level else "frame", key


def _conversion(table: Any, name: str, kind: Any) -> str:
    """A hint with the call that makes a DataFrame's column of categories or times numeric; or empty."""
    package, is_category = type(table).__module__.partition(".")[0], pa.types.is_dictionary(kind)
    if not (is_category or pa.types.is_temporal(kind)):
        return ""
    if package == "pandas":
        frame, key = _place(table, name)
        number = ".cat.codes" if is_category else ".astype('int64')"
        return f"{frame}.assign(**{{{name!r}: {frame}[{key!r}]{number}}}) has its numbers"
    if package == "polars":
        return f"frame.with_columns(polars.col({name!r}).to_physical()) has its numbers"
    return ""


def _null_hint(table: Any, name: str, position: int, kind: Any) -> str:
    """A hint with the calls that drop or fill the nulls of a table's column."""
    package, value = type(table).__module__.partition(".")[0], zero(kind)
    note = fill = ""
    if package == "pandas":
        frame, key = _place(table, name)
        drop, fill = f"{frame}.dropna(subset=[{key!r}])", f"{frame}.fillna({{{key!r}: {value}}})"
        if value == "[]":  # fillna() takes scalars only
            value = ""
        if pa.types.is_floating(kind):
            note = f"; ArrayDataset({{{name!r}: {frame}[{key!r}].to_numpy()}}) keeps NaN"
    elif package == "polars":
        drop = f"frame.drop_nulls({name!r})"
        fill = f"frame.with_columns(polars.col({name!r}).fill_null({value}))"
    elif package == "datasets":
        drop = f"dataset.filter(lambda x: x is not None, input_columns={name!r}).flatten_indices()"
        value = ""
    else:
        drop = f"table.filter(pyarrow.compute.field({name!r}).is_valid())"
        fill = f"table.set_column({position}, {name!r}, table[{name!r}].fill_null({value}))"
        if isinstance(table, str | os.PathLike):
            note = ", where table is pyarrow.parquet.read_table(path)"
    return f"drop them with {drop}{f', or fill them with {fill}' if value else ''}{note}"


def column_array(
    column: Any, name: str, null_hint: str = ""
) -> npt.NDArray[Any] | RaggedArray | ConcatArray:
    """Returns a pyarrow column (or a slice of one) as an entry of a dataset that views Arrow's memory.

    | column of | entry | copied |
    |---|---|---|
    | numbers | ndarray of shape (N,) | no |
    | fixed-size lists, nested too; fixed-shape tensors | ndarray of shape (N, ...) | no |
    | lists and large lists, of numbers or fixed-size lists | `RaggedArray` | no |
    | strings and binaries | `RaggedArray` of str or bytes | no |
    | bools, or lists of them | the same | yes: Arrow packs eight into a byte |

    Several chunks become a `ConcatArray`. Other types, such as dates, raise TypeError; nulls raise
    ValueError, with ``null_hint`` or how to fill the column.
    """
    parts = [
        RaggedArray(*part) if isinstance(part, tuple) else part
        for part in column_parts(column, name, null_hint)
    ]
    return parts[0] if len(parts) == 1 else ConcatArray(parts)
