"""Sequences of different lengths, stored in one array."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from multiprocessing import context
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import (
    ARRAYS,
    Problem,
    add_hint,
    checked_integer,
    require_no_table,
    with_hints,
)
from pinfeed.batches import Selection
from pinfeed.files.atomic import AtomicWrite
from pinfeed.files.npy import NpyFile
from pinfeed.imports import noted
from pinfeed.runtime import get_num_threads
from pinfeed.sources.ragged_builder import RaggedBuilder
from pinfeed.sources.source import (
    ArraySource,
    Source,
    SourceSubset,
    StringType,
    checked_position,
    numpy_view,
    positions,
    share_arrays,
)
from pinfeed.sources.strings import encode

# The files of a RaggedArray's directory. The name of the values file says whether they are strings.
OFFSETS = "offsets.npy"
VALUES_FILES: dict[StringType | None, str] = {
    None: "values.npy",
    str: "utf8.npy",
    bytes: "binary.npy",
}
RAGGED_FILES = frozenset({OFFSETS, *VALUES_FILES.values()})

_COLUMNS = (
    "ArrayDataset.from_arrow(table)['x'] is a column of a table or a Parquet file, pyarrow.array(x) "
    "converts a Series, and RaggedArray.from_sequences(x) takes lists"
)
_MAKERS = "RaggedArray.from_sequences makes one from lists and arrays, from_strings from strings"

_CHUNK_OFFSETS = 1 << 20  # offsets checked or written at a time


class RaggedArray(Source):
    """Sequences of different lengths, concatenated in one array: ``values`` and ``offsets``.

    Sequence ``i`` is the view ``values[offsets[i]:offsets[i + 1]]``. Each sequence costs 8 bytes of
    overhead and no Python object, so forked workers share all of the memory. `ArrayDataset` accepts
    it like any array. Strings are sequences of bytes; see `from_strings`.

    Args:
        values: All sequences, concatenated along axis 0: an ndarray, memmap or CPU tensor of shape
            (N, ...).
        offsets: Start of each sequence and end of the last: an int64 or int32 ndarray, memmap or CPU
            tensor of shape (number of sequences + 1,). Must be non-decreasing. Values before the
            first and after the last offset are ignored.
        string_type: ``str`` or ``bytes`` if each sequence is a string. The values are then the
            strings' bytes, uint8 of shape (N,), in UTF-8 for str.

    Nothing is copied. Arrays in files are pickled as paths, other arrays as their bytes. Any number of
    threads may read it at once, as long as no thread writes to its arrays.

    - ``ragged[i]`` is a view; negative indices count from the end.
    - ``ragged[a:b]`` is a RaggedArray over the same memory.
    - ``ragged[a:b:step]``, ``ragged[indices]`` and ``ragged[mask]`` copy into a new RaggedArray. Indices
      are integers, and a mask is one bool per sequence, in a list, an ndarray or a tensor.

    Attributes:
        documents: Number of the original sequence of each piece, int64 of shape (pieces,), if `split`
            created the array; otherwise None.

    Raises:
        TypeError: If values or offsets are not arrays, or have another dtype.
        ValueError: If a shape does not fit, or an offset decreases or lies outside of the values.

    Example:
        >>> ragged = pinfeed.RaggedArray(np.arange(6) * 10, np.array([0, 2, 2, 6]))
        >>> ragged[0], ragged[1], ragged[-1]
        (array([ 0, 10]), array([], dtype=int64), array([20, 30, 40, 50]))
        >>> ragged[ragged.lengths > 0]
        RaggedArray(2 sequences of int64 (*,), 6 values)
    """

    __slots__ = ("_cut", "_offsets", "_values", "documents", "string_type")

    is_ragged = True
    string_type: StringType | None
    _cut: tuple[ArraySource, ArraySource] | None  # the values and offsets of a slice, for workers
    _offsets: ArraySource
    documents: npt.NDArray[np.int64] | None

    @with_hints(_MAKERS, offsets=_MAKERS)
    def __init__(
        self, values: Any, offsets: Any, string_type: type[str | bytes] | None = None
    ) -> None:
        if string_type not in (None, str, bytes):
            raise ValueError(
                f"RaggedArray: string_type must be str, bytes or None, got {string_type!r}"
            )
        self._set_sources(
            ArraySource(values, "RaggedArray: values"),
            ArraySource(offsets, "RaggedArray: offsets"),
            string_type,
        )
        self._validate()

    @classmethod
    def from_sequences(cls, sequences: Iterable[Any], *, dtype: Any = None) -> RaggedArray:
        """Creates a RaggedArray by concatenating sequences, one at a time.

        Args:
            sequences: Any iterable, such as a generator, of ndarrays, CPU tensors, lists of numbers
                or other input of ``np.asarray``. All axes but the first must have the same size.
            dtype: NumPy or torch dtype of the values. None: the dtype of the first sequence, which all
                others must share. Lists of Python floats become float32, lists of ints int64. Empty
                lists and empty float arrays such as ``np.array([])`` fit any dtype and shape.

        Returns:
            A RaggedArray in memory. Its values are a tensor if the first sequence is one.

        Raises:
            TypeError: If a sequence is not numeric, its dtype differs, or the cast to ``dtype`` loses
                fractions or imaginary parts.
            ValueError: If a shape differs, a number does not fit in the dtype, or no
                sequence has a dtype and ``dtype`` is None.

        Example:
            >>> ragged = pinfeed.RaggedArray.from_sequences([[1, 2], [], [3]], dtype=np.uint16)
            >>> ragged.values, ragged.offsets
            (array([1, 2, 3], dtype=uint16), array([0, 2, 2, 3]))
        """
        require_no_table(sequences, "RaggedArray.from_sequences", "sequences")
        if isinstance(sequences, Mapping):
            hint = "pass one of its columns: RaggedArray.from_sequences(columns['x'])"
            problem = Problem(
                "RaggedArray.from_sequences", "an iterable of sequences", "a dict", hint
            )
            raise TypeError(problem)
        builder = RaggedBuilder(dtype, "RaggedArray.from_sequences")
        if type(sequences) not in (list, tuple):  # which raise no errors of their own
            sequences = noted(sequences, "RaggedArray.from_sequences: raised at sequence")
        for sequence in sequences:
            builder.append(sequence)
        return cls(*builder.finish())

    @classmethod
    def from_strings(cls, strings: Iterable[str] | Iterable[bytes]) -> RaggedArray:
        """Creates a RaggedArray of strings (file names, captions, ids), stored as one byte array.

        ``ragged[i]`` returns a str or bytes, and a batch is a list of them; `Pad` and `Jagged` batch
        their bytes as numbers. ``lengths`` are in bytes.

        Args:
            strings: Any iterable, such as a generator, of str (stored as UTF-8) or of bytes, not both;
                or a 1-D ndarray of dtype U, S, StringDType or object. (NumPy's U and S drop
                trailing NUL characters; everything else is preserved.)

        Raises:
            TypeError: If a string is neither str nor bytes, or differs from the first in type.
            ValueError: If a str has a lone surrogate, which UTF-8 can't encode. ``os.listdir`` returns
                such strings for file names that aren't UTF-8; ``os.fsencode`` returns their bytes.

        Example:
            >>> names = pinfeed.RaggedArray.from_strings(f"{i:04}.png" for i in range(1000))
            >>> names, names[7]
            (RaggedArray(1000 strings of text, 8000 bytes), '0007.png')
            >>> dataset = pinfeed.ArrayDataset({"name": names, "label": np.arange(1000)})
            >>> pinfeed.Collate()(dataset[[3, 5]])
            {'name': ['0003.png', '0005.png'], 'label': tensor([3, 5])}
        """
        require_no_table(strings, "RaggedArray.from_strings", "strings")
        return cls(*encode(strings, "RaggedArray.from_strings: string"))

    @classmethod
    def from_arrow(cls, array: Any) -> RaggedArray:
        """Creates a RaggedArray over the memory of a pyarrow array of lists of numbers, or of strings.

        Args:
            array: A ListArray, StringArray or BinaryArray, one of their large variants, a slice of
                one, or a ChunkedArray of at most one chunk. Only lists of bools, and the offsets of a
                slice of lists, are copied.

        Raises:
            TypeError: If ``array`` has another type, or its lists are not numeric.
            ValueError: If a list, a string or a value is null, or there are several chunks.

        Example:
            >>> import pyarrow
            >>> ragged = pinfeed.RaggedArray.from_arrow(pyarrow.array([[1, 2], [3]]))
            >>> ragged[1]
            array([3])
        """
        from pinfeed.sources.arrow_lists import column_parts  # which imports pyarrow

        name = "RaggedArray.from_arrow"
        try:
            parts = column_parts(array, name)
        except TypeError as error:
            if not hasattr(array, "type"):
                add_hint(error, _COLUMNS)
            raise
        if len(parts) > 1:
            hint = "join them with array.combine_chunks(), which copies"
            raise ValueError(Problem(name, "at most one chunk", str(len(parts)), hint))
        if isinstance(parts[0], tuple):
            return cls(*parts[0])
        expected = "lists of different lengths, or strings"
        hint = "ArrayDataset.from_arrow accepts it, as a column of a table"
        raise TypeError(Problem(name, expected, str(array.type), hint))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RaggedArray:
        """Opens a directory that `save` wrote, memory-mapped and read-only.

        All offsets are read and checked once; values are not read. Nothing is unpickled.

        Args:
            path: The directory.

        Raises:
            OSError: If a file can't be read.
            ValueError: If a file is damaged; the message names it, and the first invalid offset.
        """
        path, name = os.fsdecode(path), "RaggedArray.open"
        self = cls.__new__(cls)
        try:
            string_type = next(
                (kind for kind, file in VALUES_FILES.items() if os.path.exists(f"{path}/{file}")),
                None,
            )
            values = ArraySource.open(os.path.join(path, VALUES_FILES[string_type]), name)
            offsets = ArraySource.open(os.path.join(path, OFFSETS), name)
            self._set_sources(values, offsets, string_type)
            if not values.array.flags.c_contiguous:
                raise ValueError(
                    f"{name}: {values.path}: expected C order, got Fortran order; save it with "
                    "np.ascontiguousarray"
                )
            self._validate()
        except (FileNotFoundError, NotADirectoryError) as error:
            if os.path.isdir(path):
                raise  # it names the missing file
            text = f"{name}: {path} is not a directory that RaggedArray.save wrote"
            raise FileNotFoundError(error.errno, text) from error
        except TypeError as error:  # about the dtype in the file, not about an argument
            raise ValueError(str(error)) from error
        return self

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes the sequences into a new directory: ``values.npy`` and ``offsets.npy``.

        The values of strings are in ``utf8.npy`` or ``binary.npy`` instead.

        The directory appears only when it is complete and synced to disk. A process killed while it
        replaces a directory can leave the old and the new one under hidden names (``.name.*``). Values
        outside of all sequences are not written; the offsets are int64 and begin at 0.

        Args:
            path: The directory to create; its parent must exist.
            overwrite: Whether to replace a directory that `save` wrote.

        Raises:
            FileExistsError: If the path exists and ``overwrite`` is False, or `save` did not write it.
            OSError: If writing fails (nothing is left behind), or if the final directory sync fails.
            TypeError: If NumPy does not have the values' dtype, such as bfloat16.

        Example:
            >>> import tempfile
            >>> ragged = pinfeed.RaggedArray.from_sequences([[1, 2], [3]])
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     ragged.save(f"{folder}/tokens")
            ...     pinfeed.RaggedArray.open(f"{folder}/tokens")
            RaggedArray(2 sequences of int64 (*,), 3 values)
        """
        self._validate()
        offsets, name = self.offsets, "RaggedArray.save"
        first, last = int(offsets[0]), int(offsets[-1])
        values = self.values
        values = values if isinstance(values, np.ndarray) else numpy_view(values.detach(), name)
        write = AtomicWrite(
            path, is_file=False, overwrite=overwrite, is_own=holds_ragged, name=name
        )
        try:
            values_file = VALUES_FILES[self.string_type]
            _write_npy(os.path.join(write.folder, values_file), values[first:last], values.dtype, 0)
            _write_npy(os.path.join(write.folder, OFFSETS), offsets, np.dtype(np.int64), first)
            write.commit()
        finally:
            write.discard()

    def split(self, max_length: int, overlap: int = 0) -> RaggedArray | SourceSubset:
        """Splits sequences into pieces of at most ``max_length``, sharing the values.

        Args:
            max_length: Maximum length of a piece, at least 1. A shorter sequence, even an empty one,
                is one piece.
            overlap: Number of values that a piece repeats from the end of the piece before; less than
                ``max_length``.

        Returns:
            The pieces, as a RaggedArray; with an overlap, as a source for `ArrayDataset` without ``values``
            and ``offsets``. Both have `lengths` and `documents` (the number of each piece's sequence).

        Raises:
            TypeError: If an argument is not an integer, or the sequences are strings.
            ValueError: If an argument is out of range.

        Example:
            >>> ragged = pinfeed.RaggedArray.from_sequences([[1, 2, 3, 4, 5], [6]])
            >>> pieces = ragged.split(3)
            >>> [piece.tolist() for piece in pieces], pieces.documents
            ([[1, 2, 3], [4, 5], [6]], array([0, 0, 1]))
            >>> [piece.tolist() for piece in ragged.split(3, overlap=1)]
            [[1, 2, 3], [3, 4, 5], [6]]
        """
        if self.string_type is not None:
            raise TypeError(
                "split: expected sequences of numbers, got strings; take their bytes: "
                "RaggedArray(ragged.values, ragged.offsets).split(...)"
            )
        max_length = checked_integer(max_length, "split: max_length", 1, 2**62)
        overlap = checked_integer(overlap, "split: overlap", 0)
        if overlap >= max_length:
            raise ValueError(
                f"split: overlap must be less than max_length={max_length}, got {overlap}"
            )
        offsets, step = self.offsets.astype(np.int64), max_length - overlap
        counts = 1 + np.maximum(-(-(self.lengths - max_length) // step), 0)
        documents = np.repeat(np.arange(len(self)), counts)
        firsts = np.cumsum(counts) - counts
        begins = offsets[documents] + (np.arange(len(documents)) - firsts[documents]) * step
        if overlap == 0:
            return self._with(np.append(begins, offsets[-1]), documents)
        # Each piece has its own two offsets; every second range, between two pieces, is skipped.
        ends = np.minimum(begins + max_length, offsets[documents + 1])
        bounds = np.append(np.stack((begins, ends), axis=1), offsets[-1])
        pairs = self._with(bounds, np.repeat(documents, 2))
        order = ArraySource(np.arange(0, 2 * len(documents), 2), "split")
        return SourceSubset(pairs, order)

    def __len__(self) -> int:
        return len(self._offsets.array) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._slice(index)
        if isinstance(index, list) or (isinstance(index, ARRAYS) and index.ndim > 0):
            return self._select(positions(index, len(self), "RaggedArray: indices"))
        expected = "an integer, a slice, or a list, an ndarray or a tensor of integers or bools"
        return self._view(checked_position(index, len(self), "RaggedArray", expected))

    @property
    def values(self) -> Any:
        """All sequences, concatenated: ndarray (for a memmap, a plain ndarray view) or tensor."""
        return self._values.array

    @override
    def select(self, indices: npt.NDArray[np.int64]) -> Selection:
        return Selection(self._values.rows, self.offsets, indices)

    @override
    def selection(self) -> Selection:
        return Selection(self.values, self.offsets)

    @property
    def offsets(self) -> npt.NDArray[Any]:
        """Start of each sequence, and end of the last: ndarray."""
        return self._offsets.array

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The length of each sequence (of a string, in bytes) as int64, computed on access."""
        self._offsets.check()
        return np.subtract(self.offsets[1:], self.offsets[:-1], dtype=np.int64)

    @property
    def dtype(self) -> Any:
        """The NumPy dtype of the values, or the torch dtype if they are a tensor."""
        return self.values.dtype

    @override
    def check(self) -> None:
        self._values.check()
        self._offsets.check()

    @override
    def describe(self) -> str:
        if self.string_type is not None:
            return self.string_type.__name__
        shape = ", ".join(str(size) for size in self.values.shape[1:])
        return f"{str(self.dtype).removeprefix('torch.')} (*,{shape and ' '}{shape})"

    def __repr__(self) -> str:
        if self.string_type is not None:
            kind = "text" if self.string_type is str else "bytes"
            return f"RaggedArray({len(self)} strings of {kind}, {len(self.values)} bytes)"
        return f"RaggedArray({len(self)} sequences of {self.describe()}, {len(self.values)} values)"

    def __getstate__(self) -> Any:
        values, offsets = self._values, self._offsets
        if isinstance(self.values, np.ndarray) and values.path is None:
            offsets.check()
            first, last = self.offsets[0], self.offsets[-1]
            if last - first < len(self.values):
                # Pickle only the values inside the slice, as NumPy does.
                values, offsets = self._cut or (
                    ArraySource(self.values[first:last], "RaggedArray: values"),
                    ArraySource(self.offsets - first, "RaggedArray: offsets"),
                )
                if context.get_spawning_popen() is not None:
                    self._cut = values, offsets  # shared by all workers
        share_arrays([values, offsets])
        return values, offsets, self.string_type, self.documents

    def __setstate__(self, state: Any) -> None:
        self._set_sources(*state)

    def _set_sources(
        self,
        values: ArraySource,
        offsets: ArraySource,
        string_type: StringType | None,
        documents: npt.NDArray[np.int64] | None = None,
    ) -> None:
        if not isinstance(offsets.array, np.ndarray):
            offsets = ArraySource(offsets.array.numpy(), "RaggedArray: offsets")
        self._cut = None
        self._values = values
        self._offsets = offsets
        self.string_type = string_type
        self.documents = documents

    def _validate(self) -> None:
        self.check()
        offsets, values, limit = self.offsets, self.values, len(self.values)
        if self.string_type is not None and not (
            isinstance(values, np.ndarray)
            and values.dtype == np.uint8
            and values.ndim == 1
            and values.flags.c_contiguous
        ):
            expected = f"contiguous bytes of {self.string_type.__name__}, an ndarray of uint8 with shape (N,)"
            got = f"{values.dtype} {tuple(values.shape)}"
            raise TypeError(Problem(f"{self._name()}: values", expected, got))
        subject = f"{self._name()}: offsets"
        if offsets.dtype not in (np.int64, np.int32):
            raise TypeError(Problem(subject, "int64 or int32", str(offsets.dtype)))
        if offsets.ndim != 1 or len(offsets) == 0:
            expected = "shape (number of sequences + 1,)"
            raise ValueError(Problem(subject, expected, str(offsets.shape)))
        if not 0 <= offsets[0] <= limit:
            raise self._misplaced(0, offsets[0], 0)
        for start in range(0, len(offsets) - 1, _CHUNK_OFFSETS):
            chunk = offsets[start : start + _CHUNK_OFFSETS + 1]
            bad = (chunk[1:] < chunk[:-1]) | (chunk[1:] > limit)
            if bad.any():
                entry = int(bad.argmax())
                raise self._misplaced(start + entry + 1, chunk[entry + 1], chunk[entry])

    def _view(self, position: int) -> Any:
        self.check()
        values = self.values[int(self.offsets[position]) : int(self.offsets[position + 1])]
        if self.string_type is None:
            return values
        if self.string_type is bytes:
            return values.tobytes()
        try:
            return values.tobytes().decode()
        except UnicodeDecodeError as error:
            subject, hint = (
                f"{self._name()}: string {position}",
                "string_type=bytes takes any bytes",
            )
            raise ValueError(Problem(subject, str(error), hint=hint)) from error

    def _slice(self, part: slice) -> RaggedArray:
        start, stop, step = part.indices(len(self))
        if step != 1:
            return self._select(np.arange(start, stop, step))
        stop = max(start, stop)
        documents = None if self.documents is None else self.documents[start:stop]
        return self._with(self.offsets[start : stop + 1], documents)

    def _with(
        self, offsets: npt.NDArray[Any], documents: npt.NDArray[np.int64] | None
    ) -> RaggedArray:
        """Returns sequences with other offsets over the same values."""
        ragged = type(self).__new__(type(self))
        source = ArraySource(offsets, "RaggedArray: offsets")
        ragged._set_sources(self._values, source, self.string_type, documents)
        return ragged

    def _select(self, positions: npt.NDArray[np.int64]) -> RaggedArray:
        if len(positions) == 0:
            return type(self)(self.values[:0], np.zeros(1, np.int64), self.string_type)
        name = self._name()
        parts = _core.join(
            self._values.rows, self.offsets, positions, None, name, get_num_threads()
        )
        selected = type(self)(*parts, self.string_type)
        selected.documents = None if self.documents is None else self.documents[positions]
        return selected

    def _name(self) -> str:
        path = self._offsets.path
        return "RaggedArray" if path is None else f"RaggedArray: {path}"

    def _misplaced(self, entry: int, offset: int, before: int) -> ValueError:
        """The error for an offset that decreases or lies outside of the values."""
        return ValueError(
            f"{self._name()}: offsets[{entry}] must be from {before}"
            f"{f' (offsets[{entry - 1}])' if entry else ''} to {len(self.values)} (the number of values), "
            f"got {offset}"
        )


def holds_ragged(directory: str) -> bool:
    """Whether a directory contains only files of a RaggedArray."""
    return RAGGED_FILES.issuperset(os.listdir(directory))


def is_ragged_directory(path: str) -> bool:
    """Whether a directory contains a complete RaggedArray."""
    names = [name for name in os.listdir(path) if not name.startswith(".")]
    return len(names) == 2 and OFFSETS in names and RAGGED_FILES.issuperset(names)


def _write_npy(path: str, array: npt.NDArray[Any], dtype: np.dtype[Any], shift: int) -> None:
    """Writes an array, with ``shift`` subtracted from every number."""
    with contextlib.closing(NpyFile(path, dtype, array.shape[1:])) as file:
        if shift or array.dtype != dtype:
            for start in range(0, len(array), _CHUNK_OFFSETS):
                chunk = array[start : start + _CHUNK_OFFSETS]
                file.append(np.subtract(chunk, shift, dtype=dtype))
        else:
            file.append(array)
        file.finish()
