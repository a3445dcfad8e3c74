"""Leaves that are written into arrays of the caller."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed import _core
from pinfeed.exports.to_numpy.array_leaf import ArrayLeaf
from pinfeed.exports.to_numpy.arrays import write
from pinfeed.exports.to_numpy.column import Wishes
from pinfeed.exports.to_numpy.spread import Shape, box

_MOST_WORK = 100_000


class GivenColumn(ArrayLeaf):
    """Arrays that are written into ``out``.

    Args:
        leaf: Of the first batch.
        wishes: What was asked for.
        pad: What samples that are smaller than those of ``out`` are filled up with; None: there
            may be none.
        out: The array.
        where: What messages call the leaf.
    """

    def __init__(
        self, leaf: Any, wishes: Wishes, pad: Any, out: npt.NDArray[Any], where: str
    ) -> None:
        super().__init__(leaf, wishes, where)
        self._pad = pad
        self._out = out
        self._length = len(out) if out.ndim else 0
        if out.dtype != self.dtype:
            raise TypeError(f"{where}: out must have dtype {self.dtype}, got {out.dtype}")
        if not out.flags.writeable:
            raise ValueError(f"{where}: out must be writable, got a read-only array")
        if any(
            stride == 0 and size > 1 for stride, size in zip(out.strides, out.shape, strict=True)
        ):
            raise ValueError(
                f"{where}: out must have memory for each item, got strides {out.strides}"
            )

    def shares_memory(self, other: GivenColumn) -> bool:
        """Whether two leaves would be written to the same bytes."""
        try:
            return np.shares_memory(self._out, other._out, max_work=_MOST_WORK)  # type: ignore[arg-type] # the stub knows two values
        except np.exceptions.TooHardError:
            return False  # views that only a puzzle tells apart

    def check(self, parts: tuple[Any, ...], end: int, where: str) -> None:
        """See `Column.check`."""
        super().check(parts, end, where)
        shape: Shape = tuple(parts[0].shape[1:])
        room = self._out.shape[1:]
        fits = len(shape) == len(room) and all(a <= b for a, b in zip(shape, room, strict=True))
        if shape != room:
            if not fits or self._pad is None:
                expected = ", ".join(map(str, ("N", *shape)))
                hint = "; pad=a number fills up the rest" if fits else ""
                raise ValueError(
                    f"{where}: out must have shape ({expected}), got {self._out.shape}{hint}"
                )
            _core.check_value(self._pad, self.dtype.name, where, "pad")
        self._require(end, where)

    def allocate(self, samples: int, where: str) -> None:
        """See `Column.allocate`."""
        self._require(samples, where)

    def write(self, start: int, count: int, parts: tuple[Any, ...], where: str) -> None:
        """See `Column.write`."""
        array = parts[0][:count]
        shape: Shape = tuple(array.shape[1:])
        target = self._out[start : start + count]
        if shape != target.shape[1:]:
            target[...] = self._pad
            target = target[:, *box(shape, target.shape[1:], self._wishes.padding_side)]
        write(target, array, where)

    def finish(self, samples: int) -> None:
        """See `Column.finish`."""
        self._length = samples

    def result(self) -> npt.NDArray[Any]:
        """See `Column.result`: ``out`` itself, or if it is longer than needed a view of it."""
        return self.partial(self._length)

    def partial(self, samples: int) -> npt.NDArray[Any]:
        """See `Column.partial`."""
        return self._out if samples == len(self._out) else self._out[:samples]

    def _require(self, samples: int, where: str) -> None:
        if samples > len(self._out):
            raise ValueError(
                f"{where}: out must have room for {samples} samples, got shape {self._out.shape}"
            )
