"""Arrays to a loader of batches, in one line."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader

from pinfeed.fields.collate import Collate
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.sources.dataset import ArrayDataset

# What from_numpy decides itself, and how to decide otherwise.
_TAKEN = {
    "dataset": "pass the arrays",
    "collate_fn": "pass fields",
    "sampler": "build the DataLoader yourself: DataLoader(ArrayDataset(arrays), sampler=..., ...)",
    "batch_sampler": (
        "build the DataLoader yourself: DataLoader(ArrayDataset(arrays), batch_sampler=..., ...)"
    ),
}


def from_numpy(
    arrays: Any,
    batch_size: int,
    *,
    shuffle: bool = False,
    fields: Any = None,
    device: torch.device | str | int | None = None,
    prefetch_rows: bool = True,
    **dataloader_options: Any,
) -> DeviceLoader:
    """A loader of batches of the arrays' rows, gathered natively and ahead of time.

    Short for ``DeviceLoader(DataLoader(ArrayDataset(arrays), batch_size, collate_fn=
    Collate(fields)), device)``, with what suits arrays:

    - No worker processes: a batch of rows is one native gather, which costs less than handing it
      from one process to another. ``num_workers=`` is for what takes time in Python, and there is
      none of it here.
    - A background thread that has two batches ready: gathering lets go of the interpreter, so it
      goes on while the model works.

    Args:
        arrays: An array, or arrays in dicts, tuples, ... of one length, as `ArrayDataset` takes
            them: ndarrays, memmaps, CPU tensors, paths of .npy files, `RaggedArray`.
        batch_size: Samples in a batch; the last one may be smaller.
        shuffle: Whether to draw a new order each epoch. ``generator=torch.Generator()
            .manual_seed(0)`` makes it the same in every run.
        fields: What becomes of each array, as `Collate` takes it. None: stacked as it is.
        device: Where batches go. None: the accelerator if there is one, else the CPU.
        prefetch_rows: Whether the system is asked for the rows of the batch after the one in the
            making, where they lie in files and not in memory.
        **dataloader_options: For the DataLoader: ``drop_last``, ``generator``, ``num_workers``, ...

    Returns:
        A `DeviceLoader`: iterate over it, ask for its ``len()``, again and again.

    Raises:
        TypeError, ValueError: An array or an option does not fit.

    Example:
        >>> arrays = {"x": np.zeros((10, 3), np.float32), "y": np.arange(10)}
        >>> loader = pinfeed.from_numpy(arrays, batch_size=4, device="cpu")
        >>> for batch in loader:
        ...     print(batch["x"].shape, batch["y"].tolist())
        torch.Size([4, 3]) [0, 1, 2, 3]
        torch.Size([4, 3]) [4, 5, 6, 7]
        torch.Size([2, 3]) [8, 9]
    """
    for option in dataloader_options:
        if option in _TAKEN:
            raise TypeError(f"from_numpy: {option} is not an option here; {_TAKEN[option]}")
    if batch_size is None:
        raise TypeError("from_numpy: batch_size must be an integer, got None")
    loader: DataLoader[Any] = DataLoader(
        ArrayDataset(arrays),
        batch_size,
        shuffle,
        collate_fn=Collate(fields),
        **dataloader_options,
    )
    return DeviceLoader(loader, device, prefetch_rows=prefetch_rows)
