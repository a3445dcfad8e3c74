"""Random crops and flips in the pass that normalizes images, for `pinfeed.Image`.

Names, arguments and defaults are those of ``torchvision.transforms.v2``.
"""

from pinfeed.augment.chance import IndexedDataset
from pinfeed.augment.geometry import (
    CenterCrop,
    Compose,
    Geometry,
    RandomCrop,
    RandomHorizontalFlip,
    RandomVerticalFlip,
)

__all__ = [
    "CenterCrop",
    "Compose",
    "Geometry",
    "IndexedDataset",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomVerticalFlip",
]
