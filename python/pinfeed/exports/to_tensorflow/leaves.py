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
from pinfeed.functions.functions import permute
from pinfeed.functions.jagged import JaggedBatch
from pinfeed.optional import import_extra
from pinfeed.sources.ragged import RaggedArray
from pinfeed.structure import is_container

tf: Any = import_extra("tensorflow", "tensorflow")

Array = npt.NDArray[Any] | torch.Tensor
Sizes = tuple[int | None, ...] | None  # of a shape; None where any is fine

# All of TensorFlow's own memory begins at a multiple of it, and its kernels abort the process when
# they meet other memory.
_ALIGNMENT = 64

_DTYPES = {
    getattr(torch, name): getattr(tf, name)
    for name in (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    )
}

_INTEGERS = (bool, int, np.integer, np.bool)
_NUMBERS = (*_INTEGERS, float, complex, np.number)
_STRINGS = (str, bytes)
_PLAIN = (*_NUMBERS, *_STRINGS)


class Leaf(ABC):
    """A leaf of all batches.

    Args:
        *part_specs: Of the plain tensors that it consists of.
    """

    def __init__(self, *part_specs: Any) -> None:
        self.part_specs = part_specs

    @abstractmethod
    def parts(self, value: Any, where: str) -> list[Any]:
        """The tensors of a batch.

        Args:
            value: What stands in the batch.
            where: What messages call it, such as ``"to_tensorflow: leaf ['x'] of batch 3"``.

        Raises:
            TypeError, ValueError: It doesn't fit to the specs.
        """

    def element(self, parts: Sequence[Any]) -> Any:
        """What these tensors, in a graph or not, are together."""
        return parts[0]

    def count(self, parts: Sequence[Any]) -> int | None:
        """How many samples the batch has, None if this leaf doesn't tell."""
        return len(parts[0]) if parts[0].shape.rank else None

    def first(self, parts: Sequence[Any], count: int) -> list[Any]:
        """The tensors of the first samples of the batch."""
        return [part[:count] if part.shape.rank else part for part in parts]


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
        values = host_array(value.values, where)
        shape = [None, None, *values.shape[1:]]
        return tf.RaggedTensorSpec(shape, tensorflow_dtype(values, where), ragged_rank=1)
    array: Array
    if is_text(value):
        array, dtype = text_array(value, where), tf.string
    elif isinstance(value, np.ndarray | torch.Tensor) or is_plain(value):
        array = host_array(number_array(value, where), where)
        dtype = tensorflow_dtype(array, where)
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
    def parts(self, value: Any, where: str) -> list[Any]:
        if value is not None:
            raise ValueError(f"{where}: expected None, got a {type(value).__name__}")
        return []

    @override
    def element(self, parts: Sequence[Any]) -> None:
        return None

    @override
    def count(self, parts: Sequence[Any]) -> None:
        return None


class _DenseLeaf(Leaf):
    """A tensor of numbers."""

    def __init__(self, spec: Any, moves_channels: bool) -> None:
        super().__init__(spec)
        self._dtype, self._sizes = spec.dtype, _sizes(spec)
        self._moves_channels = moves_channels

    @override
    def parts(self, value: Any, where: str) -> list[Any]:
        if not isinstance(value, torch.Tensor):
            value = number_array(value, where)
        array = host_array(value, where)
        if self._moves_channels and array.ndim > 1:
            array = _with_channels_last(array)
        _check(array, self._dtype, self._sizes, where)
        return [_handed_over(array)]


