"""Arrays to a loader of batches, in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from pinfeed.fields.collate import Collate
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.optional import import_extra
from pinfeed.ranks import checked_ranks
from pinfeed.samplers.row_batches import RowBatches, RowSampler
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
    rank: int | None = None,
    world_size: int | None = None,
    drop_last: bool = False,
    generator: torch.Generator | None = None,
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
            them: ndarrays, memmaps, CPU tensors, paths of .npy files, `RaggedArray`. Or a table, as
            `ArrayDataset.from_arrow` takes it, or the path of a Parquet file.
        batch_size: Samples in a batch; the last one may be smaller.
        shuffle: Whether to draw a new order each epoch. ``generator=torch.Generator()
            .manual_seed(0)`` makes it the same in every run.
        fields: What becomes of each array, as `Collate` takes it. None: stacked as it is.
        device: Where batches go. None: the accelerator if there is one, else the CPU.
        prefetch_rows: Whether the system is asked for the rows of the batch after the one in the
            making, where they lie in files and not in memory. With ``num_workers`` it isn't.
        rank: Which of the processes this is, that share the rows. None: asked of
            ``torch.distributed`` when a loop begins, else of the environment that torchrun sets.
        world_size: How many processes there are; likewise, else 1. Give both or neither.
        drop_last: Whether to leave out a last batch that isn't full, of all ranks.
        generator: Draws the order, and the seeds of workers.
        **dataloader_options: For the DataLoader: ``num_workers``, ``pin_memory``, ...

    Several processes share the rows: ``batch_size`` is that of each, and each gets the same number
    of batches, of the same sizes. Where the rows left for the last batches don't divide evenly,
    at most ``world_size - 1`` rows come twice. A shuffled order follows from the number of the
    epoch, the same in every run, unless you pass a ``generator``, seeded alike in all processes.
    The number goes up with each loop, so begin as many loops in each process, or call
    ``loader.batch_sampler.sampler.set_epoch(epoch)`` before each.

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
    for name, flag in (("shuffle", shuffle), ("drop_last", drop_last)):
        if not isinstance(flag, bool):
            raise TypeError(f"from_numpy: {name} must be True or False, got {flag!r}")
    dataset = _dataset_of(arrays)
    # Workers are ahead of each other anyway.
    reads_ahead = (
        prefetch_rows and dataset.reads_files and not dataloader_options.get("num_workers")
    )
    sampler = RowSampler(
        len(dataset),
        batch_size,
        shuffle=shuffle,
        drop_last=drop_last,
        generator=generator,
        ranks=checked_ranks(rank, world_size, "from_numpy"),
    )
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_sampler=RowBatches(sampler, dataset.prefetch_rows if reads_ahead else None),
        collate_fn=Collate(fields),
        generator=generator,
        **dataloader_options,
    )
    return DeviceLoader(loader, device)


def _dataset_of(arrays: Any) -> ArrayDataset:
    if isinstance(arrays, list) and arrays:
        raise TypeError(
            f"from_numpy: arrays is a list of {len(arrays)}, which could be samples or columns; for "
            "samples of one shape pass np.stack(arrays), for columns tuple(arrays)"
        )
    if isinstance(arrays, str | Path) and str(arrays).endswith(".parquet"):
        arrays = import_extra("pyarrow.parquet", "arrow").read_table(arrays)
    is_table = hasattr(arrays, "__arrow_c_stream__")
    return ArrayDataset.from_arrow(arrays) if is_table else ArrayDataset(arrays)
