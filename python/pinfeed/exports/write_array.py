"""Samples from anywhere, written to files once."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import DataLoader

from pinfeed.arguments import instead, known_length
from pinfeed.exports.loader import Progress
from pinfeed.exports.to_numpy.drain import Drain
from pinfeed.exports.to_numpy.storage import OutputFiles
from pinfeed.functional.sequences import JaggedBatch
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.optional import add_note
from pinfeed.sources.ragged_builder import SampleReader

_ONE_SHAPE = (
    "a .npy file holds samples of one shape; give the path of a directory for samples of different "
    "lengths"
)
_WITHOUT_NUMPY = "convert with .float(), or take the bits with .view(torch.uint16)"

# Samples are written together: as many, or of as many bytes.
_SAMPLES = 4096
_BYTES = 1 << 20


@instead()
def write_array(
    path: str | os.PathLike[str],
    samples: Iterable[Any],
    *,
    dtype: Any = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Any:
    """Writes samples, or batches, as they come to files that a dataset can map.

    Turns a folder of images, or what a tokenizer makes of texts, into a source once. Only a
    megabyte of samples, or the batch that is being written, is in memory. The file appears when all
    of it is on the disk; until then, and if anything fails, what was there before stays.

    Args:
        path: One that ends in .npy becomes that file, for samples of one shape. Any other becomes a
            directory: that of a `RaggedArray`, or for dicts one with a file for each key whose
            samples have one shape, and a `RaggedArray` for each other key.
        samples: An iterable of samples, or a map-style dataset. A sample is an ndarray, a CPU tensor,
            a number, a str or bytes, nested lists of numbers, a PIL image or what else
            ``np.asarray`` makes an array of; or a dict of such. Strings become what
            `RaggedArray.from_strings` makes.
        dtype: NumPy's or torch's, for all numbers or in a dict by key; it must hold every number.
            None: that of the first sample, which all others must then have; Python's floats are
            float32, ints int64.
        overwrite: Replace what an earlier call wrote.
        progress: Show a tqdm bar with samples per second.

    Returns:
        What was written, opened: a read-only memmap or a `RaggedArray`, or a dict of them; ready for
        `ArrayDataset`.

    Raises:
        TypeError: A sample holds no numbers, or numbers of another dtype; or it is a tuple, which
            may mean two things.
        ValueError: A shape or the keys differ from the first ones; there is no sample; a number does
            not fit in ``dtype``.
        FileExistsError: There is something at the path, and ``overwrite`` is False, or no earlier
            call can have written it. Or another process is writing it: ranks write a path each.
        OSError: The disk is full, for instance.

    A process that is killed leaves the file as it was, and beside it a hidden directory
    (``.name.*``), which the next call for the same path removes.

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
    with contextlib.closing(OutputFiles(path, overwrite, "write_array")) as files:
        drain = Drain("write_array", files, may_be_alike=True)
        entries = _Entries(files.is_file, dtype)
        with Progress(progress, "write_array") as bar:
            for part in entries.batches(items):
                bar.advance(drain.add(part), total)
                del part  # so that its memory can serve for the next one
        if entries.is_empty:
            raise ValueError("write_array: samples yielded nothing to say what to write")
        return drain.finish()


def _iterable(samples: Any) -> Iterable[Any]:
    if not hasattr(samples, "__iter__") and hasattr(samples, "__getitem__"):
        length = known_length(samples)  # which zarr's arrays do not have
        return (samples[i] for i in range(samples.shape[0] if length is None else length))
    if isinstance(samples, str | bytes | Mapping) or not hasattr(samples, "__iter__"):
        is_dict = isinstance(samples, Mapping)
        hint = "; to_numpy([columns], out=path) writes a dict of columns" * is_dict
        raise TypeError(
            f"write_array: samples must be an iterable of samples, got {type(samples).__name__}{hint}"
        )
    loader = samples.loader if isinstance(samples, DeviceLoader) else samples
    if isinstance(loader, DataLoader) and loader.batch_sampler is not None:
        raise TypeError(
            f"write_array: expected samples, got a {type(samples).__name__}, which yields batches; "
            "to_numpy(loader, out=path) writes them"
        )
    return samples


def _noted(samples: Iterable[Any]) -> Iterator[Any]:
    """The samples; an error on the way to one of them gets a note that says which."""
    iterator = iter(samples)
    for number in itertools.count():
        try:
            sample = next(iterator)
        except StopIteration:
            return
        except Exception as error:
            add_note(error, f"raised by the samples of write_array at sample {number}")
            raise
        yield sample


