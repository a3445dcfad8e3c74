"""`from_numpy`: arrays to a loader of batches, in one call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset
from typing_extensions import override

from pinfeed.arguments import (
    Problem,
    as_integer,
    checked_integer,
    nearest,
    require_flags,
    require_instance,
    with_hints,
)
from pinfeed.collation.collate import Collate
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.ranks import checked_ranks, ranks_now
from pinfeed.samplers.order_sampler import ShuffleSampler
from pinfeed.sources.dataset import ArrayDataset, IndexedDataset

# Options of DataLoader that from_numpy sets itself, with their alternatives.
_TAKEN = {
    "dataset": "pass the arrays",
    "collate_fn": "pass fields",
    "sampler": "build the DataLoader yourself: DataLoader(ArrayDataset(arrays), sampler=..., ...)",
    "batch_sampler": (
        "build the DataLoader yourself: DataLoader(ArrayDataset(arrays), batch_sampler=..., ...)"
    ),
    "indices": "pass a part of the rows: ArrayDataset(arrays).select(indices)",
}
_HINTS = {
    "transform": "fields=Image(augment=...) transforms images",
    "epochs": "loop over the loader once per epoch",
}


@with_hints(
    "arrays go into one tuple or dict: from_numpy((images, labels), batch_size); "
    "pass options by name: shuffle=True"
)
def from_numpy(
    arrays: Any,
    batch_size: int,
    *,
    shuffle: bool = False,
    seed: int | None = None,
    fields: Any = None,
    device: torch.device | str | int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    drop_last: bool = False,
    generator: torch.Generator | None = None,
    **dataloader_options: Any,
) -> DeviceLoader:
    """Creates a prefetching loader over arrays, a table or an `ArrayDataset`.

    Short for ``DeviceLoader(DataLoader(ArrayDataset(arrays), batch_sampler=ShuffleSampler(...),
    collate_fn=Collate(fields)), device)``, with settings for arrays:

    - No worker processes, because gathering a batch costs less than sending it between processes.
      ``num_workers=`` only helps if samples take time in Python.
    - A background thread prefetches two batches while the model runs; gathering releases the GIL.
    - One loop at a time, in the thread that began it.
    - Each loop is a new epoch with its own order, without `ShuffleSampler.set_epoch`.

    Args:
        arrays: An array, or nested arrays of one length, as for `ArrayDataset` (ndarrays, memmaps, CPU
            tensors, paths of .npy files, `RaggedArray`); a table, as for `ArrayDataset.from_arrow`, or
            the path of a Parquet file; an `ArrayDataset`, such as ``ArrayDataset(arrays)[:1000]``; or
            a ``Subset`` of one of these, as ``random_split`` returns.
        batch_size: Samples per batch and rank; the last batch may be smaller.
        shuffle: Whether to shuffle each epoch, as `ShuffleSampler` does.
        seed: Seed of the order and of the fields' random draws (``augment`` of `Image`); each epoch
            differs. None: torch's default generator, so that ``torch.manual_seed`` makes runs repeatable;
            with several ranks, or if you pass ``rank``, seed 0.
        fields: Fields that batch the arrays, as for `Collate`. None stacks them.
        device: Target device. None: the accelerator if there is one, else the CPU.
        rank: Data-parallel rank of this process. Processes of one tensor- or sequence-parallel group
            pass the same rank, to get the same batches. None: taken from ``torch.distributed`` when a
            loop begins, or else from the environment that torchrun sets.
        world_size: Number of data-parallel ranks. None: as for ``rank``, or else 1. Pass both or
            neither.
        drop_last: Whether to drop the last incomplete batch, on all ranks.
        generator: Generator for the workers' seeds and, with ``shuffle``, for the order. The order is
            then the order of torch's own sampler, which does not shard over ranks.
        **dataloader_options: Options of the DataLoader, such as ``num_workers`` or ``pin_memory``.

    Ranks share the rows: each gets the same number of batches, of the same sizes. If the last rows
    don't divide evenly, at most ``world_size - 1`` rows are repeated. Each loop increases the epoch, so begin
    the same number of loops in each process, or call ``loader.set_epoch(epoch)`` before each loop.

    To resume within an epoch, save ``loader.state_dict()``, which counts the batches that the loop
    received, regardless of prefetching. After ``loader.load_state_dict`` the next loop yields the
    remaining batches.

    Returns:
        A `DeviceLoader`, which can be iterated any number of times and has a ``len()``.

    Raises:
        TypeError: If an entry is not an array, or an option is unknown or has the wrong type.
        ValueError: If lengths differ, an option is out of range or contradicts another, or the loader has
            no batch.

    Example:
        >>> arrays = {"x": np.zeros((10, 3), np.float32), "y": np.arange(10)}
        >>> loader = pinfeed.from_numpy(arrays, batch_size=4, device="cpu")
        >>> for batch in loader:
        ...     print(batch["x"].shape, batch["y"].tolist())
        torch.Size([4, 3]) [0, 1, 2, 3]
        torch.Size([4, 3]) [4, 5, 6, 7]
        torch.Size([2, 3]) [8, 9]
    """
    options = inspect.signature(DataLoader).parameters
    for option in dataloader_options:
        if option in _TAKEN:
            raise TypeError(f"from_numpy: {option} is not an option here; {_TAKEN[option]}")
        if option not in options:
            names = [*inspect.signature(from_numpy).parameters, *options]
            text = f"neither from_numpy nor DataLoader has an option {option!r}"
            hint = _HINTS.get(option) or nearest(option, names)
            raise TypeError(Problem("from_numpy", text, hint=hint))
    if as_integer(batch_size) is None and hasattr(batch_size, "__len__"):
        raise TypeError(
            "from_numpy: batch_size must be an integer, got a second array; arrays go into one tuple or "
            "dict: from_numpy((images, labels), batch_size)"
        )
    require_flags("from_numpy", shuffle=shuffle, drop_last=drop_last)
    if generator is not None:
        require_instance(
            generator, torch.Generator, "from_numpy: generator must be a torch.Generator"
        )
    ranks = checked_ranks(rank, world_size, "from_numpy")
    if shuffle and generator is not None:
        _require_no_other_order(seed, max((ranks or (0, 1))[1], ranks_now("from_numpy")[1]))
    dataset = _dataset_of(arrays)
    if len(dataset) == 0:
        got = "a Subset of no indices" if isinstance(arrays, Subset) else "none"
        raise ValueError(f"from_numpy: arrays must have at least one row, got {got}")
    if seed is not None:
        seed = checked_integer(seed, "from_numpy: seed", 0)
    # Processes that pass ranks must draw from a common seed.
    if seed is None and ranks is not None and generator is None:
        seed = 0
    # Draw one number per epoch, when it begins, because prefetched batches would interleave their
    # draws with the loop's.
    epochs_are_drawn = shuffle and generator is None and seed is None
    collate = Collate(fields, seed=0 if epochs_are_drawn else seed)
    sampler = _RowSampler(
        len(dataset),
        batch_size,
        seed=seed or 0,
        shuffle=shuffle,
        drop_last=drop_last,
        rank=rank,
        world_size=world_size,
        uneven="drop" if drop_last else "repeat",
        draws_epochs=epochs_are_drawn,
    )
    batches: dict[str, Any] = {"batch_sampler": sampler}
    if shuffle and generator is not None:
        batches = {"batch_size": sampler.batch_size, "shuffle": True, "drop_last": drop_last}
    is_users = type(dataset).__getitems__ is not ArrayDataset.__getitems__
    loader: DataLoader[Any] = DataLoader(
        IndexedDataset(dataset) if is_users else dataset,
        collate_fn=collate,
        generator=generator,
        **batches,
        **dataloader_options,
    )
    return DeviceLoader(loader, device)


class _RowSampler(ShuffleSampler):
    """The `ShuffleSampler` of `from_numpy`.

    Args:
        *arguments: Arguments of ShuffleSampler.
        draws_epochs: Whether a single process draws the number of each epoch, as torch's RandomSampler
            draws a seed.
        **options: Options of ShuffleSampler.
    """

    SETTINGS = ("shuffle", "seed", "drop_last")  # uneven follows

    def __init__(self, *arguments: Any, draws_epochs: bool, **options: Any) -> None:
        self._draws_epochs = draws_epochs
        super().__init__(*arguments, **options)

    @property
    @override
    def _name(self) -> str:
        return "from_numpy"

    @property
    @override
    def draw_epoch(self) -> Callable[[], int] | None:
        if not self._draws_epochs or self.world_size > 1:
            return None
        return lambda: int(torch.empty((), dtype=torch.int64, device="cpu").random_())


def _require_no_other_order(seed: int | None, world_size: int) -> None:
    if seed is not None:
        raise ValueError(
            f"from_numpy: expected seed or generator, got seed={seed!r} and a generator; leave one out"
        )
    if world_size > 1:
        raise ValueError(
            f"from_numpy: generator shuffles the rows of one process, but this is one of {world_size}; pass "
            "seed instead, so that all have the same order"
        )


def _dataset_of(arrays: Any) -> ArrayDataset:
    if isinstance(arrays, ArrayDataset):
        return arrays
    for kind in (Subset, TensorDataset):
        if isinstance(arrays, kind) and type(arrays).__getitem__ is not kind.__getitem__:
            raise TypeError(
                f"from_numpy: {type(arrays).__name__} has its own __getitem__, which from_numpy "
                "never calls; write DataLoader(dataset, batch_size, collate_fn=Collate())"
            )
    if isinstance(arrays, Subset):
        return _dataset_of(arrays.dataset).select(arrays.indices)
    if isinstance(arrays, TensorDataset):
        return ArrayDataset(arrays.tensors)
    if isinstance(arrays, ConcatDataset):
        raise TypeError(
            "from_numpy: arrays must hold arrays, got a ConcatDataset; join the arrays of each "
            "entry with pinfeed.ConcatArray([...]), or write "
            "DataLoader(dataset, batch_size, collate_fn=Collate())"
        )
    is_parquet = isinstance(arrays, str | Path) and str(arrays).endswith(".parquet")
    is_hugging_face = type(arrays).__module__.partition(".")[0] == "datasets"
    is_table = is_parquet or is_hugging_face or hasattr(arrays, "__arrow_c_stream__")
    return ArrayDataset.from_arrow(arrays) if is_table else ArrayDataset(arrays)
