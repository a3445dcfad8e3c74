"""Leaves that are arrays: `NewArray` where the result is made here, `GivenArray` for ``out``."""

from __future__ import annotations

import math
import operator
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from pinfeed import _core
from pinfeed.exports.to_numpy.column import Column, Options, Parts, numpy_dtype, plain
from pinfeed.exports.to_numpy.ragged_columns import finish_ragged, require_ragged_dtype
from pinfeed.exports.to_numpy.storage import Array, Storage, copy_into
from pinfeed.functions.padding import Side
from pinfeed.sources.ragged import RaggedArray

Shape = tuple[int, ...]

#: How many samples in a row have which shape.
Run = tuple[int, Shape]

# Moved in one go, through memory that stays in the cache.
_CHUNK_BYTES = 1 << 18


class _ArrayColumn(Column):
    """A column of arrays whose first axis counts samples.

    Args:
        leaf: Of the first batch.
        pad: What samples that are smaller than others are filled up with; None: they stay.

    Attributes:
        dtype: Of the column.
        shape: Of a sample of the first batch that has one.
    """

    def __init__(self, leaf: Any, options: Options, pad: Any, steps: Sequence[str]) -> None:
        super().__init__(options, steps)
        self._pad = pad
        self._side: Side = options.side or "right"
        (first,) = self.parts(leaf)
        self.dtype = numpy_dtype(first, self.where)
        self.shape: Shape = tuple(first.shape[1:])

    @override
    def parts(self, leaf: Any) -> tuple[Array]:
        array = plain(leaf, self._options.bfloat16, self.where)
        if array.ndim == 0:
            raise ValueError(
                f"{self.where}: expected an axis that counts samples, got a 0-d array; "
                "leave it out, or repeat it for each sample: x.expand(B)"
            )
        return (array,)

    @override
    def check(self, parts: Parts, end: int) -> None:
        (array,) = parts
        numpy_dtype(array, self.where, self.dtype)
        if array.ndim != 1 + len(self.shape):
            raise ValueError(
                f"{self.where}: expected {1 + len(self.shape)} axes as before, "
                f"got shape {tuple(array.shape)}"
            )
        self._check_shape(tuple(array.shape), end)

    @abstractmethod
    def _check_shape(self, shape: Shape, end: int) -> None:
        """Raises if a batch of this shape can't follow."""

    def _check_pad(self) -> None:
        _core.check_value(self._pad, self.dtype.name, self.where, "pad")


class NewArray(_ArrayColumn):
    """Arrays that are written one after the other, whatever their shapes; `finish` makes one."""

    def __init__(self, leaf: Any, options: Options, pad: Any, steps: Sequence[str]) -> None:
        super().__init__(leaf, options, pad, steps)
        self._name = self._file_name()
        self._values = self._storage(self.dtype, 1 + len(self.shape))
        self._offsets: Storage | None = None
        self._runs: list[Run] = []  # that were written
        self._end = 0  # of their items
        self._is_empty = True  # no batch so far had a sample

    @override
    def _check_shape(self, shape: Shape, end: int) -> None:
        if shape[0] == 0:
            return
        if self._is_empty:
            self._is_empty = False
            self.shape = shape[1:]
        if shape[1:] == self.shape:
            return
        if self._pad is not None:
            self._check_pad()
            return
        expected = ", ".join(map(str, ("*", *self.shape)))
        differs = f"{self.where}: expected shape ({expected}), got {shape}"
        if shape[2:] != self.shape[1:]:
            raise ValueError(f"{differs}; pad=a number makes samples of any sizes one array")
        if not self._options.holds_ragged:
            raise ValueError(f"{differs}; give pad=a number, or for out the path of a directory")
        require_ragged_dtype(self.dtype, self.where)

    @override
    def size(self, samples: int) -> int:
        return samples * math.prod(self.shape) * self.dtype.itemsize

    @override
    def allocate(self, samples: int) -> None:
        self._values.resize(samples * math.prod(self.shape))

    @override
    def write(self, start: int, count: int, parts: Parts) -> None:
        if count == 0:
            return
        array = parts[0][:count]
        shape: Shape = tuple(array.shape)
        self._values.write(self._end, array, self.where)
        self._end += math.prod(shape)
        if self._runs and self._runs[-1][1] == shape[1:]:
            self._runs[-1] = (self._runs[-1][0] + count, shape[1:])
        else:
            self._runs.append((count, shape[1:]))

    @override
    def finish(self, samples: int) -> None:
        shapes = {shape for _, shape in self._runs}
        if len(shapes) > 1 and self._pad is None:
            ends = _offsets(self._runs)
            self._offsets = self._storage(ends.dtype, 1)
            self._offsets.write(0, ends, self.where)
            shape = (int(ends[-1]), *self.shape[1:])
            finish_ragged(self._values, self._offsets, samples, shape, self._name)
            return
        target = self.shape
        if len(shapes) > 1:
            target = tuple(map(max, zip(*shapes, strict=True)))
            items = samples * math.prod(target)
            runs, self._runs = self._runs, []  # nothing is where it was, until all is moved
            _spread(self._values.view(0, items), runs, target, self._pad, self._side)
            self._runs = [(samples, target)]
        self._values.finish((samples, *target), f"{self._name or 'values'}.npy")

    @override
    def result(self) -> Any:
        values = self._values.result()
        return values if self._offsets is None else RaggedArray(values, self._offsets.result())

    @override
    def partial(self, samples: int) -> Any:
        """Samples of different shapes as they came, not padded."""
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


