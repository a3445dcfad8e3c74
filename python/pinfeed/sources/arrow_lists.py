"""Arrow's numbers, and lists of them that are of one length, as ndarrays."""

from __future__ import annotations

import sys
from typing import Any

import numpy.typing as npt


def dense_values(array: Any, name: str) -> npt.NDArray[Any]:
    """A pyarrow array of numbers, of fixed-size lists or of tensors, as a view of its memory.

    Bools alone are copied: Arrow has eight of them in a byte.

    Args:
        array: pyarrow.Array, also a slice of one.
        name: What messages call it.

    Returns:
        Shape (len(array), ...), read-only unless it is a copy.

    Raises:
        TypeError: The array holds something else.
        ValueError: Something in it is null.
    """
    pa = sys.modules["pyarrow"]  # nobody has such an array without having imported it
    kind = array.type
    if array.null_count:
        raise ValueError(
            f"{name}: {array.null_count} of {len(array)} values are null; fill them with "
            f"fill_null(), or leave them out with drop_null()"
        )
    if isinstance(kind, pa.FixedShapeTensorType):
        flat = dense_values(array.storage.flatten(), name)
        tensors = flat.reshape(len(array), *kind.shape)
        # Axis i of a tensor is axis order[i] in memory, as Arrow's specification has it.
        order = kind.permutation or range(len(kind.shape))
        return tensors.transpose(0, *(1 + axis for axis in order))
    if pa.types.is_fixed_size_list(kind):
        items = dense_values(array.flatten(), name)
        return items.reshape(len(array), kind.list_size, *items.shape[1:])
    if pa.types.is_boolean(kind):
        return array.to_numpy(zero_copy_only=False)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise TypeError(
            f"{name}: expected numbers, bools, or lists of them, got {kind}{_hint(kind)}"
        )
    return array.to_numpy(zero_copy_only=True)


def is_dense(kind: Any) -> bool:
    """Whether every value of a pyarrow type is as large as any other."""
    pa = sys.modules["pyarrow"]
    if isinstance(kind, pa.FixedShapeTensorType):
        return True
    if pa.types.is_fixed_size_list(kind):
        return is_dense(kind.value_type)
    return pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _hint(kind: Any) -> str:
    types = sys.modules["pyarrow"].types
    if types.is_struct(kind):
        return "; table.flatten() makes columns of its fields"
    if types.is_dictionary(kind):
        return f"; undo the encoding with column.cast({kind.value_type})"
    if types.is_decimal(kind):
        return "; convert with column.cast(pyarrow.float64())"
    if types.is_date32(kind) or types.is_time32(kind):
        return "; take its numbers with column.cast(pyarrow.int32())"
    if types.is_temporal(kind):
        return "; take its numbers with column.cast(pyarrow.int64())"
    return ""
