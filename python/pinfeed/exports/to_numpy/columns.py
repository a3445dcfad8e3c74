"""Columns: what becomes of one leaf of all batches."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import torch_dtype_name
from pinfeed.exports.to_numpy.storage import Memory, OutputFiles
from pinfeed.functions.padding import checked_lengths
from pinfeed.functions.sequences import JaggedBatch, Padded
from pinfeed.runtime import get_num_threads
from pinfeed.sources.ragged import OFFSETS, VALUES_FILES, RaggedArray
from pinfeed.sources.source import StringType
from pinfeed.sources.strings import encode


class Rows(NamedTuple):
    """The numbers of a batch.

    Attributes:
        values: Samples of one shape, (B, ...); or the rows of all sequences, one after the other.
        lengths: Of the sequences, int64 of shape (B,); None for samples of one shape.
    """

    values: npt.NDArray[Any]
    lengths: npt.NDArray[np.int64] | None = None

    @property
    def samples(self) -> int:
        """How many there are."""
        return len(self.values if self.lengths is None else self.lengths)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Of a sample; a sequence has None for its length."""
        shape = self.values.shape[1:]
        return shape if self.lengths is None else (None, *shape)


class Column(ABC):
    """One leaf of all batches.

    A leaf in memory goes through `check`, which raises TypeError or ValueError if it doesn't fit
    to those before. When no leaf of the batch did, `write` takes what `check` returned.

    Args:
        where: What messages call the leaf, before the number of the batch.

    Attributes:
        batch: The number of the batch at hand.
    """

    def __init__(self, where: str) -> None:
        self._name, self.batch = where, 0

    @property
    def where(self) -> str:
        """What messages call the leaf at hand, such as ``"to_numpy: leaf ['x'] of batch 3"``."""
        return f"{self._name}batch {self.batch}"

    @abstractmethod
    def check(self, leaf: Any) -> Any:
        """What `write` takes."""

    @abstractmethod
    def write(self, rows: Any) -> None:
        """Copies the leaf of a batch behind those before."""

    def size(self, samples: int) -> int:
        """How many bytes so many samples take, as far as those so far tell."""
        return 0

    def reserve(self, samples: int) -> None:  # noqa: B027
        """Makes room for so many samples, which may turn out to be more or fewer."""

    def finish(self, samples: int) -> None:  # noqa: B027
        """Brings the first samples into their final form."""

    @abstractmethod
    def result(self, samples: int) -> Any:
        """The first samples; of files, once these are finished and in their place."""


