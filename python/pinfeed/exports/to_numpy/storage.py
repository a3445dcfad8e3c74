"""Where columns are written: room that grows in memory, or .npy files."""

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
from pinfeed.files.atomic import AtomicWrite
from pinfeed.files.npy import NpyFile, NpyHeader
from pinfeed.limits import free_memory
from pinfeed.runtime import get_num_threads
from pinfeed.sources.ragged import holds_ragged
from pinfeed.structure import step_name

_GROWTH = 2

# From here on larger pages save most of the time that fresh memory costs. NumPy's own limit.
_HUGE = 4 << 20
#: What is copied by one thread, and what is taken without asking how much memory is free.
SMALL = 1 << 20


class Memory:
    """An array in anonymous memory, which Linux lengthens and cuts by moving pages, not bytes.

    ``ndarray.resize`` could do as much, but writes zeros into all that it adds, so that room to
    grow would be memory in use.
    """

    def __init__(self, dtype: np.dtype[Any], row: tuple[int, ...]) -> None:
        self.dtype, self.row, self.rows = dtype, row, 0
        self._row_bytes = math.prod(row) * dtype.itemsize
        self._map = _anonymous(1)
        self._room: npt.NDArray[Any] | None = None  # all rows that fit, once one was copied

    def reserve(self, rows: int) -> None:
        """Makes room for so many rows, which may turn out to be more or fewer."""
        size = max(1, rows * self._row_bytes)
        self._room = None  # a view, which would keep the map from being resized
        try:
            self._map.resize(size)
        except (BufferError, SystemError, AttributeError):
            # The traceback of an error holds a view, or the system can't move pages: before Python 3.15
            # that is a SystemError, from then on there is no resize.
            moved = _anonymous(size)
            kept = min(size, len(self._map))
            memoryview(moved)[:kept] = memoryview(self._map)[:kept]
            self._map = moved
        except OSError as error:
            raise _no_memory(size) from error
        if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel that was built without them
                self._map.madvise(mmap.MADV_HUGEPAGE)

    def append(self, array: npt.NDArray[Any]) -> None:
        """Copies rows of this dtype behind those that are there."""
        rows = self.rows + len(array)
        if self._room is None or rows > len(self._room):
            self._room = self._grown(rows)
        target = self._room[self.rows : rows]
        if array.nbytes > SMALL and self.dtype.kind in "biufc" and self.dtype.isnative:
            _core.gather(array, None, self.dtype.name, None, target, "to_numpy", get_num_threads())
        else:
            target[...] = array
        self.rows = rows

    def _grown(self, rows: int) -> npt.NDArray[Any]:
        """All rows that fit, at least ``rows``."""
        missing = rows * self._row_bytes - len(self._map)
        if missing > 0:
            # Asked here, because the system hands out more than it has, and kills later.
            require_memory(
                missing, f"after {len(self._map):,} bytes of an entry, more samples need"
            )
            try:
                # Room that nothing was written to yet costs nothing.
                self.reserve(max(rows, _GROWTH * len(self._map) // self._row_bytes))
            except MemoryError:
                self.reserve(rows)
        return self._view(0, len(self._map) // self._row_bytes if self._row_bytes else rows)

    def __getitem__(self, number: int) -> Any:
        """One row."""
        return self._view(number, 1)[0]

    def take(self, rows: int) -> npt.NDArray[Any]:
        """The first rows as an array; the rest of the room is given back."""
        self._room = None
        with contextlib.suppress(BufferError, SystemError, AttributeError):  # where it can't be cut
            self._map.resize(max(1, rows * self._row_bytes))
        return self._view(0, rows)

    def _view(self, start: int, rows: int) -> npt.NDArray[Any]:
        items, offset = rows * math.prod(self.row), start * self._row_bytes
        return np.frombuffer(self._map, self.dtype, items, offset).reshape(rows, *self.row)


def require_memory(size: int, what: str) -> None:
    """Raises MemoryError if fewer bytes than ``size`` are free for ``what``, up to the verb."""
    free = free_memory() if size > SMALL else None
    if free is not None and size > free:
        raise MemoryError(
            f"to_numpy: {what} {size:,} bytes of memory, of which {free:,} are free; write to files "
            "with out=a path, or take fewer samples with max_samples"
        )


def _anonymous(size: int) -> mmap.mmap:
    try:
        # Private, because shared memory can't grow.
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise _no_memory(size) from error


def _no_memory(size: int) -> MemoryError:
    return MemoryError(f"to_numpy: the system has no memory for an array of {size:,} bytes")


class OutputFiles:
    """The files of a result: one .npy file, or a directory of them, complete or absent.

    Args:
        path: A file if it ends in .npy, else a directory.
        overwrite: Whether to replace what is there.
        name: What messages begin with, such as ``"to_numpy: out"``.

    Attributes:
        path: Of the file or the directory, without links.
        is_file: Which of them.
    """

    def __init__(self, path: str | os.PathLike[str], overwrite: bool, name: str) -> None:
        real = os.path.realpath(os.fsdecode(path))
        if real.endswith(".npz"):
            raise ValueError(
                f"{name}: expected a path that ends in .npy, for one array, or that of a directory of "
                f"them, got {os.fsdecode(path)!r}; np.savez writes .npz files"
            )
        self.is_file = real.endswith(".npy")
        self._write = AtomicWrite(
            path,
            is_file=self.is_file,
            overwrite=overwrite,
            is_own=_holds_arrays,
            name=name,
        )
        self.path = self._write.path
        self._files: list[NpyFile] = []
        self._names: set[str] = set()

    def name(self, steps: Sequence[str], where: str) -> str:
        """What the files of an entry are called, and of no other: its steps joined with dots, no ending."""
        if self.is_file:
            name = os.path.basename(self.path).removesuffix(".npy")
            hint = "a .npy file holds one array; give the path of a directory"
        else:
            name, hint = _file_name(steps), "rename a key"
        for taken in (name, f"{name}.npy"):  # the first of a RaggedArray's directory
            if taken in self._names:
                raise ValueError(f"{where}: another entry is already written to {taken}; {hint}")
            self._names.add(taken)
        return name

    def create(self, name: str, like: npt.NDArray[Any]) -> NpyFile:
        """A new file, for an array of such rows; it may get an axis more in the end."""
        path = self._path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._files.append(NpyFile(path, like.dtype, like.shape[1:], like.ndim + 1))
        return self._files[-1]

    def take_out(self, file: NpyFile, folder: str) -> None:
        """Puts a finished file, the one that counts in a directory, in the place of that: ``x.npy``."""
        os.rename(file.path, self._path(f"{folder}.npy"))
        shutil.rmtree(self._path(folder))

    def array(self, name: str) -> npt.NDArray[Any]:
        """The array of a file that is in its place, mapped."""
        folder = os.path.dirname(self.path) if self.is_file else self.path
        with open(os.path.join(folder, name), "rb") as file:
            return NpyHeader.read(file, name).map(file)

    def commit(self) -> None:
        """Puts all files in their place; each is finished."""
        self._write.commit()

    def close(self) -> None:
        """Removes what isn't in its place."""
        for file in self._files:
            file.close()
        self._write.discard()

    def _path(self, name: str) -> str:
        return os.path.join(self._write.folder, name)


def _file_name(steps: Sequence[str]) -> str:
    """What the file of an entry is called, without ending; nothing for a structure's root."""
    name = ".".join(
        step_name(step).replace("%", "%25").replace("/", "%2F").replace("\0", "%00")
        for step in steps
    )
    if name.startswith("."):  # hidden, or a directory above
        return f"%2E{name[1:]}"
    return name if name or not steps else "%"


def _holds_arrays(directory: str) -> bool:
    """Whether all that is there may come from here: only such a directory is ever removed."""
    with os.scandir(directory) as entries:
        return all(
            holds_ragged(entry.path)
            if entry.is_dir(follow_symlinks=False)
            else entry.name.endswith(".npy")
            for entry in entries
        )
