"""Random crops, flips and sizes in the pass that normalizes images, for `pinfeed.Image`; what goes with them.

Names, arguments and defaults are those of ``torchvision.transforms.v2``.
"""

from pinfeed.augment.chance import IndexedDataset
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
    "Compose",
    "Geometry",
    "IndexedDataset",
    "RandomCrop",
    "RandomErasing",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "boxes",
    "cutmix",
    "mixup",
    "points",
]
