"""Fields: each makes one leaf of a batch from that leaf of the samples."""

from pinfeed.fields.field import Field, Leaf
from pinfeed.fields.image import Image
from pinfeed.fields.jagged import Jagged
from pinfeed.fields.keep import Keep
from pinfeed.fields.pad import Pad
from pinfeed.fields.patches import Patches
from pinfeed.fields.stack import Stack
from pinfeed.fields.targets import Boxes, InstanceMasks, Points

__all__ = [
    "Boxes",
    "Field",
    "Image",
    "InstanceMasks",
    "Jagged",
    "Keep",
    "Leaf",
    "Pad",
    "Patches",
    "Points",
    "Stack",
]
