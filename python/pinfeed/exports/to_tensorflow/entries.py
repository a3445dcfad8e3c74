"""Conversion of entries (tensors, arrays, numbers, strings) to TensorFlow tensors."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed.arguments import ARRAYS
from pinfeed.exports.to_numpy.columns import plain
from pinfeed.functional.arrays import permute
from pinfeed.functional.sequences import JaggedBatch
from pinfeed.imports import import_extra
from pinfeed.sources.ragged import RaggedArray
from pinfeed.structure import is_container

tf: Any = import_extra("tensorflow", "tensorflow")

Array = npt.NDArray[Any]

# NumPy has no bfloat16.
_BFLOAT16 = tf.bfloat16.as_numpy_dtype

_DTYPES = {
    np.dtype(name): getattr(tf, name)
    for name in (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
} | {np.dtype(_BFLOAT16): tf.bfloat16}

# Python floats are float32, as in Keras.
_PYTHON_DTYPES = {np.dtype(np.float64): np.float32, np.dtype(np.complex128): np.complex64}

_STRINGS = (str, bytes)
_PLAIN = (bool, int, float, complex, np.number, np.bool, *_STRINGS)


def spec_of(value: Any, varying: set[int], where: str) -> Any:
    """Returns the ``tf.TensorSpec`` or ``tf.RaggedTensorSpec`` of an entry of the first batch.

    The axes in ``varying`` differ between batches. ``where`` is the entry's name in messages, such as
    ``"to_tensorflow: entry ['x'] of batch 0"``.
    """
    if isinstance(value, JaggedBatch | RaggedArray):
        values = _host_array(value.values, where)
        shape = [None, None, *values.shape[1:]]
        return tf.RaggedTensorSpec(shape, _tensorflow_dtype(values, where), ragged_rank=1)
    if _holds_strings(value):
        array, dtype = _text_array(value, where), tf.string
    elif isinstance(value, ARRAYS) or is_plain(value):
        array = _host_array(value, where)
        dtype = _tensorflow_dtype(array, where)
    else:
        empty = "an empty " if is_container(value) else ""
        raise TypeError(
            f"{where}: expected a tensor, an ndarray, numbers, strings or a container of them, "
            f"got {empty}{type(value).__name__}; leave it out of the batch"
        )
    return tf.TensorSpec([None if i in varying else n for i, n in enumerate(array.shape)], dtype)


def require_spec(spec: Any, where: str) -> None:
    """Raises unless a spec is None or one that batches can have."""
    if isinstance(spec, tf.RaggedTensorSpec):
        if spec.ragged_rank != 1 or spec.row_splits_dtype != tf.int64 or spec.shape.rank is None:
            raise ValueError(
                f"to_tensorflow: {where}: expected a tf.RaggedTensorSpec of known rank with "
                f"ragged_rank=1 and row_splits_dtype=tf.int64, got {spec}"
            )
    elif not isinstance(spec, tf.TensorSpec | None):
        raise TypeError(
            f"to_tensorflow: {where}: expected a tf.TensorSpec or a tf.RaggedTensorSpec, "
            f"got {spec!r}"
        )


def parts_of(spec: Any) -> list[Any]:
    """Returns the specs of an entry's arrays: none for None, two for a ragged entry."""
    if spec is None:
        return []
    if isinstance(spec, tf.RaggedTensorSpec):
        splits = None if spec.shape[0] is None else spec.shape[0] + 1
        values = tf.TensorSpec([None, *spec.shape[2:]], spec.dtype)
        return [values, tf.TensorSpec([splits], tf.int64)]
    return [spec]


def arrays_of(spec: Any, moves_channels: bool, value: Any, where: str) -> list[Array]:
    """Returns the arrays of an entry, with axis 1 moved to the end if ``moves_channels``."""
    if spec is None:
        if value is not None:
            raise ValueError(
                f"{where}: expected None as in the signature, got a {type(value).__name__}"
            )
        return []
    if isinstance(spec, tf.RaggedTensorSpec):
        arrays = _ragged_arrays(value, where)
    elif spec.dtype == tf.string:
        if not _holds_strings(value):
            raise TypeError(
                f"{where}: expected strings as in the signature, got {type(value).__name__}"
            )
        arrays = [_text_array(value, where)]
    else:
        arrays = [_host_array(value, where)]
    if moves_channels and arrays[0].ndim > 1:
        arrays = [_with_channels_last(arrays[0])]
    for array, part in zip(arrays, parts_of(spec), strict=True):
        _check(array, part, where)
    return arrays


class PlainEntry:
    """An entry that is checked by few steps if it is a plain tensor or ndarray.

    Args:
        spec: The entry's spec, after moving channels.
        moves_channels: Whether axis 1 is moved to the end.
    """

    def __init__(self, spec: Any, moves_channels: bool) -> None:
        is_array = isinstance(spec, tf.TensorSpec) and spec.dtype != tf.string
        is_array = is_array and spec.shape.rank is not None
        self._dtype = np.dtype(spec.dtype.as_numpy_dtype) if is_array else None
        self._sizes = tuple(spec.shape) if is_array else ()
        self._moves_channels = moves_channels

    def array(self, value: Any) -> Array | None:
        """Returns the array of an entry that fits; None for any other, which `arrays_of` explains."""
        if self._dtype is None:
            return None
        if type(value) is torch.Tensor:
            try:
                value = value.detach().numpy()
            except (TypeError, RuntimeError):  # a device, or a dtype or layout that NumPy lacks
                return None
        elif type(value) is not np.ndarray:
            return None
        if value.dtype != self._dtype or value.ndim != len(self._sizes):
            return None
        if self._moves_channels and value.ndim > 1:
            value = _with_channels_last(value)
        pairs = zip(value.shape, self._sizes, strict=True)
        return value if all(size is None or n == size for n, size in pairs) else None


