"""Functions on NumPy arrays and tensors. The output has the same type as the input."""

from typing import TYPE_CHECKING

from pinfeed.imports import lazy_names

if TYPE_CHECKING:
    from pinfeed.functional.arrays import gather, normalize, permute
    from pinfeed.functional.patches import patch_grid, patchify
    from pinfeed.functional.sequences import pad, unpad
    from pinfeed.functional.unbinding import unbind

__all__ = ["gather", "normalize", "pad", "patch_grid", "patchify", "permute", "unbind", "unpad"]

__getattr__ = lazy_names(
    __name__,
    dict.fromkeys(("gather", "normalize", "permute"), "pinfeed.functional.arrays")
    | dict.fromkeys(("patch_grid", "patchify"), "pinfeed.functional.patches")
    | dict.fromkeys(("pad", "unpad"), "pinfeed.functional.sequences")
    | {"unbind": "pinfeed.functional.unbinding"},
)
