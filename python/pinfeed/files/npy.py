"""The .npy format: its header, which nothing else in the package reads or writes, and a file that grows."""

from __future__ import annotations

import errno
import io
import math
import mmap
import os
import sys
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

_ZEROS = bytes(1 << 20)


class NpyHeader(NamedTuple):
    """Where the array of a .npy file lies in it, and what it is."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool
    offset: int  # of the first element, in bytes

    @property
    def end(self) -> int:
        """The byte behind the last element."""
        return self.offset + math.prod(self.shape) * self.dtype.itemsize

    @classmethod
    def read(cls, file: IO[bytes]) -> NpyHeader:
        """Reads it from the beginning of a file; nothing is unpickled.

        Raises:
            ValueError: There is none, or the array is one of objects, or of a shape that can't be.
        """
        try:
            version = npy.read_magic(file)
            readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
            if version not in readers:
                raise ValueError(f"format version {version} is not one of numbers")
            shape, fortran_order, dtype = readers[version](file)
        except OSError:
            raise
        except Exception as error:  # damaged bytes may stop NumPy's parser anywhere
            raise ValueError(str(error)) from error
        if dtype.hasobject or dtype.itemsize == 0:
            raise ValueError(f"expected numbers, got dtype {dtype}; nothing is unpickled")
        if any(length < 0 for length in shape):
            raise ValueError(f"the shape {shape} has a negative length")
        # An axis of length 0 doesn't make the others harmless: they are added up.
        if math.prod(max(length, 1) for length in shape) * dtype.itemsize > sys.maxsize:
            raise ValueError(f"an array of {dtype} and shape {shape} is larger than memory can be")
        return cls(dtype, shape, fortran_order, file.tell())

    def map(self, file: io.BufferedReader) -> npt.NDArray[Any]:
        """The array as a read-only memmap."""
        order = "F" if self.fortran_order else "C"
        return np.memmap(file, self.dtype, "r", self.offset, self.shape, order)  # type: ignore[call-overload]


class NpyFile:
    """A new .npy file: flat room that grows while it is written to, and gets its header at the end.

    It is written through a memory map. Room is taken on the disk before it is mapped, because
    writing into a hole of a file kills the process when the disk is full.

    Args:
        path: Of the file, which must not exist.
        dtype: Of an item.
        axes: The most axes that the array is going to have.

    Attributes:
        capacity: For how many items there is room.
    """

    def __init__(self, path: str, dtype: np.dtype[Any], axes: int) -> None:
        self.path, self.capacity = path, 0
        self._dtype = dtype
        self._start = len(_header(dtype, (sys.maxsize,) * axes))
        self._file = open(path, "x+b")  # noqa: SIM115 # open until `finish` or `close`
        try:
            self.resize(0)
        except OSError:
            self._file.close()
            raise

    def resize(self, items: int) -> None:
        """Makes room for so many items; those that are there stay.

        Raises:
            OSError: The disk is full, for instance.
        """
        end = self._start + items * self._dtype.itemsize
        before = os.fstat(self._file.fileno()).st_size
        try:
            _allocate(self._file.fileno(), end)
            self._map = mmap.mmap(self._file.fileno(), end)
        except OSError as error:
            self._file.truncate(before)  # what there was room for doesn't stay taken
            raise OSError(error.errno, error.strerror, self.path) from error
        self.capacity = items

    def view(self, start: int, stop: int) -> npt.NDArray[Any]:
        """The items from ``start`` to ``stop``, to read and to write."""
        first = self._start + start * self._dtype.itemsize
        return np.frombuffer(self._map, self._dtype, stop - start, first)

    def finish(self, shape: tuple[int, ...]) -> None:
        """Makes an array of that shape of the first items, waits until it is on the disk, and closes."""
        self._map.flush()
        header = _header(self._dtype, shape, self._start)
        with self._file as file:
            file.truncate(self._start + math.prod(shape) * self._dtype.itemsize)
            file.write(header)
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Closes the file as it is; views of it live on."""
        self._file.close()


def _header(dtype: np.dtype[Any], shape: tuple[int, ...], size: int = 0) -> bytes:
    """A header of version 1.0, filled up with spaces to ``size`` bytes as the format allows."""
    written = io.BytesIO()
    fields = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(written, fields)
    header = written.getvalue()
    size = max(size, len(header))
    return header[:8] + (size - 10).to_bytes(2, "little") + header[10:-1].ljust(size - 11) + b"\n"


def _allocate(descriptor: int, size: int) -> None:
    """Makes a file of at least so many bytes, all of which the disk has room for."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
            return
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # the file system can't
                raise
    position = os.fstat(descriptor).st_size
    while position < size:
        position += os.pwrite(descriptor, _ZEROS[: size - position], position)
