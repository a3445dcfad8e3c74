"""What the beginning of a .npy file says."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy


class NpyHeader(NamedTuple):
    """Where the array of a .npy file lies in it, and what it is."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool
    offset: int  # of the first element, in bytes

    @classmethod
    def read(cls, file: io.BufferedReader) -> NpyHeader:
        """Reads it from the beginning of a file; nothing is unpickled.

        Raises:
            ValueError: It is none, or one of objects.
        """
        version = npy.read_magic(file)
        readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        if version not in readers:
            raise ValueError(f"format version {version} is not one of numbers")
        shape, fortran_order, dtype = readers[version](file)
        if dtype.hasobject:
            raise ValueError("the array is one of Python objects")
        return cls(dtype, shape, fortran_order, file.tell())

    def map(self, file: io.BufferedReader) -> npt.NDArray[Any]:
        """The array as a read-only memmap."""
        order = "F" if self.fortran_order else "C"
        return np.memmap(file, self.dtype, "r", self.offset, self.shape, order)  # type: ignore[call-overload]
