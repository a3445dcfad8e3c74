"""Images in other sizes: fixed ones, and random ones as detectors and segmenters are trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pinfeed import _core
from pinfeed.arguments import (
    as_integer,
    checked_integer,
    checked_number,
    checked_range,
    instead,
    require_choice,
    require_flags,
    two_sizes,
)
from pinfeed.augment.geometry import LIBRARIES, PAIR, Resizing, checked_size, checked_sizes

_torchvision = instead(
    "interpolation is an argument of Image: Image(augment=..., interpolation='bicubic')",
    antialias="resizing is antialiased, but for Image(interpolation='nearest-exact'); leave it out",
    **PAIR,
)


class Resize(Resizing):
    """The image in another size, antialiased. `pinfeed.Image`'s ``interpolation`` says how.

    Args:
        size: Height and width; or one number, which the shorter edge gets, the other in proportion.
            None: the longer edge gets ``max_size``.
        max_size: With one number: the most that the longer edge gets; the shorter one gets less then.
        like: How sizes are rounded where ``max_size`` decides: ``"torchvision"`` rounds the shorter
            edge down, and ``"transformers"`` to the nearest integer, as its detectors need.

    Raises:
        TypeError, ValueError: An argument does not fit; an image, when it is collated, has no pixels.

    Example:
        >>> augment = pinfeed.augment
        >>> view = augment.Compose([augment.Resize(256), augment.CenterCrop(224)])
        >>> pinfeed.Collate(pinfeed.Image(augment=view))(
        ...     [np.zeros((300, 500, 3), np.uint8)]
        ... ).shape
        torch.Size([1, 3, 224, 224])
    """

    @_torchvision
    def __init__(
        self,
        size: int | Sequence[int] | None,
        *,
        max_size: int | None = None,
        like: Literal["torchvision", "transformers"] = "torchvision",
    ) -> None:
        self.size = size
        self.max_size = max_size
        require_choice(like, LIBRARIES, "Resize: like")
        self.like = like
        sizes = (0,) if size is None else checked_sizes(size, "Resize")
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
        self.native_step = _core.GeometryStep(
            kind=kind, height=height, width=width, as_transformers=like == "transformers"
        )


class RandomResizedCrop(Resizing):
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
        >>> pinfeed.Collate(pinfeed.Image(augment=view))(
        ...     [np.zeros((300, 500, 3), np.uint8)]
        ... ).shape
        torch.Size([1, 3, 224, 224])
    """

    is_random = True

    @_torchvision
    def __init__(
        self,
        size: int | Sequence[int],
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
    ) -> None:
        _require_one_size(size, scale, "RandomResizedCrop")
        self.size = checked_size(size, "RandomResizedCrop")
        self.scale = checked_range(scale, "RandomResizedCrop: scale")
        self.ratio = checked_range(ratio, "RandomResizedCrop: ratio")
        height, width = self.size
        self.native_step = _core.GeometryStep(
            kind="random_resized_crop",
            height=height,
            width=width,
            range=self.scale,
            ratio=self.ratio,
        )


class RandomShortestSize(Resizing):
    """The shorter edge in one of several sizes, the other in proportion, as detectors are trained.

    Args:
        min_size: What the shorter edge gets, in pixels: one number, or several to draw from.
        max_size: The most that the longer edge gets; the shorter one gets less then.

    Raises:
        TypeError, ValueError: An argument does not fit; an image, when it is collated, has no pixels.

    Example:
        >>> view = pinfeed.augment.RandomShortestSize((48, 64), max_size=80)
        >>> image = pinfeed.Image(augment=view, pad_value=0, multiple_of=32)
        >>> pinfeed.Collate(image)([np.zeros((30, 60, 3), np.uint8)]).shape
        torch.Size([1, 3, 64, 96])
    """

    is_random = True

    @_torchvision
    def __init__(self, min_size: int | Sequence[int], max_size: int | None = None) -> None:
        self.min_size = min_size
        self.max_size = max_size
        several = isinstance(min_size, Sequence) and not isinstance(min_size, str)
        sizes = list(min_size) if isinstance(min_size, Sequence) and several else [min_size]
        if not sizes:
            raise ValueError("RandomShortestSize: min_size must be one number or several, got none")
        name = "RandomShortestSize: min_size"
        checked = [checked_integer(size, name, 1, 2**31) for size in sizes]
        longer = 0
        if max_size is not None:
            longer = checked_integer(max_size, "RandomShortestSize: max_size", 1, 2**31)
            if max(checked) > longer:
                raise ValueError(
                    "RandomShortestSize: max_size must be at least min_size, which the shorter edge "
                    f"gets, got min_size={min_size!r}, max_size={max_size}"
                )
        self.is_random = len(checked) > 1
        self.native_step = _core.GeometryStep(kind="resize_to_one_of", width=longer, sizes=checked)


