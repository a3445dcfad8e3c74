"""Leaves that become a RaggedArray."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed.exports.to_numpy.arrays import Array, numpy_dtype, plain, write
from pinfeed.exports.to_numpy.column import Column, Wishes
from pinfeed.exports.to_numpy.storage import Storage
from pinfeed.functions.jagged import JaggedBatch
from pinfeed.sources.ragged import OFFSETS, VALUES, RaggedArray


class RaggedLeaf(Column):
    """A column of samples that differ in length, whose first part is values.

    Args:
        leaf: Of the first batch.
        wishes: What was asked for.
        name: Of the directory.
        where: What messages call the leaf.
    """

    #: How many axes of the values come before those of an item.
    _leading: int

    def __init__(self, leaf: Any, wishes: Wishes, name: str, where: str) -> None:
        self._wishes = wishes
        self._name = name
        if not wishes.output.holds_ragged:
            raise ValueError(
                f"{where}: a .npy file can't hold samples of different lengths; "
                "give out= the path of a directory"
            )
        values = self.parts(leaf, where)[0]
        self._dtype = numpy_dtype(values, where)
        require_ragged_dtype(self._dtype, where)
        self._axes = values.ndim
        self._item = tuple(values.shape[self._leading :])
        self._values = wishes.output.storage(self._dtype)
        self._offsets = wishes.output.storage(np.dtype(np.int64))
        self._offsets.resize(1)
        self._offsets.view(0, 1)[:] = 0

    @abstractmethod
    def _lengths(self, parts: tuple[Any, ...], where: str) -> npt.NDArray[np.int64]:
        """The length of each sample, checked."""

    @abstractmethod
    def _copy(
        self,
        target: npt.NDArray[Any],
        parts: tuple[Any, ...],
        lengths: npt.NDArray[np.int64],
        where: str,
    ) -> None:
        """Copies the first samples, as many as there are lengths."""

    def check(self, parts: tuple[Any, ...], end: int, where: str) -> None:
        """See `Column.check`."""
        values = parts[0]
        dtype = numpy_dtype(values, where)
        if dtype != self._dtype:
            raise TypeError(f"{where}: expected {self._dtype} as before, got {dtype}")
        if values.ndim != self._axes or tuple(values.shape[self._leading :]) != self._item:
            expected = ", ".join(map(str, ("*",) * self._leading + self._item))
            raise ValueError(
                f"{where}: expected values of shape ({expected}) as before, "
                f"got {tuple(values.shape)}"
            )

    def allocate(self, samples: int, where: str) -> None:
        """See `Column.allocate`; values get room as they come."""
        self._offsets.resize(samples + 1)

    def write(self, start: int, count: int, parts: tuple[Any, ...], where: str) -> None:
        """See `Column.write`."""
        lengths = self._lengths(parts, where)[:count]
        first = int(self._offsets.view(start, start + 1)[0])
        last = first + int(lengths.sum())
        size = math.prod(self._item)
        self._values.reserve(last * size)
        target = self._values.view(first * size, last * size).reshape(last - first, *self._item)
        self._copy(target, parts, lengths, where)
        self._offsets.reserve(start + count + 1)
        ends = self._offsets.view(start + 1, start + count + 1)
        np.cumsum(lengths, out=ends)
        ends += first

    def finish(self, samples: int) -> None:
        """See `Column.finish`."""
        finish_ragged(self._values, self._offsets, samples, self._item, self._name)

    def result(self) -> RaggedArray:
        """See `Column.result`."""
        return RaggedArray(self._values.result(), self._offsets.result())

    def partial(self, samples: int) -> RaggedArray:
        """See `Column.partial`."""
        offsets = self._offsets.array((samples + 1,))
        return RaggedArray(self._values.array((int(offsets[-1]), *self._item)), offsets)


class JaggedColumn(RaggedLeaf):
    """`JaggedBatch` and `RaggedArray`: values and offsets."""

    _leading = 1

    def parts(self, leaf: Any, where: str) -> tuple[Array, Array]:
        """See `Column.parts`."""
        if not isinstance(leaf, JaggedBatch | RaggedArray):
            raise TypeError(f"{where}: expected a JaggedBatch, got {type(leaf).__name__}")
        values = plain(leaf.values, self._wishes.bfloat16, f"{where}: values")
        offsets = plain(leaf.offsets, self._wishes.bfloat16, f"{where}: offsets")
        if values.ndim == 0 or offsets.ndim != 1 or len(offsets) == 0:
            raise ValueError(
                f"{where}: expected values of shape (total, ...) and offsets of shape (B + 1,), "
                f"got {tuple(values.shape)} and {tuple(offsets.shape)}"
            )
        if numpy_dtype(offsets, where).kind != "i":
            raise TypeError(f"{where}: offsets must be signed integers, got {offsets.dtype}")
        return values, offsets

    def count(self, parts: tuple[Any, ...]) -> int:
        """See `Column.count`."""
        return len(parts[1]) - 1

    def _lengths(self, parts: tuple[Any, ...], where: str) -> npt.NDArray[np.int64]:
        values, offsets = parts[0], np.asarray(parts[1])
        lengths = np.subtract(offsets[1:], offsets[:-1], dtype=np.int64)
        if int(offsets[0]) < 0 or int(offsets[-1]) > len(values) or (lengths < 0).any():
            raise ValueError(
                f"{where}: offsets must not decrease, from 0 to at most {len(values)}, "
                f"the number of values"
            )
        return lengths

    def _copy(
        self,
        target: npt.NDArray[Any],
        parts: tuple[Any, ...],
        lengths: npt.NDArray[np.int64],
        where: str,
    ) -> None:
        first = int(parts[1][0])
        write(target, parts[0][first : first + len(target)], where)


def require_ragged_dtype(dtype: np.dtype[Any], where: str) -> None:
    """Raises TypeError if a `RaggedArray` can't have the dtype."""
    if dtype.kind not in "biufc" or not dtype.isnative:
        raise TypeError(
            f"{where}: samples of different lengths must be numbers or bools in the machine's "
            f"byte order, got {dtype}"
        )


def finish_ragged(
    values: Storage, offsets: Storage, samples: int, item: tuple[int, ...], name: str
) -> None:
    """Finishes both storages of a `RaggedArray`; in files, as `RaggedArray.open` reads them."""
    total = int(offsets.view(samples, samples + 1)[0])
    values.finish((total, *item), os.path.join(name, VALUES))
    offsets.finish((samples + 1,), os.path.join(name, OFFSETS))
