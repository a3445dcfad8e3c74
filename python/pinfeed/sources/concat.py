"""Many arrays, one after the other, as one source of samples."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from pinfeed import _core
from pinfeed.files.mapped import open_regular
from pinfeed.files.npy import NpyHeader
from pinfeed.runtime import get_num_threads
from pinfeed.sources.ragged import RaggedArray
from pinfeed.sources.source import ArraySource, Selection, Source, StringType, check_dtype

_HEADER_BYTES = 128  # what NumPy writes for an array of few axes, padding included


class ConcatArray(Source):
    """The samples of many arrays, one array after the other; nothing is copied.

    A leaf of `ArrayDataset` like any array, with the samples of ``np.concatenate(parts)``.

    Args:
        parts: At least one, all of one kind, dtype and sample shape: paths of .npy files, ndarrays,
            memmaps, CPU tensors, `RaggedArray`, or what `RaggedArray.split` makes without overlap.
            Empty parts are fine.

    Of files given as paths only the headers are read. A file is opened when its rows are read, and at
    most 256 are open at a time. The files must not change. One that was changed, replaced or cut
    short is an OSError that names it, in the batch that reads it; if a batch has rows of more than 8
    files, and all are in the page cache, within a second.

    ``concat[i]`` is a view, or a copy if the part is a path; negative numbers count from the end.

    Raises:
        TypeError: ``parts`` is no iterable of such parts, or their kinds or dtypes differ.
        ValueError: There is no part, shapes differ, or a file is no .npy file of numbers in C order.
            The message says which part.
        OSError: A file can't be read, or lacks its end.

    Example:
        >>> days = [np.arange(3), np.arange(10, 12)]
        >>> concat = pinfeed.ConcatArray(days)
        >>> len(concat), concat[3]
        (5, np.int64(10))
        >>> concat
        ConcatArray(5 samples of int64 () in 2 parts)
    """

    def __init__(self, parts: Iterable[Any]) -> None:
        if isinstance(parts, str | os.PathLike | np.ndarray | torch.Tensor | Source):
            raise TypeError(
                f"ConcatArray: parts must be a sequence of arrays, got one {type(parts).__name__}"
            )
        parts = list(parts)
        if not parts:
            raise ValueError("ConcatArray: expected at least one part, got none")
        self._files: PartFiles | None = None
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

    @override
    def select(self, indices: npt.NDArray[np.int64]) -> Selection:
        return Selection(self._rows, None, indices)

    @cached_property
    def _rows(self) -> Any:
        """What the native side gathers from; offsets lie in it."""
        if self._files is not None:
            return self._files.rows
        if self.is_ragged:
            values = tuple(part.values for part in self._parts)
            return _core.PartArrays(values, tuple(part.offsets for part in self._parts))
        return _core.PartArrays(tuple(part.array for part in self._parts))

    @property
    @override
    def is_ragged(self) -> bool:
        return self._files is None and self._parts[0].is_ragged

    @property
    @override
    def string_type(self) -> StringType | None:
        return None if self._files is not None else self._parts[0].string_type

    @property
    @override
    def dtype(self) -> Any:
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

    @override
    def check(self) -> None:
        if self._files is not None:
            self._files.check()
        for part in self._parts:
            part.check()

    @override
    def describe(self) -> str:
        if self._files is not None:
            return f"{self._files.dtype} {self._files.shape}"
        return str(self._parts[0].describe())

    @property
    @override
    def reads_files(self) -> bool:
        return self._files is not None

    def __getstate__(self) -> Any:
        return self._files, self._parts, self._ends

    def __setstate__(self, state: Any) -> None:
        self._files, self._parts, self._ends = state

    def __repr__(self) -> str:
        count = len(self._parts) if self._files is None else len(self._files.paths)
        return (
            f"ConcatArray({len(self)} samples of {self.describe()} in {count} "
            f"part{'s' * (count != 1)})"
        )


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
    is_alike = (_kind(part), part.dtype, part.string_type) == (
        _kind(first),
        first.dtype,
        first.string_type,
    )
    if not is_alike:
        error: type[Exception] = TypeError
    elif part.describe() != first.describe():
        error = ValueError
    else:
        return
    path = "" if part.is_ragged or part.path is None else f" ({part.path})"
    raise error(
        f"ConcatArray: part {number}{path}: expected {_kind(first)} of {first.describe()} like "
        f"part 0, got {_kind(part)} of {part.describe()}"
    )


def _kind(source: Any) -> str:
    if source.string_type is not None:
        return "a RaggedArray"
    kind = "a tensor" if isinstance(source.dtype, torch.dtype) else "an ndarray"
    return f"a RaggedArray over {kind}" if source.is_ragged else kind


class PartFiles:
    """Rows of .npy files, one file after the other, read when they are asked for.

    A file that has changed since its header was read is an OSError then.

    Args:
        paths: At least one.
        name: What messages call the caller.
    """

    def __init__(self, paths: Sequence[str], name: str) -> None:
        headers = _Headers(name)
        parts = [headers.read(path, number) for number, path in enumerate(paths)]
        self.paths = [os.path.abspath(path) for path in paths]  # they are opened again later
        self.dtype, self.shape = headers.first.dtype, headers.first.shape[1:]
        self.offsets = [offset for offset, _, _ in parts]
        self.ends: npt.NDArray[np.int64] = np.cumsum([rows for _, rows, _ in parts])
        self._marks = [marks for _, _, marks in parts]

    def __len__(self) -> int:
        return int(self.ends[-1])

    @cached_property
    def rows(self) -> Any:
        """What the native side gathers from."""
        # It tells dtype, shape and strides; nothing reads it.
        row = np.empty((1, *self.shape), self.dtype)
        looks = np.lib.stride_tricks.as_strided(row, (len(self), *self.shape), row.strides)
        return _core.FileArray.of_parts(
            looks, self.paths, self._marks, self.offsets, self.ends.tolist()
        )

    def gather(self, indices: npt.NDArray[np.int64], name: str) -> npt.NDArray[Any]:
        """The rows of checked indices, as an array of their own."""
        rows: npt.NDArray[Any] = _core.gather(
            self.rows, indices, None, None, np.ndarray, name, get_num_threads()
        )
        return rows

    def check(self) -> None:
        """Raises OSError if a file is not what it was."""
        for path, marks in zip(self.paths, self._marks, strict=True):
            if _marks(os.stat(path)) != marks:
                raise OSError(f"{path}: the file was replaced or changed after it was opened")

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("rows", None)
        return state


class _Headers:
    """Reads the headers of the parts, and compares each with the first."""

    first: NpyHeader

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[bytes, NpyHeader] = {}  # parsing one takes longer than reading it

    def read(self, path: str, number: int) -> tuple[int, int, tuple[int, int, int]]:
        """Where the rows of a file begin, how many there are, and the marks of the file."""
        name = f"{self._name}: part {number} ({path})"
        with open_regular(path, name) as file:
            status = os.fstat(file.fileno())
            header = self._parse(file, name)
        rows = self._checked_rows(header, number, name)
        if status.st_size < header.end:
            raise OSError(
                f"{name}: the file was cut short: it has {status.st_size} bytes, "
                f"the array in it ends at byte {header.end}"
            )
        return header.offset, rows, _marks(status)

    def _parse(self, file: Any, name: str) -> NpyHeader:
        beginning = file.read(_HEADER_BYTES)
        if beginning in self._known:
            return self._known[beginning]
        file.seek(0)
        try:
            header = NpyHeader.read(file)
        except ValueError as error:
            raise ValueError(f"{name}: no .npy file of numbers: {error}") from error
        if header.offset <= _HEADER_BYTES:
            self._known[beginning] = header
        return header

    def _checked_rows(self, header: NpyHeader, number: int, name: str) -> int:
        check_dtype(header.dtype, name)
        if not header.shape:
            raise ValueError(f"{name}: expected an axis that counts samples, got a 0-d array")
        if header.fortran_order and math.prod(header.shape) > max(header.shape):
            raise ValueError(
                f"{name}: expected C order, got Fortran order, in which rows lie in pieces; "
                "save it with np.ascontiguousarray, or pass np.load(path, mmap_mode='r')"
            )
        if number == 0:
            self.first = header
        if header.dtype != self.first.dtype:
            raise TypeError(
                f"{name}: expected dtype {self.first.dtype} as in part 0, got {header.dtype}"
            )
        if header.shape[1:] != self.first.shape[1:]:
            raise ValueError(
                f"{name}: expected samples of shape {self.first.shape[1:]} as in part 0, "
                f"got {header.shape[1:]}"
            )
        return header.shape[0]


def _marks(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns
