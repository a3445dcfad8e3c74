"""Casting and scaling of integers: ``dtype`` and ``scale`` of `pinfeed.functional.pad` and fields.

Scaled values are ``float32(x) * float32(scale)``, rounded to float32 and then to the batch's dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pinfeed.arguments import Problem, checked_number, torch_dtype_name

_DTYPES = ("float32", "float16", "bfloat16")


def checked_scale(scale: Any, dtype: str | None, function: str) -> tuple[float | None, str | None]:
    """Returns the scale rounded to float32, and the dtype of the batch, which defaults to float32."""
    if scale is None:
        return None, dtype
    if isinstance(scale, np.generic) or (isinstance(scale, torch.Tensor) and scale.ndim == 0):
        scale = scale.item()
    scale = checked_number(scale, f"{function}: scale")
    if dtype not in (None, *_DTYPES):
        raise TypeError(
            f"{function}: dtype must be one of {_DTYPES} with scale, got {dtype}; "
            "leave dtype out for float32"
        )
    rounded = torch.tensor(float(scale), dtype=torch.float32, device="cpu").item()
    if rounded == 0 or not np.isfinite(rounded):
        raise ValueError(
            f"{function}: scale must be finite and not 0 in float32, got {scale!r}; "
            "leave it out to cast without scaling"
        )
    return rounded, dtype or "float32"


def scaled(
    values: torch.Tensor, scale: float | None, dtype: torch.dtype, name: str
) -> torch.Tensor:
    """Casts or scales values with torch operations, on any device."""
    got = torch_dtype_name(values.dtype)
    if scale is None:
        if not torch.can_cast(values.dtype, dtype):
            expected = f"numbers that can be cast to {torch_dtype_name(dtype)}"
            hint = "cast them in the dataset if losing information is fine"
            raise TypeError(Problem(name, expected, got, hint))
        return values.to(dtype)
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        hint = "leave scale out, and multiply the batch"
        raise TypeError(Problem(name, "integers to scale", got, hint))
    return (values.to(torch.float32) * scale).to(dtype)
