"""Crops, flips and sizes: which window of an image is seen, how large, and which way round."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import (
    as_integer,
    checked_integer,
    checked_number,
    checked_range,
    described,
    require_choice,
    require_flags,
    require_instance,
)

PaddingMode = Literal["constant", "edge", "reflect"]

_NO_BORDER = _core.BorderOptions()


class Geometry(ABC):
    """What is seen of images: crops, flips and a size. For `pinfeed.Image`'s ``augment``.

    Geometries hold no random state: they pickle, and any number of fields may share one.
    """

    def __repr__(self) -> str:
        return described(self)

    @property
    @abstractmethod
    def steps(self) -> tuple[_Step, ...]:
        """The single crops and flips, one after the other."""

    def native(self) -> dict[str, Any]:
        """What native code takes, by the keywords of ``_core.AugmentOptions``."""
        border, resized_border = (
            next((step.border for step in steps if isinstance(step, _Crop)), _NO_BORDER)
            for steps in _halves(self.steps)
        )
        steps = [step.native_step for step in self.steps]
        return {"steps": steps, "border": border, "resized_border": resized_border}


class _Step(Geometry):
    """A single crop, flip or resize.

    Attributes:
        native_step: What native code takes.
        is_random: Whether numbers are drawn for it.
    """

    native_step: _core.GeometryStep
    is_random: bool = False

    @property
    @override
    def steps(self) -> tuple[_Step, ...]:
        return (self,)


class Compose(Geometry):
    """Crops, flips and a resize, one after the other; they still take one pass over each image.

    Args:
        transforms: What is done, in this order: geometries of `pinfeed.augment`.

    Raises:
        TypeError: One is none of these.
        ValueError: There is none; two of them resize; or a crop comes after another one and is
            larger, or pads: padding comes first, or right after a resize.

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
            require_instance(
                transform,
                Geometry,
                "Compose: transforms must be geometries of pinfeed.augment (colours are for "
                "Image(color=...), RandomErasing for Image(erase=...))",
            )
        self.transforms = list(transforms)
        self._steps = tuple(step for transform in transforms for step in transform.steps)
        if not self._steps:
            raise ValueError("Compose: expected at least one transform, got none")
        resizes = [step for step in self._steps if isinstance(step, _Resizing)]
        if len(resizes) > 1:
            raise ValueError(
                f"Compose: {resizes[1]} comes after {resizes[0]}, and an image is resized once; "
                "leave one of them out"
            )
        for steps in _halves(self._steps):
            for before, crop in pairwise(step for step in steps if isinstance(step, _Crop)):
                if crop.may_pad(before.size):
                    raise ValueError(
                        f"Compose: {crop} comes after {before} and is larger or pads, which would "
                        "hide pixels that the image has there; let the crop that pads come first"
                    )

    @property
    @override
    def steps(self) -> tuple[_Step, ...]:
        return self._steps


class _Crop(_Step):
    """A window of a fixed size.

    Attributes:
        size: Its height and width.
        border: What stands beyond the edges of the image.
    """

    size: tuple[int, int]
    border: _core.BorderOptions = _NO_BORDER

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
        fill: With ``padding_mode="constant"``: the added pixels, in units of the image's own values, as
            one number or one for each channel. They are normalized as any others.
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

    is_random = True

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
        require_flags("RandomCrop", pad_if_needed=pad_if_needed)
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        require_choice(padding_mode, ("constant", "edge", "reflect"), "RandomCrop: padding_mode")
        self.padding_mode = padding_mode
        self.border = _core.BorderOptions(kind=padding_mode, fill=_checked_fill(fill))
        self._sides = above, left, below, right = _checked_padding(padding)
        height, width = self.size
        self.native_step = _core.GeometryStep(
            kind="random_crop",
            height=height,
            width=width,
            above=above,
            left=left,
            below=below,
            right=right,
            pad_if_needed=pad_if_needed,
        )

    @override
    def may_pad(self, size: tuple[int, int]) -> bool:
        is_larger = self.size[0] > size[0] or self.size[1] > size[1]
        return self.pad_if_needed or any(self._sides) or is_larger


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
        height, width = self.size
        self.native_step = _core.GeometryStep(kind="center_crop", height=height, width=width)

    @override
    def may_pad(self, size: tuple[int, int]) -> bool:
        return self.size[0] > size[0] or self.size[1] > size[1]


class _Resizing(_Step):
    """A step after which an image has another size."""


