"""Resizes: to fixed sizes, and to random ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pinfeed import _core
from pinfeed.arguments import (
    as_integer,
    checked_choice,
    checked_integer,
    checked_number,
    checked_range,
    listed,
    positive_integer,
    require_flags,
    two_sizes,
    with_hints,
)
from pinfeed.augment.geometry import LIBRARIES, PAIR, Resizing, checked_size, checked_sizes

_torchvision = with_hints(
    "interpolation is an argument of Image: Image(augment=..., interpolation='bicubic')",
    antialias="resizing is antialiased, except with Image(interpolation='nearest-exact'); leave it out",
    **PAIR,
)


class Resize(Resizing):
    """Resizes the image, antialiased, with `pinfeed.Image`'s ``interpolation``.

    Args:
        size: Height and width in pixels; or one number, the length of the shorter edge, which keeps the
            aspect ratio. None: the longer edge becomes ``max_size``.
        max_size: Maximum length of the longer edge, if ``size`` is one number. The shorter edge can then be
            shorter than ``size``. None: no limit.
        like: Rounding of the shorter edge where ``max_size`` applies: ``"torchvision"`` rounds it down,
            ``"transformers"`` to the nearest integer.

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
        self.like = checked_choice(like, LIBRARIES, "Resize: like")
        sizes = (0,) if size is None else checked_sizes(size, "Resize")
        longer = positive_integer(max_size, "Resize: max_size", 2**31) or 0
        if size is None and max_size is None:
            raise ValueError("Resize: size=None needs max_size, the longer edge; pass max_size")
        if len(sizes) == 2 and max_size is not None:
            raise ValueError(
                "Resize: max_size needs a single number as size, the shorter edge; "
                f"leave it out of size={size!r}"
            )
        if max_size is not None and sizes[0] >= longer:
            raise ValueError(
                "Resize: max_size must be larger than size, the length of the shorter edge, "
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
    """Crops a random area of random aspect ratio and resizes it, antialiased.

    It draws up to ten crops until one fits the image. If none fits, it uses the largest centered crop
    with a ratio in range.

    Args:
        size: Height and width of the result in pixels, or one number for both.
        scale: Range of the crop area, as fractions of the image.
        ratio: Range of the ratio of width to height, drawn log-uniformly.

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
    """Resizes the shorter edge to a random size from a list, keeping the aspect ratio.

    Args:
        min_size: Length of the shorter edge in pixels: one number, or several to draw from.
        max_size: Maximum length of the longer edge; the shorter can then be below ``min_size``. None: no limit.

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
        name = "RandomShortestSize: min_size"
        checked = [checked_integer(size, name, 1, 2**31) for size in listed(min_size)]
        if not checked:
            raise ValueError(f"{name} must be one number or several, got none")
        longer = positive_integer(max_size, "RandomShortestSize: max_size", 2**31) or 0
        if max_size is not None and max(checked) > longer:
            raise ValueError(
                "RandomShortestSize: max_size must be at least min_size, the length of the "
                f"shorter edge, got min_size={min_size!r}, max_size={max_size}"
            )
        self.is_random = len(checked) > 1
        self.native_step = _core.GeometryStep(kind="resize_to_one_of", width=longer, sizes=checked)


class RandomResize(Resizing):
    """Resizes the shorter edge to a random size from a range, keeping the aspect ratio.

    Args:
        min_size: Minimum length of the shorter edge, in pixels.
        max_size: Maximum length of the shorter edge, exclusive.

    Example:
        >>> image = pinfeed.Image(
        ...     augment=pinfeed.augment.RandomResize(48, 65), pad_value=0, multiple_of=64
        ... )
        >>> pinfeed.Collate(image)([np.zeros((30, 30, 3), np.uint8)]).shape
        torch.Size([1, 3, 64, 64])
    """

    is_random = True

    @_torchvision
    def __init__(self, min_size: int, max_size: int) -> None:
        self.min_size = checked_integer(min_size, "RandomResize: min_size", 1, 2**31)
        self.max_size = checked_integer(max_size, "RandomResize: max_size", 1, 2**31)
        if min_size >= max_size:
            raise ValueError(
                f"RandomResize: max_size must be more than min_size={min_size}, got {max_size}"
            )
        self.native_step = _core.GeometryStep(
            kind="resize_between", height=min_size, width=max_size
        )


class ScaleJitter(Resizing):
    """Resizes the image to fit into ``target_size`` times a random factor (large-scale jitter).

    To get images of one size, add a ``RandomCrop`` of ``target_size`` after it, and pass
    ``pad_value`` and ``multiple_of=target_size`` to `pinfeed.Image`.

    Args:
        target_size: Size that the image fits into at a factor of 1. As in torchvision, the first number
            limits the width, and the second the height.
        scale_range: Range of the factor.

    Example:
        >>> augment = pinfeed.augment
        >>> view = augment.Compose([augment.ScaleJitter((64, 64)), augment.RandomCrop(64)])
        >>> image = pinfeed.Image(augment=view, pad_value=0, multiple_of=64)
        >>> pinfeed.Collate(image)([np.zeros((90, 60, 3), np.uint8)]).shape
        torch.Size([1, 3, 64, 64])
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
    """Resizes the image to cover a size, or to fit into it, keeping the aspect ratio, as timm does.

    Args:
        size: Height and width in pixels, or one number for both.
        longest: 0 covers ``size``, 1 fits into it, and numbers between interpolate. Sides are rounded to
            the nearest integer.
        random_scale_prob: Probability of a random factor for the sides, 0 to 1.
        random_scale_range: Range of that factor.
        random_scale_area: Whether ``random_scale_range`` is the fraction of the image's area that ``size``
            covers, like the ``scale`` of `RandomResizedCrop`, instead of a factor for the sides.
        random_aspect_prob: Probability of a random factor for the ratio of width to height, 0 to 1.
        random_aspect_range: Range of that factor, drawn log-uniformly.

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
    """Raises TypeError if height and width are passed as two arguments."""
    if as_integer(size) is not None and as_integer(second) is not None:
        raise TypeError(two_sizes(name, size, second))
