"""Leaves that become new arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed import _core
from pinfeed.exports.to_numpy.array_leaf import ArrayLeaf
from pinfeed.exports.to_numpy.arrays import write
from pinfeed.exports.to_numpy.column import Wishes
from pinfeed.exports.to_numpy.ragged_columns import finish_ragged, require_ragged_dtype
from pinfeed.exports.to_numpy.spread import Run, Shape, spread
from pinfeed.exports.to_numpy.storage import Storage
from pinfeed.sources.ragged import RaggedArray


class ArrayColumn(ArrayLeaf):
    """Arrays that are written one after the other, whatever their shapes; `finish` makes one.

    Args:
        leaf: Of the first batch.
        wishes: What was asked for.
        pad: What samples that are smaller than others are filled up with; None: they stay.
        name: Of the files.
        where: What messages call the leaf.
    """

    def __init__(self, leaf: Any, wishes: Wishes, pad: Any, name: str, where: str) -> None:
        super().__init__(leaf, wishes, where)
        self._pad = pad
        self._name = name
        self._values = wishes.output.storage(self.dtype)
        self._offsets: Storage | None = None
        self._runs: list[Run] = []  # that were written
        self._end = 0  # of their items
        self._is_empty = True  # no batch so far had a sample

    def check(self, parts: tuple[Any, ...], end: int, where: str) -> None:
        """See `Column.check`."""
        super().check(parts, end, where)
        shape: Shape = tuple(parts[0].shape[1:])
        if len(parts[0]) == 0:
            return
        if self._is_empty:
            self._is_empty = False
            self.shape = shape
        if shape == self.shape:
            return
        if self._pad is not None:
            _core.check_value(self._pad, self.dtype.name, where, "pad")
            return
        expected = ", ".join(map(str, ("*", *self.shape)))
        differs = f"{where}: expected shape ({expected}), got {tuple(parts[0].shape)}"
        if shape[1:] != self.shape[1:]:
            raise ValueError(f"{differs}; pad=a number makes samples of any sizes one array")
        if not self._wishes.output.holds_ragged:
            raise ValueError(f"{differs}; give pad=a number, or for out the path of a directory")
        require_ragged_dtype(self.dtype, where)

    def size(self, samples: int) -> int:
        """See `Column.size`."""
        return samples * math.prod(self.shape) * self.dtype.itemsize

    def allocate(self, samples: int, where: str) -> None:
        """See `Column.allocate`."""
        self._values.resize(samples * math.prod(self.shape))

    def write(self, start: int, count: int, parts: tuple[Any, ...], where: str) -> None:
        """See `Column.write`."""
        if count == 0:
            return
        array = parts[0][:count]
        end = self._end + math.prod(array.shape)
        self._values.reserve(end)
        write(self._values.view(self._end, end).reshape(tuple(array.shape)), array, where)
        self._end = end
        shape: Shape = tuple(array.shape[1:])
        if self._runs and self._runs[-1][1] == shape:
            self._runs[-1] = (self._runs[-1][0] + count, shape)
        else:
            self._runs.append((count, shape))

    def finish(self, samples: int) -> None:
        """See `Column.finish`."""
        shapes = {shape for _, shape in self._runs}
        if len(shapes) > 1 and self._pad is None:
            ends = _offsets(self._runs)
            self._offsets = self._wishes.output.storage(ends.dtype)
            self._offsets.resize(len(ends))
            self._offsets.view(0, len(ends))[:] = ends
            finish_ragged(self._values, self._offsets, samples, self.shape[1:], self._name)
            return
        target = self.shape
        if len(shapes) > 1:
            target = tuple(map(max, zip(*shapes, strict=True)))
            items = samples * math.prod(target)
            self._values.reserve(items)
            runs, self._runs = self._runs, []  # nothing is where it was, until all is moved
            side = self._wishes.padding_side
            spread(self._values.view(0, items), runs, target, self._pad, side)
            self._runs = [(samples, target)]
        self._values.finish((samples, *target), f"{self._name or 'values'}.npy")

    def result(self) -> Any:
        """See `Column.result`."""
        values = self._values.result()
        return values if self._offsets is None else RaggedArray(values, self._offsets.result())

    def partial(self, samples: int) -> Any:
        """See `Column.partial`: samples of different shapes as they came, not padded."""
        runs = _first(self._runs, samples)
        if sum(rows for rows, _ in runs) < samples:
            raise RuntimeError("to_numpy: stopped while samples were moved")
        shapes = {shape for _, shape in runs}
        if len(shapes) == 1:
            return self._values.array((samples, *shapes.pop()))
        if len({shape[1:] for shape in shapes}) == 1:
            offsets = _offsets(runs)
            values = self._values.array((int(offsets[-1]), *self.shape[1:]))
            return RaggedArray(values, offsets)
        arrays, start = [], 0
        for rows, shape in runs:
            end = start + rows * math.prod(shape)
            arrays.append(self._values.view(start, end).reshape(rows, *shape))
            start = end
        return arrays


def _first(runs: list[Run], samples: int) -> list[Run]:
    """The runs of the first samples; the batch that failed may have written more."""
    kept = []
    for rows, shape in runs:
        rows = min(rows, samples)
        samples -= rows
        if rows:
            kept.append((rows, shape))
    return kept


def _offsets(runs: list[Run]) -> npt.NDArray[np.int64]:
    """Where samples begin that differ along axis 0 only."""
    counts = [rows for rows, _ in runs]
    offsets = np.zeros(1 + sum(counts), np.int64)
    np.cumsum(np.repeat([shape[0] for _, shape in runs], counts), out=offsets[1:])
    return offsets
