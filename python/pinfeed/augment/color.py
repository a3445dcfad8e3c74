"""Color transforms, applied before normalization."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pinfeed import _core
from pinfeed.arguments import checked_number, described, listed, with_hints
from pinfeed.augment.geometry import Transform


class Coloring(Transform):
    """Base class of color transforms."""

    native: _core.ColorStep
    #: Whether it draws random numbers.
    is_random: bool


class ColorJitter(Coloring):
    """Multiplies brightness, contrast and saturation of uint8 images by random factors, in random order.

    Values match torchvision's ``adjust_brightness``, ``adjust_contrast`` and ``adjust_saturation`` on
    uint8 tensors. torchvision's ``hue`` is not available.

    Args:
        brightness: Range of the factor as a pair (min, max), or a number b for the range
            (max(0, 1 - b), 1 + b).
        contrast: Range of the factor, as for ``brightness``. It scales the distance of values from a
            mean of the cropped image: the mean of its gray version if it has three channels, else the
            mean of all values. Contrast takes about twice the time of brightness.
        saturation: Range of the factor, as for ``brightness``. It scales the distance of a pixel's three
            channels from its gray value. Images with one channel stay unchanged.
        p: Probability of changing an image at all, 0 to 1, as in
            ``torchvision.transforms.RandomApply([ColorJitter(...)], p)``.

    Raises:
        ValueError: When samples are collated: if ``saturation`` is set and an image has neither one nor
            three channels.

    Example:
        >>> image = pinfeed.Image(
        ...     dtype=torch.uint8, augment=pinfeed.augment.ColorJitter((2, 2))
        ... )
        >>> pinfeed.Collate(image)([np.array([[[100], [200]]], np.uint8)]).tolist()
        [[[[200, 255]]]]
    """

    @with_hints("hue is not available: call torchvision's ColorJitter in the dataset")
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
        changing = [factor_range for factor_range in three if factor_range != (1, 1)]
        # Two or more are applied in random order.
        is_certain = len(changing) <= 1 and self.p == 1 and all(a == b for a, b in changing)
        self.is_random = self.p > 0 and bool(changing) and not is_certain

    def __repr__(self) -> str:
        names = ("brightness", "contrast", "saturation")
        return described(self, **{name: 0 for name in names if getattr(self, name) == (1, 1)})


class RandomGrayscale(Coloring):
    """Converts uint8 images to gray with probability ``p``, keeping three channels.

    Values match torchvision's ``rgb_to_grayscale``. Images with one channel stay unchanged.

    Args:
        p: Probability of converting an image, 0 to 1.

    Raises:
        ValueError: When samples are collated: if an image has neither one nor three channels.

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


def _factors(factor: float | Sequence[float], name: str) -> tuple[float, float]:
    """Returns the range of a factor that is given as a number or a pair."""
    numbers = [checked_number(number, name) for number in listed(factor)]
    if not isinstance(factor, Sequence) and numbers[0] >= 0:
        numbers = [max(0.0, 1 - numbers[0]), 1 + numbers[0]]
    if len(numbers) != 2 or not 0 <= numbers[0] <= numbers[1] < math.inf:
        raise ValueError(
            f"{name} must be a number or a pair (min, max), not negative, got {factor!r}"
        )
    return numbers[0], numbers[1]
