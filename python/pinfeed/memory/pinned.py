"""Page-locked memory for batches, which a device copies from by itself.

It is torch's: its caching host allocator knows until when streams read from a block, and hands a block
out again only then.
"""

from __future__ import annotations

import warnings
from typing import Literal

import torch

Pin = bool | Literal["auto"]

_refusal: RuntimeError | None = None  # why this process has no more of it


def is_wanted(pin: Pin) -> bool:
    """Whether batches of this process are to be pinned, now.

    ``"auto"`` never starts an accelerator: that takes seconds and hundreds of megabytes, and the
    training may run on the CPU. Whoever trains on one has moved the model there before the first
    batch.

    Raises:
        RuntimeError: ``pin`` is True, and there is no accelerator.
    """
    if pin == "auto":
        return _refusal is None and is_accelerator_in_use()
    if pin and not torch.accelerator.is_available():
        raise RuntimeError(
            "Collate: pin=True takes an accelerator to pin memory for, and torch finds none; leave "
            "pin out to pin where there is one"
        )
    return pin and _refusal is None


def is_accelerator_in_use() -> bool:
    """Whether this process has initialized a device that copies from pinned memory."""
    # Neither is initialized in a process that was forked from one where it is.
    return torch.cuda.is_initialized() or torch.xpu.is_initialized()  # type: ignore[no-untyped-call]


def pinned_empty(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    """A pinned tensor with any contents; an ordinary one from the first refusal on."""
    global _refusal
    if _refusal is None:
        try:
            return _allocate(shape, getattr(torch, dtype))
        except RuntimeError as error:
            _refusal = error.with_traceback(None)
            warnings.warn(
                "Collate: memory for batches could not be pinned, so they go to the device through "
                f"another copy: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
    return torch.empty(shape, dtype=getattr(torch, dtype), device="cpu")


def pinned(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in pinned memory."""
    if not tensor.is_cpu or tensor.layout != torch.strided or type(tensor) is not torch.Tensor:
        return tensor
    if tensor.requires_grad or tensor.is_quantized or tensor.is_nested:
        return tensor
    copy = pinned_empty(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
    return copy.copy_(tensor)


def _allocate(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="cpu", pin_memory=True)
