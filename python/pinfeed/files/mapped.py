"""Mapped files: finding the file under an array, pickling it as a path, opening .npy files."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import io
import os
import stat
import weakref
from collections.abc import Iterator
from mmap import ALLOCATIONGRANULARITY
from multiprocessing import context
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pinfeed import _core
from pinfeed.files.npy import NpyHeader


class MappedFile:
    """The part of a file that an array views; pickles as a path and position, not as bytes.

    Unpickling raises OSError if the path names another file by then. For a read-only map, size and
    modification time are compared; for a writable map, which may be written to meanwhile, only the inode.
    """

    def __init__(
        self, path: str, mode: str, offset: int, array: npt.NDArray[Any], mapping: Any
    ) -> None:
        self.path = path
        self.mode = mode
        self.offset = offset  # of the array's first element, in bytes
        self.array = array
        self._mapping = mapping
        self._end = offset + _extent(array)[1]
        self._inode = _inode(path)

    @classmethod
    def under(cls, array: npt.NDArray[Any]) -> MappedFile | None:
        """Returns the file under an array, or None if the array is in memory."""
        owner: Any = _core.memmap_under(array)
        if owner is None or owner.filename is None:
            return None
        # A view of a memmap inherits its `offset` unchanged, so the position in the file comes from
        # the addresses. The mapping begins at a multiple of the granularity, at or before its array.
        begin = int(owner.offset - owner.offset % ALLOCATIONGRANULARITY)
        mapping_address = np.frombuffer(owner._mmap, np.uint8, 1).ctypes.data
        offset = begin + array.ctypes.data - mapping_address
        path = os.fsdecode(owner.filename)
        return cls(path, owner.mode, offset, np.asarray(array), owner._mmap)

    def open_rows(self, descriptor: int | None = None) -> Any:
        """Returns a ``_core.FileArray``, which reads rows from the file, not through the mapping.

        It owns the ``descriptor`` of the open file. Without one, the file is opened by its path, if
        that still names the mapped file. None if the file can't be opened, or may differ from the
        array: a copy-on-write map may have private changes.
        """
        if self.mode == "c":
            return None
        if descriptor is None:
            descriptor = self._open_again()
        if descriptor is None:
            return None
        return _core.FileArray(self.array, self.path, descriptor, self.offset)

    def _open_again(self) -> int | None:
        mapped = _mapping_at(self.array.ctypes.data)
        if mapped is None:
            return None
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        file = os.fstat(descriptor)
        if (file.st_ino, file.st_size) == (mapped.inode, self._mapping.size()):
            return descriptor
        os.close(descriptor)
        return None

    def check(self) -> None:
        """Raises OSError if the file became shorter than the array."""
        require_size(self.path, self._mapping.size(), self._end)

    def __getstate__(self) -> tuple[Any, ...]:
        array = self.array
        file = os.stat(self.path)
        if file.st_ino != self._inode:
            raise OSError(
                f"{self.path}: the file was replaced after it was opened; open it again to pickle it"
            )
        mode = self.mode if array.flags.writeable else "r"
        # This process may write to a writable map meanwhile; a copied file may have another inode.
        file_stamp = stamp(file)[:1] if self.mode != "r" else stamp(file)[1:]
        before, after = _extent(array)
        span = (self.offset - before, self.offset + after)
        return (self.path, mode, span, before, array.dtype, array.shape, array.strides, file_stamp)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        path, mode, (start, end), before, dtype, shape, strides, file_stamp = state
        file = os.stat(path)
        require_size(path, file.st_size, end)
        if file_stamp not in (stamp(file)[:1], stamp(file)[1:]):
            raise OSError(
                f"{path}: the file was replaced or changed after the array in it was pickled; "
                "open the array again from the file, and pickle that"
            )
        # "w+" would empty the file.
        mapped = np.memmap(path, np.uint8, "r" if mode == "r" else "r+", start, (end - start,))
        array = np.ndarray(shape, dtype, mapped, before, strides)
        self.__init__(path, mode, start + before, array, mapped._mmap)  # type: ignore[misc, attr-defined]


@dataclasses.dataclass(frozen=True, slots=True)
class FilePart:
    """An array in a file that another library, such as Arrow, has mapped read-only.

    It pickles as a path and position, for processes that are being started.
    """

    path: str
    stamp: tuple[int, int, int]  # inode, size and modification time
    start: int  # of the array's first element, in bytes
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def under(cls, array: npt.NDArray[Any]) -> FilePart | None:
        """Returns an array's position in a file, or None if it has none or the system can't tell."""
        before, after = _extent(array)
        address = array.ctypes.data
        mapping = _mapping_at(address - before)
        if mapping is None or not mapping.is_read_only or mapping.end < address + after:
            return None
        try:
            file_stamp = stamp(os.stat(mapping.path))
        except OSError:
            return None
        start = mapping.offset + address - mapping.begin
        if file_stamp[0] != mapping.inode or file_stamp[1] < start + after:
            return None
        return cls(mapping.path, file_stamp, start, array.dtype, array.shape, array.strides)

    def open(self) -> npt.NDArray[Any]:
        """Returns the array, in a mapping of the whole file that all parts share."""
        mapping = _whole_files.get((self.path, self.stamp))
        if mapping is None:
            if stamp(os.stat(self.path)) != self.stamp:
                raise OSError(
                    f"{self.path}: the file was replaced or changed after it was opened; open it again"
                )
            mapping = np.memmap(self.path, np.uint8, "r")
            _whole_files[self.path, self.stamp] = mapping
        return np.ndarray(self.shape, self.dtype, mapping, self.start, self.strides)


#: Files with open parts in this process, by path and stamp.
_whole_files: weakref.WeakValueDictionary[Any, npt.NDArray[Any]] = weakref.WeakValueDictionary()


class _Mapping(NamedTuple):
    """A range of addresses where a file is mapped."""

    begin: int
    end: int
    is_read_only: bool
    offset: int
    inode: int
    path: str


def _mappings() -> list[_Mapping]:
    """Returns the file mappings of this process, by address; empty if the system can't tell."""
    mappings = []
    with contextlib.suppress(OSError), open("/proc/self/maps", "rb") as maps:
        for line in maps:
            span, access, offset, _, inode, *path = line.rstrip(b"\n").split(maxsplit=5)
            begin, end = (int(number, 16) for number in span.split(b"-"))
            name = os.fsdecode(path[0]) if path else ""
            is_read_only = access in (b"r--s", b"r--p")
            mappings.append(_Mapping(begin, end, is_read_only, int(offset, 16), int(inode), name))
    return mappings


