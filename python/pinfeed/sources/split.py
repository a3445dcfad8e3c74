"""Long sequences in pieces."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from pinfeed.arguments import checked_integer
from pinfeed.sources.source import Selection, Source

if TYPE_CHECKING:
    from pinfeed.sources.ragged import RaggedArray


class SplitArray(Source):
    """The pieces of a RaggedArray's sequences, which `RaggedArray.split` cuts.

    Attributes:
        ragged: Whose sequences they are.
        max_length: The length of the longest piece.
        overlap: How many values neighbouring pieces share.

    Example:
        >>> ragged = pinfeed.RaggedArray.from_sequences([[1, 2, 3, 4, 5], [6]])
        >>> pieces = ragged.split(3)
        >>> pieces.lengths, pieces.documents
        (array([3, 2, 1]), array([0, 0, 1]))
    """

    __slots__ = ("_bounds", "_step", "max_length", "overlap", "ragged")

    def __init__(self, ragged: RaggedArray, max_length: int, overlap: int) -> None:
        if ragged.string_type is not None:
            raise TypeError(
                "split: expected sequences of numbers, got strings; take their bytes: "
                "RaggedArray(ragged.values, ragged.offsets).split(...)"
            )
        self.ragged = ragged
        self.max_length = checked_integer(max_length, "split: max_length", 1, 2**62)
        self.overlap = checked_integer(overlap, "split: overlap", 0)
        if self.overlap >= self.max_length:
            raise ValueError(
                f"split: overlap must be less than max_length={self.max_length}, got {self.overlap}"
            )
        counts = self._pieces()
        ends = ragged.offsets[1:].astype(np.int64)
        begins = np.repeat(ragged.offsets[:-1].astype(np.int64), counts)
        numbers = np.arange(len(begins)) - np.repeat(np.cumsum(counts) - counts, counts)
        begins += numbers * (self.max_length - self.overlap)
        ends = np.minimum(begins + self.max_length, np.repeat(ends, counts))
        # The native side takes the entries i and i + 1 as the bounds of piece i. Where pieces
        # overlap, each has two of its own, and every second pair is none.
        self._step = 1 if self.overlap == 0 else 2
        self._bounds = (
            np.append(begins, ends[-1:] if len(ends) else 0)
            if self.overlap == 0
            else np.stack((begins, ends), axis=1).reshape(-1)
        )

    def __len__(self) -> int:
        return len(self._bounds) // 2 if self.overlap else len(self._bounds) - 1

    def __getitem__(self, index: int) -> Any:
        try:
            position = operator.index(index)
        except TypeError as error:
            raise TypeError(
                f"split: expected an integer, got {type(index).__name__}; a RaggedArray takes slices "
                "and arrays of indices: choose of it before you split it"
            ) from error
        if not -len(self) <= position < len(self):
            raise IndexError(f"split: index {position} is out of range for {len(self)} pieces")
        self.check()
        position = position % len(self) * self._step
        return self.ragged.values[self._bounds[position] : self._bounds[position + 1]]

    @property
    def values(self) -> Any:
        """The values of all sequences, as `RaggedArray` has them."""
        return self.ragged.values

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Where pieces without overlap begin in ``values``, and where the last one ends."""
        return self._bounds

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The length of each piece, computed when asked for: int64 ndarray."""
        return np.diff(self._bounds)[:: self._step]

    @property
    def documents(self) -> npt.NDArray[np.int64]:
        """Which sequence each piece is of, computed when asked for: int64 ndarray."""
        return np.repeat(np.arange(len(self.ragged)), self._pieces())

    @property
    @override
    def dtype(self) -> Any:
        return self.ragged.dtype

    @property
    @override
    def is_ragged(self) -> bool:
        return True

    @override
    def select(self, indices: npt.NDArray[np.int64]) -> Selection:
        return Selection(self.ragged.rows, self._bounds, indices * self._step)

    @property
    @override
    def reads_files(self) -> bool:
        return self.ragged.reads_files

    @override
    def check(self) -> None:
        self.ragged.check()

    @override
    def describe(self) -> str:
        return self.ragged.describe()

    def __reduce__(self) -> Any:
        return type(self), (self.ragged, self.max_length, self.overlap)

    def __repr__(self) -> str:
        return (
            f"SplitArray({len(self)} pieces of {self.describe()}, max_length={self.max_length}, "
            f"overlap={self.overlap})"
        )

    def _pieces(self) -> npt.NDArray[np.int64]:
        """How many pieces each sequence has."""
        beyond = self.ragged.lengths - self.max_length
        return 1 + np.maximum(-(-beyond // (self.max_length - self.overlap)), 0)
