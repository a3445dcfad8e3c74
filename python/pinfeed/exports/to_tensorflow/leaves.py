"""The leaves of a batch: how a tensor, an array, numbers or strings become tensors of TensorFlow."""

from __future__ import annotations

import string
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from pinfeed.exports.to_numpy.columns import plain
from pinfeed.functions.arrays import permute
from pinfeed.functions.sequences import JaggedBatch
from pinfeed.optional import import_extra
from pinfeed.sources.ragged import RaggedArray
from pinfeed.structure import is_container

tf: Any = import_extra("tensorflow", "tensorflow")

Array = npt.NDArray[Any]

# NumPy has none of its own.
_BFLOAT16 = tf.bfloat16.as_numpy_dtype

_DTYPES = {
    np.dtype(name): getattr(tf, name)
    for name in (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
} | {np.dtype(_BFLOAT16): tf.bfloat16}

_STRINGS = (str, bytes)
_PLAIN = (bool, int, float, complex, np.number, np.bool, *_STRINGS)


class Leaf(ABC):
    """A leaf of all batches.

    Args:
        *specs: Of the plain arrays that it consists of.
    """

    def __init__(self, *specs: Any) -> None:
        self.specs = specs

    @abstractmethod
    def arrays(self, value: Any, where: str) -> list[Array]:
        """The arrays of a batch.

        Args:
            value: What stands in the batch.
            where: What messages call it, such as ``"to_tensorflow: leaf ['x'] of batch 3"``.

        Raises:
            TypeError, ValueError: It doesn't fit to the specs.
        """

    def element(self, tensors: Sequence[Any]) -> Any:
        """What these arrays, as tensors, are together."""
        return tensors[0]


def spec_of(value: Any, varying: set[int], where: str) -> Any:
    """What the leaf of a first batch says: a ``tf.TensorSpec`` or a ``tf.RaggedTensorSpec``.

    Args:
        value: What stands in the batch.
        varying: The axes that differ between batches.
        where: What messages call it.

    Raises:
        TypeError: It is nothing that TensorFlow could have.
    """
    if isinstance(value, JaggedBatch | RaggedArray):
        values = _host_array(value.values, where)
        shape = [None, None, *values.shape[1:]]
        return tf.RaggedTensorSpec(shape, _tensorflow_dtype(values, where), ragged_rank=1)
    if _is_text(value):
        array, dtype = _text_array(value, where), tf.string
    elif isinstance(value, np.ndarray | torch.Tensor) or is_plain(value):
        array = _host_array(value, where)
        dtype = _tensorflow_dtype(array, where)
    else:
        empty = "an empty " if is_container(value) else ""
        raise TypeError(
            f"{where}: expected a tensor, an ndarray, numbers, strings or a container of them, "
            f"got {empty}{type(value).__name__}; leave it out of the batch"
        )
    return tf.TensorSpec([None if i in varying else n for i, n in enumerate(array.shape)], dtype)


def leaf_of(spec: Any, moves_channels: bool, is_guess: bool, where: str) -> Leaf:
    """The leaf that a spec describes.

    Args:
        spec: A ``tf.TensorSpec``, a ``tf.RaggedTensorSpec`` or None.
        moves_channels: Whether axis 1 of what stands in a batch is the last axis of the tensor.
        is_guess: Whether the spec is of what stands in a batch.
        where: What messages call it.

    Raises:
        TypeError, ValueError: No batch can have such a leaf.
    """
    if spec is None:
        return _NoneLeaf()
    if isinstance(spec, tf.RaggedTensorSpec):
        return _RaggedLeaf(spec, where)
    if not isinstance(spec, tf.TensorSpec):
        raise TypeError(
            f"to_tensorflow: {where}: expected a tf.TensorSpec or a tf.RaggedTensorSpec, "
            f"got {spec!r}"
        )
    if moves_channels and is_guess:
        spec = tf.TensorSpec(_moved_sizes(spec.shape), spec.dtype)
    return _TextLeaf(spec) if spec.dtype == tf.string else _DenseLeaf(spec, moves_channels)


class _NoneLeaf(Leaf):
    @override
    def arrays(self, value: Any, where: str) -> list[Array]:
        if value is not None:
            raise ValueError(f"{where}: expected None, got a {type(value).__name__}")
        return []

    @override
    def element(self, tensors: Sequence[Any]) -> None:
        return None


class _DenseLeaf(Leaf):
    """A tensor of numbers."""

    def __init__(self, spec: Any, moves_channels: bool) -> None:
        super().__init__(spec)
        self._moves_channels = moves_channels

    @override
    def arrays(self, value: Any, where: str) -> list[Array]:
        array = _host_array(value, where)
        if self._moves_channels and array.ndim > 1:
            array = _with_channels_last(array)
        _check(array, self.specs[0], where)
        return [array]


class _TextLeaf(Leaf):
    """A tensor of strings."""

    @override
    def arrays(self, value: Any, where: str) -> list[Array]:
        if not _is_text(value):
            raise TypeError(f"{where}: expected strings, got {type(value).__name__}")
        array = _text_array(value, where)
        _check_shape(array.shape, self.specs[0], where)
        return [array]


class _RaggedLeaf(Leaf):
    """A tensor whose samples have different lengths: its values and their row splits."""

    def __init__(self, spec: Any, where: str) -> None:
        shape = spec.shape
        if spec.ragged_rank != 1 or spec.row_splits_dtype != tf.int64 or shape.rank is None:
            raise ValueError(
                f"to_tensorflow: {where}: expected a tf.RaggedTensorSpec of known rank with "
                f"ragged_rank=1 and row_splits_dtype=tf.int64, got {spec}"
            )
        splits = None if shape[0] is None else shape[0] + 1
        super().__init__(
            tf.TensorSpec([None, *shape[2:]], spec.dtype), tf.TensorSpec([splits], tf.int64)
        )

    @override
    def arrays(self, value: Any, where: str) -> list[Array]:
        if not isinstance(value, JaggedBatch | RaggedArray):
            raise TypeError(f"{where}: expected a JaggedBatch, got {type(value).__name__}")
        values, offsets = _host_array(value.values, where), _host_array(value.offsets, where)
        if offsets.dtype == np.int32:
            offsets = offsets.astype(np.int64)
        for array, spec in zip((values, offsets), self.specs, strict=True):
            _check(array, spec, where)
        # TensorFlow would check them by ops of its own, or trust them and read anywhere.
        if len(offsets) == 0 or offsets[0] < 0 or offsets[-1] > len(values):
            raise ValueError(f"{where}: expected offsets from 0 to {len(values)}, got {offsets}")
        if (offsets[1:] < offsets[:-1]).any():
            raise ValueError(f"{where}: expected offsets that don't decrease, got {offsets}")
        return [values[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0]]

    @override
    def element(self, tensors: Sequence[Any]) -> Any:
        return tf.RaggedTensor.from_row_splits(*tensors, validate=False)


def _check(array: Array, spec: Any, where: str) -> None:
    got = _tensorflow_dtype(array, where)
    if got is not spec.dtype:
        raise TypeError(f"{where}: expected {spec.dtype.name}, got {got.name}")
    _check_shape(array.shape, spec, where)


def _check_shape(shape: tuple[int, ...], spec: Any, where: str) -> None:
    if spec.shape.is_compatible_with(shape):
        return
    sizes, hint = tuple(spec.shape), ""
    if len(shape) == len(sizes):
        free = tuple(one if one == other else None for one, other in zip(shape, sizes, strict=True))
        hint = (
            f"; if that varies, say so: signature= with tf.TensorSpec({free}, tf.{spec.dtype.name})"
        )
    raise ValueError(f"{where}: expected shape {sizes}, got {shape}{hint}")


def _host_array(array: Any, where: str) -> Array:
    """A tensor, on whatever device, an ndarray or numbers, as an ndarray in the machine's order.

    Python's numbers become int64, float32, complex64 or bool.

    Raises:
        TypeError: It is no such array, or strings are among the numbers.
        ValueError: float32 can't hold one.
    """
    if is_plain(array):
        return _number_array(array, where)
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
    """The dtype that an array has in TensorFlow; raises TypeError if there is none."""
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


def _is_text(node: Any) -> bool:
    """Whether the node is a string, or a list, a tuple or an ndarray that can hold some."""
    if isinstance(node, np.ndarray):
        return node.dtype.kind in "OUST"
    if isinstance(node, list | tuple):
        return len(node) > 0 and isinstance(node[0], _STRINGS)
    return isinstance(node, _STRINGS)


def _text_array(node: Any, where: str) -> Array:
    """The strings of a node for which `_is_text` holds; raises TypeError if all aren't strings."""
    array = np.array(node, object)
    for item in array.ravel().tolist():
        if not isinstance(item, _STRINGS):
            raise TypeError(f"{where}: expected strings, got a {type(item).__name__} among them")
    return array


def _number_array(node: Any, where: str) -> Array:
    if isinstance(node, np.generic):
        return np.asarray(node)
    items = np.array(node, object)
    if any(isinstance(item, _STRINGS) for item in items.flat):
        raise TypeError(f"{where}: expected numbers, got {node!r}")
    if all(isinstance(item, bool | np.bool) for item in items.flat):
        return items.astype(bool)
    try:
        if all(isinstance(item, int | np.integer | np.bool) for item in items.flat):
            # One by one: NumPy makes floats of signed and unsigned ones together, and rounds them.
            return np.array([*map(int, items.flat)], np.int64).reshape(items.shape)
        is_complex = any(isinstance(item, complex | np.complexfloating) for item in items.flat)
        with np.errstate(over="raise"):
            array = items.astype(np.complex128 if is_complex else np.float64)
            return array.astype(np.complex64 if is_complex else np.float32)
    except (OverflowError, FloatingPointError) as error:
        raise ValueError(
            f"{where}: expected numbers that int64 or float32 can hold, got {node!r}"
        ) from error


def moved(channels_last: bool | str | Iterable[str], specs: Mapping[str, Any]) -> set[str]:
    """The names of the leaves whose channels move from axis 1 to the end.

    Args:
        channels_last: True for all images, or names of leaves, or False.
        specs: All leaves by name.

    Raises:
        TypeError: It is nothing of that kind.
        ValueError: There are no such leaves, or they have no channels.
    """
    ranks = {n: s.shape.rank if isinstance(s, tf.TensorSpec) else None for n, s in specs.items()}
    if channels_last is True:
        images = {
            name
            for name, spec in specs.items()
            if ranks[name] == 4 and (spec.dtype.is_floating or spec.dtype == tf.uint8)
        }
        if not images:
            raise ValueError(
                "to_tensorflow: channels_last=True is for leaves of uint8 or floats with 4 axes, "
                "but there are none; give names, or leave it out"
            )
        return images
    names = [channels_last] if isinstance(channels_last, str) else channels_last or []
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        raise TypeError(
            "to_tensorflow: channels_last must be True, False, or names of leaves, "
            f"got {channels_last!r}"
        )
    for name in names:
        if name not in specs:
            raise ValueError(
                f"to_tensorflow: channels_last names {name!r}, but the leaves are {list(specs)}"
            )
        if (ranks[name] or 0) < 3:
            raise ValueError(
                f"to_tensorflow: channels_last names {name!r}, which must have a batch axis, "
                f"channels and at least one more, got {ranks[name]} axes"
            )
    return set(names)


def _moved_sizes(sizes: Sequence[Any]) -> list[Any]:
    """The shape of a batch after its channels have moved."""
    return [sizes[0], *sizes[2:], sizes[1]]


def _with_channels_last(array: Array) -> Array:
    """A batch of shape (N, C, ...) in the order of axes that TensorFlow wants, contiguous."""
    last = np.moveaxis(array, 1, -1)
    if last.flags.c_contiguous:
        return last
    if array.dtype == _BFLOAT16:
        return _with_channels_last(array.view(np.int16)).view(_BFLOAT16)
    axes = "NC" + string.ascii_lowercase[: array.ndim - 2]
    return permute(array, axes, "".join(_moved_sizes(axes)))
