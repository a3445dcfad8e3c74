"""Where columns are written: flat room that grows, in memory or in .npy files."""

from __future__ import annotations

import ast
import contextlib
import math
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from pinfeed import _core
from pinfeed.files.atomic import AtomicWrite
from pinfeed.files.npy import NpyFile, NpyHeader
from pinfeed.limits import free_memory
from pinfeed.runtime import get_num_threads
from pinfeed.sources.ragged import holds_ragged

Array = npt.NDArray[Any] | torch.Tensor

_GROWTH = 2

# From here on larger pages save most of the time that fresh memory costs. NumPy's own limit.
_HUGE = 4 * 1024 * 1024


class Storage(ABC):
    """Where the items of one column lie, one after the other.

    Args:
        dtype: Of an item.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype

    @abstractmethod
    def resize(self, items: int) -> None:
        """Makes room for so many items, which may turn out to be more or fewer.

        Raises:
            MemoryError, OSError: There is none.
        """

    @abstractmethod
    def write(self, start: int, array: Array, where: str) -> None:
        """Copies an array that is in memory; an error calls it ``where``.

        Args:
            start: How many items come before.
            array: Of a dtype that becomes this one.
            where: What messages call the array.
        """

    @abstractmethod
    def view(self, start: int, stop: int) -> npt.NDArray[Any]:
        """The items from ``start`` to ``stop``, to read and to write.

        A view that is still around when the storage grows shows the items as they were.
        """

    @abstractmethod
    def finish(self, shape: tuple[int, ...], name: str) -> None:
        """Cuts off the room that is left.

        Args:
            shape: Of the array that the items are.
            name: Of its file, if it lies in one.
        """

    @abstractmethod
    def result(self) -> npt.NDArray[Any]:
        """The array, once the storage is finished and the files are in their place."""

    def array(self, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """The first items as an array."""
        return self.view(0, math.prod(shape)).reshape(shape)


class Memory(Storage):
    """Anonymous memory, which Linux lengthens and cuts by moving pages, not bytes.

    ``ndarray.resize`` could do as much, but writes zeros into all that it adds, so that room to
    grow would be memory in use.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        super().__init__(dtype)
        self._map = _anonymous(1)
        self._shape: tuple[int, ...] = (0,)

    @override
    def resize(self, items: int) -> None:
        size = max(1, items * self.dtype.itemsize)
        try:
            self._map.resize(size)
        except (BufferError, SystemError):
            # The traceback of an error holds a view, or the system can't move pages.
            moved = _anonymous(size)
            kept = min(size, len(self._map))
            memoryview(moved)[:kept] = memoryview(self._map)[:kept]
            self._map = moved
        except OSError as error:
            raise _no_memory(size) from error
        if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel that was built without them
                self._map.madvise(mmap.MADV_HUGEPAGE)

    @override
    def write(self, start: int, array: Array, where: str) -> None:
        shape = tuple(array.shape)
        copy_into(self.view(start, start + math.prod(shape)).reshape(shape), array, where)

    @override
    def view(self, start: int, stop: int) -> npt.NDArray[Any]:
        missing = stop * self.dtype.itemsize - len(self._map)
        if missing > 0:
            # Asked here, because the system hands out more than it has, and kills later.
            require_memory(missing, f"after {len(self._map):,} bytes of a leaf, more samples need")
            try:
                # Room that nothing was written to yet costs nothing.
                self.resize(max(stop, _GROWTH * len(self._map) // self.dtype.itemsize))
            except MemoryError:
                self.resize(stop)
        return np.frombuffer(self._map, self.dtype, stop - start, start * self.dtype.itemsize)

    @override
    def finish(self, shape: tuple[int, ...], name: str) -> None:
        self._shape = shape
        size = max(1, self.array(shape).nbytes)
        # Where it can't be cut, no page of the rest was ever touched.
        with contextlib.suppress(BufferError, SystemError):
            self._map.resize(size)

    @override
    def result(self) -> npt.NDArray[Any]:
        return self.array(self._shape)


def copy_into(target: npt.NDArray[Any], source: Array, where: str) -> None:
    """Copies an array that is in memory.

    Args:
        target: Of the same shape, and of the dtype that the source becomes.
        source: An ndarray or a tensor.
        where: What messages call the source.
    """
    dtype = target.dtype
    if target.flags.c_contiguous and dtype.kind in "biufc" and dtype.isnative:
        threads = get_num_threads()
        _core.gather(source, None, dtype.name, None, target, where, threads)
    elif isinstance(source, torch.Tensor):
        torch.from_numpy(target).copy_(source)
    else:
        np.copyto(target, source, casting="no")


def require_memory(size: int, what: str) -> None:
    """Raises MemoryError if fewer bytes than ``size`` are free for ``what``, up to the verb."""
    free = free_memory()
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

    Raises:
        FileExistsError: There is something that is not to be replaced.
        ValueError: The path ends in .npz.
        OSError: Nothing can be written there.
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
            path, is_file=self.is_file, overwrite=overwrite, is_own=_holds_arrays, name=name
        )
        self.path = self._write.path
        self._files: list[NpyFile] = []
        self._names: set[str] = set()

    def storage(self, dtype: np.dtype[Any], axes: int, where: str) -> Storage:
        """A storage in a new file.

        Args:
            dtype: Of an item.
            axes: The most axes that the array is going to have.
            where: What messages call the leaf.
        """
        kept = np.lib.format.descr_to_dtype(np.lib.format.dtype_to_descr(dtype))
        if kept != dtype:  # those of ml_dtypes come back as bytes
            raise TypeError(f"{where}: a .npy file can't hold {dtype}; convert with .astype(...)")
        scratch = os.path.join(self._write.scratch, str(len(self._files)))
        self._files.append(NpyFile(scratch, dtype, axes))
        final = os.path.dirname(self.path) if self.is_file else self.path
        return _FileStorage(dtype, self._files[-1], self._write.folder, final)

    def name(self, steps: Sequence[str], where: str) -> str:
        """What the files of a leaf are called, without ending: its steps joined with dots.

        Args:
            steps: From the root of the structure to the leaf, as in `pinfeed.structure`.
            where: What messages call the leaf.

        Raises:
            ValueError: Another leaf has that name.
        """
        if self.is_file:
            name = os.path.basename(self.path).removesuffix(".npy")
            hint = "a .npy file holds one array; give the path of a directory"
        else:
            name, hint = _file_name(steps), "rename a key"
        for taken in (name, f"{name}.npy"):  # the first of a RaggedArray's directory
            if taken in self._names:
                raise ValueError(f"{where}: another leaf is already written to {taken}; {hint}")
            self._names.add(taken)
        return name

    def commit(self) -> None:
        """Puts all files in their place; each is finished."""
        self._write.commit()

    def discard(self) -> None:
        """Removes what isn't in its place, which is all of it before `commit`."""
        for file in self._files:
            file.close()
        self._write.discard()


class _FileStorage(Storage):
    """A .npy file whose name is known when it is finished."""

    def __init__(self, dtype: np.dtype[Any], file: NpyFile, folder: str, final: str) -> None:
        super().__init__(dtype)
        self._file, self._folder, self._final = file, folder, final

    @override
    def resize(self, items: int) -> None:
        self._file.allocate(items)

    @override
    def write(self, start: int, array: Array, where: str) -> None:
        if isinstance(array, torch.Tensor):
            array = (array.float() if array.dtype == torch.bfloat16 else array).numpy()
        self._file.write(start, array)

    @override
    def view(self, start: int, stop: int) -> npt.NDArray[Any]:
        return self._file.view(start, stop)

    @override
    def finish(self, shape: tuple[int, ...], name: str) -> None:
        self._file.finish(shape)
        target = os.path.join(self._folder, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(self._file.path, target)
        self._final = os.path.join(self._final, name)

    @override
    def result(self) -> npt.NDArray[Any]:
        with open(self._final, "rb") as file:
            return NpyHeader.read(file).map(file)


def _file_name(steps: Sequence[str]) -> str:
    """What the file of a leaf is called, without ending; nothing for a structure's root."""
    name = ".".join(_readable(step) for step in steps)
    if name.startswith("."):  # hidden, or a directory above
        return f"%2E{name[1:]}"
    return name if name or not steps else "%"


def _readable(step: str) -> str:
    """A step as part of a file's name: ``image`` of ``['image']``, ``0`` of ``[0]``, ``x`` of ``.x``."""
    text = step[1:] if step.startswith(".") else step[1:-1]
    if text[0] in "'\"":
        text = ast.literal_eval(text)
    return text.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")


def _holds_arrays(directory: str) -> bool:
    """Whether all that is there may come from here: only such a directory is ever removed."""
    with os.scandir(directory) as entries:
        return all(
            holds_ragged(entry.path)
            if entry.is_dir(follow_symlinks=False)
            else entry.name.endswith(".npy")
            for entry in entries
        )
