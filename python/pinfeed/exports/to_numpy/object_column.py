"""Leaves that are no arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from pinfeed.exports.to_numpy.column import Column, Wishes


class ObjectColumn(Column):
    """Lists with an object for each sample, and arrays of strings or objects; becomes a list.

    Args:
        wishes: What was asked for.
        where: What messages call the leaf.
    """

    def __init__(self, wishes: Wishes, where: str) -> None:
        if not wishes.output.holds_lists:
            raise TypeError(
                f"{where}: a .npy file can't hold lists of objects; leave the leaf out, "
                "or make numbers of it"
            )
        self._objects: list[Any] = []

    def parts(self, leaf: Any, where: str) -> tuple[list[Any]]:
        """See `Column.parts`."""
        if is_object_array(leaf):
            leaf = leaf.tolist()
        if not isinstance(leaf, list | tuple):
            raise TypeError(
                f"{where}: expected a list of objects as before, got {type(leaf).__name__}"
            )
        return (list(leaf),)

    def count(self, parts: tuple[Any, ...]) -> int:
        """See `Column.count`."""
        return len(parts[0])

    def check(self, parts: tuple[Any, ...], end: int, where: str) -> None:
        """See `Column.check`: any objects may follow any others."""

    def allocate(self, samples: int, where: str) -> None:
        """See `Column.allocate`."""

    def write(self, start: int, count: int, parts: tuple[Any, ...], where: str) -> None:
        """See `Column.write`."""
        self._objects += parts[0][:count]

    def finish(self, samples: int) -> None:
        """See `Column.finish`."""

    def result(self) -> list[Any]:
        """See `Column.result`."""
        return self._objects

    def partial(self, samples: int) -> list[Any]:
        """See `Column.partial`."""
        return self._objects[:samples]


def is_object_array(leaf: Any) -> bool:
    """Whether a leaf is an array of Python objects, or of strings, whose dtype is their longest."""
    return isinstance(leaf, np.ndarray) and leaf.ndim > 0 and leaf.dtype.kind in "OUST"
