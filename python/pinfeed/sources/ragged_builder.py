"""Conversion of samples to ndarrays, and appending of sequences to one array."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.arguments import ARRAYS, Problem, as_array, check_plain, dtype_name
from pinfeed.sources.source import numpy_view

# Growing is cheap, because large memory is remapped and not copied.
_GROWTH = 1.25

# Python's floats are float32, as in Pad.
_PYTHON_DTYPES = {np.dtype("f8"): np.dtype("f4"), np.dtype("c16"): np.dtype("c8")}

# A cast to a kind of lower rank would lose more than range or precision.
_RANK = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


class RaggedBuilder:
    """The values and offsets of a `RaggedArray`, built by appending sequences."""

    def __init__(self, dtype: Any, function: str) -> None:
        self._function = function
        self._reader = SampleReader(dtype, function)
        self._values: npt.NDArray[Any] | None = None
        self._offsets = array("q", [0])
        self._is_tensor = False

    def append(self, sequence: Any) -> None:
        """Copies a sequence to the end; errors name its number."""
        start = self._offsets[-1]
        if self._reader.is_empty(sequence):
            self._offsets.append(start)
            return
        part = self._reader.read(sequence, self._name())
        if self._values is None:
            self._values = np.empty(part.shape, part.dtype)
            self._is_tensor = isinstance(sequence, torch.Tensor)
        if part.shape[1:] != self._values.shape[1:]:
            expected = ", ".join(str(size) for size in ("*", *self._values.shape[1:]))
            raise ValueError(
                f"{self._name()}: expected shape ({expected}) like the first, got {part.shape}"
            )
        end = start + len(part)
        if end > len(self._values):
            _resize(self._values, max(end, int(_GROWTH * len(self._values))))
        self._values[start:end] = part
        self._offsets.append(end)

    def finish(self) -> tuple[Any, npt.NDArray[np.int64]]:
        """The values, a tensor if the first sequence was one, and the offsets."""
        values: Any = self._values
        if values is None:
            self._is_tensor = isinstance(self._reader.empty_array, torch.Tensor)
            self._reader.settle_dtype(f"{self._function}: an empty sequence")
            if self._reader.dtype is None:
                count = len(self._offsets) - 1
                raise ValueError(
                    f"{self._function}: expected a sequence that has a dtype, got "
                    f"{f'{count} empty lists' if count else 'no sequences'}; set it with dtype="
                )
            values = np.empty(0, self._reader.dtype)
        _resize(values, self._offsets[-1])
        offsets = np.frombuffer(self._offsets, np.int64)
        return torch.from_numpy(values) if self._is_tensor else values, offsets

    def _name(self) -> str:
        return f"{self._function}: sequence {len(self._offsets) - 1}"


def _resize(values: npt.NDArray[Any], length: int) -> None:
    # Without refcheck, which counts this function's own reference: nothing else views the array.
    values.resize((length, *values.shape[1:]), refcheck=False)


class SampleReader:
    """Converts samples of any kind to ndarrays of one dtype.

    Args:
        dtype: NumPy or torch dtype to cast all samples to; None: the dtype of the first sample.
        function: Name of the caller, for messages.
        takes_numbers: Whether a sample may be a single number.

    Attributes:
        dtype: The dtype of all arrays; None until the first sample.
        empty_array: The first empty array.
    """

    def __init__(self, dtype: Any, function: str, *, takes_numbers: bool = False) -> None:
        self.dtype = None if dtype is None else numpy_dtype(dtype, function)
        self._casts = dtype is not None
        self._takes_numbers = takes_numbers
        self.empty_array: npt.NDArray[Any] | torch.Tensor | None = None

    def is_empty(self, sample: Any) -> bool:
        """Whether a sample is empty and so has no dtype: ``[]``, ``np.array([])`` or ``torch.tensor([])``."""
        if isinstance(sample, list | tuple):
            return not sample
        if isinstance(sample, np.ndarray):
            is_floating = sample.dtype.kind == "f"
        else:
            is_floating = isinstance(sample, torch.Tensor) and sample.is_floating_point()
        if not is_floating or sample.shape != (0,):
            return False
        if self.empty_array is None:
            self.empty_array = sample
        return True

    def settle_dtype(self, name: str) -> None:
        """Uses the dtype of an empty array, called ``name`` in messages, if all samples are empty."""
        if self.dtype is None and self.empty_array is not None:
            self.read(self.empty_array, name)

    def read(self, sample: Any, name: str) -> npt.NDArray[Any]:
        """Returns a sample (any input of ``np.asarray`` or a CPU tensor) as an array, a view if possible."""
        array = self._as_array(sample, name)
        if array.ndim == 0 and not self._takes_numbers:
            if isinstance(sample, ARRAYS):
                raise ValueError(f"{name}: expected at least one axis, got a 0-d array")
            hint = "; RaggedArray.from_strings takes strings" * isinstance(sample, str | bytes)
            hint += "; leave it out, or put [] in its place" * (sample is None)
            raise TypeError(
                f"{name}: expected an array or a list of numbers, got {type(sample).__name__}{hint}"
            )
        if self.dtype is None:
            _core.check_array(array, name)
            self.dtype = array.dtype
        return array if array.dtype == self.dtype else self._cast(array, name)

    def _as_array(self, sample: Any, name: str) -> npt.NDArray[Any]:
        check_plain(sample, name)
        if isinstance(sample, torch.Tensor):
            return numpy_view(sample, name)
        if isinstance(sample, Mapping) or (sample is None and self._takes_numbers):
            hint = "leave such samples out, or store a number in its place"
            if sample is not None:
                hint = "make its entries keys of the sample itself, such as 'a.b'"
            expected = "an array or a list of numbers"
            raise TypeError(Problem(name, expected, type(sample).__name__, hint))
        array = as_array(sample, name)
        is_python = isinstance(sample, list | tuple) or type(sample) in (int, float, complex)
        if is_python and not self._casts:
            return _from_python(array, sample, name)
        return array

    def _cast(self, array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
        dtype = self.dtype
        assert dtype is not None
        if not self._casts:
            hint = "set the dtype of all with dtype="
            if array.dtype.kind not in _RANK:
                hint = "put numbers, strings and objects into separate entries"
            raise TypeError(f"{name}: expected {dtype} like the first, got {array.dtype}; {hint}")
        return checked_cast(array, dtype, name)


def _from_python(array: npt.NDArray[Any], numbers: Any, name: str) -> npt.NDArray[Any]:
    # NumPy converts Python ints of 2**63 and more to uint64, or to float64 if others are smaller.
    if array.dtype in (np.uint64, np.float64) and (array >= 2**63).any():
        for number in np.asarray(numbers, object).flat:
            if type(number) is int and number >= 2**63:
                raise ValueError(
                    f"{name}: expected 64-bit integers, got {number}; "
                    "set the dtype of all with dtype="
                )
    if array.dtype not in _PYTHON_DTYPES:
        return array
    return checked_cast(array, _PYTHON_DTYPES[array.dtype], name)


def checked_cast(array: npt.NDArray[Any], dtype: np.dtype[Any], name: str) -> npt.NDArray[Any]:
    """Casts an array to another numeric dtype; raises if a number does not fit."""
    if array.dtype == dtype:
        return array
    if _RANK.get(array.dtype.kind, len(_RANK)) > _RANK[dtype.kind]:
        raise TypeError(
            f"{name}: expected numbers that can be cast to {dtype}, got {array.dtype}; cast them "
            "first if losing information is fine, or pass another dtype"
        )
    with np.errstate(over="ignore"):  # an error of our own says which number it is
        cast = array.astype(dtype)
    if dtype.kind in "iu":
        wrong = cast != array
    elif dtype.kind in "fc":
        wrong = ~np.isfinite(cast)
        if wrong.any():
            wrong &= np.isfinite(array)
    else:
        return cast
    if wrong.any():
        raise ValueError(
            f"{name}: {array[wrong][0]} does not fit in {dtype}; set a wider one with dtype="
        )
    return cast


def numpy_dtype(dtype: Any, function: str) -> np.dtype[Any]:
    """Converts a NumPy or torch dtype to a numeric NumPy dtype."""
    name = dtype_name(dtype, function)
    try:
        result = np.dtype(name)
    except TypeError:  # bfloat16, for one
        result = np.dtype(object)
    if result.kind not in _RANK:
        raise TypeError(f"{function}: dtype must be a numeric or bool dtype of NumPy, got {name}")
    return result
