"""Values of images changed at random, one by one, before they are normalized."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pinfeed import _core
from pinfeed.arguments import checked_number, instead
from pinfeed.augment.geometry import Transform


class ColorJitter(Transform):
    """Multiplies the brightness and the contrast of uint8 images by random factors, in random order.

    For `pinfeed.Image`'s ``color``. It holds no random state: it pickles, and any number of fields and
    threads may share one.

    torchvision's saturation and hue are left out, because they mix channels.

    Args:
        brightness: From and to which factor, not negative; a single number b stands for
            max(0, 1 - b) to 1 + b.
        contrast: The same. Values move away from the image's mean, or towards it: of its gray if it
            has three channels.

    Raises:
        TypeError: An argument is no number and no pair of them.
        ValueError: A number is negative, or the pair is reversed.

    The mean is that of what is seen of the image, so contrast takes about twice the time of
    brightness.

    Example:
        >>> image = pinfeed.Image(
        ...     dtype=torch.uint8, color=pinfeed.augment.ColorJitter((2, 2))
        ... )
        >>> pinfeed.Collate(image)([np.array([[[100], [200]]], np.uint8)]).tolist()
        [[[[200, 255]]]]
    """

    argument = "color"

    @instead(
        "saturation and hue are left out: call torchvision's ColorJitter in the dataset for them"
    )
    def __init__(
        self, brightness: float | Sequence[float] = 0, contrast: float | Sequence[float] = 0
    ) -> None:
        self.brightness = _factors(brightness, "ColorJitter: brightness")
        self.contrast = _factors(contrast, "ColorJitter: contrast")
        self.native = _core.ColorStep(brightness=self.brightness, contrast=self.contrast)

    @property
    def is_random(self) -> bool:
        """Whether anything is drawn for it."""
        factors = self.brightness, self.contrast
        # Of two that change anything the order is drawn.
        return any(low < high for low, high in factors) or (1, 1) not in factors


def _factors(given: float | Sequence[float], name: str) -> tuple[float, float]:
    """From and to which factor."""
    is_pair = isinstance(given, Sequence) and not isinstance(given, str)
    parts: Any = given if is_pair else [given]
    numbers = [checked_number(number, name) for number in parts]
    if not is_pair and numbers[0] >= 0:
        numbers = [max(0.0, 1 - numbers[0]), 1 + numbers[0]]
    if len(numbers) != 2 or not 0 <= numbers[0] <= numbers[1] < math.inf:
        raise ValueError(
            f"{name} must be a number or a pair (from, to), not negative, got {given!r}"
        )
    return numbers[0], numbers[1]