class ListColumn(Column):
    """Lists with an object for each sample, and arrays of strings or objects; becomes a list."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self._objects: list[Any] = []

    @override
    def check(self, leaf: Any) -> list[Any]:
        return as_list(leaf, self.where)

    @override
    def write(self, rows: list[Any]) -> None:
        self._objects += rows

    @override
    def result(self, samples: int) -> list[Any]:
        return self._objects[:samples]


class ArrayColumn(Column):
    """Numbers: one array, or a RaggedArray as soon as samples differ along their first axis."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self._samples = 0
        self._shape: tuple[int | None, ...] = ()  # of a sample; None for any length
        self._values: Any = None  # a storage; None before the first batch
        self._offsets: Any = None  # a storage; None as long as all samples have one shape
        self._end = 0  # of the last sequence

    @override
    def check(self, leaf: Any) -> Rows:
        rows = self._rows(leaf)
        if self._values is not None:
            self._check_follows(rows)
        if self._differs(rows):
            self._check_ragged(rows)
        return rows

    def _rows(self, leaf: Any) -> Rows:
        if isinstance(leaf, JaggedBatch | RaggedArray):
            return _jagged_rows(leaf, self.where)
        return (
            _padded_rows(leaf, self.where)
            if has_lengths(leaf)
            else Rows(as_ndarray(leaf, self.where))
        )

    def _differs(self, rows: Rows) -> bool:
        """Whether samples differ in length, now at the latest."""
        is_other = self._samples > 0 < rows.samples and rows.shape != self._shape
        return self._offsets is not None or rows.lengths is not None or is_other

    def _check_follows(self, rows: Rows) -> None:
        dtype, shape, got = self._values.dtype, self._shape, rows.shape
        if rows.values.dtype != dtype:
            raise TypeError(f"{self.where}: expected {dtype} as before, got {rows.values.dtype}")
        is_empty = self._samples == 0 or rows.samples == 0
        if len(got) != len(shape) or not (is_empty or got[1:] == shape[1:]):
            expected, found = (
                _listed(("*", *sizes[1:]) if sizes else ()) for sizes in (shape, got)
            )
            raise ValueError(
                f"{self.where}: expected samples of shape {expected} as before, got {found}; only "
                "their first axis may differ"
            )

    def _check_ragged(self, rows: Rows) -> None:
        """Raises if samples can't differ in length."""
        dtype = rows.values.dtype
        if dtype.kind not in "biufc" or not dtype.isnative:
            raise TypeError(
                f"{self.where}: samples of different lengths must be numbers or bools in the "
                f"machine's byte order, got {dtype}"
            )

    @override
    def write(self, rows: Rows) -> None:
        values, lengths = rows
        if self._values is None:
            self._values = self._storage(values.dtype, values.ndim)
            self._shape = rows.shape
        if self._differs(rows):
            if self._offsets is None:
                self._become_ragged()
            if lengths is None:
                lengths = np.full(len(values), values.shape[1])
                values = values.reshape(-1, *values.shape[2:])
            self._values.write(self._end * math.prod(values.shape[1:]), values)
            self._offsets.write(self._samples + 1, self._end + np.cumsum(lengths, dtype=np.int64))
            self._end += int(lengths.sum())
            if rows.samples:
                self._shape = (None, *values.shape[1:])
        elif rows.samples:
            self._values.write(self._samples * math.prod(values.shape[1:]), values)
            self._shape = rows.shape
        self._samples += rows.samples

    def _storage(self, dtype: np.dtype[Any], axes: int) -> Any:
        """Where values are written; of arrays of at most so many axes."""
        return Memory(dtype)

    def _become_ragged(self) -> None:
        """Makes sequences of the samples so far, which have one shape."""
        length = (self._shape[0] or 0) if self._samples else 0
        ends = np.arange(self._samples + 1, dtype=np.int64) * length
        self._offsets = self._offsets_storage()
        self._offsets.write(0, ends)
        self._end, self._shape = int(ends[-1]), (None, *self._shape[1:])

    def _offsets_storage(self) -> Any:
        return Memory(np.dtype(np.int64))

    @override
    def size(self, samples: int) -> int:
        dense = self._shape if self._offsets is None else (0,)
        return samples * math.prod(size or 0 for size in dense) * self._values.dtype.itemsize

    @override
    def reserve(self, samples: int) -> None:
        if self._offsets is None:
            self._values.reserve(self.size(samples) // self._values.dtype.itemsize)

    def _shapes(self, samples: int) -> list[tuple[Any, tuple[int, ...]]]:
        """The storages, and the shapes of their arrays; offsets, which count samples, come last."""
        if self._offsets is None:
            return [(self._values, (samples, *(size or 0 for size in self._shape)))]
        end = self._end if samples == self._samples else int(self._offsets.item(samples))
        item = tuple(size or 0 for size in self._shape[1:])
        return [(self._values, (end, *item)), (self._offsets, (samples + 1,))]

    @override
    def result(self, samples: int) -> Any:
        arrays = [storage.take(shape) for storage, shape in self._shapes(samples)]
        return arrays[0] if self._offsets is None else RaggedArray(*arrays)


class FileColumn(ArrayColumn):
    """The same in .npy files: ``x.npy``, or the directory ``x`` that `RaggedArray.open` reads.

    Args:
        where: What messages call the leaf.
        files: Where they lie.
        name: Of the leaf there, without ending; empty for the only one.
    """

    _string_type: StringType | None = None

    def __init__(self, where: str, files: OutputFiles, name: str) -> None:
        super().__init__(where)
        self._files, self._file = files, name

    @property
    def _dense(self) -> str:
        return f"{self._file or 'values'}.npy"

    def _in_directory(self, name: str) -> str:
        return os.path.join(self._file, name)

    @override
    def _check_ragged(self, rows: Rows) -> None:
        super()._check_ragged(rows)
        if self._files.is_file:
            raise ValueError(
                f"{self.where}: a .npy file can't hold samples of different lengths; give the path "
                "of a directory"
            )

    @override
    def _storage(self, dtype: np.dtype[Any], axes: int) -> Any:
        kept = np.lib.format.descr_to_dtype(np.lib.format.dtype_to_descr(dtype))
        if kept != dtype:  # those of ml_dtypes come back as bytes
            raise TypeError(
                f"{self.where}: a .npy file can't hold {dtype}; convert with .astype(...)"
            )
        return self._files.create(self._dense, dtype, axes)

    @override
    def _offsets_storage(self) -> Any:
        return self._files.create(self._in_directory(OFFSETS), np.dtype(np.int64), 1)

    @override
    def _become_ragged(self) -> None:
        super()._become_ragged()
        # In this order, a process that is killed leaves either kind as it should be.
        self._offsets.save((self._samples + 1,))
        self._files.move(self._values, self._in_directory(VALUES_FILES[self._string_type]))
        self.save()

    def restore(self, rows: Rows, samples: int) -> None:
        """Goes on behind the samples that lie in the files already.

        Args:
            rows: What `check` returned for the first batch.
            samples: How many are there.
        """
        offsets = self._in_directory(OFFSETS)
        is_ragged = self._files.has(offsets) and not (self._file and self._files.has(self._dense))
        name = VALUES_FILES[self._string_type] if is_ragged else None
        name = self._in_directory(name) if name else self._dense
        self._values, shape = self._files.open(name, rows.values.dtype, self.where)
        self._samples, self._shape = samples, shape[1:]
        if is_ragged:
            self._offsets, _ = self._files.open(offsets, np.dtype(np.int64), self.where)
            self._end, self._shape = int(self._offsets.item(samples)), (None, *rows.shape[1:])
        self._check_follows(rows)

    def save(self) -> None:
        """Brings all samples to the disk, and writes headers that count them."""
        for storage, shape in self._shapes(self._samples):
            storage.save(shape)

    @override
    def finish(self, samples: int) -> None:
        for storage, shape in self._shapes(samples):
            storage.finish(shape)

    @override
    def result(self, samples: int) -> Any:
        if self._offsets is None:
            return self._files.array(self._dense)
        return RaggedArray.open(os.path.join(self._files.path, self._file))


class TextColumn(FileColumn):
    """Strings in files, as `RaggedArray.from_strings` holds them."""

    @override
    def _rows(self, leaf: Any) -> Rows:
        values, offsets, kind = encode(as_list(leaf, self.where), f"{self.where}: string")
        if self._string_type not in (None, kind):
            raise TypeError(
                f"{self.where}: expected {self._string_type.__name__} as before, "
                f"got {kind.__name__}"
            )
        self._string_type = kind
        return Rows(values, np.diff(offsets))


def as_list(leaf: Any, where: str) -> list[Any]:
    """A list, or an array of objects or strings, as a list; raises TypeError for all else."""
    if is_text(leaf):
        return leaf.tolist() if isinstance(leaf, np.ndarray) else list(leaf)
    if not isinstance(leaf, list | tuple):
        raise TypeError(f"{where}: expected a list as before, got {type(leaf).__name__}")
    return list(leaf)


def is_text(leaf: Any) -> bool:
    """Whether a leaf is an array of strings or of other objects."""
    if isinstance(leaf, RaggedArray):
        return leaf.string_type is not None
    return isinstance(leaf, np.ndarray) and leaf.ndim > 0 and leaf.dtype.kind in "OUST"


def has_lengths(leaf: Any) -> bool:
    """Whether a leaf is a `Padded` that says how much of each sample is data, along one axis."""
    return isinstance(leaf, Padded) and getattr(getattr(leaf, "lengths", None), "ndim", 0) == 1


def as_ndarray(array: Any, where: str) -> npt.NDArray[Any]:
    """An array, or a tensor in memory, as an ndarray; bfloat16 becomes float32.

    Args:
        array: What stands in the batch.
        where: What messages call it.

    Raises:
        TypeError: There are no values that NumPy could hold.
    """
    array = plain(array, where)
    if isinstance(array, np.ndarray):
        return array
    if array.dtype == torch.bfloat16:
        array = array.float()
    try:
        return array.numpy()
    except TypeError as error:
        raise TypeError(
            f"{where}: NumPy has no {torch_dtype_name(array.dtype)}; convert with .float(), or take "
            f"the bits with .view(torch.uint{8 * array.itemsize})"
        ) from error


def plain(array: Any, where: str) -> npt.NDArray[Any] | torch.Tensor:
    """An array or a tensor, on whatever device, as one that only has to be copied.

    Args:
        array: What stands in the batch.
        where: What messages call it.

    Raises:
        TypeError: There are no values that NumPy could hold.
    """
    if not isinstance(array, np.ndarray | torch.Tensor):
        raise TypeError(f"{where}: expected a tensor or an ndarray, got {type(array).__name__}")
    if isinstance(array, np.ndarray):
        if isinstance(array, np.ma.MaskedArray):
            raise TypeError(f"{where}: the mask of a masked array would be lost; use .filled()")
        if array.dtype.hasobject or array.dtype.itemsize == 0:
            raise TypeError(f"{where}: expected a dtype of fixed size, got {array.dtype}")
        return array
    if array.is_nested:
        raise TypeError(
            f"{where}: expected a dense tensor, got a nested one; "
            "use pinfeed.JaggedBatch(tensor.values(), tensor.offsets())"
        )
    if array.layout != torch.strided:
        raise TypeError(f"{where}: expected a dense tensor, got {array.layout}; use .to_dense()")
    if array.is_meta:
        raise TypeError(f"{where}: a tensor on the meta device has no values")
    return array.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()


def _jagged_rows(leaf: JaggedBatch | RaggedArray, where: str) -> Rows:
    values = as_ndarray(leaf.values, f"{where}: values")
    offsets = as_ndarray(leaf.offsets, f"{where}: offsets")
    if values.ndim == 0 or offsets.ndim != 1 or len(offsets) == 0:
        raise ValueError(
            f"{where}: expected values of shape (total, ...) and offsets of shape (B + 1,), "
            f"got {values.shape} and {offsets.shape}"
        )
    if offsets.dtype.kind != "i":
        raise TypeError(f"{where}: offsets must be signed integers, got {offsets.dtype}")
    lengths = np.subtract(offsets[1:], offsets[:-1], dtype=np.int64)
    if offsets[0] < 0 or offsets[-1] > len(values) or (lengths < 0).any():
        raise ValueError(
            f"{where}: offsets must not decrease, from 0 to at most {len(values)}, the number of "
            "values"
        )
    return Rows(values[int(offsets[0]) : int(offsets[-1])], lengths)


def _padded_rows(leaf: Any, where: str) -> Rows:
    values, counts, mask = leaf.values, leaf.lengths, getattr(leaf, "mask", None)
    values, counts = as_ndarray(values, where), as_ndarray(counts, where)
    if values.ndim < 2 or counts.shape != values.shape[:1]:
        raise ValueError(
            f"{where}: expected values of shape (B, L, ...) and lengths of shape (B,), "
            f"got {values.shape} and {counts.shape}; of time_major batches pass "
            "values.swapaxes(0, 1)"
        )
    lengths = np.array(checked_lengths(counts, values.shape[:2], where), np.int64)
    side = getattr(leaf, "side", "right")
    if mask is not None:
        mask = as_ndarray(mask, where)
        right = np.arange(values.shape[1]) < lengths[:, np.newaxis]
        if np.array_equal(mask, right[:, ::-1]):
            side = "left"
        elif not np.array_equal(mask, right):
            raise ValueError(f"{where}: lengths and mask don't agree about what is data")
    rows, _ = _core.join(
        values, None, None, np.empty, where, get_num_threads(), side=side, lengths=lengths
    )
    return Rows(rows, lengths)


def _listed(sizes: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"
