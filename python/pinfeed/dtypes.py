"""Names of dtypes, the one form that NumPy, torch and the native module share."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch


def dtype_name(dtype: Any, function: str) -> str:
    """``"float32"`` for ``torch.float32``, ``np.float32``, ``np.dtype("f4")`` or ``"float32"``.

    Args:
        dtype: What names a dtype to NumPy or torch.
        function: Who asks, for messages.

    Raises:
        TypeError: ``dtype`` names no dtype.
    """
    if isinstance(dtype, torch.dtype):
        return torch_dtype_name(dtype)
    if dtype == "bfloat16":  # the one that NumPy doesn't know
        return "bfloat16"
    try:
        return np.dtype(dtype).name
    except TypeError as error:
        raise TypeError(
            f"{function}: dtype must be a torch or NumPy dtype, got {dtype!r}"
        ) from error


@functools.cache
def torch_dtype_name(dtype: torch.dtype) -> str:
    """``"float32"`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")
