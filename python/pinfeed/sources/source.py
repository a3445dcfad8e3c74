"""The entries of a dataset: what every source of samples can do, arrays, and plain objects."""

from __future__ import annotations

import itertools
import operator
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from multiprocessing import context
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import ARRAYS, PLAIN_ARRAYS, Problem
from pinfeed.files.mapped import FilePart, MappedFile, open_npy
from pinfeed.memory.shared_file import SharedArray
from pinfeed.runtime import get_num_threads

#: Arrays of fewer bytes are sent to workers that are not forked.
_SHARED_BYTES = 2**20

#: What the samples of a source of strings are.
StringType: TypeAlias = type[str | bytes]


class Selection(NamedTuple):
    """Some samples of a source, as the native functions take them.

    Attributes:
        rows: An array, what reads the file of one, or the parts of one; or a list of samples.
        offsets: Where each sample begins in ``rows``, and where the last one ends. None: each row is
            a sample, or the parts have offsets of their own.
        indices: int64 of shape (B,): which samples. None: all samples of a list.
    """

    rows: Any
    offsets: Any = None
    indices: npt.NDArray[np.int64] | None = None


class Source(ABC):
    """An entry of a dataset: samples that can be counted and viewed one by one."""

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> Any: ...

    def select(self, indices: npt.NDArray[np.int64]) -> Selection:
        """The samples that a batch is made of; indices are checked and not negative."""
        return Selection([self[index] for index in indices.tolist()])

    def samples(self, indices: npt.NDArray[np.int64], name: str) -> list[Any]:
        """Some samples, at least one, each as ``self[index]`` gives it."""
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
        """All samples as one array, a copy; for samples of one shape."""
        if self.is_ragged:
            raise TypeError(
                f"{type(self).__name__}: sequences of different lengths are no ndarray; pinfeed.functional.pad "
                "makes one of them, and values and offsets of a RaggedArray are two"
            )
        rows, _, indices = self.select(np.arange(len(self)))
        name, threads = type(self).__name__, get_num_threads()
        array = _core.gather(rows, indices, None, None, np.ndarray, name, threads)
        return array if dtype is None else array.astype(dtype)

    @property
    def is_ragged(self) -> bool:
        """Whether samples are sequences of rows, which may differ in length."""
        return False

    @property
    def string_type(self) -> StringType | None:
        """``str`` or ``bytes``, if samples are strings; their rows are single bytes then."""
        return None

    @property
    @abstractmethod
    def dtype(self) -> Any:
        """The dtype of the samples: NumPy's, or torch's where they are tensors."""

    def check(self) -> None:  # noqa: B027 # sources in memory have nothing to check
        """Raises OSError if a file was cut short, so that reading its samples would be SIGBUS."""

    @abstractmethod
    def describe(self) -> str:
        """Dtype and shape of a sample, for messages."""


