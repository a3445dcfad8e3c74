"""Columns of Arrow tables, as leaves of a dataset."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed.sources.arrow_lists import dense_values, is_dense
from pinfeed.sources.concat import ConcatArray
from pinfeed.sources.ragged import RaggedArray
from pinfeed.sources.ragged_arrow import arrow_parts

# Hugging Face's types of arrays, which know their shape but store lists of lists.
_ARRAY_XD = "datasets.features.features.Array"


def column_array(column: Any, name: str) -> npt.NDArray[Any] | RaggedArray | ConcatArray:
    """A column as a leaf of a dataset, which looks at Arrow's memory.

    | column of | leaf | copied |
    |---|---|---|
    | numbers | ndarray of shape (N,) | no |
    | fixed-size lists, nested too; fixed-shape tensors | ndarray of shape (N, ...) | no |
    | lists and large lists, of numbers or of the former | `RaggedArray` | no |
    | bools, or lists of them | the same | Arrow has eight in a byte |
    | list views | `RaggedArray` | they may overlap, and come in any order |

    Several chunks become a `ConcatArray`, one none.

    Args:
        column: pyarrow.ChunkedArray or pyarrow.Array, also a slice of one.
        name: What messages call it, such as ``"column 'tokens'"``.

    Raises:
        TypeError: The column holds something else, such as strings.
        ValueError: A value in it is null, or lists have another length than their type says.
    """
    pa = sys.modules.get("pyarrow")  # nobody has a column without having imported it
    if pa is None or not isinstance(column, pa.Array | pa.ChunkedArray):
        raise TypeError(f"{name}: expected a column of pyarrow, got {type(column).__name__}")
    if column.null_count:
        raise ValueError(
            f"{name}: {column.null_count} of {len(column)} rows are null; leave such rows out with "
            "table.drop_null(), or fill them with column.fill_null()"
        )
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    chunks = [chunk for chunk in chunks if len(chunk)] or [_no_rows(column.type)]
    if len(chunks) == 1:
        return _chunk_array(chunks[0], name)
    return ConcatArray(
        [_chunk_array(chunk, f"{name}: chunk {i}") for i, chunk in enumerate(chunks)]
    )


def _no_rows(kind: Any) -> Any:
    pa = sys.modules["pyarrow"]
    if not isinstance(kind, pa.BaseExtensionType):
        return pa.array([], kind)
    return pa.ExtensionArray.from_storage(kind, pa.array([], kind.storage_type))


def _chunk_array(chunk: Any, name: str) -> npt.NDArray[Any] | RaggedArray:
    pa = sys.modules["pyarrow"]
    kind = chunk.type
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name.startswith(_ARRAY_XD):
        return _shaped_lists(chunk.storage, kind.shape, name)
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        ends = np.cumsum(chunk.sizes.to_numpy(), dtype=np.int64)
        offsets = np.concatenate([np.zeros(1, np.int64), ends])
        chunk = pa.LargeListArray.from_arrays(offsets, chunk.flatten())
        kind = chunk.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return dense_values(chunk, name)
    if not is_dense(kind.value_type):
        raise TypeError(
            f"{name}: expected lists of numbers, or of lists that are of one length, got {kind}; "
            "if they are, say so with column.cast(): pyarrow.list_(type, length)"
        )
    return RaggedArray(*arrow_parts(chunk, name, copies_bools=True))


def _shaped_lists(
    lists: Any, shape: Sequence[int | None], name: str
) -> npt.NDArray[Any] | RaggedArray:
    """Lists of lists of one shape, of which the first axis may be any."""
    count = len(lists)
    first_offsets = None
    for axis, size in enumerate(shape):
        if lists.null_count:
            raise ValueError(f"{name}: {lists.null_count} lists in it are null")
        offsets = lists.offsets.to_numpy(zero_copy_only=True)
        if size is None:
            first_offsets = offsets - offsets[0]
        else:
            lengths = np.diff(offsets)
            if (lengths != size).any():
                wrong = int(lengths[lengths != size][0])
                raise ValueError(
                    f"{name}: expected {size} items along axis {axis} of each array, got {wrong}"
                )
        lists = lists.flatten()
    values = dense_values(lists, name)
    if first_offsets is None:
        return values.reshape(count, *shape)
    return RaggedArray(values.reshape(-1, *shape[1:]), first_offsets)
