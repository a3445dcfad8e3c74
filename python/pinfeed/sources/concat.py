"""Many arrays, one after the other, as one source of samples."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.sources.part_files import PartFiles
from pinfeed.sources.ragged import RaggedArray
from pinfeed.sources.source import ArraySource, Source


class ConcatArray(Source):
    """The samples of many arrays, one array after the other; nothing is copied.

    A leaf of `ArrayDataset` like any array: what ``np.concatenate(parts)`` would be, had it all
    memory in the world.

    Args:
        parts: At least one, all of one kind, dtype and shape of a sample: paths of .npy files,
            ndarrays, memmaps, CPU tensors, or `RaggedArray`. Empty parts are fine.

    Of paths only the headers are read. The files are opened when rows are read, no more than 256 of
    them at a time, so 10,000 parts need neither as many open files nor as much memory. They must
    stay as they are: one that is changed or cut short is an OSError that names it, in the batch
    that reads it, or a second after the change if its rows come from the page cache; one that is
    replaced, when it is opened again at the latest.

    ``concat[i]`` is a view, of a part that is a path a copy; negative numbers count from the end.

    Raises:
        TypeError: ``parts`` is no iterable of such parts, kinds are mixed, or a dtype differs.
        ValueError: There is no part, a shape differs, or a file is no .npy file of numbers in C
            order, or a pipe. The message says which part.
        OSError: A file can't be read, or lacks its end.

    Example:
        >>> days = [np.arange(3), np.arange(10, 12)]
        >>> concat = pinfeed.ConcatArray(days)
        >>> len(concat), concat[3]
        (5, np.int64(10))
        >>> concat
        ConcatArray(5 samples of int64 () in 2 parts)
    """

    __slots__ = ("_arrays", "_ends", "_files", "_parts")

    def __init__(self, parts: Iterable[Any]) -> None:
        if isinstance(parts, str | os.PathLike | np.ndarray | torch.Tensor | Source):
            raise TypeError(
                f"ConcatArray: parts must be a sequence of arrays, got one {type(parts).__name__}"
            )
        parts = list(parts)
        if not parts:
            raise ValueError("ConcatArray: expected at least one part, got none")
        self._files: PartFiles | None = None
        self._arrays: Any = None  # `arrays`, once it was asked for
        self._parts: list[Any] = []  # of ArraySource, or of RaggedArray
        if isinstance(parts[0], str | os.PathLike):
            self._files = PartFiles(_checked_paths(parts), "ConcatArray")
            self._ends = self._files.ends
            return
        for number, part in enumerate(parts):
            source = _open_part(part, number)
            _require_alike(self._parts[0] if number else source, source, number)
            self._parts.append(source)
        self._ends = np.cumsum([len(source) for source in self._parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Any:
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(
                f"ConcatArray: index {position} is out of range for {len(self)} samples"
            )
        position %= len(self)
        if self._files is not None:
            return self._files.gather(np.array([position]), "ConcatArray")[0]
        part = int(self._ends.searchsorted(position, "right"))
        start = int(self._ends[part - 1]) if part > 0 else 0
        return self._parts[part][position - start]

    @property
    def rows(self) -> Any:
        """What the native side gathers from, or None: then it wants `views`."""
        return None if self._files is None else self._files.rows

    @property
    def arrays(self) -> Any:
        """What the native side gathers rows of arrays in memory from, or None if it can't.

        It can where the rows of all parts have the same strides.
        """
        if self._arrays is None and self._files is None and not self.is_ragged:
            arrays = [part.array for part in self._parts if len(part) > 0]
            if len({_row_strides(array) for array in arrays}) == 1:
                self._arrays = _core.PartArrays(tuple(arrays))
        return self._arrays

    def views(self, indices: npt.NDArray[np.int64]) -> list[Any]:
        """The samples of arrays in memory, as arrays even if they are single numbers.

        Args:
            indices: Checked.
        """
        parts = self._ends.searchsorted(indices, "right")
        rows = indices - np.concatenate([[0], self._ends])[parts]
        pairs = zip(parts.tolist(), rows.tolist(), strict=True)
        if self.is_ragged:
            return [self._parts[part][row] for part, row in pairs]
        for part in np.unique(parts).tolist():
            self._parts[part].check()
        return [self._parts[part].array[row, ...] for part, row in pairs]

    @property
    def is_ragged(self) -> bool:
        """Whether the parts are `RaggedArray`."""
        return self._files is None and isinstance(self._parts[0], RaggedArray)

    @property
    def dtype(self) -> Any:
        """See `Source.dtype`."""
        return (self._files or self._parts[0]).dtype

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Of parts that are `RaggedArray`: the length of each sequence, computed when asked for.

        Raises:
            TypeError: The parts are arrays.
        """
        if not self.is_ragged:
            raise TypeError(
                "ConcatArray: samples of arrays have one length; lengths are for RaggedArrays"
            )
        return np.concatenate([part.lengths for part in self._parts])

    def check(self) -> None:
        """See `Source.check`."""
        if self._files is not None:
            self._files.check()
        for part in self._parts:
            part.check()

    def describe(self) -> str:
        """See `Source.describe`."""
        if self._files is not None:
            return f"{self._files.dtype} {self._files.shape}"
        return str(self._parts[0].describe())

    @property
    def reads_files(self) -> bool:
        """See `Source.reads_files`."""
        return self._files is not None

    def prefetch(self, indices: npt.NDArray[np.int64], name: str) -> None:
        """See `Source.prefetch`."""
        if self._files is not None:
            _core.prefetch(self._files.rows, None, indices, name)

    def __getstate__(self) -> Any:
        return self._files, self._parts, self._ends

    def __setstate__(self, state: Any) -> None:
        self._files, self._parts, self._ends = state
        self._arrays = None

    def __repr__(self) -> str:
        count = len(self._parts) if self._files is None else len(self._files.paths)
        return (
            f"ConcatArray({len(self)} samples of {self.describe()} in {count} "
            f"part{'s' * (count != 1)})"
        )


def _row_strides(array: Any) -> tuple[int, ...]:
    strides = array.stride() if isinstance(array, torch.Tensor) else array.strides
    return tuple(strides[1:])


def _checked_paths(parts: list[Any]) -> list[str]:
    for number, part in enumerate(parts):
        if not isinstance(part, str | os.PathLike):
            raise TypeError(
                f"ConcatArray: part {number}: expected a path like part 0, "
                f"got {type(part).__name__}"
            )
    return [os.fsdecode(part) for part in parts]


def _open_part(part: Any, number: int) -> Any:
    name = f"ConcatArray: part {number}"
    if isinstance(part, RaggedArray):
        return part
    if isinstance(part, np.ndarray | torch.Tensor):
        return ArraySource(part, name)
    raise TypeError(
        f"{name}: expected an ndarray, a memmap, a CPU tensor or a RaggedArray, "
        f"or paths of .npy files only, got {type(part).__name__}"
    )


def _require_alike(first: Any, part: Any, number: int) -> None:
    """Raises if a part is of another kind, dtype or shape than the first."""
    expected, given = _kind(first), _kind(part)
    path = None if isinstance(part, RaggedArray) else part.path
    name = f"ConcatArray: part {number}" + ("" if path is None else f" ({path})")
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


def _sample_shape(source: Any) -> tuple[int, ...]:
    values = source.values if isinstance(source, RaggedArray) else source.array
    return tuple(values.shape[1:])


def _shape_text(source: Any) -> str:
    shape = _sample_shape(source)
    if isinstance(source, RaggedArray):
        return f"({', '.join(['*', *map(str, shape)])}{',' * (not shape)})"
    return str(shape)
