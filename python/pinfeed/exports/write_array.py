"""`write_array`: any iterable of samples, written to files."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import DataLoader

from pinfeed.arguments import Problem, known_length, require_no_table, with_hints
from pinfeed.exports.to_numpy.batch_writer import BatchWriter
from pinfeed.exports.to_numpy.storage import OutputFiles
from pinfeed.exports.to_numpy.to_numpy import progress_bar
from pinfeed.functional.sequences import JaggedBatch
from pinfeed.imports import noted
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.sources.ragged_builder import SampleReader

_NUMBERS = "an array or a list of numbers"

# Samples are written together, up to this number or these bytes.
_SAMPLES = 4096
_BYTES = 1 << 20


@with_hints()
def write_array(
    path: str | os.PathLike[str],
    samples: Iterable[Any],
    *,
    dtype: Any = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Any:
    """Writes samples to memory-mappable files, and returns them opened.

    Use it once to convert a folder of images, or a tokenized corpus. About a megabyte of samples, or one
    larger sample, is in memory at a time. An earlier file stays until the new one is complete and synced
    to disk, and if anything fails.

    Args:
        path: A path that ends in .npy is written as one file, for samples of one shape. Any other path
            becomes a directory: a `RaggedArray`; or, if samples are dicts, an entry for each key, which is
            a .npy file if the key's samples have one shape, else a `RaggedArray`.
        samples: An iterable of samples, or a map-style dataset. A sample is an ndarray, a CPU tensor,
            a number, a str or bytes, nested lists of numbers, a PIL image or other input of
            ``np.asarray``; or a dict of these. Strings are stored as by `RaggedArray.from_strings`.
        dtype: NumPy or torch dtype of all numbers, or a dict of dtypes by key. Every number must fit.
            None: the dtype of the first sample, which all others must share; Python floats are
            float32, ints int64.
        overwrite: Whether to replace the result of an earlier call.
        progress: Whether to show a tqdm bar with samples per second.

    Returns:
        A read-only memmap, a `RaggedArray`, or a dict of them, for `ArrayDataset`.

    Raises:
        TypeError: If a sample is not numeric, has another dtype, or is a tuple, which is ambiguous.
        ValueError: If a shape or the keys differ from the first sample, ``samples`` is empty, or a
            number does not fit in ``dtype``.
        FileExistsError: If the path exists and ``overwrite`` is False or `write_array` did not write it, or
            if another process is writing it: each rank needs its own path.
        OSError: If writing fails, for example because the disk is full.

    A killed process leaves an earlier file as it was, and a hidden directory (``.name.*``) beside it,
    which the next call for the same path removes.

    Example:
        >>> import tempfile
        >>> photos = [
        ...     {"image": np.full((4, 4, 3), i, np.uint8), "name": f"{i}.jpg"}
        ...     for i in range(9)
        ... ]
        >>> texts = ([1] * length for length in range(10))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     written = pinfeed.write_array(f"{folder}/photos", photos)
        ...     pinfeed.write_array(f"{folder}/tokens", texts)
        RaggedArray(10 sequences of int64 (*,), 45 values)
        >>> written["image"].shape, written["name"]
        ((9, 4, 4, 3), RaggedArray(9 strings of text, 45 bytes))
    """
    items, total = _iterable(samples), known_length(samples)
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(Problem("write_array: path", "a path", type(path).__name__))
    with contextlib.closing(OutputFiles(path, overwrite, "write_array")) as files:
        writer = BatchWriter("write_array", files, may_be_alike=True)
        entries = _Entries(files.is_file, dtype)
        with progress_bar(progress, "write_array") as advance:
            for part in entries.batches(items):
                advance(writer.add(part), total)
                del part  # so that its memory can serve for the next one
        if entries.is_empty:
            raise ValueError(Problem("write_array: samples", "at least one sample", "none"))
        return writer.finish()


def _iterable(samples: Any) -> Iterable[Any]:
    require_no_table(samples, "write_array", "samples")
    if not hasattr(samples, "__iter__") and hasattr(samples, "__getitem__"):
        length = known_length(samples)  # None for zarr's arrays
        return (samples[i] for i in range(samples.shape[0] if length is None else length))
    if isinstance(samples, str | bytes | Mapping) or not hasattr(samples, "__iter__"):
        hint = "call it" if callable(samples) else ""
        if isinstance(samples, Mapping):
            hint = "to_numpy([columns], out=path) writes a dict of columns"
        elif isinstance(samples, str):
            hint = "the path comes first: write_array(path, samples)"
        expected, got = "an iterable of samples", type(samples).__name__
        raise TypeError(Problem("write_array: samples", expected, got, hint))
    loader = samples.loader if isinstance(samples, DeviceLoader) else samples
    if isinstance(loader, DataLoader) and loader.batch_sampler is not None:
        got = f"a {type(samples).__name__}, which yields batches"
        hint = "to_numpy(loader, out=path) writes them"
        raise TypeError(Problem("write_array", "samples", got, hint))
    return samples


class _Entries:
    """The entries of samples (one, or one per key of a dict), joined to batches."""

    def __init__(self, is_file: bool, dtype: Any) -> None:
        self._is_file, self._dtype = is_file, dtype
        self._entries: dict[Any, _Entry] = {}
        self._is_dict = False

    @property
    def is_empty(self) -> bool:
        """Whether there was no sample yet."""
        return not self._entries

    def batches(self, samples: Iterable[Any]) -> Iterator[Any]:
        """Joins samples to batches of about a megabyte."""
        count = size = 0
        for number, sample in enumerate(
            noted(samples, "raised by the samples of write_array at sample")
        ):
            for entry, value, where in self._split(sample, f"sample {number}"):
                size += entry.add(value, where)
            count += 1
            # Empty lists wait for a sample with a shape.
            if (count >= _SAMPLES and size > 0) or size >= _BYTES:
                yield self._joined([entry.take() for entry in self._entries.values()])
                count = size = 0
        if count:
            yield self._joined([entry.take() for entry in self._entries.values()])

    def _joined(self, values: list[Any]) -> Any:
        return dict(zip(self._entries, values, strict=True)) if self._is_dict else values[0]

    def _split(self, item: Any, where: str) -> list[tuple[_Entry, Any, str]]:
        """Returns each entry with its part of a sample, and the part's name in messages."""
        if not self._entries:
            self._begin(item)
        if isinstance(item, Mapping) != self._is_dict:
            expected = f"a dict of {list(self._entries)}" if self._is_dict else "a non-dict"
            expected, got = f"{expected} as in sample 0", type(item).__name__
            raise ValueError(Problem(f"write_array: {where}", expected, got))
        if not self._is_dict:
            return [(self._entries[None], item, f"write_array: {where}")]
        if item.keys() != self._entries.keys():
            expected = f"the keys {list(self._entries)} as in sample 0"
            raise ValueError(Problem(f"write_array: {where}", expected, str(list(item))))
        return [
            (entry, item[key], f"write_array: entry [{key!r}] of {where}")
            for key, entry in self._entries.items()
        ]

    def _begin(self, first: Any) -> None:
        self._is_dict = isinstance(first, Mapping)
        keys = list(first) if self._is_dict else []
        by_key = isinstance(self._dtype, Mapping)
        dtypes = self._dtype if by_key else dict.fromkeys(keys, self._dtype)
        for key in dtypes:
            if key not in keys:
                sample = f"sample 0 {f'has the keys {keys}' if self._is_dict else 'is not a dict'}"
                got = f"{key!r}, but {sample}"
                raise ValueError(Problem("write_array: dtype", "keys of the samples", got))
        if not self._is_dict:
            self._entries[None] = _Entry(self._dtype, self._is_file, takes_numbers=self._is_file)
        elif not keys:
            raise ValueError(Problem("write_array", "a dict with at least one key", "an empty one"))
        for key in keys:
            self._entries[key] = _Entry(dtypes.get(key), self._is_file, takes_numbers=True)


