"""What pinfeed's functions mean, in exact arithmetic and plain NumPy. Imports nothing of pinfeed.

bfloat16, which NumPy lacks, appears as its bits in uint16.
"""

import functools
import math
from fractions import Fraction

import numpy as np


def images(batch, mean=None, std=None, scale=1 / 255, dtype="float32", input="NHWC", output="NCHW"):
    """The batch that `pinfeed.normalize` and `pinfeed.Image` make of uint8 images.

    A byte has 256 values, so each channel is a table: exact arithmetic is affordable.
    """
    if input == "NHW":
        batch, input = batch[..., np.newaxis], "NHWC"
    pixels = permute(batch, input, "NHWC")
    if dtype != "uint8":
        scales, biases = constants(mean, std, scale, pixels.shape[-1])
        tables = [fused_multiply_add(*pair) for pair in zip(scales, biases, strict=True)]
        planes = [table[pixels[..., c]] for c, table in enumerate(tables)]
        values = np.stack(planes, axis=-1) if planes else pixels.astype(np.float32)
        pixels = rounded(values, dtype)
    return permute(pixels, "NHWC", output)


def constants(mean, std, scale, channels):
    """``scale / std`` and ``-mean / std`` of each channel: float64, then rounded to float32."""
    mean = np.float64(0.0 if mean is None else mean)
    std = np.float64(1.0 if std is None else std)
    per_channel = [
        np.broadcast_to(values.astype(np.float32), (channels,)).tolist()
        for values in (np.asarray(scale / std), np.asarray(-mean / std))
    ]
    return tuple(per_channel)


@functools.cache
def fused_multiply_add(scale, bias):
    """``byte * scale + bias``, rounded once to float32, for all 256 bytes."""
    return np.array(
        [
            _to_float32(byte * Fraction(scale) + Fraction(bias), sign_of_zero=byte * scale + bias)
            for byte in range(256)
        ],
        np.float32,
    )


def _to_float32(exact, sign_of_zero):
    if exact == 0:
        return sign_of_zero  # a Fraction has no -0
    exponent = max(math.frexp(exact)[1], -125)  # subnormal numbers share one
    unit = Fraction(2) ** (exponent - 24)
    rounded_value = round(exact / unit) * unit  # Fractions round ties to even
    if abs(rounded_value) >= 2**128:
        return math.copysign(math.inf, exact)
    return float(rounded_value)


def rounded(values, dtype):
    """float32 values in another dtype, to nearest, ties to even."""
    if dtype == "bfloat16":
        bits = values.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    with np.errstate(over="ignore", under="ignore"):
        return values.astype(dtype)


def permute(array, input, output):
    """The array with its axes, named by letters, in another order."""
    return np.transpose(array, [input.index(letter) for letter in output])


def gather(array, indices):
    """The rows of those numbers; negative ones count from the end."""
    return array[np.array(list(indices), dtype=object).astype(np.int64)]
