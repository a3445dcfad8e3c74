"""Leaves that become a RaggedArray: jagged batches, and padded ones without their padding."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from pinfeed import _core
from pinfeed.exports.to_numpy.column import Column, Options, Parts, numpy_dtype, plain
from pinfeed.exports.to_numpy.storage import Array, Storage
from pinfeed.functions.jagged import JaggedBatch
from pinfeed.functions.padded import Padded
from pinfeed.functions.padding import Side, checked_lengths
from pinfeed.runtime import get_num_threads
from pinfeed.sources.ragged import OFFSETS, VALUES, RaggedArray


class _RaggedColumn(Column):
    """A column of samples that differ in length, whose first part is values."""

    #: How many axes of the values come before those of an item.
    _leading: int

    def __init__(self, leaf: Any, options: Options, steps: Sequence[str]) -> None:
        super().__init__(options, steps)
        self._name = self._file_name()
        if not options.holds_ragged:
            raise ValueError(
                f"{self.where}: a .npy file can't hold samples of different lengths; "
                "give the path of a directory"
            )
        values = self.parts(leaf)[0]
        self._dtype = numpy_dtype(values, self.where)
        require_ragged_dtype(self._dtype, self.where)
        self._item = tuple(values.shape[self._leading :])
        self._values = self._storage(self._dtype, 1 + len(self._item))
        self._offsets = self._storage(np.dtype(np.int64), 1)
        self._end = 0  # of the values that were written

    @abstractmethod
    def _lengths(self, parts: Parts) -> npt.NDArray[np.int64]:
        """The length of each sample, checked."""

    @abstractmethod
    def _data(self, parts: Parts, lengths: npt.NDArray[np.int64]) -> Array:
        """The values of the first samples, as many as there are lengths."""

    @override
    def check(self, parts: Parts, end: int) -> None:
        shape = tuple(parts[0].shape)
        numpy_dtype(parts[0], self.where, self._dtype)
        if len(shape) < self._leading or shape[self._leading :] != self._item:
            expected = ", ".join(map(str, ("*",) * self._leading + self._item))
            raise ValueError(
                f"{self.where}: expected values of shape ({expected}) as before, got {shape}"
            )

    @override
    def write(self, start: int, count: int, parts: Parts) -> None:
        lengths = self._lengths(parts)[:count]
        self._values.write(
            self._end * math.prod(self._item), self._data(parts, lengths), self.where
        )
        ends = np.cumsum(np.concatenate([[self._end], lengths]), dtype=np.int64)
        self._offsets.write(start, ends, self.where)
        self._end = int(ends[-1])

    @override
    def finish(self, samples: int) -> None:
        shape = (self._end, *self._item)
        finish_ragged(self._values, self._offsets, samples, shape, self._name)

    @override
    def result(self) -> RaggedArray:
        return RaggedArray(self._values.result(), self._offsets.result())

    @override
    def partial(self, samples: int) -> RaggedArray:
        offsets = self._offsets.array((samples + 1,))
        return RaggedArray(self._values.array((int(offsets[-1]), *self._item)), offsets)


class JaggedColumn(_RaggedColumn):
    """`JaggedBatch` and `RaggedArray`: values and offsets."""

    _leading = 1

    @override
    def parts(self, leaf: Any) -> tuple[Array, Array]:
        if not isinstance(leaf, JaggedBatch | RaggedArray):
            raise TypeError(f"{self.where}: expected a JaggedBatch, got {type(leaf).__name__}")
        values = plain(leaf.values, self._options.bfloat16, f"{self.where}: values")
        offsets = plain(leaf.offsets, self._options.bfloat16, f"{self.where}: offsets")
        if values.ndim == 0 or offsets.ndim != 1 or len(offsets) == 0:
            raise ValueError(
                f"{self.where}: expected values of shape (total, ...) and offsets of shape "
                f"(B + 1,), got {tuple(values.shape)} and {tuple(offsets.shape)}"
            )
        if numpy_dtype(offsets, self.where).kind != "i":
            raise TypeError(f"{self.where}: offsets must be signed integers, got {offsets.dtype}")
        return values, offsets

    @override
    def count(self, parts: Parts) -> int:
        return len(parts[1]) - 1

    @override
    def _lengths(self, parts: Parts) -> npt.NDArray[np.int64]:
        values, offsets = parts[0], np.asarray(parts[1])
        lengths = np.subtract(offsets[1:], offsets[:-1], dtype=np.int64)
        if int(offsets[0]) < 0 or int(offsets[-1]) > len(values) or (lengths < 0).any():
            raise ValueError(
                f"{self.where}: offsets must not decrease, from 0 to at most {len(values)}, "
                f"the number of values"
            )
        return lengths

    @override
    def _data(self, parts: Parts, lengths: npt.NDArray[np.int64]) -> Array:
        first = int(parts[1][0])
        data: Array = parts[0][first : first + int(lengths.sum())]
        return data


class PaddedColumn(_RaggedColumn):
    """`Padded` with a length for each sample, of which the data is kept."""

    _leading = 2

    def __init__(self, leaf: Any, options: Options, steps: Sequence[str]) -> None:
        super().__init__(leaf, options, steps)
        self._side: Side | None = options.side
        if options.side is None and isinstance(leaf, Padded) and leaf.side == "left":
            self._side = "left"

    @override
    def parts(self, leaf: Any) -> tuple[Array, ...]:
        if not has_lengths(leaf):
            raise TypeError(
                f"{self.where}: expected a Padded with lengths, got {type(leaf).__name__}"
            )
        parts = tuple(plain(part, self._options.bfloat16, self.where) for part in leaf)
        shape, counts = tuple(parts[0].shape), tuple(parts[1].shape)
        if len(shape) < 2 or counts != shape[:1]:
            raise ValueError(
                f"{self.where}: expected values of shape (B, L, ...) and lengths of shape (B,), "
                f"got {shape} and {counts}; of time_major batches pass values.swapaxes(0, 1)"
            )
        if len(parts) == 3 and tuple(parts[2].shape) != shape[:2]:
            raise ValueError(
                f"{self.where}: expected a mask of shape {shape[:2]}, got {tuple(parts[2].shape)}"
            )
        return parts

    @override
    def _lengths(self, parts: Parts) -> npt.NDArray[np.int64]:
        shape = tuple(parts[0].shape)
        lengths = np.array(checked_lengths(parts[1], shape[:2], self.where), np.int64)
        if self._side is None:
            mask = np.asarray(parts[2]) if len(parts) == 3 else None
            self._side = _side(parts[0], lengths, mask, self.where)
        return lengths

    @override
    def _data(self, parts: Parts, lengths: npt.NDArray[np.int64]) -> Array:
        data, _ = _core.join(
            parts[0][: len(lengths)],
            None,
            None,
            np.empty,
            self.where,
            get_num_threads(),
            side=self._side or "right",
            dtype=self._dtype.name,
            lengths=lengths,
        )
        return data


def require_ragged_dtype(dtype: np.dtype[Any], where: str) -> None:
    """Raises TypeError if a `RaggedArray` can't have the dtype."""
    if dtype.kind not in "biufc" or not dtype.isnative:
        raise TypeError(
            f"{where}: samples of different lengths must be numbers or bools in the machine's "
            f"byte order, got {dtype}"
        )


