"""Memory that workers map instead of copying it: files without a name."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from multiprocessing import reduction
from typing import Any

from pinfeed import _core


class SharedFile:
    """A file that only its users know; the system frees its memory when the last of them is gone.

    It pickles as its descriptor, for a process that is being started or a queue of multiprocessing.

    Attributes:
        descriptor: Of the file, as long as this object lives.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def create(cls) -> SharedFile:
        """A new file; on a disk where the system has none in memory."""
        try:
            return cls(_core.create_shared_file("pinfeed"))
        except OSError:
            with tempfile.TemporaryFile() as file:
                return cls(os.dup(file.fileno()))

    def write(self, data: Any, offset: int) -> None:
        """Writes adjacent bytes; where there is no memory for them this raises OSError."""
        rest = memoryview(data)
        while rest:
            count = os.pwrite(self.descriptor, rest, offset)
            rest, offset = rest[count:], offset + count

    def map(self, access: int) -> mmap.mmap:
        """All of it in memory: ``mmap.ACCESS_READ``, or ``ACCESS_COPY`` to write what no other sees."""
        return mmap.mmap(self.descriptor, 0, access=access)

    def __reduce__(self) -> Any:
        return _received, (reduction.DupFd(self.descriptor),)


def _received(handle: Any) -> SharedFile:
    return SharedFile(handle.detach())
