"""The directory that a RaggedArray is saved in: values.npy and offsets.npy."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed.files.draft import Draft
from pinfeed.files.npy_writer import NpyWriter
from pinfeed.sources.source import ArraySource

VALUES = "values.npy"
OFFSETS = "offsets.npy"

_CHUNK_OFFSETS = 1 << 20  # that are shifted in one go


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
    first, last = int(offsets[0]), int(offsets[-1])
    used = _as_ndarray(values, function)[first:last]
    draft = Draft(
        path,
        is_file=False,
        overwrite=overwrite,
        is_own=holds_ragged,
        writer="RaggedArray.save",
        name=function,
    )
    try:
        _write_npy(os.path.join(draft.folder, VALUES), used.dtype, used.shape[1:], [used])
        from_zero = (chunk.astype(np.int64) - first for chunk in _chunks(offsets))
        _write_npy(os.path.join(draft.folder, OFFSETS), np.dtype(np.int64), (), from_zero)
        draft.commit()
    finally:
        draft.discard()


def open_ragged(path: str, function: str) -> tuple[ArraySource, ArraySource]:
    """The values and the offsets of a directory, memory-mapped; the offsets yet to be validated."""
    values = ArraySource.open(os.path.join(path, VALUES), function)
    offsets = ArraySource.open(os.path.join(path, OFFSETS), function)
    if not values.array.flags.c_contiguous:
        raise ValueError(f"{function}: {values.path}: expected C order, got Fortran order")
    return values, offsets


def holds_ragged(directory: str) -> bool:
    """Whether nothing is in a directory but what a RaggedArray consists of."""
    return {VALUES, OFFSETS}.issuperset(os.listdir(directory))


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


def _chunks(offsets: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    return (offsets[i : i + _CHUNK_OFFSETS] for i in range(0, len(offsets), _CHUNK_OFFSETS))


def _write_npy(
    path: str, dtype: np.dtype[Any], item: tuple[int, ...], chunks: Iterable[npt.NDArray[Any]]
) -> None:
    writer = NpyWriter(path, dtype, item)
    try:
        for chunk in chunks:
            writer.append(chunk)
        writer.finish()
    finally:
        writer.close()