def finish_ragged(
    values: Storage, offsets: Storage, samples: int, shape: tuple[int, ...], name: str
) -> None:
    """Finishes both storages of a `RaggedArray`; in files, as `RaggedArray.open` reads them."""
    values.finish(shape, os.path.join(name, VALUES))
    offsets.finish((samples + 1,), os.path.join(name, OFFSETS))


def has_lengths(leaf: Any) -> bool:
    """Whether a leaf is a `Padded` that says how much of each sample is data, along one axis."""
    return isinstance(leaf, Padded) and getattr(getattr(leaf, "lengths", None), "ndim", 0) == 1


def _side(
    values: Any, lengths: npt.NDArray[np.int64], mask: npt.NDArray[Any] | None, where: str
) -> Side | None:
    """Where the padding of a batch is, None if it doesn't tell.

    A `Padded` that was made by hand doesn't say. A mask does; without one, padding is where one value stands everywhere.
    """
    right = np.arange(values.shape[1]) < lengths[:, np.newaxis]
    left = right[:, ::-1]
    if right.all():
        return None
    if mask is not None:
        if np.array_equal(mask, right):
            return "right"
        if np.array_equal(mask, left):
            return "left"
        raise ValueError(f"{where}: lengths and mask don't agree; side= says where padding is")
    if not _is_one_value(values, ~right):
        raise ValueError(
            f"{where}: what follows the data isn't one value, so padding may be on the left; "
            "give side='right' or side='left'"
        )
    return None if _is_one_value(values, ~left) else "right"


def _is_one_value(values: Any, mask: npt.NDArray[np.bool_]) -> bool:
    """Whether all items that the mask selects are the same."""
    if isinstance(values, torch.Tensor):
        chosen = values[torch.from_numpy(mask.copy())]
        items = (chosen.float() if chosen.dtype == torch.bfloat16 else chosen).numpy()
    else:
        items = values[mask]
    same = np.broadcast_to(items[0], items.shape)
    return np.array_equal(items, same, equal_nan=items.dtype.kind in "fc")
