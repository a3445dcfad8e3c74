"""The directory that a RaggedArray is saved in: values.npy and offsets.npy."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed.sources import ArraySource

_VALUES = "values.npy"
_OFFSETS = "offsets.npy"

_CHUNK_BYTES = 16 * 1024 * 1024


def save_ragged(
    path: str, values: Any, offsets: npt.NDArray[Any], overwrite: bool, function: str
) -> None:
    """Writes what the offsets use of the values, as a directory that is complete or absent.

    Args:
        path: The directory; the one that it is in must exist.
        values: ndarray or CPU tensor.
        offsets: Validated.
        overwrite: Whether to replace what an earlier call wrote.
        function: Who asks, for messages.
    """
    given = path
    first, last = int(offsets[0]), int(offsets[-1])
    used = _as_ndarray(values, function)[first:last]
    path = os.path.realpath(path)  # of a link, what it points to
    if os.path.lexists(path):
        _require_replaceable(path, overwrite, function)
    parent, base = os.path.split(path)
    draft = os.path.join(parent, f".{base}.{os.urandom(4).hex()}")
    try:
        os.mkdir(draft)
    except OSError as error:  # which names the draft
        raise OSError(error.errno, f"{function}: {error.strerror}", given) from error
    try:
        _write_npy(os.path.join(draft, _VALUES), used.dtype, used.shape, _chunks(used))
        from_zero = (chunk.astype(np.int64) - first for chunk in _chunks(offsets))
        _write_npy(os.path.join(draft, _OFFSETS), np.dtype(np.int64), offsets.shape, from_zero)
        _sync_directory(draft)
        _put_in_place(draft, path, overwrite)
    except BaseException:
        _remove(draft)
        raise
    _sync_directory(parent)


def open_ragged(path: str, function: str) -> tuple[ArraySource, ArraySource]:
    """The values and the offsets of a directory, memory-mapped; the offsets yet to be validated."""
    values = ArraySource.open(os.path.join(path, _VALUES), function)
    offsets = ArraySource.open(os.path.join(path, _OFFSETS), function)
    if not values.array.flags.c_contiguous:
        raise ValueError(f"{function}: {values.path}: expected C order, got Fortran order")
    return values, offsets


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


def _require_replaceable(path: str, overwrite: bool, function: str) -> None:
    if not overwrite:
        raise FileExistsError(f"{function}: {path} exists; overwrite=True replaces it")
    if not os.path.isdir(path) or not {_VALUES, _OFFSETS}.issuperset(os.listdir(path)):
        raise FileExistsError(
            f"{function}: {path} is no directory that RaggedArray.save wrote; remove it by hand"
        )


def _chunks(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    row_bytes = max(1, math.prod(array.shape[1:]) * array.itemsize)
    step = max(1, _CHUNK_BYTES // row_bytes)
    return (array[start : start + step] for start in range(0, len(array), step))


def _write_npy(
    path: str, dtype: np.dtype[Any], shape: tuple[int, ...], chunks: Iterator[npt.NDArray[Any]]
) -> None:
    descr = np.lib.format.dtype_to_descr(dtype)
    with open(path, "xb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": descr, "fortran_order": False, "shape": shape}
        )
        file.writelines(np.ascontiguousarray(chunk).data for chunk in chunks)
        file.flush()
        os.fsync(file.fileno())


def _put_in_place(draft: str, path: str, overwrite: bool) -> None:
    if not (overwrite and os.path.lexists(path)):
        os.rename(draft, path)
        return
    old = f"{draft}.old"
    os.rename(path, old)
    try:
        os.rename(draft, path)
    except BaseException:
        os.rename(old, path)
        raise
    _remove(old)


def _remove(directory: str) -> None:
    for name in (_VALUES, _OFFSETS):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(directory, name))
    with contextlib.suppress(OSError):
        os.rmdir(directory)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