class ArraySource(Source):
    """An array whose first axis counts samples.

    Attributes:
        array: ndarray (a memmap as a plain view of itself) or tensor.
    """

    __slots__ = ("_file", "_rows", "_shared", "array")

    def __init__(self, array: Any, name: str) -> None:
        if isinstance(array, torch.Tensor):
            check_tensor(array, name)
        elif isinstance(array, np.ndarray):
            check_ndarray(array, name)
        else:
            raise TypeError(
                f"{name}: expected an ndarray, a memmap or a CPU tensor, got {type(array).__name__}"
            )
        if array.ndim == 0:
            raise ValueError(f"{name}: expected an axis that counts samples, got a 0-d array")
        self._file = MappedFile.under(array) if isinstance(array, np.ndarray) else None
        self._rows: Any = None
        self._shared: SharedArray | None = None  # what workers got that were started
        self.array: Any = array if isinstance(array, torch.Tensor) else np.asarray(array)

    @classmethod
    def open(cls, path: str | os.PathLike[str], name: str) -> ArraySource:
        """The array of a .npy file, as a read-only memmap; nothing is unpickled."""
        path = os.fsdecode(path)
        name = f"{name}: {path}"
        with open_npy(path, name) as (file, header):
            self = cls(header.map(file), name)
            if self._file is not None:
                # The open file counts, whatever its path leads to later.
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
        """What the native side gathers from: the array, or what reads its file."""
        if self._rows is None:
            rows = None if self._file is None else self._file.open_rows()
            self._rows = self.array if rows is None else rows
        return self._rows

    @property
    def path(self) -> str | None:
        """The file that the array lies in, if it lies in one."""
        return None if self._file is None else self._file.path

    @override
    def check(self) -> None:
        if self._file is not None:
            self._file.check()

    @override
    def describe(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {tuple(self.array.shape[1:])}"

    def __getstate__(self) -> Any:
        if self._file is not None and self._file.mode != "c":  # which may hold changes of its own
            return self._file
        self.check()  # the array is about to be read
        if context.get_spawning_popen() is None or not isinstance(self.array, np.ndarray):
            return self.array
        if (part := self._file_part()) is not None:
            return part
        if self._shared is not None and not self._shared.is_equal_to(self.array):
            self._shared = None  # running workers keep what they got
        share_arrays([self])
        if self._shared is None:
            return self.array
        if self._is_alone():
            self.array, self._rows = self._shared.open(), None
        return self._shared

    def __setstate__(self, state: Any) -> None:
        self._file = state if isinstance(state, MappedFile) else None
        self._shared = state if isinstance(state, SharedArray) else None
        self._rows = None
        if isinstance(state, SharedArray | FilePart):
            self.array = state.open()
        else:
            self.array = state if self._file is None else self._file.array

    def _file_part(self) -> FilePart | None:
        owner = self.array if self.array.base is None else self.array.base
        is_own = isinstance(owner, np.ndarray) and owner.flags.owndata
        if is_own or self._file is not None or self.array.nbytes < _core.page_bytes:
            return None
        return FilePart.under(self.array)

    def _is_alone(self) -> bool:
        """Whether nobody else holds the array, so that its contents may move to other memory."""
        base, holders = self.array.base, sys.getrefcount(self.array) - (self._rows is self.array)
        owner = self.array if base is None else base
        is_own = type(owner) is np.ndarray and owner.flags.owndata
        return is_own and holders <= 2 and (base is None or sys.getrefcount(base) <= 4)


def share_arrays(sources: Sequence[ArraySource]) -> None:
    """Puts arrays in memory into one shared file, if a worker is being started that gets them.

    They share a file because each takes a descriptor. Arrays in a file have their path; small ones
    travel as they are.
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
    """Objects, one for each sample: strings, images of different sizes, a SharedList.

    `Collate` takes them like samples of any other dataset.
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
    """Some samples of a source (no other subset), in an order of their own; nothing is copied."""

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
        """A subset, also of what is one."""
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
        """The length of each sample, of sources that know it."""
        return self._source.lengths[self._order.array]  # type: ignore[attr-defined]

    @property
    def documents(self) -> npt.NDArray[np.int64]:
        """Of the pieces of sequences: which sequence each is of."""
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
    """The place of a sample, counted from the front; negative ones count from the end."""
    try:
        position = operator.index(index)
    except TypeError as error:
        raise TypeError(f"{name}: expected {expected}, got {type(index).__name__}") from error
    if not -length <= position < length:
        raise IndexError(f"{name}: index {position} is out of range for {length} samples")
    return position % length


def positions(index: Any, length: int, name: str) -> npt.NDArray[np.int64]:
    """Which of ``length`` items integers, of which negative ones count from the end, or bools choose."""
    if not are_bools(index):
        return _core.as_indices(index, length, name)
    mask = np.asarray(index)
    if mask.shape != (length,):
        raise IndexError(f"{name}: expected a mask of shape ({length},), got {mask.shape}")
    return np.flatnonzero(mask)


def are_bools(index: Any) -> bool:
    """Whether this is a mask: an array of bools, or a list of nothing else."""
    if isinstance(index, list):
        kinds = {bool, np.bool_}
        return bool(index) and type(index[0]) in kinds and {*map(type, index)} <= kinds
    is_array = isinstance(index, ARRAYS) and index.ndim > 0
    return is_array and str(index.dtype) in ("bool", "torch.bool")


def check_tensor(tensor: torch.Tensor, name: str) -> None:
    """Raises TypeError for a tensor whose memory can't be read as it is, or is not all of it."""
    if tensor.device.type != "cpu":
        raise TypeError(
            f"{name}: expected a tensor on the CPU, got one on {tensor.device}; "
            "move it with .cpu() first"
        )
    if tensor.is_nested:
        raise TypeError(
            f"{name}: expected a dense tensor, got a nested one; RaggedArray.from_sequences(tensor.unbind()) "
            "holds its samples"
        )
    if tensor.is_quantized:
        raise TypeError(
            Problem(name, "a dense tensor", "a quantized one", "call .dequantize() first")
        )
    if tensor.layout != torch.strided:
        raise TypeError(
            f"{name}: expected a dense tensor, got {tensor.layout}; "
            "convert it with .to_dense() first"
        )
    for lazily, is_lazy, resolve in (
        ("conjugated", tensor.is_conj(), "resolve_conj"),
        ("negated", tensor.is_neg(), "resolve_neg"),
    ):
        if is_lazy:
            raise TypeError(
                f"{name}: expected a tensor whose memory holds its values, got one that is lazily "
                f"{lazily}; call .{resolve}() first"
            )
    check_plain(tensor, name)


def check_ndarray(array: npt.NDArray[Any], name: str) -> None:
    """Raises TypeError for an array that `check_plain` or `check_dtype` refuses."""
    check_plain(array, name)
    check_dtype(array.dtype, name)


def check_plain(array: Any, name: str) -> None:
    """Raises TypeError for an array with a mask or a unit, say, which would be lost."""
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(
            f"{name}: expected an array without a mask, which would be lost; pass "
            ".filled(value), or mask and .data as two arrays"
        )
    if not isinstance(array, ARRAYS) or type(array) in PLAIN_ARRAYS:
        return
    kind, attributes = type(array).__name__, getattr(array, "__dict__", {})
    if isinstance(array, np.ndarray):
        hint = "np.asarray(a) has its values alone"
        raise TypeError(Problem(name, "a plain NumPy array", kind, hint))
    if attributes:
        hint = ".as_subclass(torch.Tensor) has its values alone"
        raise TypeError(
            Problem(name, "a plain tensor", f"{kind} with {', '.join(attributes)}", hint)
        )


def check_dtype(dtype: np.dtype[Any], name: str) -> None:
    """Raises TypeError for a dtype that is not numeric or bool, or has another byte order."""
    if dtype.kind not in "biufc":
        hint = "; RaggedArray.from_strings takes strings" if dtype.kind in "SUT" else ""
        hint = "; .view(np.int64) has its numbers" if dtype.kind in "mM" else hint
        if dtype.names:
            hint = "; {name: a[name] for name in a.dtype.names} has its fields, without a copy"
        raise TypeError(f"{name}: expected a numeric or bool dtype, got {dtype}{hint}")
    if not dtype.isnative:
        raise TypeError(
            f"{name}: expected the machine's byte order, got dtype {dtype.str}; "
            "convert with a.astype(a.dtype.newbyteorder('=')), and files, which that would read as a "
            f"whole, with write_array(path, a, dtype={dtype.newbyteorder('=').name!r})"
        )
