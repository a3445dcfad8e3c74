"""Columns: one entry of all batches, copied into one array or list."""

from __future__ import annotations

import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from pinfeed.arguments import ARRAYS, Problem, as_array, check_plain
from pinfeed.exports.to_numpy.storage import Memory, OutputFiles
from pinfeed.functional.sequences import JaggedBatch, Padded
from pinfeed.sources.ragged import OFFSETS, VALUES_FILES, RaggedArray
from pinfeed.sources.ragged_builder import checked_cast
from pinfeed.sources.source import StringType, numpy_view
from pinfeed.sources.strings import encode

#: The values of a batch, and the lengths of its sequences: None where samples have one shape.
Part = tuple[npt.NDArray[Any], npt.NDArray[np.int64] | None]
_Tensor = torch.Tensor  # `plain_array` runs for each entry of a batch
#: The hint for a batch that has fewer axes than those before.
NO_SQUEEZE = (
    "squeeze() drops the batch axis of a batch of one sample, too: name the axis to drop, such as "
    "squeeze(1)"
)


class Column(ABC):
    """One entry of all batches.

    `check` raises TypeError or ValueError if an entry doesn't match earlier batches. Once all entries of a
    batch are checked, `write` takes the result of `check`.

    Attributes:
        batch: Number of the current batch.
    """

    def __init__(self, where: str) -> None:
        self._where, self.batch = where, 0

    @property
    def where(self) -> str:
        """The current entry's name in messages, such as ``"to_numpy: entry ['x'] of batch 3"``."""
        return f"{self._where}batch {self.batch}"

    @abstractmethod
    def check(self, entry: Any) -> Any:
        """Validates and converts an entry for `write`."""

    @abstractmethod
    def write(self, part: Any) -> None:
        """Appends the entry of a batch."""

    @abstractmethod
    def result(self, samples: int) -> Any:
        """Returns the first samples; of files, after they are finished and committed."""


class ListColumn(Column):
    """Collects lists of objects, and arrays of strings or objects, in a list."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self._objects: list[Any] = []

    @override
    def check(self, entry: Any) -> list[Any]:
        return as_list(entry, self.where)

    @override
    def write(self, part: list[Any]) -> None:
        self._objects += part

    @override
    def result(self, samples: int) -> list[Any]:
        return self._objects[:samples]


class ArrayColumn(Column):
    """Collects samples of one shape in an array.

    The array is written to ``files``, under the ``name`` of the entry (empty for a single entry), or
    without ``files`` to memory. Numbers are cast to ``dtype``, if given.
    """

    def __init__(
        self, where: str, files: OutputFiles | None, name: str, dtype: np.dtype[Any] | None = None
    ) -> None:
        super().__init__(where)
        self._files, self._name, self._dtype = files, name, dtype
        self._values: Any = None  # Memory or NpyFile, from the first batch on

    @override
    def check(self, entry: Any) -> Part:
        if self._dtype is not None and type(entry) in (list, tuple):
            hint = "Collate(Jagged()) makes batches of lists of different lengths"
            entry = as_array(entry, self.where, None if entry else self._dtype, hint)
        values, lengths = self._part(entry)
        if self._dtype is not None:
            values = checked_cast(values, self._dtype, self.where)
        before = self._values
        if before is None:
            self._check_first(values.dtype)
        elif values.dtype != before.dtype:
            expected, hint = f"{before.dtype} as in batch 0", "set the dtype of all with dtype="
            raise TypeError(Problem(self.where, expected, str(values.dtype), hint))
        elif values.shape[1:] != before.row:
            raise ValueError(self._misshapen(before.row, values.shape[1:]))
        return values, lengths

    def plain_rows(self, entry: Any) -> npt.NDArray[Any] | None:
        """Returns an entry as rows that need no `check`, or None."""
        rows, before = plain_array(entry), self._values
        if rows is None or rows.dtype != before.dtype or rows.shape[1:] != before.row:
            return None
        return rows if rows.ndim else None

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Appends `plain_rows`."""
        self._values.append(rows)

    def _part(self, entry: Any) -> Part:
        return as_ndarray(entry, self.where), None

    def _check_first(self, dtype: np.dtype[Any]) -> None:
        """Raises if the output can't hold the values."""
        restored = np.lib.format.descr_to_dtype(np.lib.format.dtype_to_descr(dtype))
        if self._files is not None and restored != dtype:  # dtypes of ml_dtypes come back as bytes
            hint = "convert with .astype(...)"
            raise TypeError(Problem(self.where, "a dtype of .npy files", str(dtype), hint))

    def _misshapen(self, expected: tuple[int, ...], got: tuple[int, ...]) -> Problem:
        hint = (
            "for samples of different lengths yield a pinfeed.JaggedBatch, or a pinfeed.Padded with "
            "lengths"
        )
        if len(got) < len(expected):
            hint = NO_SQUEEZE
        return Problem(self.where, f"samples of shape {expected} as in batch 0", str(got), hint)

    @override
    def write(self, part: Part) -> None:
        if self._values is None:
            self._values = self._create(self._values_file, part[0])
        self._values.append(part[0])

    def _create(self, file: str, like: npt.NDArray[Any]) -> Any:
        if self._files is not None:
            return self._files.create(file, like)
        return Memory(like.dtype, like.shape[1:])

    @property
    def _values_file(self) -> str:
        return f"{self._name or 'values'}.npy"

    def size(self, samples: int) -> int:
        """Estimates the bytes of a number of samples."""
        return samples * math.prod(self._values.row) * self._values.dtype.itemsize

    def reserve(self, samples: int) -> None:
        """Reserves memory or disk space for an expected number of samples."""
        self._values.reserve(samples)

    def finish(self) -> None:
        """Completes the files."""
        self._values.finish()

    @override
    def result(self, samples: int) -> Any:
        if self._files is not None:
            return self._files.array(self._values_file)
        return self._values.take(samples)


