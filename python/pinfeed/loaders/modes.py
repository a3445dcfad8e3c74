"""What torch knows of each thread by itself, and a new one begins without."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch


def modes_here() -> list[AbstractContextManager[Any]]:
    """What another thread enters, in this order, to compute as this one does now."""
    modes: list[AbstractContextManager[Any]] = [
        torch.inference_mode(torch.is_inference_mode_enabled()),
        torch.enable_grad() if torch.is_grad_enabled() else torch.no_grad(),
    ]
    accelerator = torch.accelerator.current_accelerator()
    for kind in ("cpu",) if accelerator is None else ("cpu", accelerator.type):
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            dtype = torch.get_autocast_dtype(kind)
            cache = torch.is_autocast_cache_enabled()
            modes.append(torch.autocast(kind, dtype, cache_enabled=cache))
    device = torch.get_default_device()
    if device.type != "cpu":  # which is any thread's to begin with; the mode has its price
        modes.append(device)
    return modes
