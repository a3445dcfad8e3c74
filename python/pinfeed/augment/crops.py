"""Crops and padding: of a fixed size, or around objects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from pinfeed import _core
from pinfeed.arguments import (
    as_integer,
    checked_choice,
    checked_integer,
    checked_number,
    checked_range,
    listed,
    require_flags,
    with_hints,
)
from pinfeed.augment.geometry import LIBRARIES, PAIR, Crop, checked_size

_MODES = ("constant", "edge", "reflect")


class RandomCrop(Crop):
    """Crops each image to a fixed size at a random position.

    Args:
        size: Height and width in pixels, or as fractions of the image (floats in (0, 1]); or one number
            for both. With `pinfeed.Image`'s ``pad_value``, smaller images stay whole and are padded
            to the size of the batch.
        padding: Pixels to add before the crop: one number for all sides, a pair (left and right, top and
            bottom), or (left, top, right, bottom). None: no pixels.
        pad_if_needed: Whether to pad images smaller than ``size``, on both sides.
        fill: Value of added pixels with ``padding_mode="constant"``, in the image's own units: one
            number or one per channel. They are normalized like the image.
        padding_mode: Content of added pixels: ``"constant"``; ``"edge"``, which repeats the nearest
            pixel; or ``"reflect"``, which mirrors the image about its outermost pixels.

    Raises:
        TypeError, ValueError: If an argument is invalid. When samples are collated: if an image is
            smaller than the crop, or has too few pixels to mirror.

    Example:
        >>> image = pinfeed.Image(
        ...     dtype=torch.uint8, augment=pinfeed.augment.RandomCrop(2, fill=7)
        ... )
        >>> pinfeed.Collate(image)([np.ones((2, 2, 1), np.uint8)])
        tensor([[[[1, 1],
                  [1, 1]]]], dtype=torch.uint8)
    """

    is_random = True

    @with_hints(**PAIR)
    def __init__(
        self,
        size: float | Sequence[float],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: float | Sequence[float] = 0,
        padding_mode: Literal["constant", "edge", "reflect"] = "constant",
    ) -> None:
        self.size = size
        self.padding = padding
        require_flags("RandomCrop", pad_if_needed=pad_if_needed)
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = checked_choice(padding_mode, _MODES, "RandomCrop: padding_mode")
        self.border = _core.BorderOptions(
            kind=padding_mode, fill=checked_fill(fill, "RandomCrop: fill")
        )
        above, left, below, right = _checked_padding(padding, "RandomCrop")
        self.pads = pad_if_needed or any((above, left, below, right))
        self.fixed_size, sides = _crop_size(size, "RandomCrop")
        self.native_step = _core.GeometryStep(
            kind="random_crop",
            **sides,
            above=above,
            left=left,
            below=below,
            right=right,
            pad_if_needed=pad_if_needed,
        )


class CenterCrop(Crop):
    """Crops each image to a fixed size around its center, padding smaller images.

    Args:
        size: Height and width in pixels, or as fractions of the image (floats in (0, 1]); or one number
            for both.
        like: Rounding of half-pixel positions: ``"torchvision"`` rounds to even, ``"transformers"`` down.
        padding_mode: Padding of smaller images, as in `RandomCrop`: ``"constant"`` (zeros, or the
            ``fill`` of `pinfeed.Image`), ``"edge"`` or ``"reflect"``.

    Raises:
        TypeError, ValueError: If an argument is invalid. When samples are collated: if an image has too
            few pixels to mirror.

    Example:
        >>> image = pinfeed.Image(
        ...     dtype=torch.uint8, augment=pinfeed.augment.CenterCrop((1, 4))
        ... )
        >>> pinfeed.Collate(image)([np.ones((3, 2, 1), np.uint8)])
        tensor([[[[0, 1, 1, 0]]]], dtype=torch.uint8)
    """

    @with_hints(**PAIR)
    def __init__(
        self,
        size: float | Sequence[float],
        *,
        like: Literal["torchvision", "transformers"] = "torchvision",
        padding_mode: Literal["constant", "edge", "reflect"] = "constant",
    ) -> None:
        self.size = size
        self.like = checked_choice(like, LIBRARIES, "CenterCrop: like")
        self.padding_mode = checked_choice(padding_mode, _MODES, "CenterCrop: padding_mode")
        self.border = _core.BorderOptions(kind=padding_mode)
        self.fixed_size, sides = _crop_size(size, "CenterCrop")
        self.pads_small = self.fixed_size is not None
        self.native_step = _core.GeometryStep(
            kind="center_crop", as_transformers=like == "transformers", **sides
        )


class Pad(Crop):
    """Pads each image on all sides.

    Args:
        padding: Pixels to add: one number for all sides, a pair (left and right, top and bottom), or
            (left, top, right, bottom).
        fill: Value of added pixels, as in `RandomCrop`.
        padding_mode: Content of added pixels: ``"constant"``, ``"edge"`` or ``"reflect"``, as in
            `RandomCrop`.

    Raises:
        TypeError, ValueError: If an argument is invalid. When samples are collated: if an image has too
            few pixels to mirror.

    Example:
        >>> image = pinfeed.Image(
        ...     dtype=torch.uint8, augment=pinfeed.augment.Pad((1, 0), fill=7)
        ... )
        >>> pinfeed.Collate(image)([np.ones((1, 2, 1), np.uint8)])
        tensor([[[[7, 1, 1, 7]]]], dtype=torch.uint8)
    """

    pads = True

    @with_hints()
    def __init__(
        self,
        padding: int | Sequence[int],
        fill: float | Sequence[float] = 0,
        padding_mode: Literal["constant", "edge", "reflect"] = "constant",
    ) -> None:
        self.padding = padding
        self.fill = fill
        self.padding_mode = checked_choice(padding_mode, _MODES, "Pad: padding_mode")
        self.border = _core.BorderOptions(kind=padding_mode, fill=checked_fill(fill, "Pad: fill"))
        above, left, below, right = _checked_padding(padding, "Pad")
        self.native_step = _core.GeometryStep(
            kind="pad", above=above, left=left, below=below, right=right
        )


class RandomIoUCrop(Crop):
    """Crops each image at random so that a box overlaps the crop enough (SSD's random crop).

    It draws an overlap from ``sampler_options``, then draws crops until one contains the center of a box
    and has at least that intersection over union with it. After ``trials`` crops it draws another overlap.
    Objects whose center is outside the crop are dropped. It requires `pinfeed.Boxes` for the image, and
    must come before any resize.

    Args:
        min_scale: Minimum height and width of a crop, as fractions of the image's.
        max_scale: Maximum height and width of a crop, as fractions of the image's.
        min_aspect_ratio: Minimum ratio of width to height.
        max_aspect_ratio: Maximum ratio of width to height.
        sampler_options: Overlaps to draw from; 1 keeps the whole image. None: 0, 0.1, 0.3, 0.5, 0.7,
            0.9 and 1.
        trials: Number of crops to draw per overlap.

    Raises:
        TypeError, ValueError: If an argument is invalid. When samples are collated: if the image has
            no `Boxes`.

    Example:
        >>> crop = pinfeed.augment.RandomIoUCrop(sampler_options=[0.5])
        >>> collate = pinfeed.Collate(
        ...     {"image": pinfeed.Image(augment=crop, pad_value=0), "boxes": pinfeed.Boxes()}
        ... )
        >>> sample = {
        ...     "image": np.zeros((90, 90, 3), np.uint8),
        ...     "boxes": [[10, 10, 60, 60]],
        ...     "labels": [1],
        ... }
        >>> len(collate([sample])["boxes"].values)
        1
    """

    is_random = True
    around_boxes = True

    @with_hints()
    def __init__(
        self,
        min_scale: float = 0.3,
        max_scale: float = 1.0,
        min_aspect_ratio: float = 0.5,
        max_aspect_ratio: float = 2.0,
        sampler_options: Sequence[float] | None = None,
        trials: int = 40,
    ) -> None:
        self.min_scale = min_scale
        self.max_scale = max_scale
        self.min_aspect_ratio = min_aspect_ratio
        self.max_aspect_ratio = max_aspect_ratio
        self.sampler_options = sampler_options
        self.trials = checked_integer(trials, "RandomIoUCrop: trials", 1, 1000)
        options = (
            [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0] if sampler_options is None else sampler_options
        )
        if not isinstance(options, Sequence) or len(options) == 0:
            raise ValueError(
                f"RandomIoUCrop: sampler_options must be a list of overlaps, got {options!r}"
            )
        name = "RandomIoUCrop: sampler_options"
        self.native_step = _core.GeometryStep(
            kind="iou_crop",
            range=checked_range((min_scale, max_scale), "RandomIoUCrop: min_scale, max_scale", 1),
            ratio=checked_range(
                (min_aspect_ratio, max_aspect_ratio),
                "RandomIoUCrop: min_aspect_ratio, max_aspect_ratio",
            ),
            overlaps=[checked_number(option, name, 0) for option in options],
            trials=trials,
        )


class RandomZoomOut(Crop):
    """Places the image at a random position of a larger canvas, with probability ``p`` (SSD's zoom-out).

    Args:
        fill: Value of added pixels, as in `RandomCrop`.
        side_range: Range of the ratio of canvas side to image side; at least 1.
        p: Probability of zooming out, 0 to 1.

    Example:
        >>> zoom = pinfeed.augment.RandomZoomOut(side_range=(2, 2), p=1)
        >>> image = pinfeed.Image(augment=zoom, pad_value=0)
        >>> pinfeed.Collate(image)([np.ones((3, 4, 3), np.uint8)]).shape
        torch.Size([1, 3, 6, 8])
    """

    pads = True

    @with_hints()
    def __init__(
        self,
        fill: float | Sequence[float] = 0,
        side_range: tuple[float, float] = (1.0, 4.0),
        p: float = 0.5,
    ) -> None:
        self.fill = fill
        self.side_range = checked_range(side_range, "RandomZoomOut: side_range")
        if self.side_range[0] < 1:
            raise ValueError(f"RandomZoomOut: side_range must begin at 1 or more, got {side_range}")
        self.p = checked_number(p, "RandomZoomOut: p", 0, 1)
        self.is_random = p > 0
        self.border = _core.BorderOptions(fill=checked_fill(fill, "RandomZoomOut: fill"))
        self.native_step = _core.GeometryStep(
            kind="zoom_out", range=self.side_range, probability=self.p
        )


def _crop_size(size: Any, function: str) -> tuple[tuple[int, int] | None, dict[str, Any]]:
    """Returns (height, width) in pixels, or None for fractions; and the size options of a native step."""
    numbers = listed(size)
    if any(isinstance(number, float) for number in numbers):
        name = f"{function}: size as a fraction of the image"
        shares = [checked_number(number, name, 0, 1) for number in numbers]
        if len(shares) not in (1, 2) or 0 in shares:
            raise ValueError(
                f"{name} must be a number above 0 or a pair (height, width), got {size!r}"
            )
        return None, {"share": (shares[0], shares[-1])}
    height, width = checked_size(size, function)
    return (height, width), {"height": height, "width": width}


def _checked_padding(padding: Any, function: str) -> tuple[int, int, int, int]:
    """Returns the pixels to add above, left, below and right."""
    numbers = listed(0 if padding is None else padding)
    if len(numbers) not in (1, 2, 4):
        raise ValueError(
            f"{function}: padding must be one number, (left and right, top and bottom) or "
            f"(left, top, right, bottom), got {padding!r}"
        )
    left, top, right, bottom = (
        checked_integer(number, f"{function}: padding", 0, 2**31) for number in (numbers * 4)[:4]
    )
    return top, left, bottom, right


def checked_fill(fill: Any, name: str) -> list[float]:
    """Returns a fill value as a list of one number, or one per channel."""
    values = [
        float(number)
        if isinstance(number, float | np.floating) and math.isfinite(number)
        else as_integer(number)
        for number in listed(fill)
    ]
    if not values or None in values:
        raise ValueError(
            f"{name} must be a number in units of the image's values, or one for each channel, "
            f"got {fill!r}"
        )
    return [value for value in values if value is not None]
