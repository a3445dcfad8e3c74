"""Arguments that must be integers: of Python, NumPy or torch, but no bools."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np


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
        ValueError: It is less, or more.
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
