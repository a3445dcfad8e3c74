"""Sequences of any kind, appended to one array that grows."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed.dtypes import dtype_name
from pinfeed.mapped_file import require_whole_file
from pinfeed.sources import check_ndarray, check_tensor

# Large memory that grows is remapped, not copied, so all but this much of it is data.
_GROWTH = 1.25

# Lists of Python's floats are float32, as in Pad.
_LIST_DTYPES = {np.dtype("f8"): np.dtype("f4"), np.dtype("c16"): np.dtype("c8")}

# A cast to a kind of lower rank would lose more than range or precision.
_RANK = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


class RaggedBuilder:
    """The values and offsets of a `RaggedArray`, from one sequence after the other.

    Args:
        dtype: Of the values; None: that of the first sequence that has one.
        function: Who asks, for messages.
    """

    def __init__(self, dtype: Any, function: str) -> None:
        self._function = function
        self._asked = None if dtype is None else _numpy_dtype(dtype, function)
        self._values: npt.NDArray[Any] | None = None
        self._offsets = array("q", [0])
        self._is_tensor = False

    def append(self, sequence: Any) -> None:
        """Copies a sequence to the end; an error says the number of the sequence."""
        start = self._offsets[-1]
        if isinstance(sequence, list | tuple) and not sequence:
            self._offsets.append(start)
            return
        part = self._as_array(sequence)
        if self._values is None:
            self._values = self._begin(part)
            self._is_tensor = isinstance(sequence, torch.Tensor)
        if part.dtype != self._values.dtype:
            part = self._cast(part, self._values.dtype)
        if part.shape[1:] != self._values.shape[1:]:
            expected = ", ".join(str(size) for size in ("*", *self._values.shape[1:]))
            raise ValueError(
                f"{self._name()}: expected shape ({expected}) like those before, got {part.shape}"
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
            if self._asked is None:
                raise ValueError(
                    f"{self._function}: expected a sequence that has a dtype, "
                    f"got {len(self._offsets) - 1} empty lists; name one with dtype="
                )
            values = np.empty(0, self._asked)
        _resize(values, self._offsets[-1])
        offsets = np.frombuffer(self._offsets, np.int64)
        return torch.from_numpy(values) if self._is_tensor else values, offsets

    def _name(self) -> str:
        return f"{self._function}: sequence {len(self._offsets) - 1}"

    def _begin(self, first: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self._asked is None:
            check_ndarray(first, self._name())
        return np.empty(first.shape, self._asked or first.dtype)

    def _as_array(self, sequence: Any) -> npt.NDArray[Any]:
        if isinstance(sequence, torch.Tensor):
            part = self._from_tensor(sequence)
        else:
            _require_whole_files(sequence)
            try:
                part = np.asarray(sequence)
            except ValueError as error:  # lists of different lengths in it
                raise ValueError(f"{self._name()}: {error}") from error
            if self._asked is None and isinstance(sequence, list | tuple):
                part = self._from_list(part, sequence)
        if part.ndim == 0:
            if isinstance(sequence, np.ndarray | torch.Tensor):
                raise ValueError(f"{self._name()}: expected at least one axis, got a 0-d array")
            raise TypeError(
                f"{self._name()}: expected an array or a list of numbers, "
                f"got {type(sequence).__name__}"
            )
        return part

    def _from_list(self, part: npt.NDArray[Any], numbers: Any) -> npt.NDArray[Any]:
        # Python's ints of 2**63 and more: alone they become uint64, beside others float64.
        if part.dtype in (np.uint64, np.float64) and (part >= 2**63).any():
            large = next((x for x in _leaves(numbers) if type(x) is int and x >= 2**63), None)
            if large is not None:
                raise ValueError(
                    f"{self._name()}: expected integers of 64 bits, got {large}; "
                    "name the dtype of all with dtype="
                )
        if part.dtype not in _LIST_DTYPES:
            return part
        return self._checked_cast(part, _LIST_DTYPES[part.dtype])

    def _from_tensor(self, tensor: torch.Tensor) -> npt.NDArray[Any]:
        if tensor.requires_grad:
            raise TypeError(
                f"{self._name()}: expected a tensor without gradients; call .detach() first"
            )
        try:
            return tensor.numpy()
        except (RuntimeError, TypeError) as error:
            check_tensor(tensor, self._name())
            raise TypeError(
                f"{self._name()}: NumPy has no {str(tensor.dtype).removeprefix('torch.')}; "
                "join the tensors with torch.cat, and hand RaggedArray that and the offsets"
            ) from error

    def _cast(self, part: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        if self._asked is None:
            raise TypeError(
                f"{self._name()}: expected {dtype} like those before, got {part.dtype}; "
                "name the dtype of all with dtype="
            )
        if _RANK.get(part.dtype.kind, len(_RANK)) > _RANK[dtype.kind]:
            raise TypeError(f"{self._name()}: can't cast {part.dtype} to {dtype}")
        return self._checked_cast(part, dtype)

    def _checked_cast(self, part: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        with np.errstate(over="ignore"):  # an error of our own says which number it is
            cast = part.astype(dtype)
        if dtype.kind in "iu":
            wrong = cast != part
        elif dtype.kind in "fc":
            wrong = ~np.isfinite(cast)
            if wrong.any():
                wrong &= np.isfinite(part)
        else:
            return cast
        if wrong.any():
            raise ValueError(
                f"{self._name()}: {part[wrong][0]} does not fit in {dtype}; "
                "name a wider one with dtype="
            )
        return cast


def _numpy_dtype(dtype: Any, function: str) -> np.dtype[Any]:
    name = dtype_name(dtype, function)
    try:
        result = np.dtype(name)
    except TypeError:  # bfloat16, for one
        result = np.dtype(object)
    if result.kind not in _RANK:
        raise TypeError(f"{function}: dtype must be NumPy's, of numbers or bool, got {name}")
    return result


def _require_whole_files(sequence: Any) -> None:
    if isinstance(sequence, np.ndarray):
        require_whole_file(sequence)
    elif isinstance(sequence, list | tuple) and isinstance(
        next(iter(sequence), None), np.ndarray | list | tuple
    ):  # beside a number are numbers only
        for item in sequence:
            _require_whole_files(item)


def _leaves(numbers: Any) -> Iterator[Any]:
    if isinstance(numbers, list | tuple):
        for item in numbers:
            yield from _leaves(item)
    else:
        yield numbers


def _resize(values: npt.NDArray[Any], length: int) -> None:
    # Without refcheck, which counts this function's own reference: no view of the array is around.
    values.resize((length, *values.shape[1:]), refcheck=False)
