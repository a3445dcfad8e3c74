"""Sequences of different lengths in one array."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from multiprocessing import context
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import ARRAYS, checked_integer, instead
from pinfeed.files.atomic import AtomicWrite
from pinfeed.files.npy import NpyFile
from pinfeed.runtime import get_num_threads
from pinfeed.sources.ragged_builder import RaggedBuilder
from pinfeed.sources.source import (
    ArraySource,
    Selection,
    Source,
    SourceSubset,
    StringType,
    checked_position,
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

_MAKERS = "RaggedArray.from_sequences makes one of lists and arrays, from_strings of strings"

_CHUNK_OFFSETS = 1 << 20  # checked, or written, at a time


class RaggedArray(Source):
    """Sequences of different lengths, one after the other in one array: ``values`` and ``offsets``.

    Sequence ``i`` is the view ``values[offsets[i]:offsets[i + 1]]``. Beside its values a sequence
    costs the 8 bytes of an offset and no Python object, so forked workers share all of it for good.
    It goes into `ArrayDataset` like any array. Strings are sequences of bytes; see `from_strings`.

    Args:
        values: ndarray, memmap or CPU tensor of shape (N, ...): all sequences, joined along axis 0.
        offsets: int64 or int32 of shape (number of sequences + 1,), an ndarray, a memmap or a CPU
            tensor: where each sequence begins, and the end of the last. They don't decrease; values
            before the first offset and behind the last belong to no sequence.
        string_type: ``str`` or ``bytes`` makes each sequence one string instead of an array. Values
            are their bytes then, uint8 of shape (N,); those of str are UTF-8.

    Nothing is copied. Arrays in files pickle as the files' paths, others as their bytes. Any number of
    threads may read it at once, while nobody writes to its arrays.

    - ``ragged[i]`` is a view; negative numbers count from the end.
    - ``ragged[a:b]`` is a RaggedArray over the same memory.
    - ``ragged[a:b:step]`` and ``ragged[numbers]``, with integers in a list, an ndarray or a tensor,
      are a RaggedArray of copies; so is ``ragged[mask]`` with an ndarray or a tensor of bools, one
      for each sequence.

    Attributes:
        documents: Of what `split` made, int64: which sequence each piece is of. Else None.

    Raises:
        TypeError: Values or offsets are no such arrays, or have another dtype.
        ValueError: A shape does not fit; an offset is less than the one before it, or lies outside
            of the values.

    Example:
        >>> ragged = pinfeed.RaggedArray(np.arange(6) * 10, np.array([0, 2, 2, 6]))
        >>> ragged[0], ragged[1], ragged[-1]
        (array([ 0, 10]), array([], dtype=int64), array([20, 30, 40, 50]))
        >>> ragged[ragged.lengths > 0]
        RaggedArray(2 sequences of int64 (*,), 6 values)
    """

    __slots__ = ("_cut", "_offsets", "_string_type", "_values", "documents")

    _cut: tuple[ArraySource, ArraySource] | None  # what workers get of a slice
    _offsets: ArraySource
    documents: npt.NDArray[np.int64] | None

    @instead(_MAKERS, offsets=_MAKERS)
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
        """Joins sequences; it takes them one at a time, and never holds them twice.

        Args:
            sequences: Any iterable, for instance a generator, of ndarrays, CPU tensors, lists of
                numbers, or what else ``np.asarray`` makes an array of. All have the same shape but
                for their first axis.
            dtype: NumPy's or torch's, for the values; if None that of the first sequence, which all
                others must then share. Lists of Python's floats are float32, of ints int64; empty
                ones are of any dtype and shape, and so is ``np.array([])``, an empty array of floats.

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
    def from_strings(cls, strings: Iterable[str] | Iterable[bytes]) -> RaggedArray:
        """Strings, such as file names, captions or ids: their bytes, and no Python object for each.

        ``ragged[i]`` is a str or bytes again, and a batch is a list of them; `Pad` and `Jagged` make
        numbers of their bytes. ``lengths`` are in bytes.

        Args:
            strings: Any iterable, for instance a generator, of str alone, which are stored as UTF-8,
                or of bytes alone; or a 1-D ndarray of dtype U, S, StringDType or object. (NumPy's U
                and S drop NUL characters at the end of a string; all others are kept.)

        Raises:
            TypeError: A string is neither, or not like the first.
            ValueError: A str has a lone surrogate, which UTF-8 can't encode. ``os.listdir`` returns
                such strings for file names that aren't UTF-8; ``os.fsencode`` gives their bytes.

        Example:
            >>> names = pinfeed.RaggedArray.from_strings(f"{i:04}.png" for i in range(1000))
            >>> names, names[7]
            (RaggedArray(1000 strings of text, 8000 bytes), '0007.png')
            >>> dataset = pinfeed.ArrayDataset({"name": names, "label": np.arange(1000)})
            >>> pinfeed.Collate()(dataset[[3, 5]])
            {'name': ['0003.png', '0005.png'], 'label': tensor([3, 5])}
        """
        return cls(*encode(strings, "RaggedArray.from_strings: string"))

    @classmethod
    def from_arrow(cls, array: Any) -> RaggedArray:
        """A pyarrow array of lists of numbers, or of strings, as a view where its layout allows.

        Args:
            array: ListArray or LargeListArray, StringArray, BinaryArray or their large kind, also a
                slice of one, or a ChunkedArray of at most one chunk: a view, not a copy. Only lists of
                bools, and offsets of a slice of lists, are copied.

        Raises:
            TypeError: ``array`` is something else, or its lists hold no numbers.
            ValueError: A list, a string or a value is null, or the chunks are several.

        Example:
            >>> import pyarrow
            >>> ragged = pinfeed.RaggedArray.from_arrow(pyarrow.array([[1, 2], [3]]))
            >>> ragged[1]
            array([3])
        """
        from pinfeed.sources.arrow import column_array  # which imports pyarrow

        entry = column_array(array, "RaggedArray.from_arrow")
        if isinstance(entry, RaggedArray):
            return entry
        if getattr(array, "num_chunks", 1) > 1:
            raise ValueError(
                f"RaggedArray.from_arrow: expected at most one chunk, got {array.num_chunks}; join them "
                "with array.combine_chunks(), which copies"
            )
        raise TypeError(
            f"RaggedArray.from_arrow: expected lists of different lengths, or strings, got {array.type}; "
            "ArrayDataset.from_arrow takes it, as a column of a table"
        )

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
                raise ValueError(f"{name}: {values.path}: expected C order, got Fortran order")
            self._validate()
        except (FileNotFoundError, NotADirectoryError) as error:
            if os.path.isdir(path):
                raise  # it names the file that is gone
            text = f"{name}: {path} is no directory that RaggedArray.save wrote"
            raise FileNotFoundError(error.errno, text) from error
        except TypeError as error:  # about a dtype, which a file says here and nobody passed
            raise ValueError(str(error)) from error
        return self

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes the sequences into a new directory: ``values.npy`` and ``offsets.npy``.

        The values of strings are in ``utf8.npy`` or ``binary.npy`` instead.

        The directory appears under its name when it is complete and on the disk, never before.
        ``overwrite`` needs two renames: a process that is killed between them leaves the old and
        the new directory under hidden names (``.name.*``), and nothing under this one. Values that
        belong to no sequence are not written; the offsets are int64 and begin at 0.

        Args:
            path: The directory; the one that it is in must exist.
            overwrite: Replace what `save` wrote there earlier.

        Raises:
            FileExistsError: Something has that name, and ``overwrite`` is False or `save` did not
                write it.
            OSError: It can't be written; nothing is left behind. Or all is in its place, and the
                system can't say whether its name is on the disk.
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
        offsets, name = self.offsets, "RaggedArray.save"
        first, last = int(offsets[0]), int(offsets[-1])
        used = _as_ndarray(self.values, name)[first:last]
        write = AtomicWrite(
            path, is_file=False, overwrite=overwrite, is_own=holds_ragged, name=name
        )
        try:
            values_file = VALUES_FILES[self.string_type]
            _write_npy(os.path.join(write.folder, values_file), used, used.dtype, 0)
            _write_npy(os.path.join(write.folder, OFFSETS), offsets, np.dtype(np.int64), first)
            write.commit()
        finally:
            write.discard()

    def split(self, max_length: int, overlap: int = 0) -> RaggedArray | SourceSubset:
        """The same sequences cut into pieces of at most ``max_length``, without a copy of the values.

        Args:
            max_length: At least 1. A sequence that is no longer stays one piece, also an empty one.
            overlap: How many of a piece's first values are the last of the piece before it; less
                than ``max_length``.

        Returns:
            The pieces, with `lengths`, and with `documents`: which sequence each is of. They are a
            RaggedArray; with an overlap something like it that has no values and offsets.

        Raises:
            TypeError: An argument is no integer; the sequences are strings.
            ValueError: An argument is out of range.

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
        # Each piece has two offsets of its own, and what lies between two pieces is none.
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
        """All sequences, joined: ndarray (a memmap as a plain view of itself) or tensor."""
        return self._values.array

    @property
    def rows(self) -> Any:
        """What the native side reads values from: `values`, or what reads their file."""
        return self._values.rows

    @property
    @override
    def is_ragged(self) -> bool:
        return True

    @property
    @override
    def string_type(self) -> StringType | None:
        """``str`` or ``bytes``, if the sequences are strings."""
        return self._string_type

    @override
    def select(self, indices: npt.NDArray[np.int64]) -> Selection:
        return Selection(self.rows, self.offsets, indices)

    @property
    def offsets(self) -> npt.NDArray[Any]:
        """Where each sequence begins, and the end of the last: ndarray."""
        return self._offsets.array

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The length of each sequence, of a string in bytes, computed when asked for: int64."""
        self._offsets.check()
        return np.subtract(self.offsets[1:], self.offsets[:-1], dtype=np.int64)

    @property
    def dtype(self) -> Any:
        """The dtype of the values: NumPy's, or torch's if they are a tensor."""
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
                # As NumPy's slices do: without what the slice leaves out.
                values, offsets = self._cut or (
                    ArraySource(self.values[first:last], "RaggedArray: values"),
                    ArraySource(self.offsets - first, "RaggedArray: offsets"),
                )
                if context.get_spawning_popen() is not None:
                    self._cut = values, offsets  # which workers share
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
        self._string_type = string_type
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
            raise TypeError(
                f"{self._name()}: values: expected adjacent bytes of {self.string_type.__name__}, an "
                f"ndarray of uint8 with shape (N,), got {values.dtype} {tuple(values.shape)}"
            )
        if offsets.dtype not in (np.int64, np.int32):
            raise TypeError(
                f"{self._name()}: offsets: expected int64 or int32, got {offsets.dtype}"
            )
        if offsets.ndim != 1 or len(offsets) == 0:
            raise ValueError(
                f"{self._name()}: offsets: expected shape (number of sequences + 1,), got {offsets.shape}"
            )
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
            raise ValueError(
                f"{self._name()}: string {position}: {error}; string_type=bytes takes any bytes"
            ) from error

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
        """Other sequences over the same values."""
        ragged = type(self).__new__(type(self))
        source = ArraySource(offsets, "RaggedArray: offsets")
        ragged._set_sources(self._values, source, self.string_type, documents)
        return ragged

    def _select(self, positions: npt.NDArray[np.int64]) -> RaggedArray:
        if len(positions) == 0:
            return type(self)(self.values[:0], np.zeros(1, np.int64), self.string_type)
        name = self._name()
        parts = _core.join(self.rows, self.offsets, positions, None, name, get_num_threads())
        selected = type(self)(*parts, self.string_type)
        selected.documents = None if self.documents is None else self.documents[positions]
        return selected

    def _name(self) -> str:
        path = self._offsets.path
        return "RaggedArray" if path is None else f"RaggedArray: {path}"

    def _misplaced(self, entry: int, offset: int, before: int) -> ValueError:
        """The error about an offset that is less than the one before it, or past the values."""
        return ValueError(
            f"{self._name()}: offsets[{entry}] is {offset}; expected from {before}"
            f"{f' (as offsets[{entry - 1}])' if entry else ''} to {len(self.values)}, the number of "
            "values"
        )


