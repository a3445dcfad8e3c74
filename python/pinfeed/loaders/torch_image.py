"""`Image` for a batch on a device, in torch's own operations."""

from __future__ import annotations

import copy
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from pinfeed.fields import Image
from pinfeed.fields.field import padded_leaf
from pinfeed.sources.source import ArraySource

_AXES = {"HWC": 4, "CHW": 4, "HW": 3}

# What each byte becomes, by field, for a number of channels on a device.
_tables: WeakKeyDictionary[Image, dict[tuple[int, torch.device], torch.Tensor]]
_tables = WeakKeyDictionary()


def image_with_torch(field: Image, images: torch.Tensor, name: str) -> Any:
    """What `Image` makes of the samples, bit for bit.

    torch has no fused multiply-add, so a table of all 256 bytes, computed natively, stands for the
    arithmetic.

    Args:
        field: The field.
        images: (N, H, W, C), or as the field's ``input`` says.
        name: What messages call the leaf.

    Raises:
        TypeError: They are not uint8.
        ValueError: They have another number of axes, or of channels than mean and std.
    """
    if images.dtype != torch.uint8:
        raise TypeError(f"{name}: Image() takes uint8, got {images.dtype}")
    if images.ndim != _AXES[field.input]:
        raise ValueError(
            f"{name}: expected images of shape (N, {', '.join(field.input)}), "
            f"got {tuple(images.shape)}"
        )
    planes = {
        "HWC": lambda: images.permute(0, 3, 1, 2),
        "CHW": lambda: images,
        "HW": lambda: images.unsqueeze(1),
    }[field.input]()
    count, channels, height, width = planes.shape
    is_packed = field.channels_last or field.output == "HWC"
    pixels = planes.permute(0, 2, 3, 1) if is_packed else planes
    if field.dtype == torch.uint8:
        batch = pixels.contiguous()
    else:
        batch = _looked_up(pixels, _table(field, channels, images.device, name), is_packed)
    sizes = mask = None
    if field.pad_value is not None:
        down, right = padding_of(field, height, width)
        corner = (0, 0, 0, right, 0, down) if is_packed else (0, right, 0, down)
        batch = torch.nn.functional.pad(batch, corner, value=field.pad_value)
        sizes, mask = sizes_and_mask(count, height, width, down, right, images.device)
    if field.channels_last:
        batch = batch.permute(0, 3, 1, 2)
    return padded_leaf(batch, sizes, field.sizes, mask, field.mask)


def _looked_up(pixels: torch.Tensor, table: torch.Tensor, is_packed: bool) -> torch.Tensor:
    """``table[c, byte]`` for each byte of channel c."""
    channels = len(table)
    rows = torch.arange(0, 256 * channels, 256, dtype=torch.int32, device=pixels.device)
    entries = torch.empty(pixels.shape, dtype=torch.int32, device=pixels.device)
    torch.add(pixels, rows if is_packed else rows[:, None, None], out=entries)
    values = torch.index_select(table.view(-1), 0, entries.view(-1))
    return values.view(pixels.shape)


def _table(field: Image, channels: int, device: torch.device, name: str) -> torch.Tensor:
    """(C, 256) values of the field's dtype."""
    tables = _tables.setdefault(field, {})
    key = (channels, device)
    if key not in tables:
        # Images of one pixel, each of one byte, as the field takes them.
        shape = {"HWC": (256, 1, 1, channels), "CHW": (256, channels, 1, 1), "HW": (256, 1, 1)}
        values = torch.arange(256, dtype=torch.uint8, device="cpu")
        pixels = values.view(256, *[1] * (_AXES[field.input] - 1)).expand(shape[field.input])
        arithmetic = copy.copy(field)
        arithmetic.pad_value = None
        batch = arithmetic.gather(ArraySource(pixels, name), np.arange(256), name)
        tables[key] = batch.reshape(256, channels).t().contiguous().to(device)
    return tables[key]


def padding_of(field: Image, height: int, width: int) -> tuple[int, int]:
    """How much goes below and to the right."""
    multiples = field.multiple_of or 1
    down, right = multiples if isinstance(multiples, tuple | list) else (multiples, multiples)
    return -height % down, -width % right


def sizes_and_mask(
    count: int, height: int, width: int, down: int, right: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """What says where the images are in a padded batch of images of one size."""
    sizes = torch.empty((count, 2), dtype=torch.int64, device=device)
    sizes[:, 0], sizes[:, 1] = height, width
    mask = torch.zeros((count, height + down, width + right), dtype=torch.bool, device=device)
    mask[:, :height, :width] = True
    return sizes, mask
