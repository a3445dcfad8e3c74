"""`pinfeed.normalize` and `pinfeed.permute` as torch.compile and torch.export see them.

The plain functions check and convert whatever they are given, with code that can't be traced.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def traced_normalize(
    images: torch.Tensor,
    mean: Any,
    std: Any,
    out: torch.Tensor | None,
    *,
    dtype: Any,
    **options: Any,
) -> torch.Tensor:
    """``torch.ops.pinfeed.normalize_images``; mean and std become lists, part of the graph."""
    op = torch.ops.pinfeed.normalize_images
    options["dtype"] = _torch_dtype(dtype)
    if out is None:
        return op(images, _listed(mean), _listed(std), **options)
    op.out(images, _listed(mean), _listed(std), **options, out=out)
    return out


def traced_permute(
    images: torch.Tensor, input: str, output: str, out: torch.Tensor | None
) -> torch.Tensor:
    """``torch.ops.pinfeed.permute``."""
    op = torch.ops.pinfeed.permute
    if out is None:
        return op(images, input, output)
    op.out(images, input, output, out=out)
    return out


def _torch_dtype(dtype: Any) -> Any:
    """`pinfeed.arguments.dtype_name` in what can be traced; the op refuses what it doesn't take."""
    if isinstance(dtype, torch.dtype):
        return dtype
    name = dtype if isinstance(dtype, str) and dtype == "bfloat16" else np.dtype(dtype).name
    return getattr(torch, name)


def _listed(values: Any) -> list[float] | None:
    if values is None:
        return None
    if isinstance(values, torch.Tensor | np.ndarray):
        values = values.tolist()  # where the graph breaks: its values are not known in it
    if isinstance(values, tuple | list):
        return [float(value) for value in values]
    return [float(values)]
