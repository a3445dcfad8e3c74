"""Arrays concatenated along the sample axis, without a copy."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import ARRAYS, Problem, conversion_hint, require_flags, with_hints
from pinfeed.batches import Selection
from pinfeed.files.mapped import open_npy, require_same, stamp
from pinfeed.runtime import get_num_threads
from pinfeed.sources.ragged import RaggedArray, is_ragged_directory
from pinfeed.sources.source import (
    ArraySource,
    Source,
    checked_position,
    share_arrays,
)


class ConcatArray(Source):
    """Concatenates arrays along the sample axis without copying.

    It has the samples of ``np.concatenate(parts)``, and `ArrayDataset` accepts it like any array.

    Args:
        parts: At least one array, all of one kind, dtype and sample shape: paths of .npy files,
            ndarrays, memmaps, CPU tensors, `RaggedArray` (also from `RaggedArray.split` without
            overlap), or paths of directories with one `RaggedArray` each. Parts may be empty.
        samples: Whether each part is a single sample; all parts must then be paths of .npy files.

    For paths, only the file headers are read at first. A file is opened when its rows are read, and at
    most 256 files are open at a time. A batch that reads a modified, replaced or truncated file
    raises OSError. If the batch spans more than 8 files, the error can come up to a second late. Any
    number of threads may read the array at once.

    ``concat[i]`` is a view, or a copy if the part is a path; negative indices count from the end.

    Raises:
        TypeError: If ``parts`` is not an iterable of such parts, or their kinds or dtypes differ.
        ValueError: If ``parts`` is empty, shapes differ, a file is not a .npy file of numbers, or is in
            Fortran order and has several samples. The message names the part.
        OSError: If a file can't be read or is truncated.

    Example:
        >>> days = [np.arange(3), np.arange(10, 12)]
        >>> concat = pinfeed.ConcatArray(days)
        >>> len(concat), concat[3]
        (5, np.int64(10))
        >>> concat
        ConcatArray(5 samples of int64 () in 2 parts)
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = [f"{folder}/{i}.npy" for i in range(3)]
        ...     for path in paths:
        ...         np.save(path, np.zeros((32, 32, 3), np.uint8))
        ...     pinfeed.ConcatArray(paths, samples=True)
        ConcatArray(3 samples of uint8 (32, 32, 3) in 3 parts)
    """

    _parts: list[Any]
    _ends: npt.NDArray[np.int64]
    _rows: Any  # for native functions; created for the first batch

    @with_hints(
        "arrays go into one list: ConcatArray([a, b])",
        axis="parts are joined along their first axis, which counts samples",
    )
    def __init__(self, parts: Iterable[Any], *, samples: bool = False) -> None:
        require_flags("ConcatArray", samples=samples)
        if isinstance(parts, str | os.PathLike | np.ndarray | torch.Tensor | Source):
            is_pattern = isinstance(parts, str) and "*" in parts
            hint = f"; sorted(glob.glob({parts!r})) returns the paths" if is_pattern else ""
            if not isinstance(parts, str | os.PathLike):
                hint = "; a single array needs no ConcatArray"
            raise TypeError(
                "ConcatArray: parts must be a sequence of arrays, got one "
                f"{type(parts).__name__}{hint}"
            )
        parts = list(parts)
        if not parts:
            raise ValueError("ConcatArray: expected at least one part, got none")
        is_path = isinstance(parts[0], str | os.PathLike)
        if samples and not is_path:
            raise TypeError(
                "ConcatArray: samples=True takes paths of .npy files, got "
                f"{type(parts[0]).__name__}; np.stack(arrays) makes one array of samples in memory"
            )
        sources: list[Any] = []  # of ArraySource, of RaggedArray, or of _FilePart
        for number, part in enumerate(parts):
            source = _open_part(part, f"ConcatArray: part {number}", is_path, samples)
            _require_alike(sources[0] if number else source, source, number, samples)
            sources.append(source)
        self.__setstate__((sources, np.cumsum([len(source) for source in sources])))

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Any:
        position = checked_position(index, len(self), "ConcatArray")
        if isinstance(self._parts[0], _FilePart):
            chosen, name = self.select(np.array([position])), "ConcatArray"
            return _core.gather(
                chosen.rows, chosen.indices, None, None, np.ndarray, name, get_num_threads()
            )[0]
        part = int(self._ends.searchsorted(position, "right"))
        start = int(self._ends[part - 1]) if part > 0 else 0
        return self._parts[part][position - start]

    @override
    def select(self, indices: npt.NDArray[np.int64]) -> Selection:
        if self._rows is None:
            self._rows = self._native_rows()
        return Selection(self._rows, None, indices)

    def _native_rows(self) -> Any:
        """Returns all parts, with their offsets, for native functions."""
        parts = self._parts
        if self.is_ragged:
            values = tuple(part.values for part in parts)
            return _core.PartArrays(values, tuple(part.offsets for part in parts))
        if not isinstance(parts[0], _FilePart):
            return _core.PartArrays(tuple(part.array for part in parts))
        # The template only carries dtype, shape and strides; its values are never read.
        row = np.empty(parts[0].shape, self.dtype, parts[0].order)
        strides = row.nbytes, *row.strides
        template = np.lib.stride_tricks.as_strided(row, (len(self), *row.shape), strides)
        paths, stamps = [part.path for part in parts], [part.stamp for part in parts]
        offsets = [part.offset for part in parts]
        return _core.FileArray.of_parts(template, paths, stamps, offsets, self._ends.tolist())

    @property
    @override
    def dtype(self) -> Any:
        return self._parts[0].dtype

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The length of each sequence, computed on access; only if the parts are `RaggedArray`.

        Raises:
            TypeError: If the parts are arrays.
        """
        if not self.is_ragged:
            raise TypeError(
                "ConcatArray: parts must be RaggedArrays to have lengths, got arrays, whose samples have "
                "one length; leave lengths out"
            )
        return np.concatenate([part.lengths for part in self._parts])

    @override
    def check(self) -> None:
        for part in self._parts:
            part.check()

    @override
    def describe(self) -> str:
        return str(self._parts[0].describe())

    def __getstate__(self) -> Any:
        if self.is_ragged:
            share_arrays(
                [source for part in self._parts for source in (part._values, part._offsets)]
            )
        elif not isinstance(self._parts[0], _FilePart):
            share_arrays(self._parts)
        return self._parts, self._ends

    def __setstate__(self, state: Any) -> None:
        self._parts, self._ends = state
        self.is_ragged, self.string_type = self._parts[0].is_ragged, self._parts[0].string_type
        self._rows = None

    def __repr__(self) -> str:
        count = len(self._parts)
        return (
            f"ConcatArray({len(self)} samples of {self.describe()} in {count} "
            f"part{'s' * (count != 1)})"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _FilePart:
    """A .npy file, described by its header; raises OSError if the file has changed since."""

    path: str  # absolute, because the file is opened again later
    rows: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # shape of a row
    order: Literal["C", "F"]  # memory order of a row
    offset: int  # begin of the rows in the file, in bytes
    stamp: tuple[int, int, int]  # inode, size and modification time of the file

    is_ragged: ClassVar[bool] = False
    string_type: ClassVar[None] = None

    @classmethod
    def open(cls, path: str, name: str, is_sample: bool) -> _FilePart:
        """Reads the header of a file, which is one sample or has one sample per row."""
        with open_npy(path, name) as (file, header):
            file_stamp = stamp(os.fstat(file.fileno()))
        _core.check_array(np.empty(0, header.dtype), name)
        shape = header.shape
        if not shape and not is_sample:
            raise ValueError(
                f"{name}: expected an axis that counts samples, got a 0-d array; samples=True takes "
                "files of one sample each"
            )
        is_fortran = header.fortran_order and math.prod(shape) > max(shape, default=1)
        if is_fortran and not is_sample:
            hint = "save it with np.ascontiguousarray, or pass [np.load(path, mmap_mode='r') for path in paths]"
            got = "Fortran order, whose rows are not contiguous"
            raise ValueError(Problem(name, "C order", got, hint))
        path = os.path.abspath(path)
        rows, row = (1, shape) if is_sample else (shape[0], shape[1:])
        order: Literal["C", "F"] = "F" if is_fortran else "C"
        return cls(path, rows, header.dtype, row, order, header.offset, file_stamp)

    def __len__(self) -> int:
        return self.rows

    def describe(self) -> str:
        """See `Source.describe`."""
        return f"{self.dtype} {self.shape}{' in Fortran order' * (self.order == 'F')}"

    def check(self) -> None:
        """See `Source.check`."""
        require_same(self.path, self.stamp)


def _open_part(part: Any, name: str, is_path: bool, is_sample: bool) -> Any:
    if isinstance(part, str | os.PathLike) and is_path:
        path = os.fsdecode(part)
        if path.endswith(".npz"):
            got, hint = (
                "a .npz file",
                "ArrayDataset(path)[name] is an array of it, also for a ConcatArray",
            )
            raise ValueError(Problem(f"{name} ({path})", "a .npy file", got, hint))
        if not os.path.isdir(path):
            return _FilePart.open(path, f"{name} ({path})", is_sample)
        if is_ragged_directory(path):
            if not is_sample:
                return RaggedArray.open(path)
            expected, got = "a .npy file of one sample", "the directory of a RaggedArray"
            hint = "pass directories without samples=True"
            raise ValueError(Problem(f"{name} ({path})", expected, got, hint))
        files = sorted(os.listdir(path))
        first = files[0] if files else "x.npy"
        raise ValueError(
            f"{name} ({path}): expected a .npy file, or the directory of a RaggedArray, got a "
            f"directory of {files}; create one ConcatArray per file: "
            f'ConcatArray([f"{{part}}/{first}" for part in parts])'
        )
    if isinstance(part, RaggedArray) and not is_path:
        return part
    if isinstance(part, ARRAYS) and not is_path:
        return ArraySource(part, name)
    expected = "an ndarray, a memmap, a CPU tensor or a RaggedArray, or paths of .npy files only"
    hint = conversion_hint(part) if hasattr(part, "__array__") else ""
    if isinstance(part, Dataset):
        hint = "torch.utils.data.ConcatDataset joins datasets"
    elif isinstance(part, list | tuple):
        hint = "np.array(x) converts lists of numbers, RaggedArray.from_sequences(x) lists of several lengths"
    if is_path or isinstance(part, str | os.PathLike):
        expected = "a path like part 0" if is_path else "an array like part 0"
        hint = "np.load(path, mmap_mode='r') opens a file as an array"
    raise TypeError(Problem(name, expected, type(part).__name__, hint))


def _require_alike(first: Any, part: Any, number: int, is_sample: bool) -> None:
    """Raises if a part differs from the first in kind, dtype or shape."""
    kinds = [(_kind(item), item.dtype, item.string_type) for item in (first, part)]
    if kinds[0] == kinds[1] and part.describe() == first.describe():
        return
    path = "" if part.is_ragged or part.path is None else f" ({part.path})"
    hint = ""
    if first.dtype != part.dtype and not first.is_ragged:
        hint = "; write_array(path, part, dtype=...) converts a part, or part.astype(...) in memory"
    if is_sample:
        hint = "; the __getitem__ of a Dataset takes others: return np.load(paths[i])"
    raise (TypeError if kinds[0] != kinds[1] else ValueError)(
        f"ConcatArray: part {number}{path}: expected {_kind(first)} of {first.describe()} like "
        f"part 0, got {_kind(part)} of {part.describe()}{hint}"
    )


def _kind(source: Any) -> str:
    if source.string_type is not None:
        return "a RaggedArray"
    kind = "a tensor" if isinstance(source.dtype, torch.dtype) else "an ndarray"
    return f"a RaggedArray over {kind}" if source.is_ragged else kind
