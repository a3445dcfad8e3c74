"""Arrow's arrays of numbers, of lists and of strings, as views of Arrow's memory."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed.sources.source import StringType
from pinfeed.sources.strings import EncodedStrings


def dense_values(array: Any, name: str, *, in_lists: bool = False) -> npt.NDArray[Any]:
    """A pyarrow array of numbers, of fixed-size lists or of tensors, as a view of its memory.

    Only bools are copied: Arrow has eight of them in a byte.

    Args:
        array: pyarrow.Array, also a slice of one.
        name: What messages call it.
        in_lists: Whether it is what lists hold; then messages can't say how to fill nulls.

    Returns:
        Shape (len(array), ...), read-only unless it is a copy.

    Raises:
        TypeError: The array holds something else.
        ValueError: A value or a list is null.
    """
    pa = sys.modules["pyarrow"]  # nobody has such an array without having imported it
    kind = array.type
    if array.null_count:
        raise ValueError(
            f"{name}: {array.null_count} of {len(array)} values are null; fill them, or leave them "
            "out, where the lists are made"
        )
    if isinstance(kind, pa.FixedShapeTensorType):
        flat = dense_values(array.storage.flatten(), name, in_lists=True)
        tensors = flat.reshape(len(array), *kind.shape)
        # Axis i of a tensor is axis order[i] in memory, as Arrow's specification has it.
        order = kind.permutation or range(len(kind.shape))
        return tensors.transpose(0, *(1 + axis for axis in order))
    if pa.types.is_fixed_size_list(kind):
        items = array.flatten()
        if items.null_count and not in_lists and not pa.types.is_nested(kind.value_type):
            raise ValueError(
                f"{name}: {items.null_count} values in its lists are null; fill them: "
                "pyarrow.FixedSizeListArray.from_arrays("
                f"column.combine_chunks().flatten().fill_null({_zero(kind.value_type)}), "
                f"{kind.list_size})"
            )
        items = dense_values(items, name, in_lists=True)
        return items.reshape(len(array), kind.list_size, *items.shape[1:])
    if pa.types.is_boolean(kind):
        return array.to_numpy(zero_copy_only=False)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise TypeError(
            f"{name}: expected numbers, bools, or lists of them, got {kind}{_hint(kind)}"
        )
    return array.to_numpy(zero_copy_only=True)


def is_dense(kind: Any) -> bool:
    """Whether all values of a pyarrow type have one size."""
    pa = sys.modules["pyarrow"]
    if isinstance(kind, pa.FixedShapeTensorType):
        return True
    if pa.types.is_fixed_size_list(kind):
        return is_dense(kind.value_type)
    return pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)


def is_string(kind: Any) -> bool:
    """Whether values of a pyarrow type are strings: text or bytes."""
    types = sys.modules["pyarrow"].types
    return (
        _is_text(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def _is_text(kind: Any) -> bool:
    types = sys.modules["pyarrow"].types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def string_parts(array: Any, name: str) -> EncodedStrings:
    """A pyarrow array of strings, as views of its memory; string views are copied.

    Args:
        array: One for whose type `is_string` holds, also a slice of one.
        name: What messages call it.

    Raises:
        ValueError: A string is null.
    """
    ways_out = "leave them out with array.drop_null(), or fill them with array.fill_null('')"
    require_no_nulls(array, name, ways_out, "strings")
    pa = sys.modules["pyarrow"]
    is_text = _is_text(array.type)
    string_type: StringType = str if is_text else bytes
    if len(array) == 0:
        return EncodedStrings(np.empty(0, np.uint8), np.zeros(1, np.int64), string_type)
    large = pa.large_string() if is_text else pa.large_binary()
    is_small = pa.types.is_string(array.type) or pa.types.is_binary(array.type)
    if not is_small:
        array = array.cast(large)
    dtype = np.dtype(np.int32 if is_small else np.int64)
    _, ends, values = array.buffers()
    offsets = np.frombuffer(ends, dtype, len(array) + 1, array.offset * dtype.itemsize)
    if values is None or values.size == 0:
        return EncodedStrings(np.empty(0, np.uint8), offsets, string_type)
    return EncodedStrings(np.frombuffer(values, np.uint8), offsets, string_type)


def require_no_nulls(array: Any, name: str, ways_out: str, items: str = "rows") -> None:
    """Raises ValueError if a value of a pyarrow array or column is null, and says which is the first.

    Args:
        array: pyarrow.Array or pyarrow.ChunkedArray.
        name: What messages call it.
        ways_out: What to do with nulls, for messages.
        items: What messages call its values.
    """
    if array.null_count:
        raise ValueError(
            f"{name}: {array.null_count} of {len(array)} {items} are null, the first is row "
            f"{array.is_null().index(True)}; {ways_out}"
        )


def one_chunk(array: Any, function: str) -> Any:
    """A pyarrow array, or the only one of a ChunkedArray of at most one.

    Args:
        array: Of lists, or of strings.
        function: Who asks, for messages.
    """
    pa = sys.modules.get("pyarrow")  # nobody has such an array without having imported it
    if pa is not None and isinstance(array, pa.ChunkedArray):
        if array.num_chunks > 1:
            raise ValueError(
                f"{function}: expected at most one chunk, got {array.num_chunks}; "
                "join them with array.combine_chunks(), which copies"
            )
        return array.chunk(0) if array.num_chunks else pa.array([], array.type)
    if pa is None or not isinstance(array, pa.Array):
        raise TypeError(
            f"{function}: expected a pyarrow array of lists or strings, got {type(array).__name__}"
        )
    return array


def list_parts(
    array: Any, function: str, *, copies_bools: bool = False
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The values and offsets of a pyarrow array of lists, as views of its memory.

    Args:
        array: ListArray or LargeListArray, also a slice of one.
        function: Who asks, for messages.
        copies_bools: Whether to copy bools, which no ndarray can view; else they are an error. So it
            is for columns of tables.
    """
    pa = sys.modules["pyarrow"]
    if pa.types.is_fixed_size_list(array.type):
        raise TypeError(
            f"{function}: expected lists of different lengths, got {array.type}; ArrayDataset takes "
            f"them as an array: array.flatten().to_numpy().reshape(-1, {array.type.list_size})"
        )
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        raise TypeError(f"{function}: expected lists or strings, got {array.type}")
    kind = array.type.value_type
    if pa.types.is_boolean(kind) and not copies_bools:
        raise TypeError(
            f"{function}: bools are single bits in Arrow, which no ndarray can view; "
            "make them bytes with array.cast(pyarrow.list_(pyarrow.uint8()))"
        )
    if not is_dense(kind):
        raise TypeError(f"{function}: expected lists of numbers, got {array.type}")
    ways_out = "leave them out with array.drop_null(), or make them empty with array.fill_null([])"
    require_no_nulls(array, function, ways_out, "lists")
    nulls = array.flatten().null_count  # only these, if the array is a slice of another
    if nulls:
        raise ValueError(
            f"{function}: {nulls} values are null; fill them: type(array).from_arrays("
            f"array.offsets, array.values.fill_null({_zero(kind)}))"
            + (", where array is column.combine_chunks()" if copies_bools else "")
        )
    offsets = array.offsets.to_numpy(zero_copy_only=True)
    values = array.values
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        # Only what the lists use: the rest may hold nulls, or bools that need no copy.
        first = int(offsets[0])
        values = values.slice(first, int(offsets[-1]) - first)
        offsets = offsets - offsets[0] if first else offsets
    elif values.null_count:  # outside of the slice; without the bits that say where
        buffers = [None, values.buffers()[1]]
        values = pa.Array.from_buffers(kind, len(values), buffers, offset=values.offset)
    return dense_values(values, function, in_lists=True), offsets


def _zero(kind: Any) -> Any:
    """What fills nulls among numbers, or bools."""
    return False if sys.modules["pyarrow"].types.is_boolean(kind) else 0


def _hint(kind: Any) -> str:
    types = sys.modules["pyarrow"].types
    if types.is_struct(kind):
        return "; table.flatten() makes columns of its fields"
    if types.is_decimal(kind):
        return "; convert with column.cast(pyarrow.float64())"
    if types.is_date32(kind) or types.is_time32(kind):
        return "; take its numbers with column.cast(pyarrow.int32())"
    if types.is_temporal(kind) and not types.is_interval(kind):
        return "; take its numbers with column.cast(pyarrow.int64())"
    return ""
