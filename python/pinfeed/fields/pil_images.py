"""Pixels of PIL images, read where they are in memory."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from pinfeed import _core

# The number of channels of the modes whose pixels take four bytes in Pillow's memory, as they are in
# an array, and from one channel to the next.
_PIXELS = dict.fromkeys(("RGB", "YCbCr", "HSV"), (3, 1))
_PIXELS |= dict.fromkeys(("RGBA", "RGBX", "CMYK"), (4, 1)) | {"LA": (2, 3)}

_BYTE = np.dtype(np.uint8)
_PLANES: dict[str, np.dtype[Any]] = {
    "L": _BYTE,
    "P": _BYTE,
    "I;16": np.dtype("<u2"),
    "I": np.dtype(np.int32),
    "F": np.dtype(np.float32),
}


def pil_pixels(image: Any) -> Any:
    """Returns the pixels of a loaded image: an array without a copy, where Pillow lends them.

    Bytes that it doesn't lend are converted while the batch is written, one image at a time.
    """
    width, height = image.size
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    if image.mode in _PIXELS:
        dtype, (channels, step) = _BYTE, _PIXELS[image.mode]
        shape, strides = (height, width, channels), (4 * width, 4, step)
    elif image.mode in _PLANES:
        dtype = _PLANES[image.mode]
        shape, strides = (height, width), (dtype.itemsize * width, dtype.itemsize)
    else:  # LAB, the bytes of which are others in an array; and bits, true being a byte of 255
        return np.asarray(image, np.uint8 if image.mode == "1" else None)
    if _can_lend(image):
        try:
            return _core.lend_pixels(image.__arrow_c_array__(), shape, strides, dtype)
        except ValueError:
            pass  # its rows lie in several blocks, as those of images over 16 MB do
    return _core.LateImage(image, shape) if dtype == _BYTE else np.asarray(image)


def _can_lend(image: Any) -> bool:
    """Whether it is safe to ask: the memory is Pillow's own, and rows follow each other."""
    # Pillow 11.3 and 12 crash for memory of others, which is read-only: of files and of arrays.
    return (
        hasattr(image, "__arrow_c_array__")
        and not image.readonly
        and 0 not in image.size
        and sys.modules["PIL.Image"].core.get_alignment() == 1
    )
