"""Names of dtypes, the one form that NumPy, torch and the native module share."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch


def dtype_name(dtype: Any) -> str:
    """``"float32"`` for ``torch.float32``, ``np.float32``, ``np.dtype("f4")`` or ``"float32"``.

    Raises:
        TypeError: ``dtype`` names no dtype.
    """
    if isinstance(dtype, torch.dtype):
        return _torch_name(dtype)
    return np.dtype(dtype).name


@functools.cache
def _torch_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
