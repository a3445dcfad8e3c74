"""The function that drains a loader."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable
from typing import Any, Literal

from pinfeed.arguments import positive_integer
from pinfeed.exports.loader import Progress, planned_length, require_loader
from pinfeed.exports.to_numpy.column import Options
from pinfeed.exports.to_numpy.drain import Drain
from pinfeed.exports.to_numpy.storage import OutputFiles
from pinfeed.functions.padding import Side


def to_numpy(
    loader: Iterable[Any],
    out: Any = None,
    *,
    pad: Any = None,
    side: Side | None = None,
    bfloat16: Literal["float32", "uint16"] = "float32",
    max_samples: int | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Any:
    """Drains a loader: all its batches as one structure of arrays, in the order they come.

    Each batch is copied to its place in the result and let go, so the peak is the result and two
    batches. A DataLoader says how many samples there will be: their memory is allocated at the first
    batch, and a result that doesn't fit is an error then. If the number is unknown or wrong, arrays
    grow and are cut without a copy (on Linux; elsewhere growing copies).

    Args:
        loader: Any iterable of batches: a DataLoader, a list, a generator such as
            ``(model(x) for x, in loader)``.
        out: Where to write. None: into new arrays. Arrays in the structure of a batch, with None
            for those to be made: into their first rows. A path that ends in .npy: into that file;
            any other path: into a directory with a file for each leaf, ``image.npy``,
            ``target.boxes.npy``, or a directory that `RaggedArray.open` reads. Files may be
            larger than memory, and are complete or absent.
        pad: What samples smaller than others are filled up with: a number, or numbers in the
            structure of a batch, where a leaf without one is not padded.
        side: ``"right"`` or ``"left"``: where padding is in `Padded` batches, and where ``pad``
            adds more. None is where `Pad` put it, elsewhere right; it is an error if the first padding
            doesn't look like it.
        bfloat16: What that dtype becomes, which NumPy doesn't have: ``"float32"``, or ``"uint16"``
            for its bits.
        max_samples: Stop after so many samples; the last batch is cut. An infinite loader needs it.
        overwrite: Replace the files that an earlier call wrote.
        progress: Show a tqdm bar with samples per second and bytes.

    The first batch says what there is:

    - Tensors, on any device and with gradients or not, and ndarrays become arrays. Their first axis
      counts samples, and all leaves of a batch have the same number. (A 0-d tensor, such as a loss,
      is an error.) If the samples of two batches differ in shape, ``pad`` widens all to the largest;
      without it, samples that differ along their first axis become a `RaggedArray`, each as long as
      it was in its batch.
    - `JaggedBatch` becomes a `RaggedArray`. `Padded` with lengths becomes one of the data alone, or
      with ``pad`` a `Padded` of the widest.
    - Strings and other objects become a list, and so does an ndarray of objects. A list or tuple
      holds an object for each sample if no array is in it, or if it has as many items as the batch
      has samples and its arrays have not. Otherwise it is part of the structure.
    - None stays None.

    From a device, batches are copied through two pinned buffers while the next one is computed.

    Returns:
        The structure of a batch, with all samples in each leaf; ``out`` itself where it is full,
        read-only memmaps where it is a path.

    Raises:
        TypeError: A leaf is nothing of the kind above, or its dtype changes; an argument is of the
            wrong kind.
        ValueError: The loader yields nothing; a leaf doesn't fit the batches before; ``out`` is too
            small.
        MemoryError: The result doesn't fit.
        FileExistsError: There is something at the path, and ``overwrite`` is False, or no earlier
            call can have written it.
        OSError: The disk is full, for instance; no file is left behind.

    Every error, an error of the loader and Ctrl-C included, has an attribute ``partial``: all samples
    up to then in the structure of a batch, not padded, or None. If files were being written, the
    samples lie in them: they have no names any more, and take room on the disk while you keep
    ``partial``.

    Example:
        >>> dataset = torch.utils.data.TensorDataset(torch.arange(10.0).reshape(5, 2))
        >>> loader = torch.utils.data.DataLoader(dataset, batch_size=2)
        >>> model = torch.nn.Linear(2, 3)
        >>> pinfeed.to_numpy(model(x) for x, in loader).shape
        (5, 3)
        >>> pinfeed.to_numpy([{"id": ["a", "b"], "x": np.eye(2)}, {"id": ["c"], "x": np.ones((1, 2))}])
        {'id': ['a', 'b', 'c'], 'x': array([[1., 0.],
               [0., 1.],
               [1., 1.]])}
    """
    require_loader(loader, "to_numpy")
    _check_options(loader, side, bfloat16, max_samples)
    plan, files = planned_length(loader), None
    if isinstance(out, str | os.PathLike):
        files, out = OutputFiles(out, overwrite, "to_numpy: out"), None
    drain = Drain(Options(files, bfloat16, side), pad, out, max_samples, plan)
    try:
        with Progress(progress, "to_numpy") as bar:
            for batch in loader:
                bar.advance(*drain.add(batch), drain.expected)
                del batch  # so that its buffers can serve for the next one
                if drain.is_full:
                    break
            return drain.finish()
    except BaseException as error:
        with contextlib.suppress(Exception):  # the first error is the one to see
            error.partial = None  # type: ignore[attr-defined]
            error.partial = drain.partial()  # type: ignore[attr-defined]
        raise
    finally:
        if files is not None:
            files.discard()


def _check_options(loader: Any, side: Any, bfloat16: Any, max_samples: Any) -> None:
    if side not in (None, "right", "left"):
        raise ValueError(f"to_numpy: side must be 'right', 'left' or None, got {side!r}")
    if bfloat16 not in ("float32", "uint16"):
        raise ValueError(f"to_numpy: bfloat16 must be 'float32' or 'uint16', got {bfloat16!r}")
    most = positive_integer(max_samples, "to_numpy: max_samples")
    if most is None and isinstance(loader, itertools.cycle):
        raise ValueError("to_numpy: loader never ends; max_samples says when to stop")
