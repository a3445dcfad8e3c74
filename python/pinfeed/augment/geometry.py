"""Crops and flips: which window of an image is seen, and which way round."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from pinfeed.arguments import as_integer, checked_integer

PaddingMode = Literal["constant", "edge", "reflect"]
_MODES = ("constant", "edge", "reflect")

# A kernels::GeometryStep: its kind, height and width, the padding above, left, below and right, whether it
# pads what is too small, its probability.
_Native = tuple[str, tuple[int, int], tuple[int, int, int, int], bool, float]


class Geometry(ABC):
    """What is seen of images: a crop, a flip, or several in a row. For `pinfeed.Image`'s ``augment``.

    Geometries hold no random state: they pickle, and any number of fields may share one.
    """

    @property
    @abstractmethod
    def steps(self) -> tuple[_Step, ...]:
        """The single crops and flips, one after the other."""

    @functools.cached_property
    def native(self) -> tuple[tuple[_Native, ...], PaddingMode, Sequence[int]]:
        """The steps, what stands beyond the edges of an image, and what it is filled with."""
        crops = [step for step in self.steps if isinstance(step, _Crop)]
        border = (crops[0].padding_mode, crops[0].fills) if crops else ("constant", (0,))
        return tuple(step.native_step for step in self.steps), *border


class _Step(Geometry):
    """A single crop or flip."""

    @property
    @override
    def steps(self) -> tuple[_Step, ...]:
        return (self,)

    @property
    @abstractmethod
    def native_step(self) -> _Native:
        """What native code takes."""


class Compose(Geometry):
    """Crops and flips, one after the other; together they are still one window of each image.

    Args:
        transforms: What is done, in this order: geometries of `pinfeed.augment`.

    Raises:
        TypeError: One is none of these.
        ValueError: There is none; or a crop comes after another one and is larger, or pads: padding
            comes first.

    Example:
        >>> augment = pinfeed.augment
        >>> view = augment.Compose([augment.RandomCrop(32, padding=4), augment.RandomHorizontalFlip()])
        >>> collate = pinfeed.Collate(pinfeed.Image(mean=0.5, std=0.25, augment=view))
        >>> collate([np.zeros((32, 32, 3), np.uint8)]).shape
        torch.Size([1, 3, 32, 32])
    """

    def __init__(self, transforms: Sequence[Geometry]) -> None:
        if not isinstance(transforms, Sequence):
            raise TypeError(
                f"Compose: transforms must be a list of geometries, got {type(transforms).__name__}"
            )
        for transform in transforms:
            if not isinstance(transform, Geometry):
                raise TypeError(
                    "Compose: transforms must be crops and flips of pinfeed.augment, got one of "
                    f"{type(transform).__module__}.{type(transform).__qualname__}"
                )
        self.transforms = list(transforms)
        self._steps = tuple(step for transform in transforms for step in transform.steps)
        if not self._steps:
            raise ValueError("Compose: expected at least one transform, got none")
        crops = [step for step in self._steps if isinstance(step, _Crop)]
        for before, crop in pairwise(crops):
            if crop.may_pad(before.size):
                raise ValueError(
                    f"Compose: {crop} comes after {before} and is larger or pads, which would hide "
                    "pixels that the image has there; let the crop that pads come first"
                )

    @property
    @override
    def steps(self) -> tuple[_Step, ...]:
        return self._steps

    def __repr__(self) -> str:
        return f"Compose({self.transforms!r})"


class _Crop(_Step):
    """A window of a fixed size.

    Attributes:
        size: Its height and width.
        padding_mode: What stands beyond the edges of the image.
        fills: With ``"constant"``: a byte for all channels, or one for each.
    """

    size: tuple[int, int]
    padding_mode: PaddingMode = "constant"
    fills: Sequence[int] = (0,)

    @abstractmethod
    def may_pad(self, size: tuple[int, int]) -> bool:
        """Whether the window may leave an image of this size."""


class RandomCrop(_Crop):
    """A window of a fixed size, anywhere in the image and its padding.

    Args:
        size: Height and width, or one number for both.
        padding: How many pixels to add on the left, top, right and bottom; or two numbers, for left
            and right, and for top and bottom; or one for all sides.
        pad_if_needed: Whether to add to both sides what smaller images lack.
        fill: With ``padding_mode="constant"``: the added pixels, 0 to 255, as one number or one for
            each channel. They are normalized as any others.
        padding_mode: ``"constant"``; ``"edge"``, which repeats the nearest pixel; or ``"reflect"``,
            which mirrors the image about its outermost pixels.

    Raises:
        TypeError, ValueError: An argument does not fit; an image, when it is collated, is smaller
            than the window.

    Example:
        >>> image = pinfeed.Image(dtype=torch.uint8, augment=pinfeed.augment.RandomCrop(2, fill=7))
        >>> pinfeed.Collate(image)([np.ones((2, 2, 1), np.uint8)])
        tensor([[[[1, 1],
                  [1, 1]]]], dtype=torch.uint8)
    """

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: int | Sequence[int] = 0,
        padding_mode: PaddingMode = "constant",
    ) -> None:
        self.size = _checked_size(size, "RandomCrop")
        self.padding = padding
        if not isinstance(pad_if_needed, bool):
            raise TypeError(
                f"RandomCrop: pad_if_needed must be True or False, got {pad_if_needed!r}"
            )
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        if padding_mode not in _MODES:
            raise ValueError(
                f"RandomCrop: padding_mode must be one of {_MODES}, got {padding_mode!r}"
            )
        self.padding_mode = padding_mode
        self.fills = _checked_fill(fill)
        self._sides = _checked_padding(padding)

    @override
    def may_pad(self, size: tuple[int, int]) -> bool:
        is_larger = self.size[0] > size[0] or self.size[1] > size[1]
        return self.pad_if_needed or any(self._sides) or is_larger

    @property
    @override
    def native_step(self) -> _Native:
        return "random_crop", self.size, self._sides, self.pad_if_needed, 0

    def __repr__(self) -> str:
        return (
            f"RandomCrop({self.size}, padding={self.padding}, pad_if_needed={self.pad_if_needed}, "
            f"fill={self.fill}, padding_mode={self.padding_mode!r})"
        )


class CenterCrop(_Crop):
    """A window of a fixed size in the middle of the image; zeros around images that are smaller.

    Args:
        size: Height and width, or one number for both.

    Raises:
        TypeError, ValueError: ``size`` does not fit.

    Example:
        >>> image = pinfeed.Image(dtype=torch.uint8, augment=pinfeed.augment.CenterCrop((1, 4)))
        >>> pinfeed.Collate(image)([np.ones((3, 2, 1), np.uint8)])
        tensor([[[[0, 1, 1, 0]]]], dtype=torch.uint8)
    """

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = _checked_size(size, "CenterCrop")

    @override
    def may_pad(self, size: tuple[int, int]) -> bool:
        return self.size[0] > size[0] or self.size[1] > size[1]

    @property
    @override
    def native_step(self) -> _Native:
        return "center_crop", self.size, (0, 0, 0, 0), False, 0

    def __repr__(self) -> str:
        return f"CenterCrop({self.size})"


class _RandomFlip(_Step):
    """A flip about an axis, or none.

    Args:
        p: How probable the flip is.
    """

    _AXIS: str

    def __init__(self, p: float = 0.5) -> None:
        name = type(self).__name__
        if isinstance(p, bool) or not isinstance(p, int | float | np.number):
            raise TypeError(f"{name}: p must be a number, got {p!r}")
        if not 0 <= p <= 1:
            raise ValueError(f"{name}: p must be from 0 to 1, got {p!r}")
        self.p = float(p)

    @property
    @override
    def native_step(self) -> _Native:
        return f"flip_{self._AXIS}", (0, 0), (0, 0, 0, 0), False, self.p

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.p})"


class RandomHorizontalFlip(_RandomFlip):
    """The image mirrored left to right, or as it is.

    Args:
        p: How probable the flip is, 0 to 1.

    Raises:
        TypeError: ``p`` is no number.
        ValueError: ``p`` is out of range.

    Example:
        >>> flip = pinfeed.augment.RandomHorizontalFlip(p=1)
        >>> image = pinfeed.Image(input="HW", dtype=torch.uint8, augment=flip)
        >>> pinfeed.Collate(image)([np.array([[1, 2], [3, 4]], np.uint8)])
        tensor([[[[2, 1],
                  [4, 3]]]], dtype=torch.uint8)
    """

    _AXIS = "columns"


class RandomVerticalFlip(_RandomFlip):
    """The image mirrored top to bottom, or as it is.

    Args:
        p: How probable the flip is, 0 to 1.

    Raises:
        TypeError: ``p`` is no number.
        ValueError: ``p`` is out of range.
    """

    _AXIS = "rows"


def _checked_size(size: Any, function: str) -> tuple[int, int]:
    numbers = list(size) if isinstance(size, Sequence) else [size]
    if len(numbers) not in (1, 2):
        raise ValueError(
            f"{function}: size must be a number or a pair (height, width), got {size!r}"
        )
    height, width = (
        checked_integer(number, f"{function}: size", 1, 2**31)
        for number in (numbers[0], numbers[-1])
    )
    return height, width


def _checked_padding(padding: Any) -> tuple[int, int, int, int]:
    """The pixels to add above, left, below and right."""
    padding = 0 if padding is None else padding
    numbers = list(padding) if isinstance(padding, Sequence) else [padding]
    if len(numbers) not in (1, 2, 4):
        raise ValueError(
            "RandomCrop: padding must be one number, (left and right, top and bottom) or "
            f"(left, top, right, bottom), got {padding!r}"
        )
    left, top, right, bottom = (
        checked_integer(number, "RandomCrop: padding", 0, 2**31) for number in (numbers * 4)[:4]
    )
    return top, left, bottom, right


def _checked_fill(fill: Any) -> list[int]:
    numbers = list(fill) if isinstance(fill, Sequence) and not isinstance(fill, str) else [fill]
    values = [
        int(number)
        if isinstance(number, float) and math.isfinite(number) and number % 1 == 0
        else as_integer(number)
        for number in numbers
    ]
    if not values or any(value is None or not 0 <= value <= 255 for value in values):
        raise ValueError(
            "RandomCrop: fill must be a whole number from 0 to 255, in units of the image's bytes, "
            f"or one for each channel, got {fill!r}"
        )
    return [value for value in values if value is not None]
