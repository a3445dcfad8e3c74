"""Random crops, flips and sizes in the pass that normalizes images, for `pinfeed.Image`; what goes with them.

Names, arguments and defaults are those of ``torchvision.transforms.v2``.
"""

from pinfeed.augment.color import (
    Color,
    ColorJitter,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from pinfeed.augment.erasing import RandomErasing
from pinfeed.augment.geometry import (
    CenterCrop,
    Compose,
    Geometry,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)
from pinfeed.augment.mixing import cutmix, mixup
from pinfeed.augment.targets import boxes, points

__all__ = [
    "CenterCrop",
    "Color",
    "ColorJitter",
    "Compose",
    "Geometry",
    "RandomCrop",
    "RandomErasing",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomSolarize",
    "RandomVerticalFlip",
    "Resize",
    "boxes",
    "cutmix",
    "mixup",
    "points",
]
