"""`Image` and `Pad` for a batch on a device that has pinfeed's kernels."""

from __future__ import annotations

from typing import Any

import torch

from pinfeed.fields import Image, Pad
from pinfeed.fields.field import padded_leaf
from pinfeed.functions.jagged import JaggedBatch
from pinfeed.functions.torch_ops.tensors import longest_sample, normalize_tensor, pad_tensor
from pinfeed.loaders.torch_image import padding_of, sizes_and_mask


def image_with_ops(field: Image, images: torch.Tensor, name: str) -> Any:
    """What `Image` makes of the samples.

    Args:
        field: The field.
        images: (N, H, W, C), or as the field's ``input`` says.
        name: What messages call the leaf.

    Raises:
        TypeError: They are not uint8.
        ValueError: They have another number of axes, or of channels than mean and std.
    """
    options: dict[str, Any] = {}
    down = right = 0
    if field.pad_value is not None and images.ndim == len(field.input) + 1:
        height, width = (images.shape[1 + field.input.index(letter)] for letter in "HW")
        down, right = padding_of(field, height, width)
        options = {
            "height": height + down,
            "width": width + right,
            "pad_value": float(field.pad_value),
        }
    batch = normalize_tensor(
        images,
        None if field.dtype == torch.uint8 else field._constants,
        input="N" + field.input,
        output="N" + field.output,
        dtype=field.dtype,
        channels_last=field.channels_last,
        name=name,
        **options,
    )
    if field.pad_value is None:
        return batch
    sizes, mask = sizes_and_mask(len(images), height, width, down, right, images.device)
    return padded_leaf(batch, sizes, field.sizes, mask, field.mask)


def pad_with_ops(field: Pad, batch: JaggedBatch, offsets: torch.Tensor, name: str) -> Any:
    """What `Pad` makes of the samples.

    Args:
        field: The field; its ``axes`` must be None or axis 0, which a `JaggedBatch` has.
        batch: The samples.
        offsets: The batch's, in host memory: the size of the result comes from them, and to ask the
            device would mean to wait for it.
        name: What messages call the leaf.

    Raises:
        TypeError: The values can't be cast to the field's dtype.
        ValueError: The field pads other axes; the batch is empty; the value does not fit.
    """
    longest = longest_sample(offsets, name)
    lengths_request = field.lengths is None or field.lengths
    values, lengths, mask = pad_tensor(
        field._padding,
        batch.values,
        batch.offsets,
        longest,
        lengths=lengths_request is not False,
        mask=field.mask is not False,
        name=name,
    )
    return padded_leaf(values, lengths, lengths_request, mask, field.mask)
