"""Transforms for `pinfeed.Image`: crops, flips, resizes, colors and erasing, fused into its single pass.

Names and defaults match ``torchvision.transforms.v2``, and so do most arguments. But ``interpolation``
is an argument of `pinfeed.Image`, and ``hue`` is not available. ``ResizeKeepRatio`` matches timm.
Transforms are immutable: fields, workers and threads can share them. Invalid arguments raise TypeError or
ValueError when a transform is created; an empty image raises ValueError when it is resized.
"""

from typing import TYPE_CHECKING, Any

from pinfeed.augment.color import ColorJitter, RandomGrayscale
from pinfeed.augment.crops import CenterCrop, Pad, RandomCrop, RandomIoUCrop, RandomZoomOut
from pinfeed.augment.erasing import RandomErasing
from pinfeed.augment.geometry import Compose, Geometry, RandomHorizontalFlip, RandomVerticalFlip
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

if not TYPE_CHECKING:  # type checkers report missing names themselves

    def __getattr__(name: str) -> Any:
        hint = "call torchvision's transform in the dataset, before Collate"
        if name in ("Normalize", "ToTensor", "ToImage", "ToDtype"):
            hint = "pinfeed.Image(mean, std) converts images to normalized floats"
        elif name in ("MixUp", "CutMix"):
            hint = f"call torchvision's on batches: {name.lower()}(*collate(samples))"
        elif known := [other for other in __all__ if name.lower() in other.lower()]:
            hint = f"did you mean {known[0]}?"
        raise AttributeError(f"pinfeed.augment has no {name}; {hint}")