class _TextLeaf(Leaf):
    """A tensor of strings."""

    @override
    def parts(self, value: Any, where: str) -> list[Any]:
        if not is_text(value):
            raise TypeError(f"{where}: expected strings, got {type(value).__name__}")
        array = text_array(value, where)
        _check_shape(array.shape, tf.string, _sizes(self.part_specs[0]), where)
        return [tf.constant(array.tolist(), tf.string, array.shape)]


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
    def parts(self, value: Any, where: str) -> list[Any]:
        if not isinstance(value, JaggedBatch | RaggedArray):
            raise TypeError(f"{where}: expected a JaggedBatch, got {type(value).__name__}")
        values, offsets = host_array(value.values, where), host_array(value.offsets, where)
        if isinstance(offsets, torch.Tensor):
            offsets = offsets.numpy()
        if offsets.dtype == np.int32:
            offsets = offsets.astype(np.int64)
        for array, spec in zip((values, offsets), self.part_specs, strict=True):
            _check(array, spec.dtype, _sizes(spec), where)
        # TensorFlow would check them by ops of its own, or trust them and read anywhere.
        if len(offsets) == 0 or offsets[0] < 0 or offsets[-1] > len(values):
            raise ValueError(f"{where}: expected offsets from 0 to {len(values)}, got {offsets}")
        if (offsets[1:] < offsets[:-1]).any():
            raise ValueError(f"{where}: expected offsets that don't decrease, got {offsets}")
        if offsets[0] != 0:
            values, offsets = values[int(offsets[0]) :], offsets - offsets[0]
        return [_handed_over(values[: int(offsets[-1])]), _handed_over(offsets)]

    @override
    def element(self, parts: Sequence[Any]) -> Any:
        return tf.RaggedTensor.from_row_splits(*parts, validate=False)

    @override
    def count(self, parts: Sequence[Any]) -> int:
        return len(parts[1]) - 1

    @override
    def first(self, parts: Sequence[Any], count: int) -> list[Any]:
        values, splits = parts
        return [values[: splits[count]], splits[: count + 1]]


def _sizes(spec: Any) -> Sizes:
    return None if spec.shape.rank is None else tuple(spec.shape)


def _check(array: Array, dtype: Any, sizes: Sizes, where: str) -> None:
    got = tensorflow_dtype(array, where)
    if got is not dtype:
        raise TypeError(f"{where}: expected {dtype.name}, got {got.name}")
    _check_shape(array.shape, dtype, sizes, where)


def _check_shape(shape: Sequence[int], dtype: Any, sizes: Sizes, where: str) -> None:
    if sizes is None or sizes == shape:
        return
    hint = ""
    if len(shape) == len(sizes):
        free = tuple(one if one == other else None for one, other in zip(shape, sizes, strict=True))
        if all(size is None or size == got for size, got in zip(sizes, shape, strict=True)):
            return
        hint = f"; if that varies, say so: signature= with tf.TensorSpec({free}, tf.{dtype.name})"
    raise ValueError(f"{where}: expected shape {sizes}, got {tuple(shape)}{hint}")


def host_array(array: Any, where: str) -> Array:
    """A tensor, on whatever device, or an ndarray, as one in memory that has a dtype of TensorFlow.

    Args:
        array: What stands in the batch.
        where: What messages call it.

    Raises:
        TypeError: It is no such array.
    """
    if type(array) is torch.Tensor and array.is_cpu and _is_plain_memory(array):
        return array  # most are, and the rest of this takes longer than all else a batch needs
    array = plain(array, where)
    if isinstance(array, torch.Tensor):
        return array.cpu()
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def tensorflow_dtype(array: Array, where: str) -> Any:
    """The dtype that an array has in TensorFlow.

    Raises:
        TypeError: There is none.
    """
    if isinstance(array, torch.Tensor):
        dtype = _DTYPES.get(array.dtype)
    else:
        dtype = next((one for one in _DTYPES.values() if one == array.dtype), None)
    if dtype is None:
        raise TypeError(
            f"{where}: TensorFlow has no {array.dtype}; convert it, or leave it out of the batch"
        )
    return dtype


