"""What a field does to a leaf of a whole batch.

On the CPU natively, by ``torch.ops.pinfeed`` where its CUDA kernels were built, and else in torch's
own operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pinfeed.fields import Field, Image, Pad
from pinfeed.functions.jagged import JaggedBatch
from pinfeed.functions.torch_ops import has_kernels
from pinfeed.loaders.ops_fields import image_with_ops, pad_with_ops
from pinfeed.loaders.torch_image import image_with_torch
from pinfeed.loaders.torch_pad import pad_with_torch
from pinfeed.sources.ragged import RaggedArray
from pinfeed.sources.source import ArraySource

#: The fields that take whole batches.
APPLICABLE = (Image, Pad)


def apply_field(field: Field, leaf: Any, host: Any, name: str) -> Any:
    """What ``field`` would have made of the samples of a batch, made of the batch.

    `Image` takes uint8 tensors of shape (N, H, W, C), or as its ``input`` says; `Pad` takes a
    `JaggedBatch` of tensors. The result has the same bits wherever the leaf is.

    Args:
        field: One of `APPLICABLE`, as it behaves at its place.
        leaf: A leaf of a batch, on any device.
        host: The same leaf before it was moved there; sizes are looked up in it.
        name: What messages call the leaf.

    Raises:
        TypeError, ValueError: The leaf is none that the field can take.
    """
    if isinstance(field, Image):
        if not isinstance(leaf, torch.Tensor):
            raise TypeError(
                f"{name}: Image() takes a uint8 tensor of images, got {type(leaf).__name__}"
            )
        if has_kernels(leaf):
            return image_with_ops(field, leaf, name)
        # The native side takes samples, at least one: their sizes are those of the batch.
        if not leaf.is_cpu or leaf.shape[:1] == (0,):
            return image_with_torch(field, leaf, name)
        return field.gather(ArraySource(leaf, name), np.arange(len(leaf)), name)
    if isinstance(field, Pad):
        if not (isinstance(leaf, JaggedBatch) and isinstance(leaf.values, torch.Tensor)):
            raise TypeError(
                f"{name}: Pad() takes a JaggedBatch of tensors, which Collate makes with Jagged(), "
                f"got {type(leaf).__name__}"
            )
        if has_kernels(leaf.values):
            return pad_with_ops(field, leaf, host.offsets, name)
        if not leaf.values.is_cpu:
            return pad_with_torch(field, leaf, host.offsets, name)
        return field.gather(RaggedArray(*leaf), np.arange(len(leaf.offsets) - 1), name)
    raise TypeError(f"{name}: {field!r} takes no whole batches")
