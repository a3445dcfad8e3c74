"""Colors of images changed at random before they are normalized."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pinfeed import _core
from pinfeed.arguments import checked_number, described, instead
from pinfeed.augment.geometry import Transform


class Coloring(Transform):
    """A change of colors."""

    native: _core.ColorStep
    #: Whether anything is drawn for it.
    is_random: bool


class ColorJitter(Coloring):
    """Multiplies brightness, contrast and saturation of uint8 images by random factors, in random order.

    It holds no random state: it pickles, and any number of fields and threads may share one.

    Values are those of torchvision's ``adjust_brightness``, ``adjust_contrast`` and
    ``adjust_saturation`` of a uint8 tensor. torchvision's hue is left out.

    Args:
        brightness: From and to which factor, not negative; a single number b stands for
            max(0, 1 - b) to 1 + b.
        contrast: The same. Values move away from the image's mean, or towards it: the mean of its gray
            if it has three channels, of all values otherwise.
        saturation: The same. The three channels of a pixel move away from its gray, or towards it. An
            image with one channel stays as it is.
        p: How often an image is changed at all, 0 to 1, as in
            ``torchvision.transforms.RandomApply([ColorJitter(...)], p)``.

    Raises:
        TypeError: An argument is no number and no pair of them.
        ValueError: A number is negative, ``p`` is beyond 1, or a pair is reversed. With a saturation,
            an image that has neither one channel nor three raises when it is collated.

    The mean is that of what is seen of the image, so contrast takes about twice the time of
    brightness.

    Example:
        >>> image = pinfeed.Image(
        ...     dtype=torch.uint8, augment=pinfeed.augment.ColorJitter((2, 2))
        ... )
        >>> pinfeed.Collate(image)([np.array([[[100], [200]]], np.uint8)]).tolist()
        [[[[200, 255]]]]
    """

    @instead("hue is left out: call torchvision's ColorJitter in the dataset for it")
    def __init__(
        self,
        brightness: float | Sequence[float] = 0,
        contrast: float | Sequence[float] = 0,
        saturation: float | Sequence[float] = 0,
        *,
        p: float = 1.0,
    ) -> None:
        self.brightness = _factors(brightness, "ColorJitter: brightness")
        self.contrast = _factors(contrast, "ColorJitter: contrast")
        self.saturation = _factors(saturation, "ColorJitter: saturation")
        self.p = checked_number(p, "ColorJitter: p", 0, 1)
        self.native = _core.ColorStep(
            brightness=self.brightness,
            contrast=self.contrast,
            saturation=self.saturation,
            probability=self.p,
        )
        three = self.brightness, self.contrast, self.saturation
        changing = [one for one in three if one != (1, 1)]
        # The order of two or more is drawn.
        is_certain = len(changing) <= 1 and self.p == 1 and all(a == b for a, b in changing)
        self.is_random = self.p > 0 and bool(changing) and not is_certain

    def __repr__(self) -> str:
        names = ("brightness", "contrast", "saturation")
        return described(self, **{name: 0 for name in names if getattr(self, name) == (1, 1)})


class RandomGrayscale(Coloring):
    """Makes some uint8 images gray and keeps their three channels, as torchvision's ``rgb_to_grayscale``.

    Args:
        p: How often an image becomes gray, 0 to 1.

    Raises:
        TypeError: ``p`` is not a number.
        ValueError: It is not from 0 to 1. An image that has neither three channels nor one, which
            stays as it is, raises when it is collated.

    Example:
        >>> image = pinfeed.Image(
        ...     dtype=torch.uint8, augment=pinfeed.augment.RandomGrayscale(p=1)
        ... )
        >>> pinfeed.Collate(image)(
        ...     [np.array([[[100, 200, 40]]], np.uint8)]
        ... ).flatten().tolist()
        [151, 151, 151]
    """

    def __init__(self, p: float = 0.1) -> None:
        self.p = checked_number(p, "RandomGrayscale: p", 0, 1)
        self.native = _core.ColorStep(saturation=(0, 0), probability=self.p)
        self.is_random = 0 < self.p < 1


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