class GivenArray(_ArrayColumn):
    """Arrays that are written into ``out``."""

    def __init__(
        self, leaf: Any, options: Options, pad: Any, steps: Sequence[str], out: npt.NDArray[Any]
    ) -> None:
        super().__init__(leaf, options, pad, steps)
        self._out = out
        self._length = len(out) if out.ndim else 0  # and later what was written
        if out.dtype != self.dtype:
            raise TypeError(f"{self.where}: out must have dtype {self.dtype}, got {out.dtype}")
        if not out.flags.writeable:
            raise ValueError(f"{self.where}: out must be writable, got a read-only array")

    @override
    def _check_shape(self, shape: Shape, end: int) -> None:
        sample, room = shape[1:], self._out.shape[1:]
        if sample != room:
            fits = len(sample) == len(room) and all(map(operator.le, sample, room))
            if not fits or self._pad is None:
                expected = ", ".join(map(str, ("N", *sample)))
                hint = "; pad=a number fills up the rest" if fits else ""
                raise ValueError(
                    f"{self.where}: out must have shape ({expected}), got {self._out.shape}{hint}"
                )
            self._check_pad()
        self.allocate(end)

    @override
    def allocate(self, samples: int) -> None:
        if samples > self._length:
            raise ValueError(
                f"{self.where}: out must have room for {samples} samples, "
                f"got shape {self._out.shape}"
            )

    @override
    def write(self, start: int, count: int, parts: Parts) -> None:
        array = parts[0][:count]
        shape: Shape = tuple(array.shape[1:])
        target = self._out[start : start + count]
        if shape != target.shape[1:]:
            target[...] = self._pad
            target = target[:, *_box(shape, target.shape[1:], self._side)]
        copy_into(target, array, self.where)

    @override
    def finish(self, samples: int) -> None:
        self._length = samples

    @override
    def result(self) -> npt.NDArray[Any]:
        """``out`` itself, or if it is longer than needed a view of it."""
        return self.partial(self._length)

    @override
    def partial(self, samples: int) -> npt.NDArray[Any]:
        return self._out if samples == len(self._out) else self._out[:samples]


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


def _box(shape: Shape, target: Shape, side: Side) -> tuple[slice, ...]:
    """Where in a target a smaller shape lies, with padding on that side."""
    pairs = zip(shape, target, strict=True)
    if side == "left":
        return tuple(slice(large - small, large) for small, large in pairs)
    return tuple(slice(small) for small in shape)


def _spread(
    items: npt.NDArray[Any], runs: Sequence[Run], target: Shape, value: Any, side: Side
) -> None:
    """Widens samples in place to boxes of one shape, which takes no memory beyond the result.

    Args:
        items: 1-D with room for all boxes; the samples come first, close together.
        runs: The samples.
        target: Shape of a box.
        value: What boxes are filled up with.
        side: Where in a box the filling goes.
    """
    size = math.prod(target)
    step = max(1, _CHUNK_BYTES // max(1, size * items.itemsize))
    end = sum(rows * math.prod(shape) for rows, shape in runs)
    target_end = sum(rows for rows, _ in runs) * size
    # From the last one on, because a box never begins before its sample: what is overwritten was
    # moved already.
    for rows, shape in reversed(runs):
        where = (slice(None), *_box(shape, target, side))
        for left in range(rows, 0, -step):
            count = min(step, left)
            start, target_start = end - count * math.prod(shape), target_end - count * size
            if start < target_start or shape != target:
                samples = items[start:end].reshape(count, *shape).copy()
                boxes = items[target_start:target_end].reshape(count, *target)
                boxes[...] = value
                boxes[where] = samples
            end, target_end = start, target_start
