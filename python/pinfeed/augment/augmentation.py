"""What is drawn for each sample of a `pinfeed.Image`, and done to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pinfeed import _core
from pinfeed.arguments import (
    checked_integer,
    checked_interpolation,
    require_instance,
    torch_dtype_name,
)
from pinfeed.augment.chance import Chance
from pinfeed.augment.color import Color
from pinfeed.augment.erasing import RandomErasing
from pinfeed.augment.geometry import Geometry
from pinfeed.runtime import get_num_threads


class Augmentation:
    """A geometry, colours and erasing, with the stream that their random numbers come from.

    `pinfeed.Image` explains the arguments; messages carry its name.

    Attributes:
        parts: The names of the arguments that were given.

    Raises:
        TypeError, ValueError: An argument does not fit, or the value to erase with the dtype.
    """

    def __init__(
        self,
        geometry: Geometry | None,
        interpolation: str,
        resize_dtype: torch.dtype | None,
        color: Color | Sequence[Color] | None,
        erase: RandomErasing | None,
        stream: int,
        dtype: torch.dtype,
    ) -> None:
        self._geometry = geometry
        self._colors = [] if color is None else color if isinstance(color, Sequence) else [color]
        self._erase = erase
        self._stream = checked_integer(stream, "Image: stream", 0)
        of = "of pinfeed.augment, or several in"
        if geometry is not None:
            require_instance(
                geometry, Geometry, f"Image: augment must be a geometry {of} its Compose"
            )
        kind, in_floats = checked_interpolation(
            interpolation, resize_dtype, torch_dtype_name(dtype), "Image"
        )
        if self._colors and resize_dtype is not None:
            raise ValueError(
                "Image: color is for bytes, and resize_dtype=torch.float32 makes floats of them; "
                "leave one of them out"
            )
        steps = "ColorJitter, RandomInvert, RandomPosterize or RandomSolarize"
        for one in self._colors:
            require_instance(one, Color, f"Image: color must be a {steps} {of} a list")
        if erase is not None:
            require_instance(
                erase, RandomErasing, "Image: erase must be a pinfeed.augment.RandomErasing"
            )
            erase.check_dtype(dtype)
        # As native code takes them.
        self._options = _core.AugmentOptions(
            **({} if geometry is None else geometry.native()),
            interpolation=kind,
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
        drawn: list[Any] = [*steps, *self._colors, *([] if self._erase is None else [self._erase])]
        return any(part.is_random for part in drawn)

    def batch(
        self,
        images: Any,
        indices: Any,
        format: _core.ImageFormat,
        chance: Chance,
        with_windows: bool,
        target: Any,
        name: str,
        path: str,
    ) -> tuple[Any, Any]:
        """The batch of these images, as ``_core.crop_images`` takes them, and their windows or None."""
        key, threads = chance.key(self._stream), get_num_threads()
        batch, sizes, windows = _core.crop_images(
            images,
            indices,
            format,
            self._options,
            target,
            name,
            threads,
            key=key,
            samples=chance.samples,
            other_leaf=chance.sizes.get(self._geometry),
            windows=with_windows,
        )
        if self._geometry is not None:
            chance.sizes.setdefault(self._geometry, (sizes, f"leaf {path}" if path else "the leaf"))
        if self._erasing is not None:
            _core.erase_images(
                batch, format.output, self._erasing, key, chance.samples, name, threads
            )
        return batch, windows

    def refuse_batch(self, name: str) -> None:
        """Raises TypeError where there is anything to do: a batch that is there has no samples.

        Args:
            name: What messages call the batch.
        """
        if not self.parts:
            return
        given = ", ".join(f"{part}=..." for part in self.parts)
        unit = "; what erase writes is a number of bytes then" if self._erase else ""
        raise TypeError(
            f"{name}: augment, color and erase are for the samples of a Collate, and this is a batch "
            f'already; give Image({given}, dtype=torch.uint8, output="HWC") to the Collate, and the '
            f"same Image without {' and '.join(self.parts)} to fields, which normalizes on the "
            f"device{unit}"
        )
