"""Values of images changed at random, one by one, before they are normalized."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import checked_integer, checked_number, described, instead


class Color:
    """What is done to the values of uint8 images. For `pinfeed.Image`'s ``color``.

    They hold no random state: they pickle, and any number of fields and threads may share one.
    """

    #: What native code takes.
    native: _core.ColorStep

    @property
    def is_random(self) -> bool:
        """Whether anything is drawn for it."""
        return 0 < self.native.probability < 1

    def __repr__(self) -> str:
        return described(self)


class ColorJitter(Color):
    """The brightness and the contrast times random factors, in random order.

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

    @instead(
        "saturation and hue are left out: call torchvision's ColorJitter in the dataset for them"
    )
    def __init__(
        self, brightness: float | Sequence[float] = 0, contrast: float | Sequence[float] = 0
    ) -> None:
        self.brightness = _factors(brightness, "ColorJitter: brightness")
        self.contrast = _factors(contrast, "ColorJitter: contrast")
        self.native = _core.ColorStep(
            kind="jitter", probability=1, brightness=self.brightness, contrast=self.contrast
        )

    @property
    @override
    def is_random(self) -> bool:
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


class RandomInvert(Color):
    """The image inverted, or as it is.

    Args:
        p: How probable that is, 0 to 1.

    Raises:
        TypeError: ``p`` is no number.
        ValueError: ``p`` is out of range.
    """

    @instead()
    def __init__(self, p: float = 0.5) -> None:
        self.p = checked_number(p, "RandomInvert: p", 0, 1)
        self.native = _core.ColorStep(kind="invert", probability=self.p)


class RandomPosterize(Color):
    """Lower bits of all values zeroed, or the image as it is.

    Args:
        bits: How many bits of each value stay, 0 to 8.
        p: How probable that is, 0 to 1.

    Raises:
        TypeError: ``bits`` is no integer, or ``p`` no number.
        ValueError: One is out of range.
    """

    @instead()
    def __init__(self, bits: int, p: float = 0.5) -> None:
        self.bits = checked_integer(bits, "RandomPosterize: bits", 0, 8)
        self.p = checked_number(p, "RandomPosterize: p", 0, 1)
        self.native = _core.ColorStep(kind="posterize", probability=self.p, number=self.bits)


class RandomSolarize(Color):
    """Values at or above a threshold inverted, or the image as it is.

    Args:
        threshold: 0 to 255.
        p: How probable that is, 0 to 1.

    Raises:
        TypeError: An argument is no number.
        ValueError: One is out of range.
    """

    @instead()
    def __init__(self, threshold: float, p: float = 0.5) -> None:
        self.threshold = checked_number(threshold, "RandomSolarize: threshold", 0, 255)
        self.p = checked_number(p, "RandomSolarize: p", 0, 1)
        self.native = _core.ColorStep(kind="solarize", probability=self.p, number=self.threshold)
