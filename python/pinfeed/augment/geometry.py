"""Which part of an image is seen, at which size, mirrored or not: the steps, and flips."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import checked_integer, checked_number, described, instead, require_instance

#: Whose rounding a step has.
LIBRARIES: tuple[Literal["torchvision", "transformers"], ...] = ("torchvision", "transformers")

#: What to write instead of arguments that sizes don't have here.
PAIR = dict.fromkeys(("height", "width"), "both go into one pair: size=(height, width)")

NO_BORDER = _core.BorderOptions()


class Transform:
    """Base class of the transforms that `pinfeed.Image` accepts as ``augment``."""

    def __repr__(self) -> str:
        return described(self)

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Raises TypeError, because an `Image` applies transforms while it makes batches."""
        raise TypeError(
            f"{type(self).__name__}: a transform can't be called; give it to the field that makes the "
            f"batch: Collate(Image(augment={self!r}))"
        )


class Geometry(Transform, ABC):
    """What is seen of images: crops, flips and a size. For `pinfeed.Image`'s ``augment``.

    Geometries hold no random state: they pickle, and any number of fields and threads may share one.
    """

    @property
    @abstractmethod
    def steps(self) -> tuple[Step, ...]:
        """The single crops and flips, one after the other."""

    @property
    def needs_boxes(self) -> bool:
        """Whether a crop is made around the boxes of objects."""
        return any(step.around_boxes for step in self.steps)

    def native(self, fill: list[float] | None) -> dict[str, Any]:
        """What native code takes, by the keywords of ``_core.AugmentOptions``.

        Args:
            fill: What stands beyond constant borders, if not what the steps say.
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
    """A single crop, flip or resize.

    Attributes:
        native_step: What native code takes.
        is_random: Whether numbers are drawn for it.
        around_boxes: Whether the boxes of objects decide.
    """

    native_step: _core.GeometryStep
    is_random: bool = False
    around_boxes: bool = False

    @property
    @override
    def steps(self) -> tuple[Step, ...]:
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
        >>> view = augment.Compose(
        ...     [augment.RandomCrop(32, padding=4), augment.RandomHorizontalFlip()]
        ... )
        >>> collate = pinfeed.Collate(pinfeed.Image(mean=0.5, std=0.25, augment=view))
        >>> collate([np.zeros((32, 32, 3), np.uint8)]).shape
        torch.Size([1, 3, 32, 32])
    """

    @instead("transforms go into one list: Compose([a, b])")
    def __init__(self, transforms: Sequence[Geometry]) -> None:
        if not isinstance(transforms, Sequence):
            raise TypeError(
                f"Compose: transforms must be a list of geometries, got {type(transforms).__name__}"
            )
        for transform in transforms:
            require_instance(
                transform,
                Geometry,
                "Compose: transforms must be crops, flips and sizes of pinfeed.augment; put colors and "
                "RandomErasing behind it in a list, augment=[Compose(...), ColorJitter(...)]",
            )
        self.transforms = list(transforms)
        self._steps = tuple(step for transform in transforms for step in transform.steps)
        if not self._steps:
            raise ValueError("Compose: expected at least one transform, got none")
        resizes = [step for step in self._steps if isinstance(step, Resizing)]
        if len(resizes) > 1:
            raise ValueError(
                f"Compose: {resizes[1]} comes after {resizes[0]}, and an image is resized once; "
                "leave one of them out"
            )
        for step in _halves(self._steps)[1]:
            if step.around_boxes:
                raise ValueError(f"Compose: {step} must come before {resizes[0]}, got it after")
        for steps in _halves(self._steps):
            for before, crop in pairwise(step for step in steps if isinstance(step, Crop)):
                if crop.may_pad(before.fixed_size):
                    raise ValueError(
                        f"Compose: {crop} comes after {before} and is larger or pads, which would "
                        "hide pixels that the image has there; let the crop that pads come first"
                    )

    @property
    @override
    def steps(self) -> tuple[Step, ...]:
        return self._steps


class Crop(Step):
    """A window of an image, maybe beyond it.

    Attributes:
        fixed_size: Its height and width, if they do not depend on the image.
        border: What stands beyond the edges of the image.
    """

    fixed_size: tuple[int, int] | None = None
    border: _core.BorderOptions = NO_BORDER

    @abstractmethod
    def may_pad(self, size: tuple[int, int] | None) -> bool:
        """Whether the window may leave an image of this size, or of any."""


class Resizing(Step):
    """A step after which an image has another size."""


class Flip(Step):
    """A flip about an axis, or none."""

    _KIND: Literal["flip_rows", "flip_columns"]

    @instead()
    def __init__(self, p: float = 0.5) -> None:
        self.p = checked_number(p, f"{type(self).__name__}: p", 0, 1)
        self.is_random = 0 < self.p < 1
        self.native_step = _core.GeometryStep(kind=self._KIND, probability=self.p)


class RandomHorizontalFlip(Flip):
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


class RandomVerticalFlip(Flip):
    """The image mirrored top to bottom, or as it is.

    Args:
        p: How probable the flip is, 0 to 1.

    Raises:
        TypeError: ``p`` is no number.
        ValueError: ``p`` is out of range.
    """

    _KIND = "flip_rows"


def _halves(steps: Sequence[Step]) -> tuple[Sequence[Step], Sequence[Step]]:
    """The steps before an image is resized, and those from there on."""
    last = max((i for i, step in enumerate(steps) if isinstance(step, Resizing)), default=-1)
    return (steps[:last], steps[last:]) if last >= 0 else (steps, ())


def checked_sizes(size: Any, function: str) -> list[int]:
    """One number or two."""
    numbers = list(size) if isinstance(size, Sequence) and not isinstance(size, str) else [size]
    if len(numbers) not in (1, 2):
        raise ValueError(
            f"{function}: size must be a number or a pair (height, width), got {size!r}"
        )
    return [checked_integer(number, f"{function}: size", 1, 2**31) for number in numbers]


def checked_size(size: Any, function: str) -> tuple[int, int]:
    """Height and width, of a number for both or of a pair."""
    numbers = checked_sizes(size, function)
    return numbers[0], numbers[-1]
