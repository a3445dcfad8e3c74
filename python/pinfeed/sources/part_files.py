"""The arrays of many .npy files, none of which is kept open."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed import _core
from pinfeed.files.npy import NpyHeader
from pinfeed.files.regular_file import open_regular
from pinfeed.limits import mapping_budget
from pinfeed.runtime import get_num_threads
from pinfeed.sources.source import check_dtype

_HEADER_BYTES = 128  # what NumPy writes for an array of few axes, padding included


class PartFiles:
    """Rows of .npy files, one file after the other, read when they are asked for.

    Files are opened when rows of them are read, some hundred at a time. One that is no longer what
    it was when this was made is an OSError then.

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
        total = sum(rows for _, rows, _ in parts)
        if total > sys.maxsize:  # of rows without bytes
            raise ValueError(f"{name}: {total} rows in all are more than memory can address")
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
            looks, self.paths, self._marks, self.offsets, self.ends.tolist(), mapping_budget()
        )

    def gather(self, indices: npt.NDArray[np.int64], name: str) -> npt.NDArray[Any]:
        """The rows of checked indices, as an array of their own."""
        rows: npt.NDArray[Any] = _core.gather(
            self.rows, indices, None, None, False, name, name, get_num_threads()
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
    """Reads headers, and holds each against the first."""

    first: NpyHeader

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[bytes, NpyHeader] = {}  # parsing one takes longer than reading it

    def read(self, path: str, number: int) -> tuple[int, int, tuple[int, int, int]]:
        """Where the rows begin, how many there are, and what tells the file from another."""
        name = f"{self._name}: part {number} ({path})"
        with open_regular(path, name) as file:
            status = os.fstat(file.fileno())
            header = self._parse(file, name)
        rows = self._checked_rows(header, number, name)
        end = header.offset + math.prod(header.shape) * header.dtype.itemsize
        if status.st_size < end:
            raise OSError(
                f"{name}: the file was cut short: it has {status.st_size} bytes, "
                f"the array in it ends at byte {end}"
            )
        return header.offset, rows, _marks(status)

    def _parse(self, file: Any, name: str) -> NpyHeader:
        beginning = file.read(_HEADER_BYTES)
        if beginning in self._known:
            return self._known[beginning]
        file.seek(0)
        try:
            header = NpyHeader.read(file)
        except OSError:
            raise
        except Exception as error:  # a damaged header may stop NumPy's parser anywhere
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