class Resize(_Resizing):
    """The image in another size, antialiased. `pinfeed.Image`'s ``interpolation`` says how.

    Args:
        size: Height and width; or one number, which the shorter edge gets, the other in proportion.
            None: the longer edge gets ``max_size``.
        max_size: With one number: the most that the longer edge gets; the shorter one gets less then.

    Raises:
        TypeError, ValueError: An argument does not fit; an image, when it is collated, has no pixels.

    Example:
        >>> augment = pinfeed.augment
        >>> view = augment.Compose([augment.Resize(256), augment.CenterCrop(224)])
        >>> pinfeed.Collate(pinfeed.Image(augment=view))([np.zeros((300, 500, 3), np.uint8)]).shape
        torch.Size([1, 3, 224, 224])
    """

    def __init__(self, size: int | Sequence[int] | None, *, max_size: int | None = None) -> None:
        self.size = size
        self.max_size = max_size
        sizes = (0,) if size is None else _checked_sizes(size, "Resize")
        longer = 0 if max_size is None else checked_integer(max_size, "Resize: max_size", 1, 2**31)
        if size is None and max_size is None:
            raise ValueError("Resize: size=None needs max_size, the length of the longer edge")
        if len(sizes) == 2 and max_size is not None:
            raise ValueError(
                "Resize: max_size goes with one number for the shorter edge; "
                f"leave it out of size={size!r}"
            )
        if max_size is not None and sizes[0] >= longer:
            raise ValueError(
                "Resize: max_size must be larger than size, which the shorter edge gets, "
                f"got size={size!r}, max_size={max_size}"
            )
        kind: Literal["resize", "resize_edges"] = "resize_edges"
        height, width = sizes[0], longer
        if len(sizes) == 2:
            kind, width = "resize", sizes[1]
        self.native_step = _core.GeometryStep(kind=kind, height=height, width=width)


class RandomResizedCrop(_Resizing):
    """A window of random area and ratio, anywhere in the image, resized. As `Resize`, antialiased.

    Up to ten windows are drawn until one fits the image; else the largest centred one with a ratio
    in range is taken.

    Args:
        size: Height and width of the result, or one number for both.
        scale: From and to which share of the image's area.
        ratio: From and to which ratio of width to height; its logarithm is drawn evenly.

    Raises:
        TypeError, ValueError: An argument does not fit; an image, when it is collated, has no pixels.

    Example:
        >>> augment = pinfeed.augment
        >>> view = augment.Compose(
        ...     [augment.RandomResizedCrop(224), augment.RandomHorizontalFlip()]
        ... )
        >>> pinfeed.Collate(pinfeed.Image(augment=view))([np.zeros((300, 500, 3), np.uint8)]).shape
        torch.Size([1, 3, 224, 224])
    """

    is_random = True

    def __init__(
        self,
        size: int | Sequence[int],
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
    ) -> None:
        self.size = _checked_size(size, "RandomResizedCrop")
        self.scale = checked_range(scale, "RandomResizedCrop: scale")
        self.ratio = checked_range(ratio, "RandomResizedCrop: ratio")
        height, width = self.size
        self.native_step = _core.GeometryStep(
            kind="random_resized_crop",
            height=height,
            width=width,
            area=self.scale,
            ratio=self.ratio,
        )


class _RandomFlip(_Step):
    """A flip about an axis, or none.

    Args:
        p: How probable the flip is.
    """

    _KIND: Literal["flip_rows", "flip_columns"]

    def __init__(self, p: float = 0.5) -> None:
        self.p = checked_number(p, f"{type(self).__name__}: p", 0, 1)
        self.is_random = 0 < self.p < 1
        self.native_step = _core.GeometryStep(kind=self._KIND, probability=self.p)


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

    _KIND = "flip_columns"


class RandomVerticalFlip(_RandomFlip):
    """The image mirrored top to bottom, or as it is.

    Args:
        p: How probable the flip is, 0 to 1.

    Raises:
        TypeError: ``p`` is no number.
        ValueError: ``p`` is out of range.
    """

    _KIND = "flip_rows"


def _halves(steps: Sequence[_Step]) -> tuple[Sequence[_Step], Sequence[_Step]]:
    """The steps before an image is resized, and those after."""
    last = max((i for i, step in enumerate(steps) if isinstance(step, _Resizing)), default=-1)
    return (steps[:last], steps[last:]) if last >= 0 else (steps, ())


def _checked_size(size: Any, function: str) -> tuple[int, int]:
    numbers = _checked_sizes(size, function)
    return numbers[0], numbers[-1]


def _checked_sizes(size: Any, function: str) -> list[int]:
    """One number or two."""
    numbers = list(size) if isinstance(size, Sequence) and not isinstance(size, str) else [size]
    if len(numbers) not in (1, 2):
        raise ValueError(
            f"{function}: size must be a number or a pair (height, width), got {size!r}"
        )
    return [checked_integer(number, f"{function}: size", 1, 2**31) for number in numbers]


def _checked_padding(padding: Any) -> tuple[int, int, int, int]:
    """The pixels to add above, left, below and right."""
    padding = 0 if padding is None else padding
    is_several = isinstance(padding, Sequence) and not isinstance(padding, str)
    numbers = list(padding) if is_several else [padding]
    if len(numbers) not in (1, 2, 4):
        raise ValueError(
            "RandomCrop: padding must be one number, (left and right, top and bottom) or "
            f"(left, top, right, bottom), got {padding!r}"
        )
    left, top, right, bottom = (
        checked_integer(number, "RandomCrop: padding", 0, 2**31) for number in (numbers * 4)[:4]
    )
    return top, left, bottom, right


def _checked_fill(fill: Any) -> list[float]:
    numbers = list(fill) if isinstance(fill, Sequence) and not isinstance(fill, str) else [fill]
    values = [
        float(number)
        if isinstance(number, float | np.floating) and math.isfinite(number)
        else as_integer(number)
        for number in numbers
    ]
    if not values or None in values:
        raise ValueError(
            "RandomCrop: fill must be a number in units of the image's values, or one for each "
            f"channel, got {fill!r}"
        )
    return [value for value in values if value is not None]
