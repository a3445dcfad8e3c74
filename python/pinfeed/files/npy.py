"""The .npy format: reading and writing headers (only here), and growing files."""

from __future__ import annotations

import errno
import functools
import io
import math
import os
import sys
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from pinfeed.arguments import Problem

#: The maximum size of a header; NumPy doesn't parse longer ones.
MAX_HEADER_BYTES = 12 + 10_000

_ZEROS = bytes(1 << 20)
_CHUNK_BYTES = 16 << 20  # converted to C order at a time


class NpyHeader(NamedTuple):
    """Type, shape and position of the array in a .npy file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool
    offset: int  # of the first element, in bytes

    @property
    def end(self) -> int:
        """The end of the last element, in bytes."""
        return self.offset + math.prod(self.shape) * self.dtype.itemsize

    @classmethod
    def read(cls, file: IO[bytes], name: str) -> NpyHeader:
        """Reads the header from the beginning of a file, called ``name`` in messages, without pickle.

        Raises ValueError if it has none, or its array has objects or an impossible shape.
        """
        start = file.read(12)
        size = 10 + int.from_bytes(start[8:10], "little")
        if start[6:7] == b"\2":
            size = 12 + int.from_bytes(start[8:12], "little")
        more = max(0, min(size, MAX_HEADER_BYTES) - len(start))
        try:
            return _parsed(start + file.read(more))
        except ValueError as error:
            wrong = f"{name} is not a .npy file of numbers: {error}"
            raise ValueError(Problem("", wrong)) from error

    def map(self, file: io.BufferedReader) -> npt.NDArray[Any]:
        """Returns the array as a read-only memmap."""
        order = "F" if self.fortran_order else "C"
        return np.memmap(file, self.dtype, "r", self.offset, self.shape, order)  # type: ignore[call-overload]


@functools.lru_cache(64)  # thousands of files may share a header; parsing is slower than reading
def _parsed(beginning: bytes) -> NpyHeader:
    file = io.BytesIO(beginning)
    try:
        version = npy.read_magic(file)
        readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        if version not in readers:
            raise ValueError(f"format version {version} is not for arrays of numbers")
        shape, fortran_order, dtype = readers[version](file)
    except Exception as error:  # damaged bytes may stop NumPy's parser anywhere
        raise ValueError(str(error)) from error
    if dtype.hasobject or dtype.itemsize == 0:
        raise ValueError(f"expected numbers, got dtype {dtype}; nothing is unpickled")
    if any(length < 0 for length in shape):
        raise ValueError(f"the shape {shape} has a negative length")
    # An axis of length 0 doesn't prevent an overflow in the product of the others.
    if math.prod(max(length, 1) for length in shape) * dtype.itemsize > sys.maxsize:
        raise ValueError(f"an array of {dtype} and shape {shape} is too large for any memory")
    return NpyHeader(dtype, shape, fortran_order, file.tell())


class NpyFile:
    """A new .npy file, which grows by rows and gets its header at the end.

    The header has space for ``axes`` axes; None: one more than a row has.
    """

    def __init__(
        self, path: str, dtype: np.dtype[Any], row: tuple[int, ...], axes: int | None = None
    ) -> None:
        self.path, self.dtype, self.row, self.rows = path, dtype, row, 0
        axes = len(row) + 1 if axes is None else axes
        self._start = len(_header(dtype, (sys.maxsize,) * axes))
        # Unbuffered, because a buffer with unwritten data retries the write when it is collected.
        self._file = io.FileIO(path, "w")

    @property
    def _row_bytes(self) -> int:
        return math.prod(self.row) * self.dtype.itemsize

    def reserve(self, rows: int) -> None:
        """Reserves disk space for a number of rows, or raises OSError."""
        before = os.fstat(self._file.fileno()).st_size
        try:
            _allocate(self._file.fileno(), self._start + rows * self._row_bytes)
        except OSError as error:
            os.truncate(self._file.fileno(), before)  # release what was reserved
            raise OSError(error.errno, error.strerror, self.path) from error

    def append(self, array: npt.NDArray[Any]) -> None:
        """Appends rows of the file's dtype."""
        step = max(1, len(array))
        if not array.flags.c_contiguous:
            step = max(1, _CHUNK_BYTES // max(1, self._row_bytes))
        for first in range(0, len(array), step):
            chunk = np.ascontiguousarray(array[first : first + step])
            position = self._start + (self.rows + first) * self._row_bytes
            self._write(position, chunk.reshape(-1).view(np.uint8).data)
        self.rows += len(array)

    def finish(self, shape: tuple[int, ...] | None = None) -> None:
        """Writes the header for this shape (None: all rows), syncs and closes the file."""
        self._file.truncate(self._start + self.rows * self._row_bytes)
        self._write(0, _header(self.dtype, shape or (self.rows, *self.row), self._start))
        os.fsync(self._file.fileno())
        self._file.close()

    def close(self) -> None:
        """Closes the file without completing it."""
        self._file.close()

    def _write(self, position: int, data: bytes | memoryview) -> None:
        left = memoryview(data)
        try:
            while left:  # a full disk first writes a part
                count = os.pwrite(self._file.fileno(), left, position)
                left, position = left[count:], position + count
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from error


def _header(dtype: np.dtype[Any], shape: tuple[int, ...], size: int = 0) -> bytes:
    """Returns a version 1.0 header, padded with spaces to ``size`` bytes."""
    buffer = io.BytesIO()
    fields = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(buffer, fields)
    header = buffer.getvalue()
    size = max(size, len(header))
    return header[:8] + (size - 10).to_bytes(2, "little") + header[10:-1].ljust(size - 11) + b"\n"


def _allocate(descriptor: int, size: int) -> None:
    """Extends a file to at least ``size`` bytes, with disk space reserved."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
            return
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # not supported
                raise
    position = os.fstat(descriptor).st_size
    while position < size:
        position += os.pwrite(descriptor, _ZEROS[: size - position], position)
