"""Augmentation: the transforms of a `pinfeed.Image`, checked and applied to a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import torch

from pinfeed import _core
from pinfeed.arguments import (
    Interpolation,
    Problem,
    checked_choice,
    checked_integer,
    require_instance,
)
from pinfeed.augment.color import Coloring
from pinfeed.augment.crops import checked_fill
from pinfeed.augment.erasing import RandomErasing
from pinfeed.augment.geometry import Compose, Flip, Geometry, Resizing, Transform
from pinfeed.augment.random_state import BatchRandomState
from pinfeed.runtime import get_num_threads


class Transforms(NamedTuple):
    """The transforms of an ``augment`` argument, by kind. Falsy if empty."""

    geometry: Geometry | None
    colors: tuple[Coloring, ...] = ()
    erasing: RandomErasing | None = None

    def __bool__(self) -> bool:
        return any(self)


def split_transforms(augment: Any, function: str, *, geometry_only: bool = False) -> Transforms:
    """Sorts the transforms of an ``augment`` argument by kind.

    Args:
        augment: None, a transform, or a list of several.
        function: The name that messages begin with.
        geometry_only: Whether colors and erasing raise.

    Raises:
        TypeError: If an item is not a transform of `pinfeed.augment`.
        ValueError: If the order isn't geometry, colors, erasing. Flips can be anywhere, because
            colors don't depend on them.
    """
    if augment is None:
        return Transforms(None)
    transforms = [*augment] if isinstance(augment, list | tuple) else [augment]
    kind = Geometry if geometry_only else Transform
    expected_kind = "a crop, flip or resize" if geometry_only else "a transform"
    steps, colors, erasing = [], [], []
    for transform in transforms:
        require_instance(
            transform,
            kind,
            f"{function}: augment must be {expected_kind} of pinfeed.augment, or a list of them",
        )
        if isinstance(transform, Coloring):
            colors.append(transform)
        elif isinstance(transform, RandomErasing):
            erasing.append(transform)
        else:
            steps.append(transform)
        late = erasing if isinstance(transform, Coloring) else [*colors, *erasing]
        if late and transform not in erasing and not isinstance(transform, Flip):
            raise ValueError(
                f"{function}: augment must list crops, flips and resizes, then colors, then RandomErasing, got "
                f"{transform!r} after {late[0]!r}; move it before"
            )
    if len(erasing) > 1:
        raise ValueError(
            f"{function}: augment must have at most one RandomErasing, got {len(erasing)}; leave out the others"
        )
    geometry = Compose(steps) if len(steps) > 1 else steps[0] if steps else None
    return Transforms(geometry, tuple(colors), erasing[0] if erasing else None)


class Augmentation:
    """Geometry, colors and erasing of an `Image`, with their random stream.

    `pinfeed.Image` documents the arguments.

    Args:
        function: Name of the field in messages.
        transforms: Result of `split_transforms`.

    Attributes:
        needs_boxes: Whether a crop depends on the boxes of objects.
    """

    def __init__(
        self,
        function: str,
        transforms: Transforms,
        interpolation: str | Sequence[str],
        resize_dtype: torch.dtype | None,
        rng_stream: int,
        dtype: torch.dtype,
        fill: Any,
        is_padded: bool,
    ) -> None:
        geometry = transforms.geometry
        self._transforms = transforms
        self._steps = () if geometry is None else geometry.steps
        self._stream = checked_integer(rng_stream, f"{function}: rng_stream", 0)
        choices = [*interpolation] if isinstance(interpolation, list | tuple) else []
        if any(choice not in ("bilinear", "bicubic") for choice in choices):
            raise ValueError(
                f"{function}: interpolation must be one name, or a list of 'bilinear' and 'bicubic' to draw "
                f"from, got {interpolation!r}"
            )
        self._draws_interpolation = len(set(choices)) > 1
        kind = choices[0] if choices else interpolation
        kind = checked_choice(kind, get_args(Interpolation), f"{function}: interpolation")
        if resize_dtype not in (None, torch.float32):
            raise TypeError(
                f"{function}: resize_dtype must be torch.float32 or None, got {resize_dtype!r}"
            )
        if resize_dtype is not None and not dtype.is_floating_point:
            raise ValueError(
                f"{function}: resize_dtype=torch.float32 is for images that become floats, "
                f"got dtype={dtype}; leave one of them out"
            )
        if transforms.colors and resize_dtype is not None:
            raise ValueError(
                f"{function}: {transforms.colors[0]!r} changes bytes, and resize_dtype=torch.float32 converts "
                "them to floats; leave one of them out"
            )
        if transforms.erasing is not None:
            transforms.erasing.check_dtype(dtype, function)
        if fill is not None:
            fill = checked_fill(fill, f"{function}: fill")
            if geometry is None:
                raise ValueError(
                    f"{function}: fill needs a crop, a resize or padding in augment; pass one, or leave fill out"
                )
        fills = [getattr(step, "fill", 0) for step in self._steps]
        for number in fill or [n for own in fills for n in checked_fill(own, f"{function}: fill")]:
            if not dtype.is_floating_point and number != round(number):
                raise ValueError(
                    f"{function}: fill must be an integer, because dtype={dtype} keeps the values of integers, "
                    f"got {number}; round it"
                )
        self.needs_boxes = geometry is not None and geometry.needs_boxes
        self._options = _core.AugmentOptions(
            **({} if geometry is None else geometry.native(fill)),
            may_be_small=is_padded,
            interpolation=kind,
            one_of=choices,
            in_floats=resize_dtype is not None,
            colors=[color.native for color in transforms.colors],
        )
        erasing = transforms.erasing
        self._erasing = None if erasing is None else erasing.native(dtype)
        if not transforms and rng_stream != 0:
            raise ValueError(
                f"{function}: rng_stream needs augment; pass augment too, or leave rng_stream out"
            )

    @property
    def is_random(self) -> bool:
        """Whether any transform draws random numbers; False for a center crop or a flip with p=1."""
        if self._draws_interpolation and any(isinstance(step, Resizing) for step in self._steps):
            return True
        erasing = self._transforms.erasing
        parts: list[Any] = [*self._steps, *self._transforms.colors, *([erasing] if erasing else [])]
        return any(part.is_random for part in parts)

    def batch(
        self,
        images: Any,
        indices: Any,
        format: _core.ImageFormat,
        padding: _core.ImagePaddingOptions | None,
        random_state: BatchRandomState,
        objects: Any,
        target: Any,
        name: str,
        path: str,
    ) -> tuple[Any, Any, Any, Any]:
        """Returns the batch of these images; arguments and result are as in ``_core.crop_images``."""
        key, threads = random_state.key(self._stream), get_num_threads()
        shared = (self._steps, self._stream) if self._steps else None
        crops = random_state.crops.get(shared)
        if self.needs_boxes and objects is None and crops is None:
            wrong = "RandomIoUCrop needs the boxes of these images, but no entry has them"
            hint = 'add Boxes(image="...") beside the first image with this geometry'
            raise ValueError(Problem(name, wrong, hint=hint))
        batch = _core.crop_images(
            images,
            indices,
            format,
            self._options,
            target,
            name,
            threads,
            key=key,
            samples=random_state.samples,
            entry=f"entry {path}" if path else "the samples",
            objects=objects,
            crops=crops,
            padding=padding,
        )
        if shared is not None:
            random_state.crops[shared] = batch[3]
        if self._erasing is not None:
            _core.erase_images(
                batch[0], format.output, self._erasing, key, random_state.samples, name, threads
            )
        return batch

    def refuse_batch(self, name: str) -> None:
        """Raises TypeError if there are transforms, because they apply to samples, not to batches."""
        if not self._transforms:
            return
        unit = "; RandomErasing then writes bytes" if self._transforms.erasing else ""
        wrong = "augment changes the samples of a Collate, but this is already a batch"
        hint = (
            'pass Image(augment=..., dtype=torch.uint8, output="HWC") to the Collate, and the same Image '
            f"without augment to fields, which normalizes on the device{unit}"
        )
        raise TypeError(Problem(name, wrong, hint=hint))
