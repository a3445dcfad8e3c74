"""The leaves of a batch: what each is for TensorFlow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed.exports.to_tensorflow.channels import with_channels_last
from pinfeed.exports.to_tensorflow.handover import Array, handed_over, host_array, tensorflow_dtype
from pinfeed.exports.to_tensorflow.plain_values import is_text, number_array, text_list
from pinfeed.functions.jagged import JaggedBatch
from pinfeed.optional import import_extra
from pinfeed.sources.ragged import RaggedArray

tf: Any = import_extra("tensorflow", "tensorflow")

Sizes = tuple[int | None, ...] | None  # of a shape; None where any is fine


class Leaf(ABC):
    """A leaf of all batches.

    Args:
        spec: What it is in an element of the dataset.

    Attributes:
        spec: The same.
        part_specs: Of the plain tensors that it consists of.
    """

    def __init__(self, spec: Any) -> None:
        self.spec = spec
        self.part_specs = [spec]

    @abstractmethod
    def parts(self, value: Any, where: str) -> list[Any]:
        """The tensors of a batch.

        Args:
            value: What stands in the batch.
            where: What messages call it, such as ``"to_tensorflow: leaf ['x'] of batch 3"``.

        Raises:
            TypeError, ValueError: It doesn't fit to the spec.
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


class DenseLeaf(Leaf):
    """A tensor.

    Args:
        spec: A ``tf.TensorSpec``.
        moves_channels: Whether axis 1 of what stands in a batch is the last axis of the tensor.
    """

    def __init__(self, spec: Any, moves_channels: bool) -> None:
        super().__init__(spec)
        self._moves_channels = moves_channels
        self._sizes = _sizes(spec.shape)

    def parts(self, value: Any, where: str) -> list[Any]:
        """See `Leaf.parts`."""
        if not isinstance(value, torch.Tensor):
            value = number_array(value, where)
        array = host_array(value, where)
        if self._moves_channels and array.ndim > 1:
            array = with_channels_last(array)
        _check(array, self.spec.dtype, self._sizes, where)
        return [handed_over(array)]


class TextLeaf(Leaf):
    """A tensor of strings."""

    def __init__(self, spec: Any) -> None:
        super().__init__(spec)
        self._sizes = _sizes(spec.shape)

    def parts(self, value: Any, where: str) -> list[Any]:
        """See `Leaf.parts`."""
        if not is_text(value):
            raise TypeError(f"{where}: expected strings, got {type(value).__name__}")
        text = tf.constant(text_list(value, where), tf.string)
        _check_shape(tuple(text.shape), tf.string, self._sizes, where)
        return [text]


class RaggedLeaf(Leaf):
    """A tensor whose samples have different lengths.

    Args:
        spec: A ``tf.RaggedTensorSpec`` with one ragged axis, axis 1.
        where: What messages call the leaf.
    """

    def __init__(self, spec: Any, where: str) -> None:
        super().__init__(spec)
        shape = spec.shape
        if spec.ragged_rank != 1 or spec.row_splits_dtype != tf.int64 or shape.rank is None:
            raise ValueError(
                f"{where}: expected a tf.RaggedTensorSpec of known rank with ragged_rank=1 and "
                f"row_splits_dtype=tf.int64, got {spec}"
            )
        splits = None if shape[0] is None else shape[0] + 1
        self.part_specs = [
            tf.TensorSpec([None, *shape[2:]], spec.dtype),
            tf.TensorSpec([splits], tf.int64),
        ]
        self._sizes = [_sizes(part.shape) for part in self.part_specs]

    def parts(self, value: Any, where: str) -> list[Any]:
        """See `Leaf.parts`."""
        if not isinstance(value, JaggedBatch | RaggedArray):
            raise TypeError(f"{where}: expected a JaggedBatch, got {type(value).__name__}")
        values = host_array(value.values, where)
        offsets = _int64(host_array(value.offsets, where))
        _check(values, self.spec.dtype, self._sizes[0], where)
        _check(offsets, tf.int64, self._sizes[1], where)
        # TensorFlow would check them by ops of its own, or trust them and read anywhere.
        if len(offsets) == 0 or offsets[0] < 0 or offsets[-1] > len(values):
            raise ValueError(f"{where}: expected offsets from 0 to {len(values)}, got {offsets}")
        if (offsets[1:] < offsets[:-1]).any():
            raise ValueError(f"{where}: expected offsets that don't decrease, got {offsets}")
        if offsets[0] != 0:
            values, offsets = values[int(offsets[0]) :], offsets - offsets[0]
        return [handed_over(values[: int(offsets[-1])]), handed_over(offsets)]

    def element(self, parts: Sequence[Any]) -> Any:
        """See `Leaf.element`."""
        return tf.RaggedTensor.from_row_splits(*parts, validate=False)

    def count(self, parts: Sequence[Any]) -> int:
        """See `Leaf.count`."""
        return len(parts[1]) - 1

    def first(self, parts: Sequence[Any], count: int) -> list[Any]:
        """See `Leaf.first`."""
        values, splits = parts
        return [values[: splits[count]], splits[: count + 1]]


def leaf_of(spec: Any, moves_channels: bool, where: str) -> Leaf:
    """The leaf that a spec describes.

    Raises:
        TypeError: The spec is of a kind that no batch can have.
    """
    if isinstance(spec, tf.RaggedTensorSpec):
        return RaggedLeaf(spec, where)
    if not isinstance(spec, tf.TensorSpec):
        raise TypeError(f"{where}: expected a tf.TensorSpec or a tf.RaggedTensorSpec, got {spec!r}")
    return TextLeaf(spec) if spec.dtype == tf.string else DenseLeaf(spec, moves_channels)


def _int64(offsets: Array) -> npt.NDArray[Any]:
    """The offsets as int64, if they are of 32 bits."""
    array = offsets.numpy() if isinstance(offsets, torch.Tensor) else offsets
    return array.astype(np.int64) if array.dtype == np.int32 else array


def _sizes(shape: Any) -> Sizes:
    return None if shape.rank is None else tuple(shape)


def _check(array: Array, dtype: Any, sizes: Sizes, where: str) -> None:
    got = tensorflow_dtype(array, where)
    if got is not dtype:
        raise TypeError(f"{where}: expected {dtype.name}, got {got.name}")
    _check_shape(array.shape, dtype, sizes, where)


def _check_shape(shape: Sequence[int], dtype: Any, sizes: Sizes, where: str) -> None:
    if sizes is None:
        return
    has_rank = len(shape) == len(sizes)
    if has_rank and all(map(_fits, shape, sizes)):
        return
    hint = ""
    if has_rank:
        free = tuple(one if one == other else None for one, other in zip(shape, sizes, strict=True))
        hint = f"; if that varies, say so: signature= with tf.TensorSpec({free}, tf.{dtype.name})"
    raise ValueError(f"{where}: expected shape {sizes}, got {tuple(shape)}{hint}")


def _fits(size: int, expected: int | None) -> bool:
    return expected is None or size == expected
