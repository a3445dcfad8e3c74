"""Files that are mapped: the one under an array, and how they are opened."""

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
    """The part of a file that an array looks at; pickles as where it is, not as its bytes.

    A pickle is refused where its path leads to another file. For a read-only map that is told by
    the file's size and time of change; to the file of a writable one, its own process may write
    meanwhile, so there it is the inode.
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
        """The file that ``array`` lies in, or None if it lies in memory."""
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
        """A ``_core.FileArray``, which reads the rows of the array from the file, not through the mapping.

        It owns the ``descriptor`` of the open file. Without one the file is opened by its path, if that
        still leads to what is mapped. None if the file can't be had, or does not hold what the array
        does: a copy-on-write map may hold changes of its own.
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
        # Its own process may write to a writable map meanwhile, and a copy may have another inode.
        marks = stamp(file)[:1] if self.mode != "r" else stamp(file)[1:]
        before, after = _extent(array)
        span = (self.offset - before, self.offset + after)
        return (self.path, mode, span, before, array.dtype, array.shape, array.strides, marks)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        path, mode, (start, end), before, dtype, shape, strides, marks = state
        file = os.stat(path)
        require_size(path, file.st_size, end)
        if marks not in (stamp(file)[:1], stamp(file)[1:]):
            raise OSError(
                f"{path}: the file was replaced or changed after the array in it was pickled; "
                "make the array anew from the file, and pickle that"
            )
        # "w+" would empty the file.
        mapped = np.memmap(path, np.uint8, "r" if mode == "r" else "r+", start, (end - start,))
        array = np.ndarray(shape, dtype, mapped, before, strides)
        self.__init__(path, mode, start + before, array, mapped._mmap)  # type: ignore[misc, attr-defined]


@dataclasses.dataclass(frozen=True, slots=True)
class FilePart:
    """An array in a file that something else than NumPy has mapped to read it, such as Arrow.

    It pickles as where it is, for processes that are started now.
    """

    path: str
    marks: tuple[int, int, int]  # inode, size and time of change
    start: int  # of the array's first element, in bytes
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def under(cls, array: npt.NDArray[Any]) -> FilePart | None:
        """Where an array lies in a file; None if it lies elsewhere, or the system doesn't tell."""
        before, after = _extent(array)
        address = array.ctypes.data
        found = _mapping_at(address - before)
        if found is None or not found.is_read_only or found.end < address + after:
            return None
        try:
            marks = stamp(os.stat(found.path))
        except OSError:
            return None
        start = found.offset + address - found.begin
        if marks[0] != found.inode or marks[1] < start + after:
            return None
        return cls(found.path, marks, start, array.dtype, array.shape, array.strides)

    def open(self) -> npt.NDArray[Any]:
        """The array, in a mapping of the file that all its parts share."""
        mapping = _whole_files.get((self.path, self.marks))
        if mapping is None:
            if stamp(os.stat(self.path)) != self.marks:
                raise OSError(f"{self.path}: the file was replaced or changed after it was mapped")
            mapping = np.memmap(self.path, np.uint8, "r")
            _whole_files[self.path, self.marks] = mapping
        return np.ndarray(self.shape, self.dtype, mapping, self.start, self.strides)


#: Files of which parts are open in this process, by path and marks.
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
    """Where files are mapped in this process, by address; empty where the system doesn't tell."""
    found = []
    with contextlib.suppress(OSError), open("/proc/self/maps", "rb") as maps:
        for line in maps:
            span, access, offset, _, inode, *path = line.rstrip(b"\n").split(maxsplit=5)
            begin, end = (int(number, 16) for number in span.split(b"-"))
            name = os.fsdecode(path[0]) if path else ""
            shown = access in (b"r--s", b"r--p")
            found.append(_Mapping(begin, end, shown, int(offset, 16), int(inode), name))
    return found


_known_for: weakref.ref[Any] | None = None  # the process being started for which they were read
_known: list[_Mapping] = []


def _mapping_at(address: int) -> _Mapping | None:
    """Where an address lies. While a process is started, many ask and the answer is read once."""
    global _known_for, _known
    starting: Any = context.get_spawning_popen()
    if starting is None or _known_for is None or _known_for() is not starting:
        _known = _mappings()
        _known_for = None if starting is None else weakref.ref(starting)
    place = bisect.bisect_right(_known, address, key=lambda mapping: mapping.begin) - 1
    return _known[place] if place >= 0 and address < _known[place].end else None


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:  # deleted already, which only matters to a pickle
        return None


def stamp(file: os.stat_result) -> tuple[int, int, int]:
    """What tells a file from others, and from what it was: inode, size and time of change."""
    return file.st_ino, file.st_size, file.st_mtime_ns


def require_size(name: str, size: int, end: int) -> None:
    """Raises OSError if a file of this size, as messages call it, ends before its array does."""
    if size < end:
        raise OSError(
            f"{name}: the file was cut short: it has {size} bytes, "
            f"the array in it ends at byte {end}"
        )


def _extent(array: npt.NDArray[Any]) -> tuple[int, int]:
    """How many bytes before and behind the address of its first element an array looks at."""
    if array.size == 0:
        return 0, 0
    low, high = np.lib.array_utils.byte_bounds(array)
    return array.ctypes.data - low, high - array.ctypes.data


def open_regular(path: str, name: str) -> io.BufferedReader:
    """Opens a file to be mapped; a directory is the error that ``open`` makes of it.

    Pipes, sockets and devices are a ValueError. Opening a pipe would wait for its writer.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, f"{name}: {error.strerror}") from error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        kinds = {stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
        raise ValueError(
            f"{name} is no regular file but a {kinds.get(stat.S_IFMT(mode), 'device')}; "
            "expected one on a disk, whose rows can be read in any order"
        )
    return open(path, "rb")


@contextlib.contextmanager
def open_npy(path: str, name: str) -> Iterator[tuple[io.BufferedReader, NpyHeader]]:
    """Opens a .npy file to be mapped, and reads its header.

    A ValueError says that it is none of numbers, an OSError that it ends before its array.
    """
    with open_regular(path, name) as file:
        header = NpyHeader.read(file, name)
        require_size(name, os.fstat(file.fileno()).st_size, header.end)
        yield file, header
