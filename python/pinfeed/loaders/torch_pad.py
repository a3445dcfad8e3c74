"""`Pad` for a batch on a device, in torch's own operations."""

from __future__ import annotations

from typing import Any

import torch

from pinfeed.fields import Pad
from pinfeed.fields.field import padded_leaf
from pinfeed.functions.jagged import JaggedBatch
from pinfeed.functions.torch_ops.tensors import (
    as_signed,
    fill,
    longest_sample,
    pad_counts,
    pad_dtype,
    pad_lengths,
)


def pad_with_torch(field: Pad, batch: JaggedBatch, offsets: torch.Tensor, name: str) -> Any:
    """What `Pad` makes of the samples, bit for bit.

    Args:
        field: The field; its ``axes`` must be None or axis 0, which a `JaggedBatch` has.
        batch: On a device.
        offsets: The batch's, in host memory: the size of the result comes from them, and to ask the
            device would mean to wait for it.
        name: What messages call the leaf.

    Raises:
        TypeError: The values can't be cast to the field's dtype.
        ValueError: The field pads other axes; the batch is empty; the value does not fit.
    """
    padding = field._padding
    values = batch.values
    longest = longest_sample(offsets, name)
    dtype = pad_dtype(padding, values, name)
    size, most = pad_lengths(padding, longest)

    starts, ends = batch.offsets[:-1, None], batch.offsets[1:, None]
    kept = (ends - starts).clamp(max=most)
    places = torch.arange(size, device=values.device)
    if padding.side == "right":
        is_data = places < kept
        sources = starts + places
    else:
        is_data = places >= size - kept
        sources = ends - size + places
    shape = (*is_data.shape, *values.shape[1:])
    if len(values) == 0:
        padded = torch.empty(shape, dtype=dtype, device=values.device)
    else:
        sources = torch.where(is_data, sources, 0)  # any that exists
        rows = as_signed(values).index_select(0, sources.view(-1))
        if rows.dtype != values.dtype:  # a view would end gradients
            rows = rows.view(values.dtype)
        padded = rows.view(shape).to(dtype)
    fill(padded, is_data, padding.value)
    if padding.time_major:
        padded, is_data = padded.swapaxes(0, 1).contiguous(), is_data.t().contiguous()
    lengths_request = field.lengths is None or field.lengths
    return padded_leaf(
        padded, pad_counts(padding, kept.view(-1)), lengths_request, is_data, field.mask
    )
