"""Pixels of PIL images, read in place."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from pinfeed import _core

_BYTE = np.dtype(np.uint8)

# How the pixels of a mode lie in Pillow's memory, as they do in an array: the number of channels,
# 0 for none, the bytes from one to the next, and the dtype. Several channels take four bytes.
_LAYOUTS: dict[str, tuple[int, int, np.dtype[Any]]] = {
    **dict.fromkeys(("RGB", "YCbCr", "HSV"), (3, 1, _BYTE)),
    **dict.fromkeys(("RGBA", "RGBX", "CMYK"), (4, 1, _BYTE)),
    "LA": (2, 3, _BYTE),
    **dict.fromkeys(("L", "P"), (0, 1, _BYTE)),
    "I;16": (0, 2, np.dtype("<u2")),
    "I": (0, 4, np.dtype(np.int32)),
    "F": (0, 4, np.dtype(np.float32)),
}


def pil_pixels(image: Any) -> Any:
    """Returns the pixels of a loaded image, as an array without a copy where Pillow exports them.

    Pixels that Pillow doesn't export are converted while the batch is written, one image at a time.
    """
    layout = _LAYOUTS.get(image.mode)
    if layout is None:  # LAB, whose bytes differ in an array; and bits, where true is 255
        return np.asarray(image, np.uint8 if image.mode == "1" else None)
    width, height = image.size
    lend = getattr(image.im, "__arrow_c_array__", None)
    # Pillow 11.3 and 12 crash for read-only memory, which belongs to files and arrays. Rows are
    # contiguous with an alignment of 1.
    if (
        lend is not None
        and not image.readonly
        and height
        and width
        and sys.modules["PIL.Image"].core.get_alignment() == 1
    ):
        try:
            return _core.lend_pixels(lend(), height, width, *layout)
        except ValueError:
            pass  # rows of images over 16 MB are in several blocks
    channels, _, dtype = layout
    if dtype != _BYTE:
        return np.asarray(image)
    return _core.LateImage(image, (height, width, channels) if channels else (height, width))
