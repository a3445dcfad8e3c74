"""Arrays that are written to files sample by sample, or batch by batch."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from array import array
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed.files.npy_writer import NpyWriter
from pinfeed.functions.jagged import JaggedBatch
from pinfeed.functions.padded import Padded
from pinfeed.sources.ragged import OFFSETS, VALUES, RaggedArray
from pinfeed.sources.ragged_builder import SampleReader

_FUNCTION = "write_array"
_WITHOUT_NUMPY = "convert with .float(), or take the bits with .view(torch.uint16)"

_CHUNK_OFFSETS = 1 << 16  # that wait to be written


class ArrayWriter(ABC):
    """Samples of one leaf, in files; nothing is kept of them but the last megabyte.

    Args:
        folder: Where the files go.
        name: Of the leaf's file or directory there.
        dtype: What samples are cast to; None: they all have that of the first.
    """

    def __init__(self, folder: str, name: str, dtype: Any, *, takes_numbers: bool) -> None:
        self._folder, self._name = folder, name
        self._reader = SampleReader(dtype, _FUNCTION, _WITHOUT_NUMPY, takes_numbers=takes_numbers)

    def add_sample(self, sample: Any, where: str) -> int:
        """Writes a sample: an array, or what ``np.asarray`` makes one of.

        Args:
            sample: One.
            where: What messages call it.

        Returns:
            Its size in bytes.
        """
        if isinstance(sample, tuple):
            raise TypeError(
                f"{where}: expected an array or a list of numbers, got a {type(sample).__name__}, "
                "which could be either or hold several arrays; make it a list, or a dict of arrays"
            )
        return self._add(self._reader.read(sample, where), where)

    def add_batch(self, batch: Any, where: str) -> tuple[int, int]:
        """Writes a batch: an array whose first axis counts samples, or a list with no arrays in it.

        Args:
            batch: One.
            where: What messages call it.

        Returns:
            The number of its samples, and its size in bytes.
        """
        if isinstance(batch, np.ndarray | torch.Tensor):
            samples = self._reader.read(batch, where)
            if samples.ndim == 0:
                raise ValueError(
                    f"{where}: expected an axis that counts samples, got a 0-d array; "
                    "single samples are written with samples="
                )
            return len(samples), self._add_all(samples, where)
        if type(batch) is not list:
            raise TypeError(
                f"{where}: expected an ndarray, a tensor or a list of samples, "
                f"got {type(batch).__name__}{self._hint(batch)}"
            )
        if any(isinstance(sample, np.ndarray | torch.Tensor) for sample in batch):
            raise TypeError(
                f"{where}: a list of arrays could hold samples, or parts that hold all samples; "
                "write the former with samples=itertools.chain.from_iterable(batches), and make "
                "the latter dicts"
            )
        size = sum(
            self.add_sample(sample, f"{where}, sample {i}") for i, sample in enumerate(batch)
        )
        return len(batch), size

    @abstractmethod
    def finish(self) -> None:
        """Brings the files to their end, and on to the disk."""

    @abstractmethod
    def close(self) -> None:
        """Closes the files as they are."""

    @abstractmethod
    def open(self, folder: str) -> Any:
        """The array, of which the files lie in that folder by now."""

    @abstractmethod
    def _add(self, sample: npt.NDArray[Any], where: str) -> int:
        """Writes one, and returns its size in bytes."""

    @abstractmethod
    def _add_all(self, samples: npt.NDArray[Any], where: str) -> int:
        """Writes all along the first axis, and returns their size in bytes."""

    def _hint(self, batch: Any) -> str:
        return ""


class DenseWriter(ArrayWriter):
    """Samples of one shape, in a .npy file."""

    def __init__(self, folder: str, name: str, dtype: Any) -> None:
        super().__init__(folder, name, dtype, takes_numbers=True)
        self._file: NpyWriter | None = None

    def finish(self) -> None:
        """See `ArrayWriter.finish`."""
        if self._file is None:
            raise ValueError(f"{_FUNCTION}: expected at least one sample, got none")
        self._file.finish()

    def close(self) -> None:
        """See `ArrayWriter.close`."""
        if self._file is not None:
            self._file.close()

    def open(self, folder: str) -> npt.NDArray[Any]:
        """See `ArrayWriter.open`: a read-only memmap."""
        return np.lib.format.open_memmap(os.path.join(folder, f"{self._name}.npy"), "r")

    def _add(self, sample: npt.NDArray[Any], where: str) -> int:
        return self._add_all(sample[None], where)

    def _add_all(self, samples: npt.NDArray[Any], where: str) -> int:
        shape = samples.shape[1:]
        if self._file is None:
            path = os.path.join(self._folder, f"{self._name}.npy")
            self._file = NpyWriter(path, samples.dtype, shape)
        if shape != self._file.item:
            raise ValueError(
                f"{where}: expected a sample of shape {self._file.item} like the first, got "
                f"{shape}; {self._way_out(shape)}"
            )
        self._file.append(samples)
        return samples.nbytes

    def _way_out(self, shape: tuple[int, ...]) -> str:
        assert self._file is not None
        if len(shape) == len(self._file.item) and shape[1:] == self._file.item[1:]:
            return "samples of different lengths take a directory, or a key in ragged="
        return "bring them to one shape first"

    def _hint(self, batch: Any) -> str:
        if isinstance(batch, JaggedBatch | RaggedArray):
            return "; samples of different lengths take a directory, or a key in ragged="
        return ""


class RaggedWriter(ArrayWriter):
    """Samples that differ in length, in a directory that `RaggedArray.open` reads."""

    def __init__(self, folder: str, name: str, dtype: Any) -> None:
        super().__init__(folder, name, dtype, takes_numbers=False)
        self._directory = os.path.join(folder, name)
        os.makedirs(self._directory, exist_ok=True)
        self._values: NpyWriter | None = None
        self._offsets = NpyWriter(os.path.join(self._directory, OFFSETS), np.dtype(np.int64), ())
        self._ends = array("q", [0])  # that wait to be written
        self._end = 0

    def add_sample(self, sample: Any, where: str) -> int:
        """See `ArrayWriter.add_sample`; an empty list has any dtype and shape."""
        if type(sample) is list and not sample:
            self._add_end(self._end)
            return 0
        return super().add_sample(sample, where)

    def add_batch(self, batch: Any, where: str) -> tuple[int, int]:
        """See `ArrayWriter.add_batch`; a `JaggedBatch` or a `RaggedArray` as well."""
        if isinstance(batch, JaggedBatch):
            batch = RaggedArray(batch.values, batch.offsets)  # which checks it
        if not isinstance(batch, RaggedArray):
            return super().add_batch(batch, where)
        batch.check()
        first, last = int(batch.offsets[0]), int(batch.offsets[-1])
        values = self._reader.read(batch.values[first:last], where)
        ends = batch.offsets[1:].astype(np.int64) - first + self._end
        self._append(values, where)
        self._ends.frombytes(ends.tobytes())
        self._flush()
        return len(batch), values.nbytes

    def finish(self) -> None:
        """See `ArrayWriter.finish`."""
        self._flush()
        self._offsets.finish()
        if self._values is None:
            if self._reader.dtype is None:
                raise ValueError(
                    f"{_FUNCTION}: expected a sample that has a dtype, got empty lists only; name "
                    "one with dtype="
                )
            self._values = self._begin(self._reader.dtype, ())
        self._values.finish()

    def close(self) -> None:
        """See `ArrayWriter.close`."""
        self._offsets.close()
        if self._values is not None:
            self._values.close()

    def open(self, folder: str) -> RaggedArray:
        """See `ArrayWriter.open`."""
        return RaggedArray.open(os.path.join(folder, self._name))

    def _add(self, sample: npt.NDArray[Any], where: str) -> int:
        self._append(sample, where)
        self._add_end(self._end)
        return sample.nbytes

    def _add_all(self, samples: npt.NDArray[Any], where: str) -> int:
        if samples.ndim == 1:
            raise ValueError(f"{where}: expected samples of at least one axis, got numbers")
        for sample in samples:
            self._add(sample, where)
        return samples.nbytes

    def _append(self, values: npt.NDArray[Any], where: str) -> None:
        if self._values is None:
            self._values = self._begin(values.dtype, values.shape[1:])
        if values.shape[1:] != self._values.item:
            expected = ", ".join(map(str, ("*", *self._values.item)))
            raise ValueError(
                f"{where}: expected shape ({expected}) like those before, got {values.shape}; only "
                "the first axis may differ"
            )
        self._values.append(values)
        self._end += len(values)

    def _begin(self, dtype: np.dtype[Any], item: tuple[int, ...]) -> NpyWriter:
        return NpyWriter(os.path.join(self._directory, VALUES), dtype, item)

    def _add_end(self, end: int) -> None:
        self._ends.append(end)
        if len(self._ends) >= _CHUNK_OFFSETS:
            self._flush()

    def _flush(self) -> None:
        self._offsets.append(np.array(self._ends, np.int64))
        self._ends = array("q")

    def _hint(self, batch: Any) -> str:
        return "; undo the padding with pinfeed.unpad" if isinstance(batch, Padded) else ""
