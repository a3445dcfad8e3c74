"""What is drawn for each sample of a `pinfeed.Image`, and done to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pinfeed import _core
from pinfeed.arguments import (
    Problem,
    checked_integer,
    checked_interpolation,
    require_instance,
    torch_dtype_name,
)
from pinfeed.augment.chance import Chance
from pinfeed.augment.color import Coloring
from pinfeed.augment.crops import checked_fill
from pinfeed.augment.erasing import RandomErasing
from pinfeed.augment.geometry import Geometry, Resizing
from pinfeed.runtime import get_num_threads


class Augmentation:
    """A geometry, colours and erasing, with the stream that their random numbers come from.

    `pinfeed.Image` explains the arguments; messages carry its name.

    Attributes:
        parts: The names of the arguments that were given.
        needs_boxes: Whether a crop is made around the boxes of objects.
    """

    def __init__(
        self,
        geometry: Geometry | None,
        interpolation: str | Sequence[str],
        resize_dtype: torch.dtype | None,
        color: Coloring | Sequence[Coloring] | None,
        erase: RandomErasing | None,
        stream: int,
        dtype: torch.dtype,
        fill: Any,
        is_padded: bool,
        problem_with_one_channel: str,
    ) -> None:
        self._geometry = geometry
        self._colors = [] if color is None else color if isinstance(color, Sequence) else [color]
        self._erase = erase
        self._stream = checked_integer(stream, "Image: stream", 0)
        if geometry is not None:
            text = "Image: augment must be of pinfeed.augment, several in Compose([...])"
            require_instance(geometry, Geometry, text)
        several = [*interpolation] if isinstance(interpolation, list | tuple) else []
        if any(one not in ("bilinear", "bicubic") for one in several):
            raise ValueError(
                "Image: interpolation must be one name, or a list of 'bilinear' and 'bicubic' to draw "
                f"from, got {interpolation!r}"
            )
        self._draws_interpolation = len(set(several)) > 1
        kind, in_floats = checked_interpolation(
            several[0] if several else interpolation,
            resize_dtype,
            torch_dtype_name(dtype),
            "Image",
        )
        if self._colors and resize_dtype is not None:
            raise ValueError(
                "Image: color is for bytes, and resize_dtype=torch.float32 makes floats of them; "
                "leave one of them out"
            )
        for one in self._colors:
            text = (
                "Image: color must be a ColorJitter or a RandomGrayscale of pinfeed.augment, or a list "
                "of several"
            )
            require_instance(one, Coloring, text)
        if erase is not None:
            text = "Image: erase must be a pinfeed.augment.RandomErasing"
            require_instance(erase, RandomErasing, text)
            erase.check_dtype(dtype)
        if fill is not None:
            fill = checked_fill(fill, "Image: fill")
            if geometry is None:
                raise ValueError("Image: fill is for augment; give it, or leave fill out")
        self.needs_boxes = geometry is not None and geometry.needs_boxes
        # As native code takes them.
        self._options = _core.AugmentOptions(
            **({} if geometry is None else geometry.native(fill)),
            may_be_small=is_padded,
            problem_with_one_channel=problem_with_one_channel,
            interpolation=kind,
            one_of=several,
            in_floats=in_floats,
            colors=[one.native for one in self._colors],
        )
        self._erasing = None if erase is None else erase.native(dtype)
        parts = {"augment": geometry, "color": self._colors, "erase": erase}
        self.parts = [name for name, part in parts.items() if part]
        if not self.parts and stream != 0:
            raise ValueError(
                "Image: stream is about augment, color and erase; give one, or leave it out"
            )

    @property
    def is_random(self) -> bool:
        """Whether anything is drawn: not for a centre crop, or a flip that is certain."""
        steps = () if self._geometry is None else self._geometry.steps
        if self._draws_interpolation and any(isinstance(step, Resizing) for step in steps):
            return True
        drawn: list[Any] = [*steps, *self._colors, *([] if self._erase is None else [self._erase])]
        return any(part.is_random for part in drawn)

    def batch(
        self,
        images: Any,
        indices: Any,
        format: _core.ImageFormat,
        padding: _core.ImagePaddingOptions | None,
        chance: Chance,
        objects: Any,
        target: Any,
        name: str,
        path: str,
    ) -> _core.WrittenImages:
        """The batch of these images, as ``_core.view_images`` takes and returns them."""
        key, threads = chance.key(self._stream), get_num_threads()
        shared = None if self._geometry is None else (self._geometry, self._stream)
        views = chance.views.get(shared)
        if self.needs_boxes and objects is None and views is None:
            wrong = "RandomIoUCrop crops around the boxes of objects, and no leaf has those of these images"
            hint = 'add Boxes(image="...") beside the first leaf that has this geometry'
            raise ValueError(Problem(name, wrong, hint=hint))
        batch = _core.view_images(
            images,
            indices,
            format,
            self._options,
            target,
            name,
            threads,
            key=key,
            samples=chance.samples,
            leaf=f"leaf {path}" if path else "the samples",
            objects=objects,
            views=views,
            padding=padding,
        )
        if shared is not None:
            chance.views[shared] = batch.views
        if self._erasing is not None:
            _core.erase_images(
                batch.values, format.output, self._erasing, key, chance.samples, name, threads
            )
        return batch

    def refuse_batch(self, name: str) -> None:
        """Raises TypeError where there is anything to do: a batch that is there has no samples."""
        if not self.parts:
            return
        given = ", ".join(f"{part}=..." for part in self.parts)
        unit = "; what erase writes is a number of bytes then" if self._erase else ""
        wrong = (
            "augment, color and erase are for the samples of a Collate, and this is a batch already"
        )
        hint = (
            f'give Image({given}, dtype=torch.uint8, output="HWC") to the Collate, and the same Image '
            f"without {' and '.join(self.parts)} to fields, which normalizes on the device{unit}"
        )
        raise TypeError(Problem(name, wrong, hint=hint))
