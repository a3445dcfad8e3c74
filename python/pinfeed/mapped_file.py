"""The file under an array."""

from __future__ import annotations

import os
from mmap import ALLOCATIONGRANULARITY
from typing import Any

import numpy as np
import numpy.typing as npt


class MappedFile:
    """The part of a file that an array looks at; pickles as where it is, not as its bytes."""

    def __init__(
        self, path: str, mode: str, offset: int, array: npt.NDArray[Any], mapping: Any
    ) -> None:
        self.path = path
        self.mode = mode
        self.offset = offset  # of the array's first element, in bytes
        self.array = array
        self._mapping = mapping
        self._end = offset + _bytes_after(array)

    @classmethod
    def under(cls, array: npt.NDArray[Any]) -> MappedFile | None:
        """The file that ``array`` lies in, or None if it lies in memory."""
        owner: Any = array
        while isinstance(owner, np.ndarray):
            # NumPy's own name for the mmap object, which knows the file's size.
            if isinstance(owner, np.memmap) and getattr(owner, "_mmap", None) is not None:
                break
            owner = owner.base
        else:
            return None
        if owner.filename is None:
            return None
        # A view of a memmap inherits its `offset` unchanged, so the position in the file comes from
        # the addresses. The mapping begins at a multiple of the granularity.
        mapping_start = owner.offset - owner.offset % ALLOCATIONGRANULARITY
        mapping: Any = getattr(owner, "_mmap", None)
        mapping_address = np.frombuffer(mapping, np.uint8, 1).ctypes.data
        offset = mapping_start + array.ctypes.data - mapping_address
        return cls(os.fspath(owner.filename), owner.mode, offset, np.asarray(array), mapping)

    @property
    def can_reopen(self) -> bool:
        """Whether the path says it all; a copy-on-write map may hold changes of its own."""
        return self.mode != "c"

    def check(self) -> None:
        """Raises OSError if the file became shorter than the array."""
        _require_size(self.path, self._mapping.size(), self._end)

    def __getstate__(self) -> tuple[Any, ...]:
        array = self.array
        mode = self.mode if array.flags.writeable else "r"
        return (self.path, mode, self.offset, array.dtype, array.shape, array.strides)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        path, mode, offset, dtype, shape, strides = state
        first = offset - _bytes_before(shape, strides)
        end = offset + _bytes_after_first(shape, strides, dtype.itemsize)
        _require_size(path, os.path.getsize(path), end)
        # "w+" would empty the file.
        mapped = np.memmap(
            path, np.uint8, "r" if mode == "r" else "r+", offset=first, shape=(end - first,)
        )
        array = np.ndarray(shape, dtype, mapped, offset - first, strides)
        self.__init__(path, mode, offset, array, mapped._mmap)  # type: ignore[misc, attr-defined]


def _require_size(path: Any, size: int, end: int) -> None:
    if size < end:
        raise OSError(
            f"{path}: the file was cut short: it has {size} bytes, "
            f"the array in it ends at byte {end}"
        )


def _bytes_before(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    return -sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0 and n > 0)


def _bytes_after_first(shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> int:
    if 0 in shape:
        return 0
    return item + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0)


def _bytes_after(array: npt.NDArray[Any]) -> int:
    return _bytes_after_first(array.shape, array.strides, array.itemsize)
