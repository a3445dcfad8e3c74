"""Columns in .npy files."""

from __future__ import annotations

import errno
import io
import math
import mmap
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed.exports.to_numpy.storage import Storage

# Where data begins, with room before it for the header of any shape. Not where a page begins: there
# NumPy maps an empty array otherwise than its offset says.
_DATA = 2048

_ZEROS = bytes(1 << 20)


class DraftFile(Storage):
    """A .npy file that is written through a memory map, and gets its header and name at the end.

    Room is taken on the disk before it is mapped: to write into a hole of a file when the disk is
    full kills the process.

    Args:
        dtype: Of an item.
        draft: Path of the file, which must not exist.
        folder: Where `finish` puts it.
        final: Where `result` finds it, once that folder was put in place.
    """

    def __init__(self, dtype: np.dtype[Any], draft: str, folder: str, final: str) -> None:
        super().__init__(dtype)
        self._draft, self._folder, self._final = draft, folder, final
        self._name = ""
        self._file = open(draft, "x+b")  # noqa: SIM115 - open as long as the storage lives
        self.resize(0)

    def resize(self, items: int) -> None:
        """See `Storage.resize`."""
        end = _DATA + items * self.dtype.itemsize
        _allocate(self._file.fileno(), end)
        self._map = mmap.mmap(self._file.fileno(), end)
        self.capacity = items

    def view(self, start: int, stop: int) -> npt.NDArray[Any]:
        """See `Storage.view`."""
        first = _DATA + start * self.dtype.itemsize
        return np.frombuffer(self._map, self.dtype, stop - start, first)

    def finish(self, shape: tuple[int, ...], name: str) -> None:
        """See `Storage.finish`."""
        self._map.flush()
        with self._file as file:
            file.truncate(_DATA + math.prod(shape) * self.dtype.itemsize)
            file.write(_header(self.dtype, shape))
            file.flush()
            os.fsync(file.fileno())
        self._name = name
        target = os.path.join(self._folder, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(self._draft, target)

    def result(self) -> npt.NDArray[Any]:
        """See `Storage.result`: a read-only memmap."""
        return np.lib.format.open_memmap(os.path.join(self._final, self._name), "r")

    def close(self) -> None:
        """Closes the file; views of it live on."""
        self._file.close()


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The header of a .npy file of version 1.0, filled up with spaces as the format allows."""
    written = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(
        written, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    magic, text = written.getvalue()[:8], written.getvalue()[10:].rstrip()
    if len(text) > _DATA - 11:
        raise ValueError(f"to_numpy: the header of a .npy file has no room for dtype {dtype}")
    return magic + (_DATA - 10).to_bytes(2, "little") + text.ljust(_DATA - 11) + b"\n"


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
