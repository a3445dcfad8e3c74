"""Mapped files: finding the file under an array, its position in the file, opening .npy files."""

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
    """The file that a memmap, under an array, has mapped."""

    def __init__(self, array: npt.NDArray[Any], owner: Any) -> None:
        self.path = os.fsdecode(owner.filename)
        self.mode: str = owner.mode
        self._array = np.asarray(array)
        self._mapping = owner._mmap
        # A view of a memmap inherits its `offset` unchanged, so the position in the file comes from
        # the addresses. The mapping begins at a multiple of the granularity, at or before its array.
        begin = int(owner.offset - owner.offset % ALLOCATIONGRANULARITY)
        mapping_address = np.frombuffer(owner._mmap, np.uint8, 1).ctypes.data
        self._offset = begin + array.ctypes.data - mapping_address  # of the first element, in bytes
        self._end = self._offset + _extent(self._array)[1]
        self._inode = None
        with contextlib.suppress(OSError):  # deleted already, which matters only for pickling
            self._inode = os.stat(self.path).st_ino

    @classmethod
    def under(cls, array: npt.NDArray[Any]) -> MappedFile | None:
        """Returns the file under an array, or None if the array is in memory."""
        owner: Any = _core.memmap_under(array)
        return None if owner is None or owner.filename is None else cls(array, owner)

    def open_rows(self, descriptor: int | None = None) -> Any:
        """Returns a ``_core.FileArray``, which reads rows from the file, not through the mapping.

        It owns the ``descriptor`` of the open file. Without one, the file is opened by its path, if
        that still names the mapped file. None if the file can't be opened, or may differ from the
        array: a copy-on-write map may have private changes.
        """
        if self.mode == "c":
            return None
        self.check()
        if descriptor is None:
            descriptor = self._open_again()
        if descriptor is None:
            return None
        return _core.FileArray(self._array, self.path, descriptor, self._offset)

    def _open_again(self) -> int | None:
        mapped = _mapping_at(self._array.ctypes.data)
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
        if self._mapping.size() < self._end:  # this comparison is faster
            _core.require_whole_file(self._array)

    def part(self) -> FilePart:
        """Returns the array's position in the file; raises OSError if the path names another file."""
        array, file_stamp = self._array, stamp(os.stat(self.path))
        if file_stamp[0] != self._inode:
            raise _changed(self.path)
        mode = "r" if self.mode == "r" or not array.flags.writeable else "r+"  # "w+" would empty it
        # This process may write to a writable map meanwhile; a copied file may have another inode.
        identity = file_stamp[1:] if self.mode == "r" else file_stamp[:1]
        layout = array.dtype, array.shape, array.strides
        return FilePart(self.path, mode, identity, self._offset, self._end, *layout)


@dataclasses.dataclass(frozen=True, slots=True)
class FilePart:
    """The position of an array in a file, which is pickled instead of the array's bytes."""

    path: str
    mode: Any  # "r" or "r+"
    identity: tuple[int, ...]  # the inode, or size and modification time
    start: int  # of the array's first element, in bytes
    end: int  # of the array, in bytes
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def under(cls, array: npt.NDArray[Any]) -> FilePart | None:
        """Returns the position of an array in a file that another library, such as Arrow, has mapped.

        None if the array is elsewhere, the map is writable, or the system can't tell.
        """
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
        layout = array.dtype, array.shape, array.strides
        return cls(mapping.path, "r", file_stamp[1:], start, start + after, *layout)

    def open(self) -> npt.NDArray[Any]:
        """Returns the array, in a mapping of the whole file that all parts share.

        Raises OSError if the path names another file.
        """
        now = stamp(os.stat(self.path))
        require_size(self.path, now[1], self.end)
        if self.identity not in (now[:1], now[1:]):
            raise _changed(self.path)
        key = self.path, self.mode, now
        if (mapping := _whole_files.get(key)) is None:
            mapping = _whole_files[key] = np.memmap(self.path, np.uint8, self.mode)
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


def stamp(file: os.stat_result) -> tuple[int, int, int]:
    """Returns inode, size and modification time, which identify a version of a file."""
    return file.st_ino, file.st_size, file.st_mtime_ns


def require_same(path: str, file_stamp: tuple[int, int, int]) -> None:
    """Raises OSError if the file was modified or replaced since its stamp was taken."""
    if stamp(os.stat(path)) != file_stamp:
        raise _changed(path)


def _changed(path: str) -> OSError:
    return OSError(f"{path}: the file was replaced or changed after it was opened; open it again")


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
