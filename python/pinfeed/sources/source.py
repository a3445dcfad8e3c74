"""The entries of a dataset: the interface of all sources, arrays, and Python objects."""

from __future__ import annotations

import itertools
import operator
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from multiprocessing import context
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import ARRAYS, Problem, torch_dtype_name
from pinfeed.batches import Selectable, Selection
from pinfeed.files.mapped import FilePart, MappedFile, open_npy
from pinfeed.memory.shared_file import SharedArray
from pinfeed.runtime import get_num_threads

#: Arrays of fewer bytes are pickled for workers that are not forked.
_SHARED_BYTES = 2**20

#: The type of the samples of a string source.
StringType: TypeAlias = type[str | bytes]


class Source(Selectable, ABC):
    """An entry of a dataset: a sequence of samples."""

    __slots__ = ()

    #: Whether samples are sequences of rows, which may differ in length.
    is_ragged: bool = False
    #: ``str`` or ``bytes`` if samples are strings, whose rows are single bytes; otherwise None.
    string_type: StringType | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> Any: ...

    def select(self, indices: npt.NDArray[np.int64]) -> Selection:
        """Returns samples for native functions; indices are validated and non-negative."""
        return Selection([self[index] for index in indices.tolist()])

    @override
    def selection(self) -> Selection:
        return self.select(np.arange(len(self)))

    def samples(self, indices: npt.NDArray[np.int64], name: str) -> list[Any]:
        """Returns at least one sample, each equal to ``self[index]``."""
        if self.string_type is None:
            return [self[index] for index in indices.tolist()]
        joined, ends = _core.join(*self.select(indices), np.ndarray, name, get_num_threads())
        memory, strings = memoryview(joined), list[str | bytes]()
        is_text = self.string_type is str
        try:
            for begin, end in itertools.pairwise(ends.tolist()):
                part = memory[begin:end]
                strings.append(str(part, "utf-8") if is_text else bytes(part))
        except UnicodeDecodeError as error:
            hint = "string_type=bytes takes any bytes"
            problem = Problem(name, str(error), hint=hint, sample=len(strings))
            raise ValueError(problem) from error
        return strings

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Copies all samples, which must have one shape, into one array."""
        if self.is_ragged:
            expected = "sequences must have one length for one ndarray, got several"
            hint = (
                "pad them with pinfeed.functional.pad, or use values and offsets of a RaggedArray"
            )
            raise TypeError(Problem(type(self).__name__, expected, hint=hint))
        rows, _, indices = self.select(np.arange(len(self)))
        name, threads = type(self).__name__, get_num_threads()
        array = _core.gather(rows, indices, None, None, np.ndarray, name, threads)
        return array if dtype is None else array.astype(dtype)

    @property
    @abstractmethod
    def dtype(self) -> Any:
        """The NumPy dtype of the samples, or the torch dtype of tensors."""

    def check(self) -> None:  # sources in memory have nothing to check
        """Raises OSError if a file was truncated, because reading a mapping of it raises SIGBUS."""

    @abstractmethod
    def describe(self) -> str:
        """Dtype and shape of a sample, for messages."""


class ArraySource(Source):
    """An array whose first axis counts samples.

    Attributes:
        array: ndarray (for a memmap, a plain ndarray view) or tensor.
    """

    __slots__ = ("_file", "_rows", "_shared", "array")

    def __init__(self, array: Any, name: str) -> None:
        _core.check_array(array, name)
        if array.ndim == 0:
            raise ValueError(f"{name}: expected an axis that counts samples, got a 0-d array")
        self._file = MappedFile.under(array) if isinstance(array, np.ndarray) else None
        self._rows: Any = None
        self._shared: SharedArray | None = None  # the copy that started workers map
        self.array: Any = array if isinstance(array, torch.Tensor) else np.asarray(array)

    @classmethod
    def open(cls, path: str | os.PathLike[str], name: str) -> ArraySource:
        """Opens a .npy file as a read-only memmap, without pickle."""
        path = os.fsdecode(path)
        name = f"{name}: {path}"
        with open_npy(path, name) as (file, header):
            self = cls(header.map(file), name)
            if self._file is not None:
                # Keep the open file, because its path may name another file later.
                self._rows = self._file.open_rows(os.dup(file.fileno()))
        return self

    def __len__(self) -> int:
        return int(self.array.shape[0])

    def __getitem__(self, index: int) -> Any:
        self.check()
        return self.array[index]

    @override
    def select(self, indices: npt.NDArray[np.int64]) -> Selection:
        return Selection(self.rows, None, indices)

    @property
    @override
    def dtype(self) -> Any:
        return self.array.dtype

    @property
    def rows(self) -> Any:
        """The array, or a reader of its file, for native functions."""
        if self._rows is None:
            rows = None if self._file is None else self._file.open_rows()
            self._rows = self.array if rows is None else rows
        return self._rows

    @property
    def path(self) -> str | None:
        """The path of the array's file, or None."""
        return None if self._file is None else self._file.path

    @override
    def check(self) -> None:
        if self._file is not None:
            self._file.check()

    @override
    def describe(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {tuple(self.array.shape[1:])}"

    def __getstate__(self) -> Any:
        if self._file is not None and self._file.mode != "c":  # mode "c" may have private changes
            return self._file.part()
        self.check()  # before the array is read
        if context.get_spawning_popen() is None or not isinstance(self.array, np.ndarray):
            return self.array
        if (part := self._file_part()) is not None:
            return part
        if self._shared is not None and not self._shared.is_equal_to(self.array):
            self._shared = None  # running workers keep the old copy
        share_arrays([self])
        if self._shared is None:
            return self.array
        if self._is_alone():
            self.array, self._rows = self._shared.open(), None
        return self._shared

    def __setstate__(self, state: Any) -> None:
        self.array = state.open() if isinstance(state, SharedArray | FilePart) else state
        self._file = MappedFile.under(self.array) if isinstance(state, FilePart) else None
        self._shared = state if isinstance(state, SharedArray) else None
        self._rows = None

    def _file_part(self) -> FilePart | None:
        owner = self.array if self.array.base is None else self.array.base
        is_own = isinstance(owner, np.ndarray) and owner.flags.owndata
        if is_own or self._file is not None or self.array.nbytes < _core.page_bytes:
            return None
        return FilePart.under(self.array)

    def _is_alone(self) -> bool:
        """Whether no other reference to the array exists, so that its contents may move."""
        base, holders = self.array.base, sys.getrefcount(self.array) - (self._rows is self.array)
        owner = self.array if base is None else base
        is_own = type(owner) is np.ndarray and owner.flags.owndata
        return is_own and holders <= 2 and (base is None or sys.getrefcount(base) <= 4)


def share_arrays(sources: Sequence[ArraySource]) -> None:
    """Copies in-memory arrays into one shared file if they are being pickled for a new worker.

    They share one file because each file costs a descriptor. Arrays in files are pickled as paths,
    small arrays as their bytes.
    """
    if context.get_spawning_popen() is None:
        return
    new = [
        source
        for source in sources
        if isinstance(source.array, np.ndarray)
        and source.array.size
        and source._shared is None
        and (source._file is None or source._file.mode == "c")
        and source._file_part() is None
    ]
    arrays = [source.array for source in new]
    if sum(array.nbytes for array in arrays) < _SHARED_BYTES:
        return
    for source, shared in zip(new, SharedArray.of(arrays), strict=True):
        source._shared = shared


class ObjectColumn(Source):
    """One Python object per sample, such as the records of a SharedList.

    `Collate` treats them like samples of any other dataset.
    """

    __slots__ = ("objects",)

    def __init__(self, objects: Sequence[Any]) -> None:
        self.objects = objects

    def __len__(self) -> int:
        return len(self.objects)

    def __getitem__(self, index: int) -> Any:
        return self.objects[index]

    @property
    @override
    def dtype(self) -> Any:
        return None

    @override
    def describe(self) -> str:
        return "objects"


class SourceSubset(Source):
    """Chosen samples of a source (which is not itself a subset), in any order; nothing is copied."""

    __slots__ = ("_order", "_source", "dtype", "is_ragged", "string_type")

    dtype: Any
    is_ragged: bool
    string_type: StringType | None

    def __init__(self, source: Source, order: ArraySource) -> None:
        self._source, self._order = source, order
        self.dtype, self.string_type = source.dtype, source.string_type
        self.is_ragged = source.is_ragged

    @classmethod
    def of(cls, source: Source, order: ArraySource) -> SourceSubset:
        """Creates a subset; a subset of a subset refers to the original source."""
        if isinstance(source, SourceSubset):
            composed = source._order.array[order.array]
            return cls(source._source, ArraySource(composed, "SourceSubset"))
        return cls(source, order)

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: int) -> Any:
        return self._source[int(self._order.array[index])]

    @override
    def select(self, indices: npt.NDArray[np.int64]) -> Selection:
        return self._source.select(self._order.array[indices])

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The length of each sample, if the source has lengths."""
        return self._source.lengths[self._order.array]  # type: ignore[attr-defined]

    @property
    def documents(self) -> npt.NDArray[np.int64]:
        """For pieces of sequences: the number of each piece's sequence, int64."""
        return self._source.documents[self._order.array]  # type: ignore[attr-defined]

    @override
    def check(self) -> None:
        self._source.check()

    @override
    def describe(self) -> str:
        return self._source.describe()

    def __repr__(self) -> str:
        return f"SourceSubset({len(self)} samples of {self.describe()})"


