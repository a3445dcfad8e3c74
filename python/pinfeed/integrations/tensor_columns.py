"""Ray's columns of tensors: extension types of Arrow, over lists of numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed.sources.arrow_lists import dense_values
from pinfeed.sources.concat import ConcatArray
from pinfeed.sources.ragged import RaggedArray
from pinfeed.sources.source import ArraySource, ObjectColumn, Source

_ONE_SHAPE = ("ray.data.arrow_tensor", "ray.data.arrow_tensor_v2")
_MANY_SHAPES = "ray.data.arrow_variable_shaped_tensor"


def is_tensor_type(kind: Any) -> bool:
    """Whether a type of pyarrow is one of Ray's for tensors."""
    return getattr(kind, "extension_name", None) in (*_ONE_SHAPE, _MANY_SHAPES)


def tensor_source(column: Any, name: str) -> Source:
    """The tensors of a column as views of its memory; only bools, bits in Arrow, are copied.

    Args:
        column: pyarrow.ChunkedArray of at least one row, whose type `is_tensor_type`.
        name: What messages call it.

    Returns:
        Arrays, if each chunk has tensors of one shape; a RaggedArray, if the column is one chunk of
        tensors that differ along axis 0 alone; otherwise a list of views.

    Raises:
        TypeError: The tensors hold no numbers.
        ValueError: A tensor is null.
    """
    if column.null_count:
        raise ValueError(
            f"{name}: {column.null_count} of {len(column)} tensors are null; leave such rows out "
            "with Dataset.filter()"
        )
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    if column.type.extension_name in _ONE_SHAPE:
        arrays = [_tensors(chunk, name) for chunk in chunks]
        return ArraySource(arrays[0], name) if len(arrays) == 1 else ConcatArray(arrays)
    if len(chunks) == 1:
        return _various_tensors(chunks[0], name)
    return ObjectColumn([tensor for chunk in chunks for tensor in _views(chunk, name)])


def _tensors(chunk: Any, name: str) -> npt.NDArray[Any]:
    return _numbers(chunk.storage, name).reshape(len(chunk), *chunk.type.shape)


def _various_tensors(chunk: Any, name: str) -> Source:
    shapes = _shapes(chunk)
    if (shapes != shapes[0]).any(axis=0)[1:].any():
        return ObjectColumn(_views(chunk, name))
    values = _numbers(chunk.storage.field("data"), name)
    rest = shapes[0, 1:].tolist()
    if (shapes[:, 0] == shapes[0, 0]).all():
        return ArraySource(values.reshape(len(chunk), *shapes[0]), name)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(shapes[:, 0])])
    return RaggedArray(values.reshape(int(offsets[-1]), *rest), offsets)


def _views(chunk: Any, name: str) -> list[npt.NDArray[Any]]:
    values = _numbers(chunk.storage.field("data"), name)
    shapes = _shapes(chunk).tolist()
    views, start = [], 0
    for shape in shapes:
        end = start + math.prod(shape)
        views.append(values[start:end].reshape(shape))
        start = end
    return views


def _shapes(chunk: Any) -> npt.NDArray[np.int64]:
    """The shape of each tensor; Ray sees to it that all of a chunk have as many axes."""
    shapes: npt.NDArray[np.int64] = chunk.storage.field("shape").flatten().to_numpy()
    return shapes.reshape(len(chunk), -1)


def _numbers(lists: Any, name: str) -> npt.NDArray[Any]:
    """What is in lists, one after the other; of a slice only its part."""
    return dense_values(lists.flatten(), name)