class _Entries:
    """What samples consist of: one entry, or one for each key of a dict; makes batches of them."""

    def __init__(self, is_file: bool, dtype: Any) -> None:
        self._is_file, self._dtype = is_file, dtype
        self._entries: dict[Any, _Entry] = {}
        self._is_dict = False

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing so far."""
        return not self._entries

    def batches(self, samples: Iterable[Any]) -> Iterator[Any]:
        """Joins samples to batches of about a megabyte."""
        count = size = 0
        for number, sample in enumerate(_noted(samples)):
            for entry, value, where in self._split(sample, f"sample {number}"):
                size += entry.add(value, where)
            count += 1
            # Empty lists wait for one that says what shape a row has.
            if (count >= _SAMPLES and size > 0) or size >= _BYTES:
                yield self._joined([entry.take() for entry in self._entries.values()])
                count = size = 0
        if count:
            yield self._joined([entry.take() for entry in self._entries.values()])

    def _joined(self, values: list[Any]) -> Any:
        return dict(zip(self._entries, values, strict=True)) if self._is_dict else values[0]

    def _split(self, item: Any, where: str) -> list[tuple[_Entry, Any, str]]:
        """Each entry, its part of a sample, and what messages call that."""
        if not self._entries:
            self._begin(item)
        if isinstance(item, Mapping) != self._is_dict:
            expected = f"a dict of {list(self._entries)}" if self._is_dict else "no dict"
            raise ValueError(
                f"write_array: {where}: expected {expected} like the first, "
                f"got {type(item).__name__}"
            )
        if not self._is_dict:
            return [(self._entries[None], item, f"write_array: {where}")]
        if item.keys() != self._entries.keys():
            raise ValueError(
                f"write_array: {where}: expected the keys {list(self._entries)} like the first, "
                f"got {list(item)}"
            )
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
                found = f"has the keys {keys}" if self._is_dict else "is no dict"
                raise ValueError(f"write_array: dtype names {key!r}, but the first sample {found}")
        if not self._is_dict:
            self._entries[None] = _Entry(self._dtype, self._is_file, takes_numbers=self._is_file)
        elif not keys:
            raise ValueError("write_array: expected a dict with at least one key, got an empty one")
        for key in keys:
            self._entries[key] = _Entry(dtypes.get(key), self._is_file, takes_numbers=True)


class _Entry:
    """Reads the samples of one entry, and holds each against the first.

    Samples are numbers, if it ``takes_numbers``, or arrays: of one shape if they go into one .npy
    file, else sequences, of which `Drain` sees in the end whether all have one length.
    """

    def __init__(self, dtype: Any, is_file: bool, takes_numbers: bool) -> None:
        self._reader = SampleReader(dtype, "write_array", _WITHOUT_NUMPY, takes_numbers=True)
        self._is_file, self._takes_numbers = is_file, takes_numbers
        self._shape: tuple[int, ...] | None = None  # of the first sample that has one
        self._waiting: list[npt.NDArray[Any]] = []  # samples, but for empty lists
        self._lengths: list[int] = []  # of all that wait
        self._strings: list[str | bytes] | None = None  # that wait, if samples are strings

    def add(self, sample: Any, where: str) -> int:
        """Copies a sample to those that wait for `take`, and returns its size in bytes."""
        if isinstance(sample, str | bytes) and self._shape is None and not self._lengths:
            self._strings = [] if self._strings is None else self._strings
            self._strings.append(sample)
            return len(sample)
        if isinstance(sample, str | bytes) or self._strings is not None:
            kind = "numbers" if self._strings is None else "a string"
            raise TypeError(
                f"{where}: expected {kind} like the samples before, got {type(sample).__name__}; "
                "numbers and strings go into entries of their own, where an empty string is ''"
            )
        if isinstance(sample, tuple):
            raise TypeError(
                f"{where}: expected an array or a list of numbers, got a {type(sample).__name__}, "
                "which could be either or hold several arrays; make it a list, or a dict of arrays"
            )
        if not self._is_file and self._shape != () and self._reader.is_empty(sample):
            self._takes_numbers = False
            self._lengths.append(0)  # of any dtype and shape
            return 0
        _require_no_palette(sample, where)
        array = np.array(self._reader.read(sample, where))  # whose memory may be used again
        self._check(array.shape, where)
        self._waiting.append(array)
        self._lengths.append(len(array) if array.ndim else 1)
        return array.nbytes

    def take(self) -> Any:
        """The samples that wait, as a batch."""
        if self._strings is not None:
            strings, self._strings = self._strings, []
            return strings
        self._reader.settle_dtype("write_array: an empty sample")
        if self._reader.dtype is None:
            raise ValueError(
                "write_array: expected a sample that has a dtype, got empty lists only; name one "
                "with dtype="
            )
        arrays, lengths, self._waiting, self._lengths = self._waiting, self._lengths, [], []
        if self._is_file or self._shape == ():
            return np.stack(arrays)
        if not arrays:
            arrays = [np.empty((0, *(self._shape or (0,))[1:]), self._reader.dtype)]
        return JaggedBatch(np.concatenate(arrays), np.cumsum([0, *lengths]))

    def _check(self, shape: tuple[int, ...], where: str) -> None:
        """Raises if a sample of this shape can't follow the first."""
        if not shape and not self._takes_numbers:
            raise ValueError(
                f"{where}: expected an array or a list of numbers, got a number; numbers go into a "
                ".npy file, or into dicts"
            )
        first = shape if self._shape is None else self._shape
        self._shape = first
        if len(shape) != len(first) or shape[1:] != first[1:]:
            raise ValueError(
                f"{where}: expected a sample of shape {first} like the first, got {shape}; only the "
                "first axis may differ"
            )
        if self._is_file and shape != first:
            raise ValueError(f"{where}: {_ONE_SHAPE}")


def _require_no_palette(sample: Any, where: str) -> None:
    pil = sys.modules.get("PIL.Image")  # nobody has a PIL image without having imported it
    if pil is not None and isinstance(sample, pil.Image) and sample.mode in ("P", "PA"):
        raise TypeError(
            f"{where}: expected a PIL image of numbers, got one of mode {sample.mode!r}, whose "
            "numbers are places in a palette; convert it with .convert('RGB')"
        )
