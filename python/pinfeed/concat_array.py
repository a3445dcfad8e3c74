"""Many arrays, one after the other, as one source of samples."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed.ragged_array import RaggedArray
from pinfeed.sources import ArraySource, Source


class ConcatArray(Source):
    """The samples of many arrays, one array after the other; nothing is copied.

    A leaf of `ArrayDataset` like any array: what ``np.concatenate(parts)`` would be, had it all
    memory in the world.

    Args:
        parts: At least one, all of one kind, dtype and shape of a sample: paths of .npy files,
            ndarrays, memmaps, CPU tensors, or `RaggedArray`. Empty parts are fine.

    ``concat[i]`` is a view; negative numbers count from the end.

    Raises:
        TypeError: ``parts`` is no iterable of such parts, kinds are mixed, or a dtype differs.
        ValueError: There is no part, or a shape differs; the message says which part.
        OSError: A file can't be read.

    Example:
        >>> days = [np.arange(3), np.arange(10, 12)]
        >>> concat = pinfeed.ConcatArray(days)
        >>> len(concat), concat[3]
        (5, np.int64(10))
        >>> concat
        ConcatArray(5 samples of int64 () in 2 parts)
    """

    __slots__ = ("_ends", "_parts")

    def __init__(self, parts: Iterable[Any]) -> None:
        if isinstance(parts, str | os.PathLike | np.ndarray | torch.Tensor | Source):
            raise TypeError(
                f"ConcatArray: parts must be a sequence of arrays, got one {type(parts).__name__}"
            )
        sources = [_open_part(part, number) for number, part in enumerate(parts)]
        if not sources:
            raise ValueError("ConcatArray: expected at least one part, got none")
        for number, source in enumerate(sources):
            _require_alike(sources[0], source, number)
        self._parts: list[Any] = sources  # of ArraySource, or of RaggedArray
        self._ends: npt.NDArray[np.int64] = np.cumsum([len(source) for source in sources])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Any:
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(
                f"ConcatArray: index {position} is out of range for {len(self)} samples"
            )
        position %= len(self)
        part = int(self._ends.searchsorted(position, "right"))
        start = int(self._ends[part - 1]) if part > 0 else 0
        return self._parts[part][position - start]

    @property
    def is_ragged(self) -> bool:
        """Whether the parts are `RaggedArray`."""
        return isinstance(self._parts[0], RaggedArray)

    def views(self, indices: npt.NDArray[np.int64]) -> list[Any]:
        """The samples as arrays, single numbers too, for indices that are checked."""
        parts = self._ends.searchsorted(indices, "right")
        rows = indices - np.concatenate([[0], self._ends])[parts]
        pairs = zip(parts.tolist(), rows.tolist(), strict=True)
        if self.is_ragged:
            return [self._parts[part][row] for part, row in pairs]
        for part in np.unique(parts).tolist():
            self._parts[part].check()
        return [self._parts[part].array[row, ...] for part, row in pairs]

    @property
    def dtype(self) -> Any:
        """See `Source.dtype`."""
        return self._parts[0].dtype

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Of parts that are `RaggedArray`: the length of each sequence, computed when asked for.

        Raises:
            TypeError: The parts are arrays.
        """
        lengths = []
        for part in self._parts:
            if not isinstance(part, RaggedArray):
                raise TypeError(
                    "ConcatArray: samples of arrays have one length; lengths are for RaggedArrays"
                )
            lengths.append(part.lengths)
        return np.concatenate(lengths)

    def check(self) -> None:
        """See `Source.check`."""
        for part in self._parts:
            part.check()

    def describe(self) -> str:
        """See `Source.describe`."""
        return self._parts[0].describe()

    def __repr__(self) -> str:
        return (
            f"ConcatArray({len(self)} samples of {self.describe()} in {len(self._parts)} "
            f"part{'s' * (len(self._parts) != 1)})"
        )


def _open_part(part: Any, number: int) -> Any:
    name = f"ConcatArray: part {number}"
    if isinstance(part, RaggedArray):
        return part
    if isinstance(part, str | os.PathLike):
        return ArraySource.open(part, name)
    if isinstance(part, np.ndarray | torch.Tensor):
        return ArraySource(part, name)
    raise TypeError(
        f"{name}: expected an ndarray, a memmap, a CPU tensor, a RaggedArray or the path of a .npy "
        f"file, got {type(part).__name__}"
    )


def _require_alike(first: Any, part: Any, number: int) -> None:
    """Raises if a part is of another kind, dtype or shape than the first."""
    expected, given = _kind(first), _kind(part)
    name = f"ConcatArray: {_part_text(part, number)}"
    if given != expected:
        raise TypeError(f"{name}: expected {expected} like part 0, got {given}")
    if part.dtype != first.dtype:
        raise TypeError(f"{name}: expected dtype {first.dtype} as in part 0, got {part.dtype}")
    if _sample_shape(part) != _sample_shape(first):
        raise ValueError(
            f"{name}: expected samples of shape {_shape_text(first)} as in part 0, "
            f"got {_shape_text(part)}"
        )


def _kind(source: Any) -> str:
    is_tensor = isinstance(source.dtype, torch.dtype)
    if isinstance(source, RaggedArray):
        return "a RaggedArray of a tensor" if is_tensor else "a RaggedArray of an ndarray"
    return "a tensor" if is_tensor else "an ndarray"


def _part_text(part: Any, number: int) -> str:
    path = None if isinstance(part, RaggedArray) else part.path
    return f"part {number}" + ("" if path is None else f" ({path})")


def _sample_shape(source: Any) -> tuple[int, ...]:
    values = source.values if isinstance(source, RaggedArray) else source.array
    return tuple(values.shape[1:])


def _shape_text(source: Any) -> str:
    shape = _sample_shape(source)
    if isinstance(source, RaggedArray):
        return f"({', '.join(['*', *map(str, shape)])}{',' * (not shape)})"
    return str(shape)
