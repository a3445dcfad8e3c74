"""Tables of Arrow, and what wraps them, as a dict of columns."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from pinfeed.arrow_columns import column_array


def table_columns(table: Any, columns: Sequence[str] | None, function: str) -> dict[str, Any]:
    """Columns by name, each as a leaf of a dataset.

    Args:
        table: pyarrow.Table, pyarrow.RecordBatch or datasets.Dataset.
        columns: Those wanted, in that order; None: all of them.
        function: Who asks, for messages.
    """
    datasets = sys.modules.get("datasets")
    if datasets is not None and isinstance(table, datasets.Dataset):
        table, columns = _hugging_face(table, columns, function)
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
    return {name: _column(table, name, f"{function}: column {name!r}") for name in wanted}


def _column(table: Any, name: str, where: str) -> Any:
    try:
        return column_array(table.column(name), where)
    except TypeError as error:
        raise TypeError(f"{error}; leave it out with columns=") from None


def _hugging_face(dataset: Any, columns: Any, function: str) -> tuple[Any, Any]:
    """The table of a datasets.Dataset, and the columns that it shows."""
    if dataset._indices is not None:
        raise ValueError(
            f"{function}: the dataset has its rows in another order than they are stored in, as "
            "shuffle(), select() and filter() leave it; store them anew with "
            "dataset.flatten_indices(), or choose rows after from_arrow: "
            "torch.utils.data.Subset, or the DataLoader's sampler"
        )
    shown = dataset.format
    if shown["type"] == "custom":
        raise ValueError(
            f"{function}: the dataset has a transform, which would not be applied; take it off "
            "with dataset.with_format(None)"
        )
    return dataset.data.table, shown["columns"] if columns is None else columns


def _type_name(table: Any) -> str:
    kind = type(table)
    if kind.__module__.partition(".")[0] != "datasets":
        return kind.__name__
    hint = "; choose a split: table['train']" if isinstance(table, dict) else ""
    return f"datasets.{kind.__name__}{hint}"
