"""Random crops, flips and sizes in the pass that normalizes images, for `pinfeed.Image`; what goes with them.

Names, arguments and defaults are those of ``torchvision.transforms.v2``, and of timm for ``ResizeKeepRatio``. Nothing here changes once it is
made: fields, workers and threads may share it.
"""

from typing import TYPE_CHECKING, Any

from pinfeed.augment.color import ColorJitter, RandomGrayscale
from pinfeed.augment.crops import CenterCrop, Pad, RandomCrop, RandomIoUCrop, RandomZoomOut
from pinfeed.augment.erasing import RandomErasing
from pinfeed.augment.geometry import (
    Compose,
    Geometry,
    RandomHorizontalFlip,
    RandomVerticalFlip,
)
from pinfeed.augment.sizes import (
    RandomResize,
    RandomResizedCrop,
    RandomShortestSize,
    Resize,
    ResizeKeepRatio,
    ScaleJitter,
)

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "Geometry",
    "Pad",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomIoUCrop",
    "RandomResize",
    "RandomResizedCrop",
    "RandomShortestSize",
    "RandomVerticalFlip",
    "RandomZoomOut",
    "Resize",
    "ResizeKeepRatio",
    "ScaleJitter",
]

if not TYPE_CHECKING:  # which sees that a name is missing

    def __getattr__(name: str) -> Any:
        hint = "call those of torchvision that are not here in the dataset, before Collate"
        if name in ("Normalize", "ToTensor", "ToImage", "ToDtype"):
            hint = "pinfeed.Image(mean, std) makes normalized floats of images"
        raise AttributeError(f"pinfeed.augment has no {name}; {hint}")
