"""What the first batch says about all of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

from pinfeed.exports.to_tensorflow.channels import Channels, moved_sizes
from pinfeed.exports.to_tensorflow.containers import keys, known_to_tensorflow
from pinfeed.exports.to_tensorflow.handover import host_array, tensorflow_dtype
from pinfeed.exports.to_tensorflow.plain_values import is_plain, is_text, number_array, text_shape
from pinfeed.functions.jagged import JaggedBatch
from pinfeed.optional import import_extra
from pinfeed.sources.ragged import RaggedArray
from pinfeed.structure import children, is_container

tf: Any = import_extra("tensorflow", "tensorflow")


def signature_of(batch: Any, channels: Channels, varying: Mapping[str, Collection[int]]) -> Any:
    """The structure of an element of the dataset, of ``tf.TypeSpec``.

    Args:
        batch: The first one.
        channels: Which leaves have their channels moved.
        varying: By the path of a leaf, which axes differ between batches, axis 0 aside, in the
            order that they have in the batch.

    Raises:
        TypeError: A leaf is nothing that TensorFlow could have.
    """

    def visit(node: Any, path: str, names: tuple[str, ...]) -> Any:
        if node is None:
            return None
        where = f"to_tensorflow: leaf {path} of batch 0" if path else "to_tensorflow: batch 0"
        if isinstance(node, JaggedBatch | RaggedArray):
            return _ragged_spec(node, where)
        if isinstance(node, np.ndarray | torch.Tensor) or is_plain(node):
            axes = {0, *varying.get(path, ())}
            return _dense_spec(node, axes, channels, ".".join(names), where)
        if not is_container(node):
            raise TypeError(
                f"{where}: expected a tensor, an ndarray, numbers, strings or a container of them, "
                f"got {type(node).__name__}; leave it out of the batch"
            )
        if len(children(node)) == 0:
            raise TypeError(
                f"{where}: expected something in the {type(node).__name__}, but it is empty; "
                "leave it out of the batch, or say with signature= what it is"
            )
        specs = [
            visit(child, path + step, (*names, str(key)))
            for key, (step, child) in zip(keys(node), children(node), strict=True)
        ]
        return known_to_tensorflow(node, specs, path)

    return visit(batch, "", ())


def _ragged_spec(node: JaggedBatch | RaggedArray, where: str) -> Any:
    values = host_array(node.values, where)
    return tf.RaggedTensorSpec(
        [None, None, *values.shape[1:]], tensorflow_dtype(values, where), ragged_rank=1
    )


def _dense_spec(
    node: Any, varying: Collection[int], channels: Channels, name: str, where: str
) -> Any:
    if is_text(node):
        shape, dtype = text_shape(node), tf.string
    else:
        array = host_array(number_array(node, where), where)
        shape, dtype = tuple(array.shape), tensorflow_dtype(array, where)
    sizes = [None if axis in varying else size for axis, size in enumerate(shape)]
    if channels.move(name, dtype, len(sizes)):
        sizes = moved_sizes(sizes)
    return tf.TensorSpec(sizes, dtype)
