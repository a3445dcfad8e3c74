"""Functions on NumPy arrays and tensors. The output has the same type as the input."""

from pinfeed.functional.arrays import gather, normalize, permute
from pinfeed.functional.patches import patch_grid, patchify
from pinfeed.functional.sequences import pad, unpad
from pinfeed.functional.unbinding import unbind

__all__ = ["gather", "normalize", "pad", "patch_grid", "patchify", "permute", "unbind", "unpad"]
