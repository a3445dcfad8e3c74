"""Storage of columns: growing memory, or .npy files."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed import _core
from pinfeed.arguments import Problem
from pinfeed.files.atomic import AtomicWrite
from pinfeed.files.npy import NpyFile, NpyHeader
from pinfeed.limits import free_memory
from pinfeed.runtime import get_num_threads
from pinfeed.sources.ragged import holds_ragged
from pinfeed.structure import step_name

_GROWTH = 2

# From this size on, huge pages save most of the cost of page faults. NumPy uses the same threshold.
_HUGE = 4 << 20
#: Up to this size, one thread copies, and free memory is not checked.
SMALL = 1 << 20


class Memory:
    """A growing array in anonymous memory, which Linux resizes by remapping pages.

    ``ndarray.resize`` writes zeros into all added memory, so unused capacity would occupy memory.
    """

    def __init__(self, dtype: np.dtype[Any], row: tuple[int, ...]) -> None:
        self.dtype, self.row, self.rows = dtype, row, 0
        self._row_bytes = math.prod(row) * dtype.itemsize
        self._map = _anonymous(1)
        self._capacity: npt.NDArray[Any] | None = None  # a view of all rows that fit

    def reserve(self, rows: int) -> None:
        """Resizes the memory to a number of rows."""
        size = max(1, rows * self._row_bytes)
        self._capacity = None  # drop the view, which blocks resizing
        try:
            self._map.resize(size)
        except (BufferError, SystemError, AttributeError):
            # The traceback of an error holds a view, or the system can't remap pages (SystemError, or no
            # resize from Python 3.15 on).
            larger = _anonymous(size)
            common = min(size, len(self._map))
            memoryview(larger)[:common] = memoryview(self._map)[:common]
            self._map = larger
        except OSError as error:
            raise _no_memory(size) from error
        if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without huge pages
                self._map.madvise(mmap.MADV_HUGEPAGE)

    def append(self, array: npt.NDArray[Any]) -> None:
        """Appends rows of this dtype."""
        rows = self.rows + len(array)
        if self._capacity is None or rows > len(self._capacity):
            self._capacity = self._grown(rows)
        target = self._capacity[self.rows : rows]
        if array.nbytes > SMALL and self.dtype.kind in "biufc" and self.dtype.isnative:
            _core.gather(array, None, self.dtype.name, None, target, "to_numpy", get_num_threads())
        else:
            target[...] = array
        self.rows = rows

    def _grown(self, rows: int) -> npt.NDArray[Any]:
        """Grows to at least ``rows`` rows; returns a view of the capacity."""
        missing = rows * self._row_bytes - len(self._map)
        if missing > 0:
            # Checked here, because the system overcommits memory, and kills the process later.
            require_memory(
                missing, f"after {len(self._map):,} bytes of an entry, more samples need"
            )
            try:
                # Capacity without writes occupies no memory.
                self.reserve(max(rows, _GROWTH * len(self._map) // self._row_bytes))
            except MemoryError:
                self.reserve(rows)
        return self._view(len(self._map) // self._row_bytes if self._row_bytes else rows)

    def take(self, rows: int) -> npt.NDArray[Any]:
        """Returns the first rows as an array, and frees the rest of the memory."""
        self._capacity = None
        with contextlib.suppress(BufferError, SystemError, AttributeError):  # can't be resized
            self._map.resize(max(1, rows * self._row_bytes))
        return self._view(rows)

    def _view(self, rows: int) -> npt.NDArray[Any]:
        items = rows * math.prod(self.row)
        return np.frombuffer(self._map, self.dtype, items).reshape(rows, *self.row)


def require_memory(size: int, subject: str) -> None:
    """Raises MemoryError if fewer than ``size`` bytes are free; ``subject`` begins the message."""
    free = free_memory() if size > SMALL else None
    if free is not None and size > free:
        raise MemoryError(
            f"to_numpy: {subject} {size:,} bytes of memory, but only {free:,} are free; pass a path as out to "
            "write files, or limit the samples with max_samples"
        )


def _anonymous(size: int) -> mmap.mmap:
    try:
        # Private, because shared memory can't grow.
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise _no_memory(size) from error


def _no_memory(size: int) -> MemoryError:
    return MemoryError(
        f"to_numpy: the system has no memory for an array of {size:,} bytes; pass a path as out to write files"
    )


class OutputFiles:
    """The files of a result: one .npy file, or a directory of them, complete or absent.

    Args:
        path: A file if it ends in .npy, otherwise a directory.
        overwrite: Whether to replace an existing path.
        name: Prefix of messages, such as ``"to_numpy: out"``.

    Attributes:
        path: Path of the file or the directory, with links resolved.
        is_file: Whether the path is a file.
    """

    def __init__(self, path: str | os.PathLike[str], overwrite: bool, name: str) -> None:
        real = os.path.realpath(os.fsdecode(path))
        if real.endswith(".npz"):
            expected = "a path that ends in .npy, for one array, or the path of a directory"
            hint = "np.savez writes .npz files"
            raise ValueError(Problem(name, expected, repr(os.fsdecode(path)), hint))
        self.is_file = real.endswith(".npy")
        self._write = AtomicWrite(
            path, is_file=self.is_file, overwrite=overwrite, is_own=_holds_arrays, name=name
        )
        self.path = self._write.path
        self._files: list[NpyFile] = []
        self._names: set[str] = set()

    def name(self, steps: Sequence[str], where: str) -> str:
        """Returns a unique file name for an entry: its steps joined with dots, without an extension."""
        if self.is_file:
            name = os.path.basename(self.path).removesuffix(".npy")
            hint = "a .npy file holds one array; pass the path of a directory"
        else:
            name, hint = _file_name(steps), "rename a key"
        for file in (name, f"{name}.npy"):  # the first is a RaggedArray's directory
            if file in self._names:
                wrong = f"another entry is already written to {file}"
                raise ValueError(Problem(where, wrong, hint=hint))
            self._names.add(file)
        return name

    def create(self, name: str, like: npt.NDArray[Any]) -> NpyFile:
        """Creates a file for rows like these, with header space for one more axis."""
        path = self._path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._files.append(NpyFile(path, like.dtype, like.shape[1:], like.ndim + 1))
        return self._files[-1]

    def take_out(self, file: NpyFile, folder: str) -> None:
        """Replaces a RaggedArray's directory with its finished values file, ``x.npy``."""
        os.rename(file.path, self._path(f"{folder}.npy"))
        shutil.rmtree(self._path(folder))

    def array(self, name: str) -> npt.NDArray[Any]:
        """Memory-maps the array of a committed file."""
        folder = os.path.dirname(self.path) if self.is_file else self.path
        with open(os.path.join(folder, name), "rb") as file:
            return NpyHeader.read(file, name).map(file)

    def commit(self) -> None:
        """Moves all files, which are finished, to the path."""
        self._write.commit()

    def close(self) -> None:
        """Removes everything that wasn't committed."""
        for file in self._files:
            file.close()
        self._write.discard()

    def _path(self, name: str) -> str:
        return os.path.join(self._write.folder, name)


def _file_name(steps: Sequence[str]) -> str:
    """Returns an entry's file name, without an extension; empty for a single entry."""
    name = ".".join(
        step_name(step).replace("%", "%25").replace("/", "%2F").replace("\0", "%00")
        for step in steps
    )
    if name.startswith("."):  # hidden, or a directory above
        return f"%2E{name[1:]}"
    return name if name or not steps else "%"


def _holds_arrays(directory: str) -> bool:
    """Whether a directory contains only files of the kinds written here, so that it may be replaced."""
    with os.scandir(directory) as entries:
        return all(
            holds_ragged(entry.path)
            if entry.is_dir(follow_symlinks=False)
            else entry.name.endswith(".npy")
            for entry in entries
        )