def holds_ragged(directory: str) -> bool:
    """Whether a directory holds nothing but the files of a RaggedArray."""
    return RAGGED_FILES.issuperset(os.listdir(directory))


def is_ragged_directory(path: str) -> bool:
    """Whether a directory is that of a RaggedArray."""
    names = [name for name in os.listdir(path) if not name.startswith(".")]
    return len(names) == 2 and OFFSETS in names and RAGGED_FILES.issuperset(names)


def _as_ndarray(values: Any, function: str) -> npt.NDArray[Any]:
    if isinstance(values, np.ndarray):
        return values
    try:
        return values.detach().numpy()
    except TypeError as error:
        name = str(values.dtype).removeprefix("torch.")
        raise TypeError(
            f"{function}: a .npy file can't hold {name}; save a RaggedArray of its bits: "
            f"values.view(torch.uint{8 * values.itemsize})"
        ) from error


def _write_npy(path: str, array: npt.NDArray[Any], dtype: np.dtype[Any], shift: int) -> None:
    """Writes an array of numbers less ``shift``."""
    with contextlib.closing(NpyFile(path, dtype, array.shape[1:])) as file:
        if shift or array.dtype != dtype:
            for start in range(0, len(array), _CHUNK_OFFSETS):
                chunk = array[start : start + _CHUNK_OFFSETS]
                file.append(np.subtract(chunk, shift, dtype=dtype))
        else:
            file.append(array)
        file.finish()
