"""Conversion of entries (tensors, arrays, numbers, strings) to TensorFlow tensors."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed.arguments import ARRAYS, Problem
from pinfeed.exports.to_numpy.columns import named, plain, plain_array
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
        expected = "a tensor, an ndarray, numbers, strings or a container of them"
        got = "an empty " * is_container(value) + type(value).__name__
        raise TypeError(Problem(where, expected, got, "leave it out of the batch"))
    return tf.TensorSpec([None if i in varying else n for i, n in enumerate(array.shape)], dtype)


def require_spec(spec: Any, where: str) -> None:
    """Raises unless a spec is None or one that batches can have."""
    if not isinstance(spec, tf.TensorSpec | tf.RaggedTensorSpec | None):
        raise TypeError(Problem(where, "a tf.TensorSpec or a tf.RaggedTensorSpec", repr(spec)))
    if isinstance(spec, tf.RaggedTensorSpec) and (
        spec.ragged_rank != 1 or spec.row_splits_dtype != tf.int64 or spec.shape.rank is None
    ):
        expected = "of known rank with ragged_rank=1 and row_splits_dtype=tf.int64"
        raise ValueError(Problem(where, f"a tf.RaggedTensorSpec {expected}", str(spec)))


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
            got = f"a {type(value).__name__}"
            raise ValueError(Problem(where, "None as in the signature", got))
        return []
    if isinstance(spec, tf.RaggedTensorSpec):
        arrays = _ragged_arrays(value, where)
    elif spec.dtype == tf.string:
        if not _holds_strings(value):
            got = type(value).__name__
            raise TypeError(Problem(where, "strings as in the signature", got))
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
        array = None if self._dtype is None else plain_array(value)
        if array is None or array.dtype != self._dtype or array.ndim != len(self._sizes):
            return None
        if self._moves_channels and array.ndim > 1:
            array = _with_channels_last(array)
        pairs = zip(array.shape, self._sizes, strict=True)
        return array if all(size is None or n == size for n, size in pairs) else None


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
        got = type(value).__name__
        raise TypeError(Problem(where, "a JaggedBatch as in the signature", got))
    values, offsets = _host_array(value.values, where), _host_array(value.offsets, where)
    checkable = values.view(np.int16) if values.dtype == _BFLOAT16 else values
    # Checks offsets, because TensorFlow reads out of bounds without its own, slower check.
    named(where, RaggedArray, checkable, offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    return [values[first:last], np.subtract(offsets, first, dtype=np.int64)]


def _check(array: Array, spec: Any, where: str) -> None:
    if spec.dtype != tf.string:
        got = _tensorflow_dtype(array, where)
        if got is not spec.dtype:
            hint = (
                "all batches need the dtypes of the first: Stack(dtype) in the Collate converts an "
                "entry"
            )
            raise TypeError(Problem(where, spec.dtype.name, got.name, hint))
    if spec.shape.is_compatible_with(array.shape):
        return
    sizes, hint = tuple(spec.shape), ""
    if array.ndim == len(sizes):
        pairs = zip(array.shape, sizes, strict=True)
        free = tuple(size if size == other else None for size, other in pairs)
        hint = f"if it varies, pass signature= with tf.TensorSpec({free}, tf.{spec.dtype.name})"
    raise ValueError(Problem(where, f"shape {sizes}", str(array.shape), hint))


def _host_array(array: Any, where: str) -> Array:
    """Converts a tensor (on any device), an ndarray or numbers to an ndarray in native byte order.

    Python numbers become int64, float32, complex64 or bool.
    """
    if isinstance(array, np.generic):
        return np.asarray(array)
    if is_plain(array):
        numbers = np.asarray(array)
        if numbers.dtype.kind in "US":
            raise TypeError(Problem(where, "numbers", repr(array)))
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
    hint = "convert it, or leave it out of the batch"
    return TypeError(Problem(where, f"TensorFlow has no {dtype}", hint=hint))


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
            got = f"a {type(item).__name__} among them"
            raise TypeError(Problem(where, "only strings", got, "convert it with str()"))
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
