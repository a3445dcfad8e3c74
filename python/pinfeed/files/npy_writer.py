"""A .npy file that rows are appended to, whatever their number."""

from __future__ import annotations

import contextlib
import io
import math
import os
from typing import Any

import numpy as np
import numpy.typing as npt

_BUFFER_BYTES = 1 << 20  # small rows are written together
_DIRECT_BYTES = 1 << 16  # large ones at once
_CHUNK_BYTES = 16 << 20  # of what has to be brought into C order first


class NpyWriter:
    """Writes a .npy file from front to back, and its header anew at the end.

    Not through a buffered file: one whose disk is full tries again when it is let go.

    Args:
        path: Of the file, which must not exist.
        dtype: Of an item.
        item: Shape of a row.

    Attributes:
        rows: How many were appended.
    """

    def __init__(self, path: str, dtype: np.dtype[Any], item: tuple[int, ...]) -> None:
        self.dtype, self.item = dtype, item
        self.rows = 0
        self._waiting = bytearray(self._header())
        self._path = path
        self._file = io.FileIO(path, "x")

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Writes rows behind those before.

        Args:
            rows: Of shape (n, *item) and the file's dtype, strided at will.
        """
        if rows.flags.c_contiguous:
            self._append(rows)
        else:
            step = max(1, _CHUNK_BYTES // max(1, math.prod(self.item) * self.dtype.itemsize))
            for start in range(0, len(rows), step):
                self._append(np.ascontiguousarray(rows[start : start + step]))
        self.rows += len(rows)

    def finish(self) -> None:
        """Writes the header, and waits until all is on the disk."""
        self._flush()
        self._file.seek(0)
        self._write(self._header())
        os.fsync(self._file.fileno())
        self._file.close()

    def close(self) -> None:
        """Closes the file as it is."""
        with contextlib.suppress(OSError):
            self._file.close()

    def _header(self) -> bytes:
        """In which NumPy leaves room for any number of rows, so that its length stays."""
        written = io.BytesIO()
        descr = np.lib.format.dtype_to_descr(self.dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (self.rows, *self.item)}
        np.lib.format.write_array_header_1_0(written, header)
        return written.getvalue()

    def _append(self, rows: npt.NDArray[Any]) -> None:
        data = rows.reshape(-1).view(np.uint8).data
        if len(data) < _DIRECT_BYTES:
            self._waiting += data
            if len(self._waiting) >= _BUFFER_BYTES:
                self._flush()
        else:
            self._flush()
            self._write(data)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, bytearray()
        self._write(waiting)

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        left = memoryview(data)
        try:
            while left:  # a disk that fills takes what it can first
                left = left[self._file.write(left) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from error
