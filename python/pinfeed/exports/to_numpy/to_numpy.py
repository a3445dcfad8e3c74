"""The function that drains a loader."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed.arguments import instead, positive_integer
from pinfeed.exports.loader import Progress, planned_batches, require_loader
from pinfeed.exports.to_numpy.drain import Drain
from pinfeed.exports.to_numpy.storage import SMALL, OutputFiles


@instead()
def to_numpy(
    loader: Iterable[Any],
    out: str | os.PathLike[str] | None = None,
    *,
    dtype: Any = None,
    max_samples: int | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Any:
    """Drains a loader: all its batches as one structure of arrays, in the order they come.

    Each batch is copied to its place in the result and let go, so the peak is the result and two
    batches. A DataLoader says how many samples there will be: room for all of them is taken behind
    the first batch, and a result that doesn't fit is an error then. If the number is unknown or
    wrong, arrays grow and are cut without a copy (on Linux; elsewhere growing copies).

    Args:
        loader: Any iterable of batches: a DataLoader, a list, a generator such as
            ``(model(x) for x, in loader)``.
        out: Where to write. None: into memory. A path that ends in .npy: into that file; any other
            path: into a directory with a file for each array, ``image.npy``, ``target.boxes.npy``,
            or a directory that `RaggedArray.open` reads. Files may be larger than memory, and are
            complete or absent.
        dtype: NumPy's or torch's, for all numbers; or a dict of them by entry, ``{"logits":
            np.float16, "target.boxes": np.int32}``. It must hold every number. None: the dtypes of
            the batches.
        max_samples: Stop after so many samples; the last batch is cut. An infinite loader needs it.
        overwrite: Replace the files that an earlier call wrote.
        progress: Show a tqdm bar with samples per second.

    The first batch says what there is:

    - Tensors, on any device and with gradients or not, and ndarrays become arrays. Their first axis
      counts samples, and all arrays of a batch have as many. (A 0-d tensor, such as a loss,
      is an error.) bfloat16, which NumPy doesn't have, becomes float32.
    - `JaggedBatch`, `Padded` with lengths and `RaggedArray` become a `RaggedArray` of the data
      without its padding. Samples of all other arrays have one shape.
    - A list or tuple with no array in it holds an object for each sample, and becomes a list; so does
      an ndarray of objects or strings. Files can hold strings, as a `RaggedArray` of them. Other
      lists and tuples are part of the structure.
    - None stays None.

    From a device, a batch is copied through pinned memory while the loader makes the next one.

    Returns:
        The structure of a batch, with all samples in each array; read-only memmaps, and
        `RaggedArray` of them, where ``out`` is a path.

    Raises:
        TypeError: An entry is nothing of the kind above, or its dtype changes; an argument is of
            the wrong kind.
        ValueError: The loader yields nothing; an entry doesn't fit the batches before; a number
            does not fit in ``dtype``.
        MemoryError: The result doesn't fit.
        FileExistsError: There is something at the path, and ``overwrite`` is False, or no earlier
            call can have written it. Or another process is writing it: ranks write a path each.
        OSError: The disk is full, for instance; no file is left behind.

    Every error, an error of the loader and Ctrl-C included, has an attribute ``partial``: all samples
    that are in memory in the structure of a batch, or None.

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
        drain = Drain("to_numpy", files, max_samples, planned_batches(loader), dtype=dtype)
        try:
            with Progress(progress, "to_numpy") as bar:
                for batch in loader:
                    bar.advance(drain.add(batch), drain.expected)
                    del batch  # so that its buffers can serve for the next one
                    if drain.is_full:
                        break
                return drain.finish()
        except BaseException as error:
            with contextlib.suppress(Exception):  # the first error is the one to see
                error.partial = None  # type: ignore[attr-defined]
                error.partial = drain.partial()  # type: ignore[attr-defined]
            raise


def _check_options(loader: Any, out: Any, max_samples: Any) -> None:
    require_loader(loader, "to_numpy")
    if not isinstance(out, str | os.PathLike | None):
        raise TypeError(f"to_numpy: out must be a path or None, got {type(out).__name__}")
    most = positive_integer(max_samples, "to_numpy: max_samples")
    if most is None and isinstance(loader, itertools.cycle):
        raise ValueError("to_numpy: loader never ends; max_samples says when to stop")


def _joined(batches: Any) -> npt.NDArray[Any] | None:
    """Small arrays in memory as one; to look at each of them would take longer than to copy it.

    None for what isn't plain numbers of one dtype and shape; `Drain` takes that, or refuses it.
    """
    kinds = {*map(type, batches)}
    try:
        # torch's subclasses and NumPy's, such as masked arrays, are no plain numbers.
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
