"""Geometric transforms: their base classes, `Compose`, and flips."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

from pinfeed import _core
from pinfeed.arguments import (
    checked_integer,
    checked_number,
    described,
    listed,
    require_instance,
    with_hints,
)

#: The library whose rounding a step follows.
LIBRARIES: tuple[Literal["torchvision", "transformers"], ...] = ("torchvision", "transformers")

#: Hints for ``height=`` and ``width=``.
PAIR = dict.fromkeys(("height", "width"), "both go into one pair: size=(height, width)")

NO_BORDER = _core.BorderOptions()


class Transform:
    """Base class of the transforms that `pinfeed.Image` accepts as ``augment``."""

    def __repr__(self) -> str:
        return described(self)

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Raises TypeError, because an `Image` applies transforms while it makes batches."""
        raise TypeError(
            f"{type(self).__name__}: a transform can't be called; pass it to the field that makes the "
            f"batch: Collate(Image(augment={self!r}))"
        )


class Geometry(Transform):
    """Base class of geometric transforms: crops, flips and resizes.

    Transforms are stateless, picklable and thread-safe.
    """

    steps: tuple[Step, ...]  # the single crops, flips and resizes, in order

    @property
    def needs_boxes(self) -> bool:
        """Whether a crop depends on the boxes of objects."""
        return any(step.around_boxes for step in self.steps)

    def native(self, fill: list[float] | None) -> dict[str, Any]:
        """Returns keyword arguments for ``_core.AugmentOptions``.

        Args:
            fill: Value of constant borders, overriding the steps' own.
        """
        borders = [
            next((step.border for step in steps if isinstance(step, Crop)), NO_BORDER)
            for steps in _halves(self.steps)
        ]
        if fill is not None:
            borders = [_core.BorderOptions(kind=border.kind, fill=fill) for border in borders]
        steps = [step.native_step for step in self.steps]
        return {"steps": steps, "border": borders[0], "resized_border": borders[1]}


class Step(Geometry):
    """A single crop, flip or resize."""

    native_step: _core.GeometryStep  # the step in native form
    is_random: bool = False  # whether it draws random numbers
    around_boxes: bool = False  # whether it depends on the boxes of objects

    @property
    def steps(self) -> tuple[Step, ...]:  # type: ignore[override] # no circular reference
        """The step itself."""
        return (self,)


class Compose(Geometry):
    """Combines crops, flips and a resize into one transform, applied in one pass over each image.

    Args:
        transforms: Geometric transforms of `pinfeed.augment`, in order.

    Raises:
        TypeError: If an item is not a geometric transform.
        ValueError: If the list is empty, two items resize, or a crop that follows another crop is
            larger or pads. Padding must come first, or right after a resize.

    Example:
        >>> augment = pinfeed.augment
        >>> view = augment.Compose(
        ...     [augment.RandomCrop(32, padding=4), augment.RandomHorizontalFlip()]
        ... )
        >>> collate = pinfeed.Collate(pinfeed.Image(mean=0.5, std=0.25, augment=view))
        >>> collate([np.zeros((32, 32, 3), np.uint8)]).shape
        torch.Size([1, 3, 32, 32])
    """

    @with_hints("transforms go into one list: Compose([a, b])")
    def __init__(self, transforms: Sequence[Geometry]) -> None:
        if not isinstance(transforms, Sequence):
            hint = f"; write Compose([{transforms}])" if isinstance(transforms, Geometry) else ""
            raise TypeError(
                f"Compose: transforms must be a list of transforms, got {type(transforms).__name__}{hint}"
            )
        for transform in transforms:
            require_instance(
                transform,
                Geometry,
                "Compose: transforms must be crops, flips and resizes of pinfeed.augment, with colors and "
                "RandomErasing after the Compose (augment=[Compose(...), ColorJitter(...)])",
            )
        self.transforms = list(transforms)
        self.steps = tuple(step for transform in transforms for step in transform.steps)
        if not self.steps:
            raise ValueError("Compose: transforms must have at least one item, got none")
        resizes = [step for step in self.steps if isinstance(step, Resizing)]
        if len(resizes) > 1:
            raise ValueError(
                f"Compose: transforms must resize at most once, got {resizes[0]} and {resizes[1]}; "
                "leave one of them out"
            )
        for step in _halves(self.steps)[1]:
            if step.around_boxes:
                raise ValueError(f"Compose: {step} must come before {resizes[0]}; put it first")
        for steps in _halves(self.steps):
            for before, crop in pairwise(step for step in steps if isinstance(step, Crop)):
                if crop.may_pad(before.fixed_size):
                    raise ValueError(
                        f"Compose: a crop after {before} must not be larger or pad, got {crop}; "
                        "put the crop that pads first"
                    )