_cached_for: weakref.ref[Any] | None = None  # the process being started when they were read
_cached: list[_Mapping] = []


def _mapping_at(address: int) -> _Mapping | None:
    """Returns the mapping of an address; reads all mappings once per process being started."""
    global _cached_for, _cached
    starting: Any = context.get_spawning_popen()
    if starting is None or _cached_for is None or _cached_for() is not starting:
        _cached = _mappings()
        _cached_for = None if starting is None else weakref.ref(starting)
    index = bisect.bisect_right(_cached, address, key=lambda mapping: mapping.begin) - 1
    return _cached[index] if index >= 0 and address < _cached[index].end else None


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:  # deleted already, which matters only for pickling
        return None


def stamp(file: os.stat_result) -> tuple[int, int, int]:
    """Returns inode, size and modification time, which identify a version of a file."""
    return file.st_ino, file.st_size, file.st_mtime_ns


def require_size(name: str, size: int, end: int) -> None:
    """Raises OSError, naming the file ``name``, if its size is less than the array's end."""
    if size < end:
        raise OSError(
            f"{name}: the file was cut short: it has {size} bytes, but its array ends at byte {end}; "
            "write or download it again"
        )


def _extent(array: npt.NDArray[Any]) -> tuple[int, int]:
    """Returns the bytes that an array spans before and after its first element's address."""
    if array.size == 0:
        return 0, 0
    low, high = np.lib.array_utils.byte_bounds(array)
    return array.ctypes.data - low, high - array.ctypes.data


def open_regular(path: str, name: str) -> io.BufferedReader:
    """Opens a file to be mapped; a directory raises the error of ``open``.

    Pipes, sockets and devices raise ValueError, because opening a pipe waits for its writer.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, f"{name}: {error.strerror}") from error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        kinds = {stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
        raise ValueError(
            f"{name} is a {kinds.get(stat.S_IFMT(mode), 'device')}, not a regular file; pass a file "
            "on a disk, whose rows can be read in any order"
        )
    return open(path, "rb")


@contextlib.contextmanager
def open_npy(path: str, name: str) -> Iterator[tuple[io.BufferedReader, NpyHeader]]:
    """Opens a .npy file to be mapped, and reads its header.

    Raises ValueError if it is not a .npy file of numbers, OSError if it is truncated.
    """
    with open_regular(path, name) as file:
        header = NpyHeader.read(file, name)
        require_size(name, os.fstat(file.fileno()).st_size, header.end)
        yield file, header
