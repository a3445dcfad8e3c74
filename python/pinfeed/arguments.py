"""Checks of arguments: integers of Python, NumPy or torch (but no bools), and dtypes by name."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch


def as_integer(value: Any) -> int | None:
    """The value as an int, None if it is no integer."""
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def checked_integer(value: Any, name: str, least: int, most: int | None = None) -> int:
    """The value as an int of at least ``least``, and at most ``most`` if that is given.

    Raises:
        TypeError: It is no integer.
        ValueError: It is less, or more, or NaN.
    """
    number = as_integer(value)
    if number is None:
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most}, got {number}")
    return number


def positive_integer(value: Any, name: str) -> int | None:
    """The value as an int, None for None.

    Raises:
        TypeError: It is no integer.
        ValueError: It is not positive, or beyond 64 bits.
    """
    if value is None:
        return None
    number = as_integer(value)
    if number is None:
        raise TypeError(f"{name} must be an integer or None, got {value!r}")
    if number <= 0:
        raise ValueError(f"{name} must be positive, got {value!r}")
    if number >= 2**63:
        raise ValueError(f"{name} must be less than 2**63, got {value!r}")
    return number


def checked_number(
    value: Any, name: str, least: float = -math.inf, most: float = math.inf
) -> float:
    """The value as a float from ``least`` to ``most``.

    Raises:
        TypeError: It is no number.
        ValueError: It is less, or more.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not least <= value <= most:
        is_bounded = math.isfinite(least) or math.isfinite(most)
        expected = f"from {least} to {most}" if is_bounded else "a number"
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    return float(value)


def checked_range(given: Any, name: str, most: float = math.inf) -> tuple[float, float]:
    """The pair (from, to) of positive numbers; of numbers from 0 to ``most``, if that is given.

    Raises:
        TypeError: It is no pair of numbers.
        ValueError: A number is out of range, or the larger comes first.
    """
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise TypeError(f"{name} must be a pair (from, to) of numbers, got {given!r}")
    low, high = (checked_number(number, name) for number in given)
    if most == math.inf:
        fits, expected = 0 < low <= high < most, "positive numbers"
    else:
        fits, expected = 0 <= low <= high <= most, f"numbers from 0 to {most:g}"
    if not fits:
        raise ValueError(
            f"{name} must be a pair (from, to) of {expected}, the smaller first, got {given!r}"
        )
    return low, high


def checked_size(size: Any, function: str) -> tuple[int, int]:
    """The height and width of a batch of images.

    Raises:
        TypeError: One is no integer.
        ValueError: It is no pair, or one is not positive.
    """
    if not isinstance(size, Sequence) or len(size) != 2:
        raise ValueError(f"{function}: size must be the batch's height and width, got {size!r}")
    height, width = (checked_integer(number, f"{function}: size", 1, 2**31) for number in size)
    return height, width


def require_instance(value: Any, kind: type, expected: str) -> None:
    """Raises TypeError unless the value is of this class; the text says what must be of which kind."""
    if not isinstance(value, kind):
        given = f"{type(value).__module__}.{type(value).__qualname__}"
        raise TypeError(f"{expected}, got one of {given}")


def dtype_name(dtype: Any, function: str) -> str:
    """``"float32"`` for ``torch.float32``, ``np.float32``, ``np.dtype("f4")`` or ``"float32"``.

    Args:
        dtype: What names a dtype to NumPy or torch.
        function: Who asks, for messages.

    Raises:
        TypeError: ``dtype`` names no dtype.
    """
    if isinstance(dtype, torch.dtype):
        return torch_dtype_name(dtype)
    if dtype == "bfloat16":  # the one that NumPy doesn't know
        return "bfloat16"
    try:
        return np.dtype(dtype).name
    except TypeError as error:
        raise TypeError(
            f"{function}: dtype must be a torch or NumPy dtype, got {dtype!r}"
        ) from error


@functools.cache
def torch_dtype_name(dtype: torch.dtype) -> str:
    """``"float32"`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")
