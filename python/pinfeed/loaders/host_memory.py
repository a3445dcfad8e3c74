"""Memory that a device copies from."""

from __future__ import annotations

import warnings
from typing import Any

import torch


class HostMemory:
    """Pinned memory of torch's caching allocator; ordinary memory from its first refusal on."""

    def __init__(self) -> None:
        self._refusal: RuntimeError | None = None
        self._is_told = False

    def allocate(self, accelerator: Any, size: int) -> torch.Tensor:
        """At least ``size`` bytes, as uint8."""
        # torch rounds pinned allocations up to powers of two anyway. Having all of one, batches
        # whose sizes differ soon fit.
        rounded = 1 << (size - 1).bit_length()
        if self._refusal is None:
            try:
                return accelerator.pinned(rounded)
            except RuntimeError as error:
                self._refusal = error.with_traceback(None)
        return torch.empty(rounded, dtype=torch.uint8, device="cpu")

    def tell_refusal(self, stacklevel: int) -> None:
        """Warns of a refusal, once."""
        if self._refusal is None or self._is_told:
            return
        self._is_told = True
        warnings.warn(
            "DeviceLoader: host memory could not be pinned, so copies to the device are slower and "
            f"the background thread waits for them: {self._refusal}",
            RuntimeWarning,
            stacklevel + 1,
        )
