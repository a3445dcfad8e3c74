"""Samples from anywhere, written to files once."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed.exports.loader import Progress, planned_length
from pinfeed.exports.to_numpy.column import Options
from pinfeed.exports.to_numpy.drain import Drain
from pinfeed.exports.to_numpy.storage import OutputFiles
from pinfeed.functions.jagged import JaggedBatch
from pinfeed.functions.padded import Padded
from pinfeed.sources.ragged import RaggedArray
from pinfeed.sources.ragged_builder import SampleReader

_WITHOUT_NUMPY = "convert with .float(), or take the bits with .view(torch.uint16)"
_DIFFERENT_LENGTHS = "samples of different lengths take a directory, or a key in ragged="

# Samples are written together: as many, or of as many bytes.
_SAMPLES = 4096
_BYTES = 1 << 20


def write_array(
    path: str | os.PathLike[str],
    batches: Iterable[Any] | None = None,
    *,
    samples: Iterable[Any] | None = None,
    ragged: Collection[str] = (),
    dtype: Any = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Any:
    """Writes batches or samples, as they come, to a file that a dataset can map.

    Turns a folder of images, or what a tokenizer makes of texts, into a source once. Only the batch
    that is being written and a megabyte are in memory. The file appears when all of it is on the
    disk; until then, and if anything fails, what was there before stays.

    Args:
        path: One that ends in .npy becomes that file, for samples of one shape. Any other becomes a
            directory that `RaggedArray.open` reads, for samples that differ along their first axis;
            or for dicts a directory with a file, or such a directory, for each key.
        batches: An iterable of batches. A batch is an ndarray or a CPU tensor whose first axis
            counts samples, a list of samples that are lists or numbers, or, where samples differ in
            length, a `JaggedBatch` or a `RaggedArray`; or a dict of such.
        samples: Instead of batches: an iterable of samples, or a map-style dataset. A sample is an
            ndarray, a CPU tensor, a number, nested lists of numbers, a PIL image or what else
            ``np.asarray`` makes an array of; or a dict of such.
        ragged: For dicts: the keys whose samples differ in length.
        dtype: NumPy's or torch's, for all arrays or in a dict by key; it must hold every number.
            None: that of the first sample, which all others must then have; Python's floats are
            float32, ints int64.
        overwrite: Replace what an earlier call wrote.
        progress: Show a tqdm bar with samples per second and bytes.

    Returns:
        What was written, opened: a read-only memmap or a `RaggedArray`, or a dict of them; ready for
        `ArrayDataset`.

    Raises:
        TypeError: A sample holds no numbers, or numbers of another dtype; or it is a tuple, or a
            batch is a list of arrays: both may mean two things.
        ValueError: A shape or the keys differ from the first ones; there is no sample; a number does
            not fit in ``dtype``.
        FileExistsError: There is something at the path, and ``overwrite`` is False, or no earlier
            call can have written it.
        OSError: The disk is full, for instance.

    A process that is killed leaves the file as it was, and beside it a hidden directory
    (``.name.*``), which you can remove.

    Example:
        >>> import tempfile
        >>> photos = (np.full((4, 4, 3), i, np.uint8) for i in range(10))
        >>> texts = ([1] * length for length in range(10))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pinfeed.write_array(f"{folder}/photos.npy", samples=photos).shape
        ...     pinfeed.write_array(f"{folder}/tokens", samples=texts)
        (10, 4, 4, 3)
        RaggedArray(10 sequences of int64 (*,), 45 values)
    """
    if (batches is None) == (samples is None):
        raise TypeError("write_array: expected either batches or samples=")
    if isinstance(ragged, str):
        raise TypeError(f"write_array: ragged must be a list of keys, got {ragged!r}")
    name = "batches" if samples is None else "samples"
    items = _iterable(batches if samples is None else samples, name)
    total = _length(batches, samples)
    files = OutputFiles(path, overwrite, "write_array")
    drain = Drain(Options(files, function="write_array"))
    leaves = _Leaves(files.is_file, ragged, dtype)
    parts = leaves.of_batches(items) if samples is None else leaves.of_samples(items)
    try:
        with Progress(progress, "write_array") as bar:
            for part in parts:
                bar.advance(*drain.add(part), total)
                del part  # so that its memory can serve for the next one
        if leaves.is_empty:
            raise ValueError(f"write_array: {name} yielded nothing to say what to write")
        return drain.finish()
    finally:
        files.discard()


def _iterable(items: Any, name: str) -> Iterable[Any]:
    if name == "samples" and not hasattr(items, "__iter__") and hasattr(items, "__getitem__"):
        return (items[i] for i in range(len(items)))
    is_one_batch = name == "batches" and isinstance(items, np.ndarray | torch.Tensor)
    if is_one_batch or isinstance(items, str | bytes | Mapping) or not hasattr(items, "__iter__"):
        raise TypeError(
            f"write_array: {name} must be an iterable of {name}, got {type(items).__name__}"
        )
    return items


def _length(batches: Any, samples: Any) -> int | None:
    """How many samples there are going to be, if that is known."""
    if samples is None:
        plan = planned_length(batches)
        return None if plan is None else plan.samples
    try:
        return len(samples)
    except (TypeError, NotImplementedError):
        return None


class _Leaves:
    """What samples consist of: one leaf, or one for each key of a dict; makes batches of them.

    Args:
        is_file: Whether it is to be one .npy file.
        ragged: The keys whose samples differ in length.
        dtype: One, or one for each key.
    """

    def __init__(self, is_file: bool, ragged: Collection[str], dtype: Any) -> None:
        self._is_file, self._ragged, self._dtype = is_file, ragged, dtype
        self._leaves: dict[Any, _Leaf] = {}
        self._is_dict = False

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing so far."""
        return not self._leaves

    def of_samples(self, samples: Iterable[Any]) -> Iterator[Any]:
        """Joins samples to batches of about a megabyte."""
        count = size = 0
        for number, sample in enumerate(samples):
            for leaf, value, where in self._split(sample, f"sample {number}"):
                size += leaf.add(value, where)
            count += 1
            # Empty lists wait for one that says what shape a row has.
            if (count >= _SAMPLES and size > 0) or size >= _BYTES:
                yield self._joined([leaf.take() for leaf in self._leaves.values()])
                count = size = 0
        if count:
            yield self._joined([leaf.take() for leaf in self._leaves.values()])

    def of_batches(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Batches of one dtype and shape, and of no lists."""
        for number, batch in enumerate(batches):
            leaves = self._split(batch, f"batch {number}")
            yield self._joined([leaf.batch(value, where) for leaf, value, where in leaves])

    def _joined(self, values: list[Any]) -> Any:
        return dict(zip(self._leaves, values, strict=True)) if self._is_dict else values[0]

    def _split(self, item: Any, where: str) -> list[tuple[_Leaf, Any, str]]:
        """Each leaf, its part of a sample or a batch, and what messages call that."""
        if not self._leaves:
            self._begin(item)
        if isinstance(item, Mapping) != self._is_dict:
            expected = f"a dict of {list(self._leaves)}" if self._is_dict else "no dict"
            raise ValueError(
                f"write_array: {where}: expected {expected} like the first, "
                f"got {type(item).__name__}"
            )
        if not self._is_dict:
            return [(self._leaves[None], item, f"write_array: {where}")]
        if item.keys() != self._leaves.keys():
            raise ValueError(
                f"write_array: {where}: expected the keys {list(self._leaves)} like the first, "
                f"got {list(item)}"
            )
        return [
            (leaf, item[key], f"write_array: leaf [{key!r}] of {where}")
            for key, leaf in self._leaves.items()
        ]

    def _begin(self, first: Any) -> None:
        self._is_dict = isinstance(first, Mapping)
        keys = list(first) if self._is_dict else []
        found = f"the first item has the keys {keys}" if self._is_dict else "items are no dicts"
        dtypes = (
            self._dtype if isinstance(self._dtype, Mapping) else dict.fromkeys(keys, self._dtype)
        )
        for option, named in (("ragged", self._ragged), ("dtype", dtypes)):
            for key in named:
                if key not in keys:
                    raise ValueError(f"write_array: {option} names {key!r}, but {found}")
        if not self._is_dict:
            self._leaves[None] = _Leaf(self._dtype, is_ragged=not self._is_file)
        elif not keys:
            raise ValueError("write_array: expected a dict with at least one key, got an empty one")
        for key in keys:
            self._leaves[key] = _Leaf(dtypes.get(key), is_ragged=key in self._ragged)


class _Leaf:
    """Reads the samples of one leaf, and holds each against the first.

    Args:
        dtype: What samples are cast to; None: they all have that of the first.
        is_ragged: Whether they may differ in length.
    """

    def __init__(self, dtype: Any, *, is_ragged: bool) -> None:
        self._reader = SampleReader(
            dtype, "write_array", _WITHOUT_NUMPY, takes_numbers=not is_ragged
        )
        self._is_ragged = is_ragged
        self._item: tuple[int, ...] | None = None  # shape of a sample; of a ragged one, of a row
        self._waiting, self._used = bytearray(_BYTES), 0  # used again: fresh memory costs more
        self._ends = [0]  # of the waiting samples, in rows

    def add(self, sample: Any, where: str) -> int:
        """Copies a sample to those that wait for `take`, and returns its size in bytes."""
        if self._is_ragged and type(sample) is list and not sample:  # of any dtype and shape
            self._ends.append(self._ends[-1])
            return 0
        if isinstance(sample, tuple):
            raise TypeError(
                f"{where}: expected an array or a list of numbers, got a {type(sample).__name__}, "
                "which could be either or hold several arrays; make it a list, or a dict of arrays"
            )
        _require_no_palette(sample, where)
        array = self._reader.read(sample, where)
        self._check(array.shape[1:] if self._is_ragged else array.shape, array.shape, where)
        start, self._used = self._used, self._used + array.nbytes
        if self._used > len(self._waiting):
            self._waiting = self._waiting[:start].ljust(self._used, b"\0")
        self._waiting[start : self._used] = (
            np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        )
        self._ends.append(self._ends[-1] + (len(array) if self._is_ragged else 1))
        return array.nbytes

    def take(self) -> npt.NDArray[Any] | JaggedBatch:
        """The samples that wait, as a batch."""
        if self._reader.dtype is None or (self._item is None and not self._is_ragged):
            raise ValueError(
                "write_array: expected a sample that has a dtype, got empty lists only; name one "
                "with dtype="
                if self._is_ragged
                else "write_array: expected at least one sample, got none"
            )
        self._item = self._item or ()
        ends, self._used, self._ends = self._ends, 0, [0]
        shape = (ends[-1], *self._item)
        values = np.frombuffer(self._waiting, self._reader.dtype, math.prod(shape)).reshape(shape)
        return JaggedBatch(values, np.array(ends)) if self._is_ragged else values

    def batch(self, batch: Any, where: str) -> npt.NDArray[Any] | JaggedBatch:
        """A batch: an array whose first axis counts samples, or a list with no arrays in it."""
        if self._is_ragged and isinstance(batch, JaggedBatch | RaggedArray):
            return self._jagged(batch, where)
        if isinstance(batch, np.ndarray | torch.Tensor):
            return self._array(self._reader.read(batch, where), where)
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
        for i, sample in enumerate(batch):
            self.add(sample, f"{where}, sample {i}")
        return self.take()

    def _jagged(self, batch: JaggedBatch | RaggedArray, where: str) -> JaggedBatch:
        ragged = RaggedArray(batch.values, batch.offsets)  # which checks it
        first, last = int(ragged.offsets[0]), int(ragged.offsets[-1])
        values = self._reader.read(ragged.values[first:last], where)
        self._check(values.shape[1:], values.shape, where)
        return JaggedBatch(values, ragged.offsets - first)

    def _array(self, samples: npt.NDArray[Any], where: str) -> npt.NDArray[Any] | JaggedBatch:
        shape = samples.shape
        if not shape:
            raise ValueError(
                f"{where}: expected an axis that counts samples, got a 0-d array; "
                "single samples are written with samples="
            )
        if not self._is_ragged:
            self._check(shape[1:], shape[1:], where)
            return samples
        if len(shape) == 1:
            raise ValueError(f"{where}: expected samples of at least one axis, got numbers")
        self._check(shape[2:], shape[1:], where)
        rows = samples.reshape(shape[0] * shape[1], *shape[2:])
        return JaggedBatch(rows, np.arange(shape[0] + 1) * shape[1])

    def _check(self, item: tuple[int, ...], shape: tuple[int, ...], where: str) -> None:
        """Raises ValueError if a sample of this shape can't follow the first."""
        if self._item is None:
            self._item = item
        if item == self._item:
            return
        if self._is_ragged:
            expected = ", ".join(map(str, ("*", *self._item)))
            raise ValueError(
                f"{where}: expected shape ({expected}) like those before, got {shape}; only the "
                "first axis may differ"
            )
        is_longer = len(shape) == len(self._item) and shape[1:] == self._item[1:]
        raise ValueError(
            f"{where}: expected a sample of shape {self._item} like the first, got {shape}; "
            f"{_DIFFERENT_LENGTHS if is_longer else 'bring them to one shape first'}"
        )

    def _hint(self, batch: Any) -> str:
        if isinstance(batch, JaggedBatch | RaggedArray):
            return f"; {_DIFFERENT_LENGTHS}"
        is_padded = self._is_ragged and isinstance(batch, Padded)
        return "; undo the padding with pinfeed.unpad" if is_padded else ""


def _require_no_palette(sample: Any, where: str) -> None:
    pil = sys.modules.get("PIL.Image")  # nobody has a PIL image without having imported it
    if pil is not None and isinstance(sample, pil.Image) and sample.mode in ("P", "PA"):
        raise TypeError(
            f"{where}: expected a PIL image of numbers, got one of mode {sample.mode!r}, whose "
            "numbers are places in a palette; convert it with .convert('RGB')"
        )
