"""Fields: what becomes of one leaf of the samples."""

from pinfeed.fields.field import Field, Leaf
from pinfeed.fields.image import Image
from pinfeed.fields.jagged import Jagged
from pinfeed.fields.keep import Keep
from pinfeed.fields.pad import Pad
from pinfeed.fields.patches import Patches
from pinfeed.fields.stack import Stack

__all__ = ["Field", "Image", "Jagged", "Keep", "Leaf", "Pad", "Patches", "Stack"]
