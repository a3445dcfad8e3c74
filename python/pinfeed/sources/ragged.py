"""Sequences of different lengths in one array."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.files.mapped import require_whole_file
from pinfeed.runtime import get_num_threads
from pinfeed.sources.ragged_arrow import arrow_parts
from pinfeed.sources.ragged_builder import RaggedBuilder
from pinfeed.sources.ragged_files import open_ragged, save_ragged
from pinfeed.sources.source import ArraySource, Source

_MOST_BYTES = 1 << 62  # far beyond what any machine can address; no sum below it wraps
_CHUNK_OFFSETS = 1 << 20  # that are looked at in one go
_CHUNK_ROWS = 1 << 16  # that are copied in one go, unless a sequence is longer


class RaggedArray(Source):
    """Sequences of different lengths, one after the other in one array: ``values`` and ``offsets``.

    Sequence ``i`` is the view ``values[offsets[i]:offsets[i + 1]]``. Beyond its values a sequence
    costs the 8 bytes of an offset and no Python object, so workers that are forked share all of it
    for good. A leaf of `ArrayDataset` like any array.

    Args:
        values: ndarray, memmap or CPU tensor of shape (N, ...): all sequences, joined along axis 0.
        offsets: int64 or int32 of shape (number of sequences + 1,), an ndarray, a memmap or a CPU
            tensor: where each sequence begins, and the end of the last. They don't decrease, and
            the values in front of the first and behind the last belong to no sequence.

    Neither is copied. What lies in files pickles as their paths, and the rest as its bytes.

    - ``ragged[i]`` is a view; negative numbers count from the end.
    - ``ragged[a:b]`` is a RaggedArray over the same memory.
    - ``ragged[a:b:step]`` and ``ragged[numbers]``, with integers in a list, an ndarray or a tensor,
      are a RaggedArray of copies; so is ``ragged[mask]`` with an ndarray or a tensor of bools, one
      for each sequence.

    Raises:
        TypeError: Values or offsets are no such arrays, or have no such dtype.
        ValueError: A shape does not fit; an offset is less than the one before it, or lies outside
            of the values.

    Example:
        >>> ragged = pinfeed.RaggedArray(np.arange(6) * 10, np.array([0, 2, 2, 6]))
        >>> ragged[0], ragged[1], ragged[-1]
        (array([ 0, 10]), array([], dtype=int64), array([20, 30, 40, 50]))
        >>> ragged[ragged.lengths > 0]
        RaggedArray(2 sequences of int64 (*,), 6 values)
    """

    __slots__ = ("_ends", "_offsets", "_values")

    def __init__(self, values: Any, offsets: Any) -> None:
        self._set_sources(
            ArraySource(values, "RaggedArray: values"),
            ArraySource(offsets, "RaggedArray: offsets"),
        )
        self._validate()

    @classmethod
    def from_sequences(cls, sequences: Iterable[Any], *, dtype: Any = None) -> RaggedArray:
        """Joins sequences, taken one at a time and never held twice.

        Args:
            sequences: Any iterable, for instance a generator, of ndarrays, CPU tensors, lists of
                numbers, or what else ``np.asarray`` makes an array of. All have the same shape but
                for their first axis.
            dtype: NumPy's or torch's, for the values; if None that of the first sequence, which all
                others must then share. Lists of Python's floats are float32, of ints int64; empty
                ones are of any dtype and shape.

        Returns:
            A RaggedArray in memory. Its values are a tensor if the first sequence is one.

        Raises:
            TypeError: A sequence holds no numbers, its dtype differs, or the cast to ``dtype``
                would lose fractions or imaginary parts.
            ValueError: A shape differs; a number does not fit in the dtype; no sequence and no
                ``dtype`` says what the values are.

        Example:
            >>> ragged = pinfeed.RaggedArray.from_sequences([[1, 2], [], [3]], dtype=np.uint16)
            >>> ragged.values, ragged.offsets
            (array([1, 2, 3], dtype=uint16), array([0, 2, 2, 3]))
        """
        builder = RaggedBuilder(dtype, "RaggedArray.from_sequences")
        for sequence in sequences:
            builder.append(sequence)
        return cls(*builder.finish())

    @classmethod
    def from_arrow(cls, array: Any) -> RaggedArray:
        """Looks at the memory of a pyarrow array of lists of numbers, without a copy.

        Args:
            array: ListArray or LargeListArray, also a slice of one, or a ChunkedArray of at most
                one chunk.

        Raises:
            TypeError: ``array`` is something else, or its lists hold no numbers.
            ValueError: A list or a value is null, or the chunks are several.

        Example:
            >>> import pyarrow
            >>> ragged = pinfeed.RaggedArray.from_arrow(pyarrow.array([[1, 2], [3]]))
            >>> ragged[1]
            array([3])
        """
        return cls(*arrow_parts(array, "RaggedArray.from_arrow"))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RaggedArray:
        """Opens what `save` wrote, memory-mapped and read-only.

        All offsets are read and checked once, no values. Nothing is unpickled.

        Args:
            path: The directory.

        Raises:
            OSError: A file can't be read.
            ValueError: A file is damaged; the message names it, and the first bad offset.
        """
        path = os.fsdecode(path)
        self = cls.__new__(cls)
        try:
            self._set_sources(*open_ragged(path, "RaggedArray.open"))
            self._validate()
        except TypeError as error:  # a dtype, which here is what a file says and nobody passed
            raise ValueError(str(error)) from error
        return self

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes the sequences into a new directory: ``values.npy`` and ``offsets.npy``.

        The directory appears under its name when it is complete and on the disk, never before. With
        ``overwrite`` there are two renames: a process that is killed just between them leaves the
        old and the new directory under hidden names (``.name.*``) and nothing under this one. Only
        values that belong to a sequence are written; the offsets are int64 and begin at 0.

        Args:
            path: The directory; the one that it is in must exist.
            overwrite: Replace what `save` wrote there earlier.

        Raises:
            FileExistsError: There is something of that name, which is not to be overwritten.
            OSError: It can't be written; nothing is left behind. Or all is written and in its place,
                and the system can't say whether its name is on the disk.
            TypeError: NumPy does not have the values' dtype, such as bfloat16.

        Example:
            >>> import tempfile
            >>> ragged = pinfeed.RaggedArray.from_sequences([[1, 2], [3]])
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     ragged.save(f"{folder}/tokens")
            ...     pinfeed.RaggedArray.open(f"{folder}/tokens")
            RaggedArray(2 sequences of int64 (*,), 3 values)
        """
        self._validate()
        save_ragged(os.fsdecode(path), self.values, self.offsets, overwrite, "RaggedArray.save")

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(
        self, index: slice | list[int] | npt.NDArray[Any] | torch.Tensor
    ) -> RaggedArray: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._slice(index)
        if isinstance(index, np.ndarray):
            require_whole_file(index)
        if isinstance(index, list) or (
            isinstance(index, np.ndarray | torch.Tensor) and index.ndim > 0
        ):
            return self._select(self._positions(index))
        try:
            position = operator.index(index)
        except TypeError as error:
            raise TypeError(
                "RaggedArray: expected an integer, a slice, or a list, an ndarray or a tensor of "
                f"integers or bools, got {type(index).__name__}"
            ) from error
        if not -len(self) <= position < len(self):
            raise IndexError(
                f"RaggedArray: index {position} is out of range for {len(self)} sequences"
            )
        return self._view(position % len(self))

    @property
    def values(self) -> Any:
        """All sequences, joined: ndarray (a memmap as a plain view of itself) or tensor."""
        return self._values.array

    @property
    def rows(self) -> Any:
        """See `ArraySource.rows`: of the values."""
        return self._values.rows

    def prefetch(self, indices: npt.NDArray[np.int64], name: str) -> None:
        """See `Source.prefetch`: the values; the offsets are looked at."""
        _core.prefetch(self.rows, self.offsets, indices, name)

    @property
    def reads_files(self) -> bool:
        """See `Source.reads_files`: whether the values are."""
        return self._values.reads_files

    @property
    def offsets(self) -> npt.NDArray[Any]:
        """Where each sequence begins, and the end of the last: ndarray."""
        return self._ends

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The length of each sequence, computed when asked for: int64 ndarray."""
        self._offsets.check()
        return np.subtract(self.offsets[1:], self.offsets[:-1], dtype=np.int64)

    @property
    def dtype(self) -> Any:
        """Of the values: a np.dtype, or a torch.dtype if they are a tensor."""
        return self.values.dtype

    def check(self) -> None:
        """See `Source.check`."""
        self._values.check()
        self._offsets.check()

    def describe(self) -> str:
        """Dtype and shape of a sequence, for people."""
        shape = ", ".join(str(size) for size in self.values.shape[1:])
        return f"{str(self.dtype).removeprefix('torch.')} (*,{shape and ' '}{shape})"

    def __repr__(self) -> str:
        return f"RaggedArray({len(self)} sequences of {self.describe()}, {len(self.values)} values)"

    def __getstate__(self) -> Any:
        values, offsets = self._values, self._offsets
        if isinstance(self.values, np.ndarray) and values.path is None:
            offsets.check()
            first, last = self.offsets[0], self.offsets[-1]
            if last - first < len(self.values):
                # As NumPy's slices do: without what the slice leaves out.
                values = ArraySource(self.values[first:last], "RaggedArray: values")
                offsets = ArraySource(self.offsets - first, "RaggedArray: offsets")
        return values, offsets

    def __setstate__(self, state: Any) -> None:
        self._set_sources(*state)

    def _set_sources(self, values: ArraySource, offsets: ArraySource) -> None:
        self._values = values
        self._offsets = offsets
        self._ends: npt.NDArray[Any] = np.asarray(offsets.array)

    def _validate(self) -> None:
        self.check()
        offsets, limit = self.offsets, len(self.values)
        if offsets.dtype not in (np.int64, np.int32):
            raise TypeError(f"{self._name()}: expected int64 or int32, got {offsets.dtype}")
        if offsets.ndim != 1 or len(offsets) == 0:
            raise ValueError(
                f"{self._name()}: expected shape (number of sequences + 1,), got {offsets.shape}"
            )
        if not 0 <= offsets[0] <= limit:
            raise self._misplaced(0, offsets[0])
        for start in range(0, len(offsets) - 1, _CHUNK_OFFSETS):
            chunk = offsets[start : start + _CHUNK_OFFSETS + 1]
            bad = (chunk[1:] < chunk[:-1]) | (chunk[1:] > limit)
            if bad.any():
                entry = int(bad.argmax())
                raise self._misplaced(start + entry + 1, chunk[entry + 1], chunk[entry])

    def _view(self, position: int) -> Any:
        # Not only once, in _validate: the offsets are the user's memory, or anyone's file.
        self.check()
        start, end = int(self.offsets[position]), int(self.offsets[position + 1])
        if not 0 <= start <= end <= len(self.values):
            raise self._misplaced_pair(position, start, end)
        return self.values[start:end]

    def _slice(self, part: slice) -> RaggedArray:
        start, stop, step = part.indices(len(self))
        if step != 1:
            return self._select(np.arange(start, stop, step))
        cut = type(self).__new__(type(self))
        offsets = self.offsets[start : max(start, stop) + 1]
        cut._set_sources(self._values, ArraySource(offsets, "RaggedArray: offsets"))
        return cut

    def _positions(self, index: Any) -> npt.NDArray[np.int64]:
        if isinstance(index, list) or index.dtype not in (np.bool_, torch.bool):
            return _core.as_indices(index, len(self), "RaggedArray: indices")
        if tuple(index.shape) != (len(self),):
            raise IndexError(
                f"RaggedArray: expected a mask of shape ({len(self)},), got {tuple(index.shape)}"
            )
        return np.flatnonzero(index)

    def _select(self, positions: npt.NDArray[np.int64]) -> RaggedArray:
        self.check()
        starts = self.offsets[positions].astype(np.int64, copy=False)
        ends = self.offsets[positions + 1].astype(np.int64, copy=False)
        bad = (starts < 0) | (starts > ends) | (ends > len(self.values))
        if bad.any():
            i = int(bad.argmax())
            raise self._misplaced_pair(int(positions[i]), int(starts[i]), int(ends[i]))
        ends -= starts  # now the lengths
        return type(self)(*_join_parts(self.values, starts, ends))

    def _name(self) -> str:
        path = self._offsets.path
        return "RaggedArray: offsets" if path is None else f"RaggedArray: {path}: offsets"

    def _misplaced_pair(self, position: int, start: int, end: int) -> ValueError:
        if not 0 <= start <= len(self.values):
            return self._misplaced(position, start)
        return self._misplaced(position + 1, end, start)

    def _misplaced(self, entry: int, offset: int, before: int = 0) -> ValueError:
        """The error that says what is wrong with an offset."""
        found = f"{self._name()}[{entry}] is {offset}"
        if offset < 0:
            return ValueError(f"{found}; expected no negative offset")
        if offset > len(self.values):
            return ValueError(f"{found}; expected none past the {len(self.values)} values")
        return ValueError(
            f"{found}; expected none less than offsets[{entry - 1}], which is {before}"
        )


def _join_parts(
    values: Any, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> tuple[Any, npt.NDArray[np.int64]]:
    """Copies ``values[start:start + length]`` of each pair, one after the other.

    Returns:
        The copies, of the kind of ``values``, and their offsets.
    """
    row_bytes = max(1, math.prod(values.shape[1:]) * values.itemsize)
    if lengths.sum(dtype=np.float64) * row_bytes >= _MOST_BYTES:
        raise ValueError(
            f"RaggedArray: the {len(lengths)} selected sequences are larger than memory can be"
        )
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    shape = (int(offsets[-1]), *values.shape[1:])
    is_tensor = isinstance(values, torch.Tensor)
    out: Any = (
        torch.empty(shape, dtype=values.dtype, device="cpu")
        if is_tensor
        else np.empty(shape, values.dtype)
    )
    first = 0
    while first < len(starts):
        full = int(np.searchsorted(offsets, offsets[first] + _CHUNK_ROWS, "right")) - 1
        last = max(full, first + 1)
        rows = slice(int(offsets[first]), int(offsets[last]))
        if last == first + 1:
            out[rows] = values[int(starts[first]) : int(starts[first] + lengths[first])]
        else:
            shifts = np.repeat(starts[first:last] - offsets[first:last], lengths[first:last])
            indices = np.arange(rows.start, rows.stop) + shifts
            name = "RaggedArray"
            _core.gather(values, indices, None, out[rows], None, name, name, get_num_threads())
        first = last
    return out, offsets
