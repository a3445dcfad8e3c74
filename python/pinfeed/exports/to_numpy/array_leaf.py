"""Leaves that are arrays, wherever they are written to."""

from __future__ import annotations

from typing import Any

from pinfeed.exports.to_numpy.arrays import Array, numpy_dtype, plain
from pinfeed.exports.to_numpy.column import Column, Wishes
from pinfeed.exports.to_numpy.spread import Shape


class ArrayLeaf(Column):
    """A column of arrays whose first axis counts samples.

    Args:
        leaf: Of the first batch.
        wishes: What was asked for.
        where: What messages call the leaf.

    Attributes:
        dtype: Of the column.
        shape: Of a sample of the first batch that has one.
    """

    def __init__(self, leaf: Any, wishes: Wishes, where: str) -> None:
        self._wishes = wishes
        (first,) = self.parts(leaf, where)
        self.dtype = numpy_dtype(first, where)
        self.shape: Shape = tuple(first.shape[1:])

    def parts(self, leaf: Any, where: str) -> tuple[Array]:
        """See `Column.parts`."""
        array = plain(leaf, self._wishes.bfloat16, where)
        if array.ndim == 0:
            raise ValueError(
                f"{where}: expected an axis that counts samples, got a 0-d array; "
                "leave it out, or repeat it for each sample: x.expand(B)"
            )
        return (array,)

    def count(self, parts: tuple[Any, ...]) -> int:
        """See `Column.count`."""
        return len(parts[0])

    def check(self, parts: tuple[Any, ...], end: int, where: str) -> None:
        """See `Column.check`."""
        (array,) = parts
        dtype = numpy_dtype(array, where)
        if dtype != self.dtype:
            raise TypeError(f"{where}: expected {self.dtype} as before, got {dtype}")
        if array.ndim != 1 + len(self.shape):
            raise ValueError(
                f"{where}: expected {1 + len(self.shape)} axes as before, "
                f"got shape {tuple(array.shape)}"
            )
