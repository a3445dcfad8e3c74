"""Samples from anywhere, written to files once."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from pinfeed.exports.to_numpy.outputs import holds_arrays
from pinfeed.exports.to_numpy.planned_length import planned_length
from pinfeed.exports.to_numpy.progress import Progress
from pinfeed.exports.written_leaves import WrittenLeaves
from pinfeed.files.draft import Draft


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

    Turns a folder of images, or what a tokenizer makes of texts, into a source once. Nothing is kept
    in memory but the batch that is being written and a megabyte. The file is there when all of it
    is, and on the disk; until then, and if anything fails, what was there before stays.

    Args:
        path: One that ends in .npy becomes that file: samples have one shape. Any other becomes a
            directory that `RaggedArray.open` reads: samples differ along their first axis. Of dicts
            it becomes a directory with a file, or such a directory, for each key.
        batches: An iterable of batches. A batch is an ndarray or a CPU tensor whose first axis
            counts samples, a list of samples that are lists or numbers, or, where samples differ in
            length, a `JaggedBatch` or a `RaggedArray`; or a dict of such.
        samples: Instead of batches: an iterable of samples, or a map-style dataset. A sample is an
            ndarray, a CPU tensor, a number, nested lists of numbers, a PIL image or what else
            ``np.asarray`` makes an array of; or a dict of such.
        ragged: Of dicts: the keys whose samples differ in length.
        dtype: NumPy's or torch's, for all arrays or in a dict by key, which must hold every number.
            None: that of the first sample, which all others must then have; Python's floats are
            float32, ints int64.
        overwrite: Replace what an earlier call wrote.
        progress: Show a tqdm bar with samples per second and bytes.

    Returns:
        What was written, opened: a read-only memmap or a `RaggedArray`, or a dict of them; ready for
        `ArrayDataset`.

    Raises:
        TypeError: A sample holds no numbers, or numbers of another dtype; it is a tuple, or a batch
            is a list of arrays, of which nobody can say what they mean.
        ValueError: A shape or the keys differ from the first ones; there is no sample; a number does
            not fit in ``dtype``.
        FileExistsError: There is something at the path, and ``overwrite`` is False or it can't be
            from here.
        OSError: The disk is full, for instance.

    A process that is killed leaves the file as it was, and a hidden directory (``.name.*``) beside
    it, to be removed by hand.

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
    name = "batches" if samples is None else "samples"
    items = _items(batches if samples is None else samples, name)
    if isinstance(ragged, str):
        raise TypeError(f"write_array: ragged must be a list of keys, got {ragged!r}")
    is_file = os.path.realpath(os.fsdecode(path)).endswith(".npy")
    draft = Draft(
        path,
        is_file=is_file,
        overwrite=overwrite,
        is_own=holds_arrays,
        writer="write_array",
        name="write_array",
    )
    leaves = WrittenLeaves(draft, is_file, ragged, dtype)
    try:
        total = _total(batches, samples)
        with Progress(progress, "write_array") as bar:
            for number, item in enumerate(items):
                if samples is None:
                    count, size = leaves.add_batch(item, number)
                else:
                    count, size = 1, leaves.add_sample(item, number)
                bar.advance(count, size, total)
                del item  # so that its memory can serve for the next one
        leaves.finish()
        if leaves.is_empty:
            raise ValueError(f"write_array: {name} yielded nothing to say what to write")
        draft.commit()
    finally:
        leaves.close()
        draft.discard()
    return leaves.open()


def _items(items: Any, name: str) -> Iterable[Any]:
    if name == "samples" and not hasattr(items, "__iter__") and hasattr(items, "__getitem__"):
        return _dataset_items(items)
    is_one_batch = name == "batches" and isinstance(items, np.ndarray | torch.Tensor)
    if is_one_batch or isinstance(items, str | bytes | Mapping) or not hasattr(items, "__iter__"):
        raise TypeError(
            f"write_array: {name} must be an iterable of {name}, got {type(items).__name__}"
        )
    return items


def _dataset_items(dataset: Any) -> Iterator[Any]:
    for i in range(len(dataset)):
        yield dataset[i]


def _total(batches: Any, samples: Any) -> int | None:
    """How many samples there are going to be, if that is known."""
    if samples is None:
        plan = planned_length(batches)
        return None if plan is None else plan.samples
    try:
        return len(samples)
    except (TypeError, NotImplementedError):
        return None
