"""Arrow's arrays of lists, as values and offsets."""

from __future__ import annotations

import sys
from typing import Any

import numpy.typing as npt

from pinfeed.sources.arrow_lists import dense_values, is_dense


def arrow_parts(
    array: Any, function: str, *, copies_bools: bool = False
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The values and offsets of a pyarrow array of lists, as views of its memory.

    Args:
        array: ListArray, LargeListArray, or a ChunkedArray of one or none.
        function: Who asks, for messages.
        copies_bools: Whether to copy bools, which no ndarray can look at; else they are an error.
    """
    pa = sys.modules.get("pyarrow")  # nobody has such an array without having imported it
    if pa is not None and isinstance(array, pa.ChunkedArray):
        if array.num_chunks > 1:
            raise ValueError(
                f"{function}: expected at most one chunk, got {array.num_chunks}; "
                "join them with array.combine_chunks(), which copies"
            )
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    if pa is None or not isinstance(array, pa.Array):
        raise TypeError(
            f"{function}: expected a pyarrow ListArray or LargeListArray, "
            f"got {type(array).__name__}"
        )
    if pa.types.is_fixed_size_list(array.type):
        raise TypeError(
            f"{function}: expected lists of different lengths, got {array.type}; ArrayDataset takes "
            f"them as an array: array.flatten().to_numpy().reshape(-1, {array.type.list_size})"
        )
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        raise TypeError(f"{function}: expected lists, got {array.type}")
    kind = array.type.value_type
    if pa.types.is_boolean(kind) and not copies_bools:
        raise TypeError(
            f"{function}: bools are single bits in Arrow, which no ndarray can look at; "
            "make them bytes with array.cast(pyarrow.list_(pyarrow.uint8()))"
        )
    if not is_dense(kind):
        raise TypeError(f"{function}: expected lists of numbers, got {array.type}")
    if array.null_count:
        raise ValueError(
            f"{function}: {array.null_count} of {len(array)} lists are null; leave them out with "
            "array.drop_null(), or make them empty with array.fill_null([])"
        )
    nulls = array.flatten().null_count  # only these, if the array is a slice of another
    if nulls:
        raise ValueError(
            f"{function}: {nulls} values are null; fill them: "
            "type(array).from_arrays(array.offsets, array.values.fill_null(0))"
        )
    offsets = array.offsets.to_numpy(zero_copy_only=True)
    values = array.values
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        # What the lists use, because the rest may hold nulls, or bools that nobody asked for.
        first = int(offsets[0])
        values = values.slice(first, int(offsets[-1]) - first)
        offsets = offsets - offsets[0] if first else offsets
    elif values.null_count:  # outside of the slice; without the bits that say where
        buffers = [None, values.buffers()[1]]
        values = pa.Array.from_buffers(kind, len(values), buffers, offset=values.offset)
    return dense_values(values, function), offsets
