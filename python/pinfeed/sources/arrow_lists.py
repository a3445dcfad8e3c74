"""Views of Arrow arrays of numbers, lists and strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pinfeed.arguments import Problem
from pinfeed.imports import import_extra
from pinfeed.sources.source import StringType

pa: Any = import_extra("pyarrow", "arrow")

# Hugging Face's array types, which have a shape but store lists of lists.
_ARRAY_XD = "datasets.features.features.Array"

#: An array, or the arguments of a RaggedArray.
Part: TypeAlias = npt.NDArray[Any] | tuple[Any, ...]


def dense_values(array: Any, name: str, *, in_lists: bool = False) -> npt.NDArray[Any]:
    """Returns a view of a pyarrow array of numbers, fixed-size lists or tensors.

    Only bools are copied, because Arrow packs eight into a byte. Nulls raise ValueError, with a fix
    unless the array is ``in_lists``.
    """
    kind = array.type
    is_tensor = isinstance(kind, pa.FixedShapeTensorType)
    if not (is_tensor or _is_one_of(kind, "fixed_size_list", "boolean", "integer", "floating")):
        expected = "numbers, bools, or lists of them"
        raise TypeError(Problem(name, expected, str(kind), _hint(kind)))
    if array.null_count:
        raise ValueError(
            f"{name}: {array.null_count} of {len(array)} values are null; fill them, or leave them "
            "out when you create the lists"
        )
    if is_tensor:
        if kind.permutation not in (None, [*range(len(kind.shape))]):
            hint = "column.cast(column.type.storage_type) returns their values in memory order"
            expected = "tensors whose axes are in memory order"
            raise TypeError(Problem(name, expected, str(kind), hint))
        flat = dense_values(array.storage.flatten(), name, in_lists=True)
        return flat.reshape(len(array), *kind.shape)
    if pa.types.is_fixed_size_list(kind):
        items = array.flatten()
        if items.null_count and not in_lists and not pa.types.is_nested(kind.value_type):
            raise ValueError(
                f"{name}: {items.null_count} values in its lists are null; fill them: "
                "pyarrow.FixedSizeListArray.from_arrays("
                f"column.combine_chunks().flatten().fill_null({zero(kind.value_type)}), "
                f"{kind.list_size})"
            )
        items = dense_values(items, name, in_lists=True)
        return items.reshape(len(array), kind.list_size, *items.shape[1:])
    if pa.types.is_boolean(kind):
        return array.to_numpy(zero_copy_only=False)
    return array.to_numpy(zero_copy_only=True)


def is_dense(kind: Any) -> bool:
    """Whether all values of a pyarrow type have one size."""
    if isinstance(kind, pa.FixedShapeTensorType):
        return True
    if pa.types.is_fixed_size_list(kind):
        return is_dense(kind.value_type)
    return _is_one_of(kind, "boolean", "integer", "floating")


def is_lists(kind: Any) -> bool:
    """Whether values of a pyarrow type are lists of any length."""
    return _is_one_of(kind, "list", "large_list")


def column_parts(column: Any, name: str, null_hint: str = "") -> list[Part]:
    """Returns views of the chunks of a pyarrow column or array; only bools are copied.

    ``null_hint`` says how to remove nulls, if not from the column itself. Raises TypeError if it holds
    neither numbers, lists nor strings, ValueError if a row is null.
    """
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        raise TypeError(Problem(name, "a column of pyarrow", type(column).__name__))
    kind = column.type
    # Types that aren't supported raise TypeError below, because filling nulls doesn't help.
    if column.null_count and (
        _is_shaped(kind) or _is_string(kind) or is_lists(kind) or is_dense(kind)
    ):
        fill = "drop these rows with drop_null()"
        fill += f", or fill them with fill_null({zero(kind)})" * bool(zero(kind))
        raise ValueError(
            f"{name}: {column.null_count} of {len(column)} rows are null, the first is row "
            f"{column.is_null().index(True)}; {null_hint or fill}"
        )
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    chunks = [chunk for chunk in chunks if len(chunk)]
    if len(chunks) > 1:
        return [_part(chunk, f"{name}: chunk {i}") for i, chunk in enumerate(chunks)]
    if chunks:
        return [_part(chunks[0], name)]
    if isinstance(kind, pa.BaseExtensionType):
        return [_part(pa.ExtensionArray.from_storage(kind, pa.array([], kind.storage_type)), name)]
    return [_part(pa.array([], kind), name)]


def _part(array: Any, name: str) -> Part:
    kind = array.type
    if _is_shaped(kind):
        return _shaped_lists(array.storage, kind.shape, name)
    if _is_string(kind):
        return _strings(array)
    return _lists(array, name) if is_lists(kind) else dense_values(array, name)


def _is_shaped(kind: Any) -> bool:
    is_extension = isinstance(kind, pa.BaseExtensionType)
    return is_extension and kind.extension_name.startswith(_ARRAY_XD)


def _is_string(kind: Any) -> bool:
    return _is_one_of(kind, "string", "large_string", "binary", "large_binary")


def _is_one_of(kind: Any, *names: str) -> bool:
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)


def _strings(array: Any) -> Part:
    string_type: StringType = str if _is_one_of(array.type, "string", "large_string") else bytes
    if len(array) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64), string_type
    is_small = _is_one_of(array.type, "string", "binary")
    dtype = np.dtype(np.int32 if is_small else np.int64)
    _, ends, values = array.buffers()
    offsets = np.frombuffer(ends, dtype, len(array) + 1, array.offset * dtype.itemsize)
    has_bytes = values is not None and values.size > 0
    characters = np.frombuffer(values, np.uint8) if has_bytes else np.empty(0, np.uint8)
    return characters, offsets, string_type


def _lists(array: Any, name: str) -> Part:
    kind = array.type.value_type
    if not is_dense(kind):
        hint = ""
        if is_lists(kind):
            hint = "if they have one length, cast the column to pyarrow.list_(type, length)"
        elif pa.types.is_dictionary(kind):
            hint = (
                "type(array).from_arrays(array.offsets, array.values.indices), where array is "
                "column.combine_chunks(), has the codes"
            )
        expected = "lists of numbers, or of lists of one length"
        raise TypeError(Problem(name, expected, str(array.type), hint))
    values = array.flatten()  # only the values of this slice, because others may be null
    if values.null_count:
        raise ValueError(
            f"{name}: {values.null_count} values are null; fill them: type(array).from_arrays("
            f"array.offsets, array.values.fill_null({zero(kind)})), where array is "
            "column.combine_chunks()"
        )
    offsets = array.offsets.to_numpy(zero_copy_only=True)
    offsets = offsets - offsets[0] if offsets[0] else offsets
    return dense_values(values, name, in_lists=True), offsets


def _shaped_lists(lists: Any, shape: Sequence[int | None], name: str) -> Part:
    """Returns lists of lists of one shape, whose first axis may vary."""
    count = len(lists)
    first_offsets = None
    for axis, size in enumerate(shape):
        if lists.null_count:
            raise ValueError(
                f"{name}: {lists.null_count} inner lists are null; fill them, or leave them out when you "
                "create the lists"
            )
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
    return values.reshape(-1, *shape[1:]), first_offsets


def zero(kind: Any) -> str:
    """Returns the code of a value that can replace nulls of a type; empty for extension types."""
    if isinstance(kind, pa.BaseExtensionType):
        return ""
    if pa.types.is_fixed_size_list(kind):
        return f"[{zero(kind.value_type)}] * {kind.list_size}"
    for name, value in (("boolean", "False"), ("string", "''"), ("binary", "b''")):
        if _is_one_of(kind, name) or str(kind) == f"large_{name}":
            return value
    return "[]" if is_lists(kind) else "0"


def _hint(kind: Any) -> str:
    if pa.types.is_dictionary(kind):
        return (
            "column.combine_chunks().indices has the codes, column.cast(column.type.value_type) the "
            "values"
        )
    if _is_one_of(kind, "list_view", "large_list_view"):
        return "copy them with pyarrow.array(column.to_pylist(), pyarrow.list_(column.type.value_type))"
    if pa.types.is_string_view(kind):
        return "copy them with column.cast(pyarrow.string())"
    if _is_one_of(kind, "binary_view", "fixed_size_binary"):
        return "copy them with column.cast(pyarrow.binary())"
    if pa.types.is_struct(kind):
        return "table.flatten() makes columns of its fields"
    if pa.types.is_decimal(kind):
        return "convert with column.cast(pyarrow.float64())"
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return "take its numbers with column.cast(pyarrow.int32())"
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return "take its numbers with column.cast(pyarrow.int64())"
    return ""