class RandomResize(Resizing):
    """The shorter edge in a random size, the other in proportion, as segmenters are trained.

    Args:
        min_size: The least that the shorter edge gets, in pixels.
        max_size: One more than the most.

    Raises:
        TypeError, ValueError: An argument does not fit; an image, when it is collated, has no pixels.
    """

    is_random = True

    @_torchvision
    def __init__(self, min_size: int, max_size: int) -> None:
        self.min_size = checked_integer(min_size, "RandomResize: min_size", 1, 2**31)
        self.max_size = checked_integer(max_size, "RandomResize: max_size", 1, 2**31)
        if min_size >= max_size:
            raise ValueError(
                f"RandomResize: max_size must be more than min_size, got {min_size} and {max_size}"
            )
        self.native_step = _core.GeometryStep(
            kind="resize_between", height=min_size, width=max_size
        )


class ScaleJitter(Resizing):
    """The image as large as fits a size, times a random factor: large-scale jitter.

    A ``RandomCrop`` of that size after it, and ``pad_value`` of `pinfeed.Image` with
    ``multiple_of`` that size, make images of one size of it.

    Args:
        target_size: What the image fits into at a factor of 1. As in torchvision, whose rule this is,
            the first number limits the width, and the second the height.
        scale_range: From and to which factor.

    Raises:
        TypeError, ValueError: An argument does not fit; an image, when it is collated, has no pixels.
    """

    is_random = True

    @_torchvision
    def __init__(
        self, target_size: tuple[int, int], scale_range: tuple[float, float] = (0.1, 2.0)
    ) -> None:
        _require_one_size(target_size, scale_range, "ScaleJitter")
        self.target_size = checked_size(target_size, "ScaleJitter: target_size")
        self.scale_range = checked_range(scale_range, "ScaleJitter: scale_range")
        height, width = self.target_size
        self.native_step = _core.GeometryStep(
            kind="scale_jitter", height=height, width=width, range=self.scale_range
        )


class ResizeKeepRatio(Resizing):
    """The image as large as covers a size, or fits into it, in its proportions: timm's transform of that name.

    Args:
        size: Height and width, or one number for both.
        longest: 0: the image covers ``size``; 1: it fits into it; and what lies between. Sides are rounded
            to the nearest integer.
        random_scale_prob: How often the sides get a random factor, 0 to 1.
        random_scale_range: From and to which factor.
        random_scale_area: Whether the range is the share of the image's area that ``size`` shows, as
            the ``scale`` of `RandomResizedCrop`.
        random_aspect_prob: How often the ratio of width to height gets a random factor, 0 to 1.
        random_aspect_range: From and to which factor; its logarithm is drawn evenly.

    Raises:
        TypeError, ValueError: An argument does not fit; an image, when it is collated, has no pixels.

    Example:
        >>> augment = pinfeed.augment
        >>> view = augment.Compose(
        ...     [augment.ResizeKeepRatio((64, 96), longest=1), augment.CenterCrop((64, 96))]
        ... )
        >>> pinfeed.Collate(pinfeed.Image(augment=view))(
        ...     [np.zeros((300, 500, 3), np.uint8)]
        ... ).shape
        torch.Size([1, 3, 64, 96])
    """

    @_torchvision
    def __init__(
        self,
        size: int | Sequence[int],
        longest: float = 0.0,
        *,
        random_scale_prob: float = 0.0,
        random_scale_range: tuple[float, float] = (0.85, 1.05),
        random_scale_area: bool = False,
        random_aspect_prob: float = 0.0,
        random_aspect_range: tuple[float, float] = (0.9, 1.11),
    ) -> None:
        name = "ResizeKeepRatio"
        self.size = size
        height, width = checked_size(size, name)
        self.longest = checked_number(longest, f"{name}: longest", 0, 1)
        self.random_scale_prob = checked_number(
            random_scale_prob, f"{name}: random_scale_prob", 0, 1
        )
        self.random_scale_range = checked_range(random_scale_range, f"{name}: random_scale_range")
        require_flags(name, random_scale_area=random_scale_area)
        self.random_scale_area = random_scale_area
        self.random_aspect_prob = checked_number(
            random_aspect_prob, f"{name}: random_aspect_prob", 0, 1
        )
        self.random_aspect_range = checked_range(
            random_aspect_range, f"{name}: random_aspect_range"
        )
        self.is_random = self.random_scale_prob > 0 or self.random_aspect_prob > 0
        self.native_step = _core.GeometryStep(
            kind="keep_ratio",
            height=height,
            width=width,
            longest=self.longest,
            probability=self.random_scale_prob,
            range=self.random_scale_range,
            by_area=random_scale_area,
            ratio_probability=self.random_aspect_prob,
            ratio=self.random_aspect_range,
        )


def _require_one_size(size: Any, second: Any, name: str) -> None:
    """Raises TypeError for a height and a width that are two arguments."""
    if as_integer(size) is not None and as_integer(second) is not None:
        raise TypeError(two_sizes(name, size, second))
