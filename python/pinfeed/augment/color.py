"""Values of images changed at random, one by one, before they are normalized."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pinfeed.arguments import checked_integer, checked_number, described

# A kernels::ColorStep: its kind, probability, and two numbers.
_Native = tuple[str, float, float, float]


class Color:
    """What is done to the values of uint8 images. For `pinfeed.Image`'s ``color``.

    They hold no random state: they pickle, and any number of fields may share one.
    """

    #: What native code takes.
    native: _Native

    def __repr__(self) -> str:
        return described(self)


class ColorJitter(Color):
    """The brightness times a random factor.

    torchvision's contrast is left out, because it needs the mean of the image first; saturation and
    hue are too, because they mix channels.

    Args:
        brightness: From and to which factor, not negative; a single number b stands for
            max(0, 1 - b) to 1 + b.

    Raises:
        TypeError: ``brightness`` is no number and no pair of them.
        ValueError: A number is negative, or the pair is reversed.

    Example:
        >>> image = pinfeed.Image(dtype=torch.uint8, color=pinfeed.augment.ColorJitter((2, 2)))
        >>> pinfeed.Collate(image)([np.array([[[100], [200]]], np.uint8)]).tolist()
        [[[[200, 255]]]]
    """

    def __init__(self, brightness: float | Sequence[float] = 0) -> None:
        is_pair = isinstance(brightness, Sequence) and not isinstance(brightness, str)
        given: Any = brightness if is_pair else [brightness]
        numbers = [checked_number(number, "ColorJitter: brightness") for number in given]
        if not is_pair and numbers[0] >= 0:
            numbers = [max(0.0, 1 - numbers[0]), 1 + numbers[0]]
        if len(numbers) != 2 or not 0 <= numbers[0] <= numbers[1] < math.inf:
            raise ValueError(
                "ColorJitter: brightness must be a number or a pair (from, to), not negative, got "
                f"{brightness!r}"
            )
        self.brightness = (numbers[0], numbers[1])
        self.native = "brightness", 1, *self.brightness


class RandomInvert(Color):
    """The image inverted, or as it is.

    Args:
        p: How probable that is, 0 to 1.

    Raises:
        TypeError: ``p`` is no number.
        ValueError: ``p`` is out of range.
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = checked_number(p, "RandomInvert: p", 0, 1)
        self.native = "invert", self.p, 0, 0


class RandomPosterize(Color):
    """Lower bits of all values zeroed, or the image as it is.

    Args:
        bits: How many bits of each value stay, 0 to 8.
        p: How probable that is, 0 to 1.

    Raises:
        TypeError: ``bits`` is no integer, or ``p`` no number.
        ValueError: One is out of range.
    """

    def __init__(self, bits: int, p: float = 0.5) -> None:
        self.bits = checked_integer(bits, "RandomPosterize: bits", 0, 8)
        self.p = checked_number(p, "RandomPosterize: p", 0, 1)
        self.native = "posterize", self.p, self.bits, 0


class RandomSolarize(Color):
    """Values at or above a threshold inverted, or the image as it is.

    Args:
        threshold: 0 to 255.
        p: How probable that is, 0 to 1.

    Raises:
        TypeError: An argument is no number.
        ValueError: One is out of range.
    """

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        self.threshold = checked_number(threshold, "RandomSolarize: threshold", 0, 255)
        self.p = checked_number(p, "RandomSolarize: p", 0, 1)
        self.native = "solarize", self.p, self.threshold, 0
