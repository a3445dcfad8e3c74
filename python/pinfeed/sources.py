"""One array of a dataset, wherever it lies: in memory, in a tensor, in a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from mmap import ALLOCATIONGRANULARITY
from typing import Any

import numpy as np
import numpy.typing as npt
import torch


class Source:
    """An array whose first axis counts samples.

    Args:
        array: ndarray, memmap, CPU tensor, or the path of a .npy file.
        name: What messages call it.

    Attributes:
        array: ndarray (a memmap as a plain view of itself) or tensor.
    """

    __slots__ = ("_file", "array")

    def __init__(self, array: Any, name: str) -> None:
        if isinstance(array, str | os.PathLike):
            array = _open_npy(os.fspath(array), name)
        if isinstance(array, torch.Tensor):
            _check_tensor(array, name)
        elif isinstance(array, np.ndarray):
            _check_ndarray(array, name)
        else:
            raise TypeError(
                f"{name}: expected an ndarray, a memmap, a CPU tensor or the path of a .npy file, "
                f"got {type(array).__name__}"
            )
        if array.ndim == 0:
            raise ValueError(f"{name}: expected an axis that counts samples, got a 0-d array")
        self._file = MappedFile.under(array) if isinstance(array, np.ndarray) else None
        self.array: Any = array if isinstance(array, torch.Tensor) else np.asarray(array)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: int) -> Any:
        self.check()
        return self.array[index]

    def check(self) -> None:
        """Raises OSError if the array's file no longer holds it (reading it would be SIGBUS)."""
        if self._file is not None:
            self._file.check()

    def describe(self) -> str:
        """Dtype and shape of a sample, for people."""
        return f"{str(self.array.dtype).removeprefix('torch.')} {tuple(self.array.shape[1:])}"

    def __getstate__(self) -> Any:
        if self._file is None or not self._file.can_reopen:
            return self.array
        return self._file

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, MappedFile):
            self._file = state
            self.array = state.array
        else:
            self._file = None
            self.array = state


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


def check_mapped(arrays: Sequence[Any]) -> None:
    """Raises OSError if the file under one of these memmaps was cut short since it was opened.

    Looks at the rest only if the first is a memmap: views of a memmap usually come together.
    """
    if not isinstance(arrays[0], np.memmap):
        return
    checked = set()
    for array in arrays:
        mapping = getattr(array, "_mmap", None) if isinstance(array, np.memmap) else None
        if mapping is not None and id(mapping) not in checked:
            checked.add(id(mapping))
            start = array.offset - array.offset % ALLOCATIONGRANULARITY
            _require_size(array.filename, mapping.size(), start + len(mapping))


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


def _open_npy(path: str, name: str) -> npt.NDArray[Any]:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{name}: {path} is no complete .npy file of numbers: {error}") from error


def _check_tensor(tensor: torch.Tensor, name: str) -> None:
    if tensor.device.type != "cpu":
        raise TypeError(
            f"{name}: expected a tensor on the CPU, got one on {tensor.device}; "
            "move it with .cpu() first"
        )
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        raise TypeError(f"{name}: expected a dense tensor, got {tensor.layout}")


def _check_ndarray(array: npt.NDArray[Any], name: str) -> None:
    if array.dtype.kind not in "biufc":
        raise TypeError(f"{name}: expected a numeric or bool dtype, got {array.dtype}")
    if not array.dtype.isnative:
        raise TypeError(
            f"{name}: expected the machine's byte order, got dtype {array.dtype.str}; "
            "convert with a.astype(a.dtype.newbyteorder('='))"
        )
