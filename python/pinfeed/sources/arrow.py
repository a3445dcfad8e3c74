"""Tables of Arrow, and what wraps them, as a dict of columns."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed.sources.arrow_columns import column_array


def table_columns(
    table: Any, columns: Sequence[str] | None, function: str
) -> tuple[dict[str, Any], npt.NDArray[np.int64] | None]:
    """Columns by name, each as a leaf of a dataset.

    Args:
        table: pyarrow.Table, pyarrow.RecordBatch or datasets.Dataset.
        columns: Those wanted, in that order; None: all of them.
        function: Who asks, for messages.

    Returns:
        The columns, and the row of each sample, or None if they are in order.
    """
    order = None
    datasets = sys.modules.get("datasets")
    if datasets is not None and isinstance(table, datasets.Dataset):
        table, columns, order = _hugging_face(table, columns, function)
    pa = sys.modules.get("pyarrow")  # nobody has a table without having imported it
    if pa is None or not isinstance(table, pa.Table | pa.RecordBatch):
        raise TypeError(
            f"{function}: table must be a pyarrow.Table, a pyarrow.RecordBatch or a "
            f"datasets.Dataset, got {_type_name(table)}"
        )
    if isinstance(columns, str):
        raise TypeError(f"{function}: columns must be a list of names, got {columns!r}")
    names = table.column_names
    wanted = names if columns is None else list(columns)
    for name in wanted:
        count = names.count(name)
        if count != 1:
            found = "no column" if count == 0 else f"{count} columns called"
            raise ValueError(f"{function}: the table has {found} {name!r}; it has {names}")
    if not wanted:
        raise ValueError(f"{function}: expected at least one column, got none")
    arrays = {name: _column(table, name, f"{function}: column {name!r}") for name in wanted}
    return arrays, order


def _column(table: Any, name: str, where: str) -> Any:
    try:
        return column_array(table.column(name), where)
    except TypeError as error:
        raise TypeError(f"{error}; leave it out with columns=") from None


def _hugging_face(
    dataset: Any, columns: Any, function: str
) -> tuple[Any, Any, npt.NDArray[np.int64] | None]:
    """The table of a datasets.Dataset, the columns that it shows, and the row of each sample."""
    shown = dataset.format
    if shown["type"] == "custom":
        raise ValueError(
            f"{function}: the dataset has a transform, which would not be applied; take it off "
            "with dataset.with_format(None)"
        )
    order = None
    if dataset._indices is not None:  # what select(), filter() and shuffle() leave
        order = dataset._indices.column(0).to_numpy().view(np.int64)
    return dataset.data.table, shown["columns"] if columns is None else columns, order


def _type_name(table: Any) -> str:
    kind = type(table)
    if kind.__module__.partition(".")[0] != "datasets":
        return kind.__name__
    hint = "; choose a split: table['train']" if isinstance(table, dict) else ""
    return f"datasets.{kind.__name__}{hint}"
