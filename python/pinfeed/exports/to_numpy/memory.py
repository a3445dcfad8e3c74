"""Columns in memory."""

from __future__ import annotations

import contextlib
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed.exports.to_numpy.storage import Storage
from pinfeed.limits import require_memory

# From here on larger pages save most of the time that fresh memory costs. NumPy's own limit.
_HUGE = 4 * 1024 * 1024


class Memory(Storage):
    """Anonymous memory, which Linux lengthens and cuts by moving pages, not bytes.

    ``ndarray.resize`` could do as much, but writes zeros into all that it adds, so that room to
    grow would be memory in use.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        super().__init__(dtype)
        self._map = _anonymous(1)
        self._shape: tuple[int, ...] = (0,)

    def reserve(self, items: int) -> None:
        """See `Storage.reserve`."""
        if items > self.capacity:
            # Asked here, because the system hands out more than it has, and kills later.
            more = (items - self.capacity) * self.dtype.itemsize
            require_memory(more, f"after {len(self._map):,} bytes of a leaf, more samples need")
        super().reserve(items)

    def resize(self, items: int) -> None:
        """See `Storage.resize`."""
        size = max(1, items * self.dtype.itemsize)
        try:
            self._map.resize(size)
        except (BufferError, SystemError):
            # The traceback of an error holds a view, or the system can't move pages.
            moved = _anonymous(size)
            kept = min(size, len(self._map))
            memoryview(moved)[:kept] = memoryview(self._map)[:kept]
            self._map = moved
        except OSError as error:
            raise _no_memory(size) from error
        self.capacity = items
        if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel that was built without them
                self._map.madvise(mmap.MADV_HUGEPAGE)

    def view(self, start: int, stop: int) -> npt.NDArray[Any]:
        """See `Storage.view`."""
        return np.frombuffer(self._map, self.dtype, stop - start, start * self.dtype.itemsize)

    def finish(self, shape: tuple[int, ...], name: str) -> None:
        """See `Storage.finish`."""
        self._shape = shape
        size = max(1, self.array(shape).nbytes)
        # Where it can't be cut, no page of the rest was ever touched.
        with contextlib.suppress(BufferError, SystemError):
            self._map.resize(size)

    def result(self) -> npt.NDArray[Any]:
        """See `Storage.result`."""
        return self.array(self._shape)


def _anonymous(size: int) -> mmap.mmap:
    try:
        # Private, because shared memory can't grow.
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise _no_memory(size) from error


def _no_memory(size: int) -> MemoryError:
    return MemoryError(f"to_numpy: the system has no memory for an array of {size:,} bytes")
