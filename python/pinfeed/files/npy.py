"""What the beginning of a .npy file says."""

from __future__ import annotations

import io
import math
import sys
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
    def read(cls, file: io.BufferedReader | io.BytesIO) -> NpyHeader:
        """Reads it from the beginning of a file; nothing is unpickled.

        Raises:
            ValueError: It is none, or one of objects, or of a shape that can't be.
        """
        version = npy.read_magic(file)
        readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        if version not in readers:
            raise ValueError(f"format version {version} is not one of numbers")
        shape, fortran_order, dtype = readers[version](file)
        if dtype.hasobject:
            raise ValueError("the array is one of Python objects")
        if any(length < 0 for length in shape):
            raise ValueError(f"the shape {shape} has a negative length")
        # An axis of length 0 doesn't make the others harmless: they are added up.
        if math.prod(max(length, 1) for length in shape) * max(dtype.itemsize, 1) > sys.maxsize:
            raise ValueError(f"an array of {dtype} and shape {shape} is larger than memory can be")
        return cls(dtype, shape, fortran_order, file.tell())

    def map(self, file: io.BufferedReader) -> npt.NDArray[Any]:
        """The array as a read-only memmap."""
        order = "F" if self.fortran_order else "C"
        return np.memmap(file, self.dtype, "r", self.offset, self.shape, order)  # type: ignore[call-overload]
