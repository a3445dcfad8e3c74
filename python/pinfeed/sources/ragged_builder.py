"""Sequences of any kind, appended to one array that grows."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed.sources.sample_reader import SampleReader

# Large memory that grows is remapped, not copied, so all but this much of it is data.
_GROWTH = 1.25


class RaggedBuilder:
    """The values and offsets of a `RaggedArray`, from one sequence after the other.

    Args:
        dtype: Of the values; None: that of the first sequence that has one.
        function: Who asks, for messages.
    """

    def __init__(self, dtype: Any, function: str) -> None:
        self._function = function
        self._reader = SampleReader(
            dtype,
            function,
            "join the tensors with torch.cat, and hand RaggedArray that and the offsets",
        )
        self._values: npt.NDArray[Any] | None = None
        self._offsets = array("q", [0])
        self._is_tensor = False

    def append(self, sequence: Any) -> None:
        """Copies a sequence to the end; an error says the number of the sequence."""
        start = self._offsets[-1]
        if isinstance(sequence, list | tuple) and not sequence:
            self._offsets.append(start)
            return
        part = self._reader.read(sequence, self._name())
        if self._values is None:
            self._values = np.empty(part.shape, part.dtype)
            self._is_tensor = isinstance(sequence, torch.Tensor)
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
            if self._reader.dtype is None:
                raise ValueError(
                    f"{self._function}: expected a sequence that has a dtype, "
                    f"got {len(self._offsets) - 1} empty lists; name one with dtype="
                )
            values = np.empty(0, self._reader.dtype)
        _resize(values, self._offsets[-1])
        offsets = np.frombuffer(self._offsets, np.int64)
        return torch.from_numpy(values) if self._is_tensor else values, offsets

    def _name(self) -> str:
        return f"{self._function}: sequence {len(self._offsets) - 1}"


def _resize(values: npt.NDArray[Any], length: int) -> None:
    # Without refcheck, which counts this function's own reference: no view of the array is around.
    values.resize((length, *values.shape[1:]), refcheck=False)
