"""Boxes and points in images, moved to where `pinfeed.Image` has put what was there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed.arguments import checked_integer
from pinfeed.functions.sequences import JaggedBatch


def boxes(
    boxes: Any,
    windows: npt.NDArray[np.float64] | torch.Tensor,
    size: Sequence[int],
    *,
    min_size: float = 1.0,
    min_area: float = 1.0,
) -> tuple[Any, Any]:
    """Moves boxes along with their images, clips them, and says which ones remain.

    Args:
        boxes: (B, N, 4) ndarray or tensor of x1, y1, x2, y2 in pixels of the whole images; or a
            `JaggedBatch` of values (total, 4).
        windows: float64 (B, 6), as ``Image(windows=)`` returns them.
        size: Height and width of the batch of images.
        min_size: A box whose width or height is less after clipping does not remain.
        min_area: The same for its area.

    Returns:
        The boxes in pixels of the batch: of the same shape, as floats; and bool of shape (B, N) or
        (total,), True where a box remains.

    Raises:
        TypeError: ``boxes`` are no array and no `JaggedBatch`, or ``size`` no integers.
        ValueError: A shape does not fit.

    Example:
        >>> crop = pinfeed.augment.Compose(
        ...     [pinfeed.augment.CenterCrop(4), pinfeed.augment.RandomHorizontalFlip(p=1)]
        ... )
        >>> image = pinfeed.Image(augment=crop, windows="window")
        >>> fields = {"image": image, "boxes": pinfeed.Jagged(), "labels": pinfeed.Jagged()}
        >>> sample = {
        ...     "image": np.zeros((8, 8, 3), np.uint8),
        ...     "boxes": np.array([[0, 2, 5, 4], [0, 0, 2, 2]]),
        ...     "labels": [7, 9],
        ... }
        >>> batch = pinfeed.Collate(fields)([sample])
        >>> moved, remains = pinfeed.augment.boxes(batch["boxes"], batch["window"], (4, 4))
        >>> moved.values, remains
        (tensor([[1., 0., 4., 2.],
                [4., 0., 4., 0.]]), tensor([ True, False]))
        >>> batch["labels"].values[remains]
        tensor([7])
    """
    height, width = _checked_size(size, "boxes")
    corners, is_mirrored = _moved(boxes, 4, windows, (height, width), "boxes")
    first, second = corners.unbind(-2)
    low = torch.where(is_mirrored, second, first)
    high = torch.where(is_mirrored, first, second)
    clipped = torch.cat([low, high], -1)
    clipped[..., 0::2].clamp_(0, width)
    clipped[..., 1::2].clamp_(0, height)
    extent = clipped[..., 2:] - clipped[..., :2]
    remains = (extent >= min_size).all(-1) & (extent.prod(-1) >= min_area)
    return _like(boxes, clipped, remains)


def points(
    points: Any, windows: npt.NDArray[np.float64] | torch.Tensor, size: Sequence[int]
) -> tuple[Any, Any]:
    """Moves points along with their images, and says which ones are still inside.

    Coordinates go from 0 at the left and upper border of an image to its width and height, so the
    centre of its first pixel is (0.5, 0.5). Points that are numbers of pixels, as torchvision's
    are, need 0.5 added before and subtracted after.

    Args:
        points: (B, ..., 2) ndarray or tensor of x, y in pixels of the whole images; or a
            `JaggedBatch` of values (total, ..., 2).
        windows: float64 (B, 6), as ``Image(windows=)`` returns them.
        size: Height and width of the batch of images.

    Returns:
        The points in pixels of the batch, also those beyond it: of the same shape, as floats; and
        bool of shape (B, ...) or (total, ...), True where a point is inside or on the border.

    Raises:
        TypeError: ``points`` are no array and no `JaggedBatch`, or ``size`` no integers.
        ValueError: A shape does not fit.

    Example:
        >>> image = pinfeed.Image(augment=pinfeed.augment.CenterCrop(4), windows=True)
        >>> batch, windows = pinfeed.Collate(image)([np.zeros((8, 8, 3), np.uint8)])
        >>> pinfeed.augment.points(np.array([[[2.5, 3.5], [7.0, 3.0]]]), windows, (4, 4))
        (array([[[0.5, 1.5],
                [5. , 1. ]]]), array([[ True, False]]))
    """
    height, width = _checked_size(size, "points")
    moved, _ = _moved(points, 2, windows, (height, width), "points")
    moved = moved.squeeze(-2)
    x, y = moved.unbind(-1)
    return _like(points, moved, (x >= 0) & (x <= width) & (y >= 0) & (y <= height))


def _moved(
    targets: Any, numbers: int, windows: Any, size: tuple[int, int], function: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Points (..., numbers / 2, 2) in pixels of the batch, and which axes are mirrored (..., 2)."""
    is_jagged = isinstance(targets, JaggedBatch)
    values = _tensor(targets.values if is_jagged else targets, function, function)
    count = len(targets.offsets) - 1 if is_jagged else len(values) if values.ndim else 0
    if values.ndim < 2 or values.shape[-1] != numbers:
        letters = "x1, y1, x2, y2" if numbers == 4 else "x, y"
        raise ValueError(
            f"{function}: {function} must be of shape (B, N, {numbers}) with {letters}, or a "
            f"JaggedBatch with values of shape (total, {numbers}), got {tuple(values.shape)}"
        )
    windows = _tensor(windows, "windows", function).to(values.device, torch.float64)
    if windows.shape != (count, 6):
        raise ValueError(
            f"{function}: windows must be of shape (B, 6), here ({count}, 6), as Image(windows=...) "
            f"returns them, got {tuple(windows.shape)}"
        )
    if is_jagged:
        lengths = torch.as_tensor(targets.lengths, device=values.device)
        windows = windows.repeat_interleave(lengths, 0, output_size=len(values))
    windows = windows.view(len(values), *[1] * (values.ndim - 2), 6)
    height, width = size
    room = windows.new_tensor([width, height])
    begin, extent, mirrored = windows[..., [1, 0]], windows[..., [3, 2]], windows[..., [5, 4]] != 0
    points = values.double().view(*values.shape[:-1], numbers // 2, 2)
    moved = (points - begin.unsqueeze(-2)) * (room / extent).unsqueeze(-2)
    return torch.where(mirrored.unsqueeze(-2), room - moved, moved), mirrored


def _tensor(array: Any, argument: str, function: str) -> torch.Tensor:
    if isinstance(array, torch.Tensor):
        return array
    if isinstance(array, np.ndarray):
        return torch.from_numpy(np.array(array))  # a copy, for what is read-only or reversed
    raise TypeError(
        f"{function}: {argument} must be an ndarray or a tensor, got {type(array).__name__}"
    )


def _like(targets: Any, moved: torch.Tensor, remains: torch.Tensor) -> tuple[Any, Any]:
    """Results of the kind that the targets are."""
    values = targets.values if isinstance(targets, JaggedBatch) else targets
    dtype = _tensor(values, "", "").dtype
    moved = moved.to(dtype if dtype.is_floating_point else torch.float32)
    arrays = (moved, remains)
    result, mask = arrays if isinstance(values, torch.Tensor) else (a.numpy() for a in arrays)
    return (
        JaggedBatch(result, targets.offsets) if isinstance(targets, JaggedBatch) else result
    ), mask


def _checked_size(size: Any, function: str) -> tuple[int, int]:
    """The height and width of a batch of images."""
    if not isinstance(size, Sequence) or len(size) != 2:
        raise ValueError(f"{function}: size must be the batch's height and width, got {size!r}")
    height, width = (checked_integer(number, f"{function}: size", 1, 2**31) for number in size)
    return height, width