def element_of(spec: Any, tensors: Sequence[Any]) -> Any:
    """Combines the tensors of an entry's arrays."""
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensor.from_row_splits(*tensors, validate=False)
    return None if spec is None else tensors[0]


def with_channels_last(spec: Any) -> Any:
    """Returns the spec of a batch of shape (N, C, ...) with channels last."""
    return tf.TensorSpec(_moved_sizes(spec.shape), spec.dtype)


def _ragged_arrays(value: Any, where: str) -> list[Array]:
    if not isinstance(value, JaggedBatch | RaggedArray):
        raise TypeError(
            f"{where}: expected a JaggedBatch as in the signature, got {type(value).__name__}"
        )
    values, offsets = _host_array(value.values, where), _host_array(value.offsets, where)
    checkable = values.view(np.int16) if values.dtype == _BFLOAT16 else values
    try:
        # Checks offsets, because TensorFlow reads out of bounds without its own, slower check.
        RaggedArray(checkable, offsets)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{where}: {error}") from error
    first, last = int(offsets[0]), int(offsets[-1])
    return [values[first:last], np.subtract(offsets, first, dtype=np.int64)]


def _check(array: Array, spec: Any, where: str) -> None:
    if spec.dtype != tf.string:
        got = _tensorflow_dtype(array, where)
        if got is not spec.dtype:
            raise TypeError(
                f"{where}: expected {spec.dtype.name}, got {got.name}; all batches need the dtypes of the "
                "first: Stack(dtype) in the Collate converts an entry"
            )
    if spec.shape.is_compatible_with(array.shape):
        return
    sizes, hint = tuple(spec.shape), ""
    if array.ndim == len(sizes):
        pairs = zip(array.shape, sizes, strict=True)
        free = tuple(size if size == other else None for size, other in pairs)
        hint = f"; if it varies, pass signature= with tf.TensorSpec({free}, tf.{spec.dtype.name})"
    raise ValueError(f"{where}: expected shape {sizes}, got {array.shape}{hint}")


def _host_array(array: Any, where: str) -> Array:
    """Converts a tensor (on any device), an ndarray or numbers to an ndarray in native byte order.

    Python numbers become int64, float32, complex64 or bool.
    """
    if isinstance(array, np.generic):
        return np.asarray(array)
    if is_plain(array):
        numbers = np.asarray(array)
        if numbers.dtype.kind in "US":
            raise TypeError(f"{where}: expected numbers, got {array!r}")
        return numbers.astype(_PYTHON_DTYPES.get(numbers.dtype, numbers.dtype))
    array = plain(array, where)
    if isinstance(array, np.ndarray):
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    array = array.cpu()
    try:
        if array.dtype == torch.bfloat16:
            return array.view(torch.int16).numpy().view(_BFLOAT16)
        return array.numpy()
    except TypeError as error:
        raise _unknown(array.dtype, where) from error


def _tensorflow_dtype(array: Array, where: str) -> Any:
    """Returns an array's TensorFlow dtype; raises TypeError if it has none."""
    dtype = _DTYPES.get(array.dtype)
    if dtype is None:
        raise _unknown(array.dtype, where)
    return dtype


def _unknown(dtype: Any, where: str) -> TypeError:
    return TypeError(
        f"{where}: TensorFlow has no {dtype}; convert it, or leave it out of the batch"
    )


def is_plain(node: Any) -> bool:
    """Whether a node of a batch is a number or a string, or a list or tuple of them."""
    if isinstance(node, list | tuple) and not hasattr(node, "_fields"):
        return len(node) > 0 and all(isinstance(item, _PLAIN) for item in node)
    return isinstance(node, _PLAIN)


def _holds_strings(node: Any) -> bool:
    """Whether a node is a string, or a list, tuple or ndarray of strings."""
    if isinstance(node, np.ndarray):
        return node.dtype.kind in "OUST"
    if isinstance(node, list | tuple):
        return len(node) > 0 and isinstance(node[0], _STRINGS)
    return isinstance(node, _STRINGS)


def _text_array(node: Any, where: str) -> Array:
    """Returns the strings of a node as an array; raises TypeError unless all are strings."""
    array = np.array(node, object)
    for item in array.ravel().tolist():
        if not isinstance(item, _STRINGS):
            raise TypeError(
                f"{where}: expected only strings, got a {type(item).__name__} among them; convert it with str()"
            )
    return array


def _moved_sizes(sizes: Sequence[Any]) -> list[Any]:
    """Returns a shape with axis 1 moved to the end."""
    return [sizes[0], *sizes[2:], sizes[1]]


def _with_channels_last(array: Array) -> Array:
    """Returns a batch of shape (N, C, ...) with channels last, contiguous."""
    last = np.moveaxis(array, 1, -1)
    if last.flags.c_contiguous:
        return last
    if array.dtype == _BFLOAT16:
        return _with_channels_last(array.view(np.int16)).view(_BFLOAT16)
    axes = "NC" + string.ascii_lowercase[: array.ndim - 2]
    return permute(array, axes, "".join(_moved_sizes(axes)))