def _handed_over(array: Array) -> Any:
    """The array as a tensor of TensorFlow, over the same memory if that is in order.

    TensorFlow never writes into it, and lets go of it when the last of its tensors is gone.
    """
    if isinstance(array, np.ndarray):
        is_shared = array.flags.carray and array.ctypes.data % _ALIGNMENT == 0
        if not is_shared or array.dtype.kind not in "biufc":  # bfloat16, which torch can't take
            return tf.constant(array)
        array = torch.from_numpy(array)
    elif not array.is_contiguous():
        axes = string.ascii_letters[: array.ndim]
        array = permute(array, axes, axes)
    elif array.data_ptr() % _ALIGNMENT != 0:
        array = array.clone()
    # Tensor.__dlpack__ does the same with many more questions.
    return tf.experimental.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(array))  # type: ignore[attr-defined]


def _is_plain_memory(tensor: torch.Tensor) -> bool:
    is_marked = tensor.requires_grad or tensor.is_conj() or tensor.is_neg()
    return tensor.layout is torch.strided and not (is_marked or tensor.is_nested)


def is_plain(node: Any) -> bool:
    """Whether a node of a batch is a number or a string, or a list or tuple of them."""
    if isinstance(node, list | tuple) and not hasattr(node, "_fields"):
        return len(node) > 0 and all(isinstance(item, _PLAIN) for item in node)
    return isinstance(node, _PLAIN)


def is_text(node: Any) -> bool:
    """Whether the node is a string, or a list, a tuple or an ndarray that can hold some."""
    if isinstance(node, np.ndarray):
        return node.dtype.kind in "OUST"
    if isinstance(node, list | tuple):
        return len(node) > 0 and isinstance(node[0], _STRINGS)
    return isinstance(node, _STRINGS)


def text_array(node: Any, where: str) -> npt.NDArray[Any]:
    """The strings of a node for which `is_text` holds.

    Raises:
        TypeError: Something else is among them.
    """
    array = node if isinstance(node, np.ndarray) else np.array(node, object)
    for item in array.ravel().tolist():
        if not isinstance(item, _STRINGS):
            raise TypeError(f"{where}: expected strings, got a {type(item).__name__} among them")
    return array


def number_array(node: Any, where: str) -> Any:
    """Numbers as an ndarray: Python's own as int64, float32, complex64 or bool.

    Args:
        node: What is nothing of the kind is returned as it is.
        where: What messages call it.

    Raises:
        TypeError: There are strings among them, or integers beyond int64.
        ValueError: float32 can't hold one.
    """
    if isinstance(node, np.generic):
        return np.asarray(node)
    if not is_plain(node):
        return node
    items = list(node) if isinstance(node, list | tuple) else [node]
    shape = np.shape(node)
    if not all(isinstance(item, _NUMBERS) for item in items):
        raise TypeError(f"{where}: expected numbers, got {node!r}")
    if all(isinstance(item, bool | np.bool) for item in items):
        return np.array(items).reshape(shape)
    if all(isinstance(item, _INTEGERS) for item in items):
        # One by one: NumPy takes signed and unsigned ones together for floats, and rounds them.
        try:
            return np.array([int(item) for item in items], np.int64).reshape(shape)
        except OverflowError as error:
            raise TypeError(
                f"{where}: expected integers that int64 can hold, got {node!r}"
            ) from error
    is_complex = any(isinstance(item, complex | np.complexfloating) for item in items)
    array = np.array(items, np.complex128 if is_complex else np.float64).reshape(shape)
    try:
        with np.errstate(over="raise"):
            return array.astype(np.complex64 if is_complex else np.float32)
    except FloatingPointError as error:
        raise ValueError(
            f"{where}: expected numbers that float32 can hold, got {node!r}"
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


def _with_channels_last(array: Any) -> Any:
    """A batch of shape (N, C, ...) in the order of axes that TensorFlow wants, contiguous."""
    if isinstance(array, torch.Tensor):
        moved = array.movedim(1, -1)
        if moved.is_contiguous():
            return moved
    else:
        moved = np.moveaxis(array, 1, -1)
        if moved.flags.c_contiguous:
            return moved
    axes = "NC" + string.ascii_lowercase[: array.ndim - 2]
    return permute(array, axes, "".join(_moved_sizes(axes)))