class RaggedColumn(ArrayColumn):
    """Collects sequences of numbers in a RaggedArray."""

    _string_type: StringType | None = None
    _offsets: Any = None

    @override
    def _part(self, entry: Any) -> Part:
        where = self.where
        if not is_ragged(entry):
            expected = "a JaggedBatch, or a Padded with lengths, as in batch 0"
            raise TypeError(Problem(where, expected, type(entry).__name__))
        if isinstance(entry, Padded):
            parts = as_ndarray(entry.values, where), as_ndarray(entry.lengths, where)
            side = _side(entry, *parts, where)
            entry = named(where, JaggedBatch.from_padded, *parts, side=side)
        values = as_ndarray(entry.values, where)
        ragged = named(where, RaggedArray, values, as_ndarray(entry.offsets, where))
        return values[int(ragged.offsets[0]) : int(ragged.offsets[-1])], ragged.lengths

    @override
    def _check_first(self, dtype: np.dtype[Any]) -> None:
        if self._files is not None and self._files.is_file:
            expected, hint = "samples of one length for a .npy file", "pass the path of a directory"
            raise ValueError(Problem(self.where, expected, "different lengths", hint))

    @override
    def _misshapen(self, expected: tuple[int, ...], got: tuple[int, ...]) -> Problem:
        shapes = [f"({', '.join(map(str, ('*', *row)))})" for row in (expected, got)]
        text = f"samples of shape {shapes[0]} as in batch 0"
        return Problem(self.where, text, shapes[1], "only their first axis may differ")

    @override
    def write(self, part: Part) -> None:
        super().write(part)
        values, lengths = part
        assert lengths is not None
        if self._offsets is None:
            self._offsets = self._create(self._in_folder(OFFSETS), lengths)
            self._offsets.append(np.zeros(1, np.int64))
        start = self._values.rows - len(values)
        self._offsets.append(start + np.cumsum(lengths, dtype=np.int64))

    @property
    @override
    def _values_file(self) -> str:
        return self._in_folder(VALUES_FILES[self._string_type])

    def _in_folder(self, name: str) -> str:
        return os.path.join(self._name, name)

    @override
    def size(self, samples: int) -> int:
        return 0

    @override
    def reserve(self, samples: int) -> None:
        """Does nothing, because the number of values is unknown."""

    @override
    def finish(self) -> None:
        super().finish()
        self._offsets.finish()

    @override
    def result(self, samples: int) -> Any:
        if self._files is not None:
            return RaggedArray.open(os.path.join(self._files.path, self._name))
        offsets = self._offsets.take(samples + 1)
        return RaggedArray(self._values.take(int(offsets[-1])), offsets)


class TextColumn(RaggedColumn):
    """Collects strings in files, as `RaggedArray.from_strings` stores them."""

    @override
    def _part(self, entry: Any) -> Part:
        values, offsets, kind = encode(as_list(entry, self.where), f"{self.where}: string")
        if len(offsets) == 1:  # without a string, the type is unknown
            return values, np.diff(offsets)
        if self._string_type not in (None, kind):
            expected = f"{self._string_type.__name__} as in earlier batches"
            raise TypeError(Problem(self.where, expected, kind.__name__))
        self._string_type = kind
        return values, np.diff(offsets)

    @override
    def write(self, part: Part) -> None:
        if self._string_type is not None:
            super().write(part)

    @override
    def finish(self) -> None:
        if self._string_type is None:
            self._string_type = str
            self.write((np.empty(0, np.uint8), np.empty(0, np.int64)))
        super().finish()


