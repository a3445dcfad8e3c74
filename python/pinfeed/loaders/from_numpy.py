"""Arrays to a loader of batches, in one line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset
from typing_extensions import override

from pinfeed.arguments import Problem, as_integer, checked_integer, instead, nearest, require_flags
from pinfeed.collation.collate import Collate
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.ranks import checked_ranks, ranks_now
from pinfeed.samplers.shuffle import ShuffleSampler
from pinfeed.sources.dataset import ArrayDataset, IndexedDataset

# What from_numpy decides itself, and how to decide otherwise.
_TAKEN = {
    "dataset": "pass the arrays",
    "collate_fn": "pass fields",
    "sampler": "build the DataLoader yourself: DataLoader(ArrayDataset(arrays), sampler=..., ...)",
    "batch_sampler": (
        "build the DataLoader yourself: DataLoader(ArrayDataset(arrays), batch_sampler=..., ...)"
    ),
    "indices": "pass a part of the rows: ArrayDataset(arrays).select(indices)",
}


@instead("arrays go into one tuple or dict: from_numpy((images, labels), batch_size)")
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
    """A loader of batches of the arrays' rows, gathered natively and ahead of time.

    Short for ``DeviceLoader(DataLoader(ArrayDataset(arrays), batch_sampler=ShuffleSampler(...),
    collate_fn=Collate(fields)), device)``, with what suits arrays:

    - No worker processes: a batch of rows is one native gather, which costs less than handing it
      from one process to another. ``num_workers=`` pays where a sample takes time in Python;
      here none does.
    - A background thread that has two batches ready: gathering releases the GIL, so it goes on
      while the model works.
    - A loop belongs to the thread that began it, one loop at a time.
    - Each loop is an epoch with an order of its own, without `ShuffleSampler.set_epoch`.

    Args:
        arrays: An array, or arrays in dicts, tuples, ... of one length, as `ArrayDataset` takes
            them: ndarrays, memmaps, CPU tensors, paths of .npy files, `RaggedArray`. Or a table, as
            `ArrayDataset.from_arrow` takes it, or the path of a Parquet file. Or an `ArrayDataset`
            (``ArrayDataset(arrays)[:1000]``), or a ``Subset`` of any of these, as ``random_split``
            makes it.
        batch_size: Samples in a batch; the last one may be smaller.
        shuffle: Whether each epoch has another order, a `ShuffleSampler`'s.
        seed: With the number of the epoch, it determines the order, and what is random in fields
            (`Image`'s ``augment``). None: a single process draws each order anew, from torch's
            default generator, so that ``torch.manual_seed`` makes runs alike; several processes, and
            those that say ``rank`` and ``world_size``, have the seed 0. With neither ``shuffle``, a seed
            nor a rank, what is random is drawn from that generator batch by batch, ahead of the loop.
        fields: What to make of each array, as `Collate` takes it. None: stacked as it is.
        device: Where batches go. None: the accelerator if there is one, else the CPU.
        rank: Which of the data-parallel ranks that share the rows this is. Processes of one tensor- or
            sequence-parallel group pass the same number, and get the same batches. None: asked of
            ``torch.distributed`` when a loop begins, else of the environment that torchrun sets.
        world_size: The number of data-parallel ranks; likewise, else 1. Give both or neither.
        drop_last: Whether to leave out a last batch that isn't full, of all ranks.
        generator: Draws the seeds of workers, and with ``shuffle`` the order, with torch's own
            sampler, which knows nothing of ranks.
        **dataloader_options: For the DataLoader: ``num_workers``, ``pin_memory``, ...

    Several ranks share the rows: ``batch_size`` is that of each, and each gets the same number
    of batches, of the same sizes. Where the rows left for the last batches don't divide evenly,
    at most ``world_size - 1`` rows come twice. The number of the epoch goes up with each loop, so
    begin as many loops in each process, or call ``loader.batch_sampler.set_epoch(epoch)`` before
    each.

    To resume within an epoch, save ``loader.state_dict()``, which counts the batches that the loop
    got, and not those fetched ahead; after ``loader.load_state_dict`` the next loop yields the batches
    that were left.

    Returns:
        A `DeviceLoader`: iterate over it, ask for its ``len()``, again and again.

    Raises:
        TypeError, ValueError: An array or an option does not fit; there would be no batch.

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
            known = [*inspect.signature(from_numpy).parameters, *options]
            text = f"there is no option {option!r}, here or of a DataLoader"
            raise TypeError(Problem("from_numpy", text, hint=nearest(option, known)))
    if as_integer(batch_size) is None and hasattr(batch_size, "__len__"):
        raise TypeError(
            "from_numpy: batch_size must be an integer, got a second array; arrays go into one tuple or "
            "dict: from_numpy((images, labels), batch_size)"
        )
    require_flags("from_numpy", shuffle=shuffle, drop_last=drop_last)
    ranks = checked_ranks(rank, world_size, "from_numpy")
    if shuffle and generator is not None:
        _require_no_other_order(seed, max((ranks or (0, 1))[1], ranks_now("from_numpy")[1]))
    dataset = _dataset_of(arrays)
    if len(dataset) == 0:
        got = "a Subset of no indices" if isinstance(arrays, Subset) else "none"
        raise ValueError(f"from_numpy: arrays must have at least one row, got {got}")
    if seed is not None:
        seed = checked_integer(seed, "from_numpy: seed", 0)
    # Processes that share batches say their ranks, and draw from a seed that they share.
    if seed is None and ranks is not None and generator is None:
        seed = 0
    # Batches are made ahead of the loop, which may draw numbers meanwhile: an epoch that is drawn
    # when it begins says what is random in it.
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
        *arguments: Those of a ShuffleSampler.
        draws_epochs: Whether a single process draws the number of each epoch, as torch's RandomSampler
            draws a seed.
        **options: Those of a ShuffleSampler.
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
        return _drawn_epoch if self._draws_epochs and self.world_size == 1 else None


def _drawn_epoch() -> int:
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_())