class _Entry:
    """Reads the samples of one entry, and compares each with the first.

    Samples are numbers, if ``takes_numbers``, or arrays: of one shape for a single .npy file, otherwise
    sequences; `BatchWriter` detects at the end whether all have one length.
    """

    def __init__(self, dtype: Any, is_file: bool, takes_numbers: bool) -> None:
        self._reader = SampleReader(dtype, "write_array", takes_numbers=True)
        self._is_file, self._takes_numbers = is_file, takes_numbers
        self._shape: tuple[int, ...] | None = None  # of the first sample with a shape
        self._waiting: list[npt.NDArray[Any]] = []  # pending samples, except empty lists
        self._lengths: list[int] = []  # of all pending samples
        self._strings: list[str | bytes] | None = None  # pending strings, if samples are strings

    def add(self, sample: Any, where: str) -> int:
        """Copies a sample to the pending ones, and returns its size in bytes."""
        if isinstance(sample, str | bytes) and self._shape is None and not self._lengths:
            self._strings = [] if self._strings is None else self._strings
            self._strings.append(sample)
            return len(sample)
        if isinstance(sample, str | bytes) or self._strings is not None:
            kind = "numbers" if self._strings is None else "a string"
            hint = "put numbers and strings into separate entries; an empty string is ''"
            expected = f"{kind} like the samples before"
            raise TypeError(Problem(where, expected, type(sample).__name__, hint))
        if isinstance(sample, tuple):
            got = f"a {type(sample).__name__}, which could be either or hold several arrays"
            raise TypeError(Problem(where, _NUMBERS, got, "make it a list, or a dict of arrays"))
        if not self._is_file and self._shape != () and self._reader.is_empty(sample):
            self._takes_numbers = False
            self._lengths.append(0)  # of any dtype and shape
            return 0
        if isinstance(sample, list) and sample and isinstance(sample[0], str | bytes):
            got = f"a list of {type(sample[0]).__name__}"
            hint = "json.dumps(strings) converts a list to one string"
            raise TypeError(Problem(where, f"a string, {_NUMBERS}", got, hint))
        _require_no_palette(sample, where)
        array = np.array(self._reader.read(sample, where))  # the source may reuse its memory
        self._check(array.shape, where)
        self._waiting.append(array)
        self._lengths.append(len(array) if array.ndim else 1)
        return array.nbytes

    def take(self) -> Any:
        """Returns the pending samples as a batch."""
        if self._strings is not None:
            strings, self._strings = self._strings, []
            return strings
        self._reader.settle_dtype("write_array: an empty sample")
        if self._reader.dtype is None:
            expected = "a sample that has a dtype"
            hint = "set it with dtype="
            raise ValueError(Problem("write_array", expected, "empty lists only", hint))
        arrays, lengths, self._waiting, self._lengths = self._waiting, self._lengths, [], []
        if self._is_file or self._shape == ():
            return np.stack(arrays)
        if not arrays:
            arrays = [np.empty((0, *(self._shape or (0,))[1:]), self._reader.dtype)]
        return JaggedBatch(np.concatenate(arrays), np.cumsum([0, *lengths]))

    def _check(self, shape: tuple[int, ...], where: str) -> None:
        """Raises if a shape does not fit the first sample's."""
        if not shape and not self._takes_numbers:
            hint = "end the path in .npy, or pass dicts"
            raise ValueError(Problem(where, _NUMBERS, "a number", hint))
        first = shape if self._shape is None else self._shape
        self._shape = first
        if len(shape) != len(first) or shape[1:] != first[1:]:
            hint = "only the first axis may differ"
            if len(first) in (2, 3) and len(shape) == len(first):
                hint += "; resize images to one size, or write the bytes of their files"
            raise ValueError(Problem(where, f"shape {first} as in sample 0", str(shape), hint))
        if self._is_file and shape != first:
            hint = "pass the path of a directory for samples of different lengths"
            raise ValueError(Problem(where, "a .npy file holds samples of one shape", hint=hint))


def _require_no_palette(sample: Any, where: str) -> None:
    pil = sys.modules.get("PIL.Image")  # imported if the sample is a PIL image
    if pil is not None and isinstance(sample, pil.Image) and sample.mode in ("P", "PA"):
        expected, got = "a PIL image without a palette", f"mode {sample.mode!r}"
        raise TypeError(Problem(where, expected, got, "convert it with .convert('RGB')"))
