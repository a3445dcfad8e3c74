"""One array of a dataset, wherever it lies: in memory, in a tensor, in a file."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed.mapped_file import MappedFile


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