def _require_no_other_order(seed: int | None, world_size: int) -> None:
    if seed is not None:
        raise ValueError(
            f"from_numpy: expected seed or generator, got seed={seed!r} and a generator; leave one out"
        )
    if world_size > 1:
        raise ValueError(
            f"from_numpy: generator shuffles the rows of one process, and this is one of {world_size}; pass "
            "seed instead, whose order they share"
        )


def _dataset_of(arrays: Any) -> ArrayDataset:
    if isinstance(arrays, ArrayDataset):
        return arrays
    for kind in (Subset, TensorDataset):
        if isinstance(arrays, kind) and type(arrays).__getitem__ is not kind.__getitem__:
            raise TypeError(
                f"from_numpy: {type(arrays).__name__} has a __getitem__ of its own, and from_numpy takes "
                "rows without calling it; write DataLoader(dataset, batch_size, collate_fn=Collate())"
            )
    if isinstance(arrays, Subset):
        return _dataset_of(arrays.dataset).select(arrays.indices)
    if isinstance(arrays, TensorDataset):
        return ArrayDataset(arrays.tensors)
    if isinstance(arrays, ConcatDataset):
        raise TypeError(
            "from_numpy: arrays is a ConcatDataset; pass its arrays, one behind the other, as "
            "pinfeed.ConcatArray([...]), an entry each, or write "
            "DataLoader(dataset, batch_size, collate_fn=Collate())"
        )
    is_parquet = isinstance(arrays, str | Path) and str(arrays).endswith(".parquet")
    is_hugging_face = type(arrays).__module__.partition(".")[0] == "datasets"
    is_table = is_parquet or is_hugging_face or hasattr(arrays, "__arrow_c_stream__")
    return ArrayDataset.from_arrow(arrays) if is_table else ArrayDataset(arrays)