class Crop(Step):
    """Base class of crops. A crop can extend beyond the image."""

    pads: bool = False  # whether it can extend beyond an image of any size
    pads_small: bool = False  # whether it can extend beyond an image that is smaller
    fixed_size: tuple[int, int] | None = None  # height and width, if they don't depend on the image
    border: _core.BorderOptions = NO_BORDER  # padding beyond the edges of the image

    def may_pad(self, size: tuple[int, int] | None) -> bool:
        """Whether the crop can extend beyond an image of this size (None: unknown)."""
        if self.pads or size is None:
            return self.pads or self.pads_small
        own = self.fixed_size
        return own is not None and (own[0] > size[0] or own[1] > size[1])


class Resizing(Step):
    """Base class of steps that resize the image."""


class Flip(Step):
    """Base class of random flips."""

    _KIND: Literal["flip_rows", "flip_columns"]

    @with_hints()
    def __init__(self, p: float = 0.5) -> None:
        self.p = checked_number(p, f"{type(self).__name__}: p", 0, 1)
        self.is_random = 0 < self.p < 1
        self.native_step = _core.GeometryStep(kind=self._KIND, probability=self.p)


class RandomHorizontalFlip(Flip):
    """Mirrors the image left to right with probability ``p``.

    Args:
        p: Probability of a flip, 0 to 1.

    Example:
        >>> flip = pinfeed.augment.RandomHorizontalFlip(p=1)
        >>> image = pinfeed.Image(input="HW", dtype=torch.uint8, augment=flip)
        >>> pinfeed.Collate(image)([np.array([[1, 2], [3, 4]], np.uint8)])
        tensor([[[[2, 1],
                  [4, 3]]]], dtype=torch.uint8)
    """

    _KIND = "flip_columns"


class RandomVerticalFlip(Flip):
    """Mirrors the image top to bottom with probability ``p``.

    Args:
        p: Probability of a flip, 0 to 1.

    Example:
        >>> flip = pinfeed.augment.RandomVerticalFlip(p=1)
        >>> image = pinfeed.Image(input="HW", dtype=torch.uint8, augment=flip)
        >>> pinfeed.Collate(image)([np.array([[1, 2], [3, 4]], np.uint8)])
        tensor([[[[3, 4],
                  [1, 2]]]], dtype=torch.uint8)
    """

    _KIND = "flip_rows"


def may_pad(geometry: Geometry | None) -> bool:
    """Whether a crop of a geometry can extend beyond an image."""
    steps = () if geometry is None else geometry.steps
    return any(isinstance(step, Crop) and step.may_pad(None) for step in steps)


def _halves(steps: Sequence[Step]) -> tuple[Sequence[Step], Sequence[Step]]:
    """Splits steps into those before the resize, and the resize with those after it."""
    last = max((i for i, step in enumerate(steps) if isinstance(step, Resizing)), default=-1)
    return (steps[:last], steps[last:]) if last >= 0 else (steps, ())


def checked_sizes(size: Any, function: str) -> list[int]:
    """Returns the one or two numbers of a ``size`` argument."""
    numbers = listed(size)
    if len(numbers) not in (1, 2):
        raise ValueError(
            f"{function}: size must be a number or a pair (height, width), got {size!r}"
        )
    return [checked_integer(number, f"{function}: size", 1, 2**31) for number in numbers]


def checked_size(size: Any, function: str) -> tuple[int, int]:
    """Returns (height, width) of a ``size`` that is one number for both or a pair."""
    numbers = checked_sizes(size, function)
    return numbers[0], numbers[-1]
