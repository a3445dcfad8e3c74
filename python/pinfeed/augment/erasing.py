"""Random erasing, applied after normalization."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal

import torch

from pinfeed import _core
from pinfeed.arguments import checked_number, checked_range, listed, torch_dtype_name, with_hints
from pinfeed.augment.geometry import Transform


class RandomErasing(Transform):
    """Overwrites a random rectangle of each image with probability ``p``.

    It draws up to ten rectangles until one is smaller than the image in both directions, as
    torchvision does. If none is, the image stays unchanged.

    Args:
        p: Probability of erasing, 0 to 1.
        scale: Range of the rectangle's area, as fractions of the image.
        ratio: Range of the ratio of height to width.
        value: Value to write, in units of the batch, after normalization: one number or one per channel;
            or ``"random"`` for Gaussian noise, in float batches.

    Example:
        >>> erasing = pinfeed.augment.RandomErasing(
        ...     p=1, scale=(0.1, 0.1), ratio=(1, 1), value=9
        ... )
        >>> image = pinfeed.Image(scale=1, augment=erasing)
        >>> batch = pinfeed.Collate(image)([np.zeros((10, 10, 1), np.uint8)] * 2)
        >>> (batch == 9).sum((1, 2, 3))
        tensor([9, 9])
    """

    @with_hints(inplace="it always writes into the batch; leave it out")
    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float | Sequence[float] | Literal["random"] = 0.0,
    ) -> None:
        self.p = checked_number(p, "RandomErasing: p", 0, 1)
        self.scale = checked_range(scale, "RandomErasing: scale", 1)
        self.ratio = checked_range(ratio, "RandomErasing: ratio")
        self.value = value
        self.is_random = self.p > 0
        self._values: list[float] | None = None
        if isinstance(value, str) and value != "random":
            raise TypeError(f"RandomErasing: value must be numbers or 'random', got {value!r}")
        if not isinstance(value, str):
            numbers = listed(value) or [value]  # an empty list raises
            self._values = [checked_number(number, "RandomErasing: value") for number in numbers]

    def check_dtype(self, dtype: torch.dtype, function: str) -> None:
        """Raises ValueError if a batch of this dtype can't hold the value."""
        for value in self._values or ():
            _core.check_value(value, torch_dtype_name(dtype), function, "RandomErasing: value")
        if self._values is None and not dtype.is_floating_point:
            raise ValueError(
                f"{function}: RandomErasing: value='random' writes Gaussian noise, which needs a floating dtype, got "
                f"{dtype}; pass a number"
            )

    def native(self, dtype: torch.dtype) -> _core.ErasingOptions:
        """Returns the native options for a batch of this dtype."""
        values = _quantiles(dtype) if self._values is None else self._values
        return _core.ErasingOptions(
            probability=self.p, area=self.scale, ratio=self.ratio, values=values
        )


@functools.cache
def _quantiles(dtype: torch.dtype) -> torch.Tensor:
    """Returns 2**16 normal quantiles of equal probability."""
    shares = torch.arange(0.5, 2**16, dtype=torch.float64, device="cpu") / 2**16
    return torch.special.ndtri(shares).to(dtype)
