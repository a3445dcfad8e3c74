"""Anonymous files, which workers map instead of copying memory."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import mmap
import os
import tempfile
import weakref
from collections.abc import Sequence
from multiprocessing import context, reduction, resource_sharer
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed import _core

#: Bytes written or compared at a time.
_CHUNK = 2**20
#: Maximum descriptors sent to a new forkserver process at its start; the limit is 256, with queues.
_AT_START = 128
_sent: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


class SharedFile:
    """An anonymous file, whose memory the system frees after its last user.

    It pickles as its descriptor, for a process that is being started or a multiprocessing queue. If
    there are many, a forkserver process requests the rest afterwards.

    Attributes:
        descriptor: File descriptor, open as long as this object lives.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def create(cls, size: int = 0) -> SharedFile:
        """Creates a file in memory, or on disk if the system has no memory files."""
        try:
            self = cls(_core.create_shared_file("pinfeed"))
        except OSError:
            with tempfile.TemporaryFile() as file:
                self = cls(os.dup(file.fileno()))
        os.truncate(self.descriptor, size)
        return self

    def write(self, data: Any, offset: int) -> None:
        """Writes bytes; raises OSError if memory is full."""
        rest = memoryview(data)
        while rest:
            count = os.pwrite(self.descriptor, rest, offset)
            rest, offset = rest[count:], offset + count

    def map(self, access: int) -> mmap.mmap:
        """Maps the whole file."""
        return mmap.mmap(self.descriptor, 0, access=access)

    @functools.cached_property
    def copied_on_write(self) -> mmap.mmap:
        """A private mapping of the whole file; this process's writes stay private."""
        return self.map(mmap.ACCESS_COPY)

    def __reduce__(self) -> Any:
        process = context.get_spawning_popen()
        if process is None:
            return _received, (reduction.DupFd(self.descriptor),)
        count = _sent[process] = _sent.get(process, 0) + 1
        is_full = process.method == "forkserver" and count > _AT_START
        send: Any = resource_sharer if is_full else reduction
        return _received, (send.DupFd(self.descriptor),)


def _received(handle: Any) -> SharedFile:
    return SharedFile(handle.detach())


@dataclasses.dataclass(frozen=True, slots=True)
class SharedArray:
    """A copy of an array's contents in a shared file."""

    file: SharedFile
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool
    is_writeable: bool

    @classmethod
    def of(cls, arrays: Sequence[npt.NDArray[Any]]) -> list[SharedArray]:
        """Copies the contents of arrays into one file."""
        ends = [0, *itertools.accumulate(-(-array.nbytes // 64) * 64 for array in arrays)]
        file = SharedFile.create(ends[-1])
        copies = []
        for array, offset in zip(arrays, ends[:-1], strict=True):
            flags = array.flags
            is_fortran = flags.f_contiguous and not flags.c_contiguous
            self = cls(file, offset, array.dtype, array.shape, is_fortran, flags.writeable)
            for chunk in self._chunks(array):
                file.write(chunk, offset)
                offset += chunk.nbytes
            copies.append(self)
        return copies

    def open(self) -> npt.NDArray[Any]:
        """Returns an array of the contents; writes to it stay private to this process."""
        order: Any = "F" if self.is_fortran else "C"
        memory = self.file.copied_on_write
        array = np.ndarray(self.shape, self.dtype, memory, self.offset, order=order)
        array.flags.writeable = self.is_writeable
        return array

    def is_equal_to(self, array: npt.NDArray[Any]) -> bool:
        """Whether an array has the same bits."""
        if (array.dtype, array.shape) != (self.dtype, self.shape):
            return False
        contents = np.frombuffer(self.file.map(mmap.ACCESS_READ), np.uint8)
        begin = self.offset
        for chunk in self._chunks(array):
            if not np.array_equal(chunk, contents[begin : begin + len(chunk)]):
                return False
            begin += len(chunk)
        return True

    def _chunks(self, array: npt.NDArray[Any]) -> Any:
        """Yields the bytes of an array in file order, in parts."""
        rows = array.T if self.is_fortran else array
        if rows.flags.c_contiguous:
            rows = rows.reshape(-1)
        step = max(1, _CHUNK // max(1, rows[:1].nbytes))
        for start in range(0, len(rows), step):
            part = np.ascontiguousarray(rows[start : start + step])
            yield part.reshape(-1).view(np.uint8)


class SharedIntegers:
    """Integers that an object shares with its copies in workers, for any start method.

    Other copies, by ``copy`` or ``pickle``, get their own memory with the same values.

    Attributes:
        values: int64 of shape (count,).
    """

    def __init__(self, values: Sequence[int]) -> None:
        self.__setstate__(np.array(values, np.int64))

    def compare_exchange(self, index: int, expected: int, desired: int) -> bool:
        """Atomically replaces a value if it equals ``expected``; returns whether it did."""
        return _core.compare_exchange(self.values, index, expected, desired)

    def increment(self, index: int) -> None:
        """Atomically adds 1 to a value."""
        while not self.compare_exchange(index, value := int(self.values[index]), value + 1):
            pass

    def __getstate__(self) -> Any:
        is_for_worker = context.get_spawning_popen() is not None
        return self._file if is_for_worker else self.values.copy()

    def __setstate__(self, state: Any) -> None:
        is_copy = isinstance(state, np.ndarray)
        self._file = SharedFile.create(state.nbytes) if is_copy else state
        self.values = np.frombuffer(self._file.map(mmap.ACCESS_WRITE), np.int64)
        if is_copy:
            self.values[:] = state
