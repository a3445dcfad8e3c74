"""Every type of source that an ArrayDataset accepts."""

from pathlib import Path

import numpy as np
import pytest
import torch

# torch warns once per process about tensors over read-only arrays.
ignore_read_only = pytest.mark.filterwarnings("ignore:The given NumPy array is not writ")

LENGTH = 11


def values():
    return np.arange(LENGTH * 4 * 3, dtype=np.int32).reshape(LENGTH, 4, 3) * 7


def npy(folder, array):
    path = folder / "values.npy"
    np.save(path, array)
    return path


def raw_memmap(folder, mode, offset=0):
    path = folder / f"values-{mode}-{offset}.bin"
    path.write_bytes(bytes(offset) + values().tobytes())
    mapped = np.memmap(path, np.int32, mode, offset, (LENGTH, 4, 3))
    if mode == "w+":
        mapped[:] = values()
    return mapped


def read_only(array):
    array.flags.writeable = False
    return array


IN_MEMORY = {
    "ndarray": lambda _: values(),
    "read-only ndarray": lambda _: read_only(values()),
    "Fortran order": lambda _: np.asfortranarray(values()),
    "every other row, mirrored": lambda _: np.repeat(values(), 2, 0)[::-2, :, ::-1],
}
IN_FILES = {
    "memmap r": lambda folder: raw_memmap(folder, "r"),
    "memmap r+": lambda folder: raw_memmap(folder, "r+"),
    "memmap w+": lambda folder: raw_memmap(folder, "w+"),
    "memmap at an odd offset": lambda folder: raw_memmap(folder, "r", 100_003),
    "np.load": lambda folder: np.load(npy(folder, values()), mmap_mode="r"),
    "np.load r+": lambda folder: np.load(npy(folder, values()), mmap_mode="r+"),
    "np.load, Fortran order": lambda folder: np.load(
        npy(folder, np.asfortranarray(values())), mmap_mode="r"
    ),
    "rows of a memmap": lambda folder: raw_memmap(folder, "r")[3:8],
    "crops of a memmap": lambda folder: raw_memmap(folder, "r", 5000)[:, 1:-1, ::2],
    "mirrored memmap": lambda folder: raw_memmap(folder, "r")[:, ::-1],
    "reversed memmap": lambda folder: raw_memmap(folder, "r")[::-3],
    "transposed memmap": lambda folder: raw_memmap(folder, "r").transpose(2, 0, 1),
    "ndarray over a memmap": lambda folder: np.asarray(raw_memmap(folder, "r"))[2:],
    "read-only view of memmap r+": lambda folder: read_only(raw_memmap(folder, "r+")[1:]),
    "broadcast memmap": lambda folder: np.broadcast_to(raw_memmap(folder, "r")[:1], (5, 4, 3)),
    "no rows of a memmap": lambda folder: raw_memmap(folder, "r")[4:4],
}
PRIVATE = {
    "memmap c": lambda folder: raw_memmap(folder, "c"),
    "np.load c": lambda folder: np.load(npy(folder, values()), mmap_mode="c"),
}
PATHS = {
    "Path": lambda folder: npy(folder, values()),
    "str": lambda folder: str(npy(folder, values())),
}
TENSORS = {
    "tensor": lambda _: torch.from_numpy(values()),
    "bfloat16 tensor": lambda _: torch.from_numpy(values()).to(torch.bfloat16),
    "tensor view": lambda _: torch.from_numpy(values()).transpose(1, 2)[::2],
}
ARRAYS = IN_MEMORY | IN_FILES | PRIVATE
ALL = ARRAYS | PATHS | TENSORS


def opened(source):
    """Returns the array of a source."""
    return np.load(source, mmap_mode="r") if isinstance(source, str | Path) else source


def plain(array):
    return array if isinstance(array, torch.Tensor) else np.asarray(array)
