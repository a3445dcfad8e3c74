"""The function that drains a loader."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset

from pinfeed.arguments import Problem, known_length, positive_integer, with_hints
from pinfeed.exports.to_numpy.batch_writer import BatchWriter
from pinfeed.exports.to_numpy.storage import SMALL, OutputFiles
from pinfeed.functional.sequences import JaggedBatch, Padded
from pinfeed.imports import import_extra
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.samplers.order_sampler import OrderSampler

# Batches: a user who passes one of these has forgotten the loader around it.
_BATCHES = (np.ndarray, torch.Tensor, str, bytes, Mapping, JaggedBatch, Padded)


@with_hints()
def to_numpy(
    loader: Iterable[Any],
    out: str | os.PathLike[str] | None = None,
    *,
    dtype: Any = None,
    max_samples: int | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Any:
    """Concatenates all batches of a loader into arrays, nested like a batch.

    Batches are freed as soon as they are copied, so peak memory is the result plus two batches. If the
    number of samples is known, as for a DataLoader, memory for all of them is reserved after the first
    batch, and a result that doesn't fit raises MemoryError at that point. Otherwise arrays grow (without a
    copy on Linux).

    Args:
        loader: Any iterable of batches: a DataLoader, a list, a generator such as
            ``(model(x) for x, in loader)``.
        out: Path of the output. None: memory. A path that ends in .npy is one file; any other path is
            a directory, with one file per array, such as ``image.npy`` or ``target.boxes.npy``, and one
            directory per `RaggedArray`. Files can be larger than memory, and appear only when they are
            complete.
        dtype: NumPy or torch dtype of all numbers, or a dict of dtypes by entry, such as ``{"logits":
            np.float16, "target.boxes": np.int32}``. Every number must fit. Lists of numbers then count
            as arrays. None: the dtypes of the batches.
        max_samples: Maximum number of samples. Required for infinite loaders.
        overwrite: Whether to replace the files of an earlier call.
        progress: Whether to show a tqdm bar with samples per second.

    The first batch determines the result:

    - Tensors (on any device, also with gradients) and ndarrays become arrays. Their first axis counts
      samples, and has the same length in all arrays of a batch. A 0-d tensor, such as a loss, raises
      ValueError. bfloat16, which NumPy doesn't have, becomes float32.
    - `JaggedBatch`, `Padded` with lengths and `RaggedArray` become a `RaggedArray`, without padding.
      All other arrays must keep their sample shape.
    - A list or tuple of arrays is nesting, like a dict. One without arrays has one object per sample,
      and becomes a list; so does an ndarray of objects or strings. Files store strings as a
      `RaggedArray`.
    - None stays None.

    A batch on a device is copied through pinned memory while the loader produces the next one.

    Returns:
        Arrays of all samples, nested like a batch; read-only memmaps, or `RaggedArray` over them, if
        ``out`` is a path.

    Raises:
        TypeError: If an entry has an unsupported type, its dtype changes, or an argument has the wrong
            type.
        ValueError: If the loader yields no batch, an entry doesn't match earlier batches, or a number does
            not fit in ``dtype``.
        MemoryError: If the result doesn't fit.
        FileExistsError: If the path exists and ``overwrite`` is False or `to_numpy` did not write it, or if
            another process is writing it: each rank needs its own path.
        OSError: If writing fails, for example because the disk is full; no file is left behind.

    Every error, including errors of the loader and Ctrl-C, has an attribute ``partial``: the samples in
    memory, nested like a batch, or None.

    Example:
        >>> dataset = torch.utils.data.TensorDataset(torch.arange(10.0).reshape(5, 2))
        >>> loader = torch.utils.data.DataLoader(dataset, batch_size=2)
        >>> model = torch.nn.Linear(2, 3)
        >>> pinfeed.to_numpy(model(x) for (x,) in loader).shape
        (5, 3)
        >>> pinfeed.to_numpy(
        ...     [{"id": ["a", "b"], "x": np.eye(2)}, {"id": ["c"], "x": np.ones((1, 2))}]
        ... )
        {'id': ['a', 'b', 'c'], 'x': array([[1., 0.],
               [0., 1.],
               [1., 1.]])}
    """
    _check_options(loader, out, max_samples)
    if (
        type(loader) in (list, tuple)
        and out is None
        and dtype is max_samples is None
        and not progress
    ):
        joined = _joined(loader)
        if joined is not None:
            return joined
    with contextlib.ExitStack() as stack:
        files = None
        if out is not None:
            files = OutputFiles(out, overwrite, "to_numpy: out")
            stack.enter_context(contextlib.closing(files))
        writer = BatchWriter("to_numpy", files, max_samples, planned_batches(loader), dtype=dtype)
        try:
            with progress_bar(progress, "to_numpy") as advance:
                for batch in loader:
                    advance(writer.add(batch), writer.expected)
                    del batch  # so that the next batch can reuse its buffers
                    if writer.is_full:
                        break
                return writer.finish()
        except BaseException as error:
            with contextlib.suppress(Exception):  # report the first error
                error.partial = None  # type: ignore[attr-defined]
                error.partial = writer.partial()  # type: ignore[attr-defined]
            raise


def _check_options(loader: Any, out: Any, max_samples: Any) -> None:
    require_loader(loader, "to_numpy")
    if not isinstance(out, str | os.PathLike | None):
        raise TypeError(Problem("to_numpy: out", "a path or None", type(out).__name__))
    limit = positive_integer(max_samples, "to_numpy: max_samples")
    if limit is None and isinstance(loader, itertools.cycle):
        expected, hint = "one that ends", "pass max_samples="
        raise ValueError(Problem("to_numpy: loader", expected, "an infinite one", hint))


def _joined(batches: Any) -> npt.NDArray[Any] | None:
    """Concatenates small arrays at once, because checking each takes longer than copying it.

    None unless all are plain arrays of one dtype and shape; `BatchWriter` handles the rest.
    """
    kinds = {*map(type, batches)}
    try:
        # Subclasses, such as masked arrays, are not plain arrays.
        if kinds not in ({torch.Tensor}, {np.ndarray}) or batches[0].nbytes > SMALL:
            return None
        dtype = batches[0].dtype
        if kinds == {torch.Tensor} and {*map(attrgetter("dtype"), batches)} == {dtype}:
            return torch.cat(batches).detach().numpy()
        if kinds == {np.ndarray} and dtype.kind in "biufcmM":
            return np.concatenate(batches, dtype=dtype, casting="no")
    except (TypeError, ValueError, RuntimeError):  # other dtypes, shapes, devices, layouts
        pass
    return None


def require_loader(loader: Any, function: str) -> None:
    """Raises TypeError for a single batch, or an object that can't be iterated."""
    if isinstance(loader, _BATCHES) or not hasattr(loader, "__iter__"):
        hint = "pass a DataLoader or a list of batches"
        if isinstance(loader, Dataset):
            hint = "wrap it in a DataLoader"
        got = type(loader).__name__
        raise TypeError(Problem(f"{function}: loader", "an iterable of batches", got, hint))


def planned_batches(loader: Any) -> int | None:
    """Returns the number of batches of a DataLoader, if all but the last have one size; otherwise None.

    Nothing is iterated, and a ``len()`` with side effects is not called: a DataLoader over an
    IterableDataset warns later if it yields more.
    """
    while isinstance(loader, DeviceLoader):
        loader = loader.loader
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return None
    sampler = loader.batch_sampler
    if type(sampler) is not BatchSampler and not isinstance(sampler, OrderSampler):
        return None
    return known_length(sampler)


_Advance = Callable[[int, int | None], None]


def progress_bar(is_shown: bool, function: str) -> AbstractContextManager[_Advance]:
    """Returns a function that adds samples, with their total if known, to a tqdm bar; or to nothing."""
    return _tqdm_bar(function) if is_shown else contextlib.nullcontext(lambda *_: None)


@contextlib.contextmanager
def _tqdm_bar(function: str) -> Iterator[_Advance]:
    tqdm = import_extra("tqdm.auto", "progress").tqdm
    with tqdm(desc=function, unit=" samples", unit_scale=True) as bar:

        def advance(samples: int, total: int | None) -> None:
            bar.total = total
            bar.update(samples)

        yield advance
        bar.total = bar.n  # the last batch may have been smaller than planned