def checked_position(index: Any, length: int, name: str, expected: str = "an integer") -> int:
    """Returns a validated index as a non-negative integer; negative indices count from the end."""
    try:
        position = operator.index(index)
    except TypeError as error:
        raise TypeError(Problem(name, expected, type(index).__name__)) from error
    if not -length <= position < length:
        raise IndexError(Problem(name, f"index {position} is out of range for {length} samples"))
    return position % length


def positions(index: Any, length: int, name: str) -> npt.NDArray[np.int64]:
    """Converts integers (negative ones count from the end) or bools to positions in ``length`` items."""
    if not are_bools(index):
        return _core.as_indices(index, length, name)
    mask = np.asarray(index)
    if mask.shape != (length,):
        raise IndexError(Problem(name, f"a mask of shape ({length},)", str(mask.shape)))
    return np.flatnonzero(mask)


def are_bools(index: Any) -> bool:
    """Whether an index is a mask: an array or a list of bools."""
    if isinstance(index, list):
        kinds = {bool, np.bool_}
        return bool(index) and type(index[0]) in kinds and {*map(type, index)} <= kinds
    is_array = isinstance(index, ARRAYS) and index.ndim > 0
    return is_array and str(index.dtype) in ("bool", "torch.bool")


def numpy_view(tensor: torch.Tensor, name: str) -> npt.NDArray[Any]:
    """Returns a CPU tensor without gradients as an ndarray; raises TypeError if NumPy lacks its dtype."""
    try:
        return tensor.numpy()
    except (RuntimeError, TypeError) as error:
        _core.check_array(tensor, name)
        if tensor.requires_grad:
            hint = "call .detach() first"
            got = "one with requires_grad=True"
            raise TypeError(Problem(name, "a tensor without gradients", got, hint)) from error
        bits = f"take the bits with .view(torch.uint{8 * tensor.itemsize})"
        wrong = f"NumPy has no {torch_dtype_name(tensor.dtype)}"
        raise TypeError(Problem(name, wrong, hint=f"convert with .float(), or {bits}")) from error