class SequenceColumn(RaggedColumn):
    """Collects sequences in files, as an array if all of them have one length."""

    _min_length, _max_length = sys.maxsize, 0

    @override
    def write(self, part: Part) -> None:
        super().write(part)
        lengths = part[1]
        assert lengths is not None
        self._min_length = int(lengths.min(initial=self._min_length))
        self._max_length = int(lengths.max(initial=self._max_length))

    @override
    def finish(self) -> None:
        if self._min_length != self._max_length:
            return super().finish()
        assert self._files is not None
        self._values.finish((self._offsets.rows - 1, self._max_length, *self._values.row))
        return self._files.take_out(self._values, self._name)

    @override
    def result(self, samples: int) -> Any:
        if self._files is not None and self._min_length == self._max_length:
            return self._files.array(f"{self._name}.npy")
        return super().result(samples)


def as_list(entry: Any, where: str) -> list[Any]:
    """Converts a list, or an array of objects or strings, to a list; raises TypeError otherwise."""
    if holds_objects(entry):
        return entry.tolist() if isinstance(entry, np.ndarray) else list(entry)
    if not isinstance(entry, list | tuple):
        raise TypeError(Problem(where, "a list as in batch 0", type(entry).__name__))
    return list(entry)


def holds_objects(entry: Any) -> bool:
    """Whether an entry is an array of strings or of other objects."""
    if isinstance(entry, RaggedArray):
        return entry.string_type is not None
    return isinstance(entry, np.ndarray) and entry.ndim > 0 and entry.dtype.kind in "OUST"


def holds_numbers(entry: Any) -> bool:
    """Whether an entry is a list that begins with a number, in any depth."""
    if isinstance(entry, list | tuple) and entry:
        return isinstance(entry[0], int | float | complex | np.number) or holds_numbers(entry[0])
    return False


def is_ragged(entry: Any) -> bool:
    """Whether an entry states the length of each sample, along one axis."""
    if isinstance(entry, Padded):
        return getattr(getattr(entry, "lengths", None), "ndim", 0) == 1
    return isinstance(entry, JaggedBatch) or (
        isinstance(entry, RaggedArray) and not holds_objects(entry)
    )


def plain_array(entry: Any) -> npt.NDArray[Any] | None:
    """Returns a plain tensor or ndarray in memory as an ndarray, without a copy; None for others."""
    kind = type(entry)
    if kind is not _Tensor:
        return entry if kind is np.ndarray else None
    if entry.requires_grad:
        entry = entry.detach()
    try:
        return entry.numpy()
    except (TypeError, RuntimeError):  # a device, or a dtype or layout that NumPy lacks
        return None


def named(where: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Calls a function whose errors don't know the entry; they begin with its name."""
    try:
        return function(*arguments, **options)
    except (TypeError, ValueError) as error:
        raise type(error)(Problem(where, str(error))) from error


def as_ndarray(array: Any, where: str) -> npt.NDArray[Any]:
    """Converts an array, or a CPU tensor, to an ndarray; bfloat16 becomes float32."""
    array = plain(array, where)
    if isinstance(array, np.ndarray):
        return array
    return numpy_view(array.float() if array.dtype == torch.bfloat16 else array, where)


def plain(array: Any, where: str) -> npt.NDArray[Any] | torch.Tensor:
    """Resolves an array, or a tensor on any device, to one that only has to be copied."""
    if not isinstance(array, ARRAYS):
        raise TypeError(Problem(where, "a tensor or an ndarray", type(array).__name__))
    if isinstance(array, np.ndarray):
        check_plain(array, where)
        if array.dtype.hasobject or array.dtype.itemsize == 0:
            raise TypeError(Problem(where, "a dtype of fixed size", str(array.dtype)))
        return array
    if array.is_nested:
        hint = "use pinfeed.JaggedBatch(tensor.values(), tensor.offsets())"
        raise TypeError(Problem(where, "a dense tensor", "a nested one", hint))
    if array.layout != torch.strided:
        raise TypeError(Problem(where, "a dense tensor", str(array.layout), "use .to_dense()"))
    if array.is_meta:
        raise TypeError(Problem(where, "a tensor with values", "one on the meta device"))
    check_plain(array, where)
    return array.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()


def _side(
    padded: Any, values: npt.NDArray[Any], lengths: npt.NDArray[Any], where: str
) -> Literal["left", "right"]:
    """Returns the padding side, according to the mask if there is one."""
    if getattr(padded, "mask", None) is None:
        return padded.side
    mask = as_ndarray(padded.mask, where)
    right = np.arange(values.shape[1]) < lengths[:, np.newaxis]
    if np.array_equal(mask, right):
        return "right"
    if np.array_equal(mask, right[:, ::-1]):
        return "left"
    hint = "leave it out: Padded(values, lengths)"
    raise ValueError(Problem(where, "a mask that agrees with lengths", "another", hint))
