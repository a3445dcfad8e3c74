"""The constants of image normalization, computed once."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.arguments import ARRAYS, Problem, check_plain, checked_choice, host_array

PerChannel = float | Sequence[float] | npt.NDArray[Any] | Any  # Any: tensors, and 0-d anything

BYTE_SCALE = 1 / 255

# Number of images whose unit is checked, and the scales of other integers, which make bytes black.
_IMAGES_READ, _DARK = 8, (2**-17, 2**-12)

_INPUTS = ("HWC", "CHW", "HW", "THWC", "TCHW", "CTHW", "THW")
_OUTPUTS = ("CHW", "HWC", "HW", "CTHW", "TCHW", "THWC", "THW")


class Normalization:
    """``(x * scale - mean) / std`` as one fused multiply-add per value.

    ``fma(float(x), scale / std, -mean / std)``: both constants are computed in float64 and rounded
    to float32 once, in native code, because the default scale depends on the images' dtype:
    1 / maximum for integers, 1 for floats. ``mean`` defaults to 0 and ``std`` to 1.
    """

    def __init__(
        self, mean: PerChannel, std: PerChannel, scale: float | None, function: str
    ) -> None:
        means = _values(mean, 0.0, "mean", function)
        stds = _values(std, 1.0, "std", function)
        factor = _values(scale, 1.0, "scale", function)
        if factor.ndim != 0:
            raise ValueError(f"{function}: scale must be a single number, got {scale!r}")
        if factor == 0:
            raise ValueError(f"{function}: scale must not be 0, got {scale!r}")
        if not (stds > 0).all():
            raise ValueError(f"{function}: std must be positive, got {std!r}")
        is_fraction = scale is None or float(factor) == BYTE_SCALE
        if is_fraction and (abs(means).max() > 1.5 or abs(stds).max() > 1.5):
            raise ValueError(
                f"{function}: mean and std must be for values 0..1, got mean={mean!r} and std={std!r}; "
                "pass scale=1 for constants in units of the images' own values, such as bytes"
                + "; sizes go into augment=pinfeed.augment.Resize(size)"
                * (function == "Image" and std is None)
            )
        if means.ndim == stds.ndim == 1 and means.size != stds.size:
            raise ValueError(
                f"{function}: mean and std must have the same length, "
                f"got {means.size} and {stds.size}"
            )
        #: The numbers for torch operations: one for all channels or one for each.
        self.means: list[float] = means.reshape(-1).tolist()
        self.stds: list[float] = stds.reshape(-1).tolist()
        self.factor = BYTE_SCALE if scale is None else float(factor)
        self._is_for_bytes = abs(self.factor) < 0.01  # whether floats of 0..1 become black
        if self.factor == 1:
            self._is_for_bytes = float(abs(means).min()) > 2 or float(stds.min()) > 16
        # Statistics of images of 0..1, such as ImageNet's; floats of -1..1 have a mean near 0.
        self._is_of_fractions = scale in (None, 1) and bool((means > 0.2).all() and means.max() < 1)
        self._is_plain = scale is None and not means.any() and bool((stds == 1).all())
        #: Whether images can have another unit than these constants, which `warn_of_units` checks.
        self.is_doubtful = (
            self._is_of_fractions
            or self._is_plain
            or (scale is not None and (self._is_for_bytes or self._keeps_fractions()))
        )
        #: The number of channels that mean or std have a value for; None for single numbers.
        self.channels = next((values.size for values in (means, stds) if values.ndim), None)
        self._native = means, stds, None if scale is None else self.factor
        self._formats: dict[tuple[str, str, str, bool, bool], _core.ImageFormat] = {}
        with np.errstate(over="ignore"):  # an overflow raises below
            constants = [(factor / stds).astype(np.float32), (-means / stds).astype(np.float32)]
        if not all(np.isfinite(values).all() for values in constants):
            raise ValueError(
                f"{function}: scale / std and mean / std must fit in float32, "
                f"got scale {scale!r}, mean {mean!r}, std {std!r}"
            )

    def format(
        self,
        input: str,
        output: str,
        dtype: str,
        *,
        is_guess: bool = False,
        remembers: bool = False,
    ) -> _core.ImageFormat:
        """Returns the native options.

        Args:
            input: Letters of the axes of an image.
            output: Letters of the axes of the result.
            dtype: Name of the result's dtype.
            is_guess: Whether ``input`` is a default, so images that look like another layout raise.
            remembers: Whether dark 16-bit batches are accepted after a brighter one.
        """
        key = input, output, dtype, is_guess, remembers
        format = self._formats.get(key)
        if format is None:
            mean, std, scale = self._native
            format = self._formats[key] = _core.ImageFormat(
                mean=mean,
                std=std,
                scale=scale,
                input=input,
                is_guess=is_guess,
                remembers=remembers,
                output=output,
                dtype=dtype,
            )
        return format

    def of(self, value: PerChannel) -> list[tuple[float, float]]:
        """Returns a byte and its normalized value: one pair for all channels or one for each."""
        numbers = [np.atleast_1d(one) for one in (value, self.means, self.stds)]
        count = max(map(len, numbers))
        triples = zip(*(np.resize(one, count).tolist() for one in numbers), strict=True)
        return [(byte, (byte * self.factor - mean) / std) for byte, mean, std in triples]

    def check_units(self, name: str) -> None:
        """Raises ValueError if the scale keeps bytes, and mean and std are for values 0..1."""
        if self._keeps_fractions():
            raise ValueError(
                f"{name}: expected mean and std in units of the images' own values, which "
                f"scale={self.factor} keeps, got constants for values 0..1; leave scale out "
                "(do_rescale=False of a processor sets it)"
            )

    def _keeps_fractions(self) -> bool:
        """Whether the scale keeps bytes, and mean and std are for values 0..1."""
        numbers = np.array([*self.means, *self.stds])
        are_fractions = (abs(numbers) <= 1.5).all() and (numbers != np.rint(numbers)).any()
        return bool(are_fractions and abs(self.factor) > 16 * BYTE_SCALE)

    def warn_of_units(self, images: Any, name: str) -> None:
        """Warns about images that become black or far too bright, because the constants have another unit.

        It reads some pixels of the first images. A single image in the right unit is enough, because
        others can be dark.
        """
        if self._is_plain and len(images) and getattr(images[0], "dtype", None) == np.uint8:
            return  # bytes fit, and patchify asks in every call
        problem = ""
        for image in images[:_IMAGES_READ]:
            found, is_certain = self._problem_with(image)
            problem = problem if found is None else found
            if is_certain or found == "":
                break
        if problem:
            warnings.warn(f"{name}: {problem}", stacklevel=3)
        elif len(images):
            self.is_doubtful = False  # later calls needn't check; it takes 50 µs

    def _problem_with(self, image: Any) -> tuple[str | None, bool]:
        """Returns what is wrong with the unit of an image, and whether darkness can't explain it.

        The problem is empty if the unit fits, and None if this image is too dark to tell.
        """
        scale, of = abs(self.factor), f"scale={self.factor:.3g}"
        kind = str(getattr(image, "dtype", "uint8")).removeprefix("torch.")  # PIL images have none
        is_float, is_dark = "float" in kind, _DARK[0] < scale < _DARK[1]
        is_of_bytes = abs(scale / BYTE_SCALE - 1) < 0.001
        if not is_float and not {"uint8": is_dark, "uint16": is_of_bytes, "int16": is_of_bytes}.get(
            kind
        ):
            return "", False
        pixels = host_array(image) if isinstance(image, ARRAYS) else None
        low, high = 0, 255  # if they can't be read
        if pixels is not None:
            pixels = pixels[tuple(slice(None, None, max(n // 32, 1)) for n in pixels.shape)]
            pixels = pixels[np.isfinite(pixels)]
            low, high = (pixels.min(), pixels.max()) if pixels.size else (0, 0)
        if kind == "uint8":
            wrong = f"{of} makes bytes black; leave it out"
            return (wrong if is_dark and high > 16 else "", False)
        if pixels is None:
            return "", False
        if is_float and self._is_of_fractions and -1 <= low < -0.5 and 0.5 < high <= 1:
            is_other = pixels.mean() < min(self.means) - max(self.stds)
            wrong = "values of -1..1, but mean and std are for values of 0..1; pass 2 * mean - 1 and 2 * std"
            return (wrong if is_other else "", False)
        if self._is_plain and not is_float and 0 <= low <= high <= 255:
            # Native code checks the constants of 16 bits, if there are any.
            is_image = low <= 5 and high >= 250 and len(np.unique(pixels)) > 16
            wrong = (
                f"{kind} becomes 0..1 by its maximum, got values of 0..255; pass scale=1/255, or "
                f"scale=1/{np.iinfo(kind).max} if the images are that dark"
            )
            return (wrong if is_image else None, False)
        if self._native[2] is None:
            return "", False
        if high > 16 * 255 and is_of_bytes:
            fix = "pass scale=1/65535" if is_float else "leave it out"
            return f"{of} is for values of 0..255, got values up to {high:g}; {fix}", True
        if not is_float or low < 0:
            return "", False
        if high > 100 and self._keeps_fractions():
            of_values = 255 if high <= 255 else 65535
            wrong = f"mean and std are for values of 0..1, got values up to {high:g} with {of}"
            return f"{wrong}; pass scale=1/{of_values}", True
        if is_dark and 16 < high <= 255:
            return f"{of} makes values up to {high:g} black; pass scale=1/255", False
        if not (0.25 < high <= 1 and self._is_for_bytes and len(np.unique(pixels)) > 16):
            return "", False
        wrong = f"{of} is for values of 0..255, got floats of 0..1; leave it out"
        if self.factor == 1:
            wrong = (
                "mean and std are for values of 0..255, got floats of 0..1; leave scale out, and divide "
                "mean and std by 255"
            )
        return wrong, False


def checked_layouts(input: Any, output: Any, function: str, batch: str = "") -> tuple[str, str]:
    """Returns both layouts, checked, beginning with ``batch``, which is ``"N"`` or empty.

    Users can write ``"NHWC"`` or ``"HWC"`` in both cases.
    """
    if isinstance(input, str) and isinstance(output, str):
        input, output = batch + input.removeprefix("N"), batch + output.removeprefix("N")
    checked_choice(input, [batch + letters for letters in _INPUTS], f"{function}: input")
    fitting = [
        batch + letters
        for letters in _OUTPUTS
        if ("T" in letters) == ("T" in input) and ("C" in letters or "C" not in input)
    ]
    if output not in fitting:
        raise ValueError(
            f"{function}: output must be one of {fitting} with input={input!r}, got {output!r}"
        )
    return input, output


def require_channels_last(shape: Sequence[int], name: str, batch: str = "") -> None:
    """Raises ValueError if images without an explicit layout look like (N, C, H, W)."""
    if len(shape) == 4 and shape[3] > 4 and shape[3] >= min(shape[1:3]):
        got = f"{tuple(shape)}, which looks like (N, C, H, W)"
        hint = f'pass input="{batch}CHW", or input="{batch}HWC" if there are {shape[3]} channels'
        raise ValueError(Problem(name, "images of shape (N, H, W, C)", got, hint))


def normalization(
    mean: PerChannel, std: PerChannel, scale: float | None, function: str
) -> Normalization:
    """Returns a `Normalization`, cached if all arguments are plain numbers."""
    key: Any = (
        tuple(mean) if type(mean) is list else mean,
        tuple(std) if type(std) is list else std,
        scale,
    )
    try:
        cached = _cache.get(key)
    except TypeError:  # arrays have no hash
        cached = None
    if cached is not None:
        return cached
    arguments: tuple[Any, Any, Any] = (mean, std, scale)
    numbers = [n for v in arguments for n in (v if isinstance(v, tuple | list) else (v,))]
    if not {*map(type, numbers)} <= _PLAIN:  # arrays may change
        return Normalization(*arguments, function)
    # 0.0 equals -0.0, which normalizes to other bits; bools equal 0 and 1, and are not numbers.
    if 0 in numbers or 1 in numbers:
        key = repr(arguments)
        cached = _cache.get(key)
    if cached is None:
        if len(_cache) >= _MAX_CACHED:
            _cache.clear()
        cached = _cache[key] = Normalization(*arguments, function)
    return cached


_cache: dict[Any, Normalization] = {}
_MAX_CACHED = 64
_PLAIN = {int, float, type(None)}


def _values(values: PerChannel, default: float, name: str, function: str) -> npt.NDArray[Any]:
    if values is None:
        return np.asarray(default)
    if isinstance(values, float) and math.isfinite(values):  # the common case, fast
        return np.asarray(values, np.float64)
    check_plain(values, f"{function}: {name}")
    if isinstance(values, torch.Tensor):
        values = values.detach().to("cpu", torch.float64).numpy()
    elif isinstance(values, tuple | list):
        values = [v.item() if isinstance(v, torch.Tensor) and v.ndim == 0 else v for v in values]
    try:
        array = np.asarray(values)
    except ValueError:  # ragged
        array = np.empty(0, object)
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise TypeError(
            f"{function}: {name} must be a number or a sequence of numbers, got {values!r}"
        )
    if array.ndim > 1 or array.size == 0:
        raise ValueError(
            f"{function}: {name} must be a number or one number per channel, "
            f"got shape {array.shape}{f'; pass {name}.reshape(-1)' * (array.size > 0)}"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"{function}: {name} must be finite, got {values!r}")
    return array.astype(np.float64)
