"""How many samples a loader is going to yield."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from pinfeed.loaders.device_loader import DeviceLoader


@dataclass(frozen=True)
class PlannedLength:
    """What a loader says, which may turn out to be wrong: a collate function may leave samples out.

    Attributes:
        samples: In all batches together.
        first: In the first batch; where that is wrong, so is the rest.
    """

    samples: int
    first: int


def planned_length(loader: Any) -> PlannedLength | None:
    """The plan of a DataLoader; None for anything else, or if it has none.

    Nothing is iterated, and no ``len()`` called that has effects: a DataLoader over an
    IterableDataset warns if it yields more than it once said.
    """
    while isinstance(loader, DeviceLoader):
        loader = loader.loader
    if not isinstance(loader, DataLoader):
        return None
    if isinstance(loader.dataset, IterableDataset):
        return _batches_of(loader.dataset, loader.batch_size, loader.drop_last)
    sampler = loader.batch_sampler
    if isinstance(sampler, list | tuple):
        sizes = [len(batch) for batch in sampler]
        return PlannedLength(sum(sizes), sizes[0]) if sizes else None
    # Of any other batch sampler, and of one that counts its batches in its own way, only their number
    # is known.
    if isinstance(sampler, BatchSampler) and type(sampler).__len__ is BatchSampler.__len__:
        return _batches_of(sampler.sampler, sampler.batch_size, sampler.drop_last)
    return None


def _batches_of(samples: Any, size: int | None, drop_last: bool) -> PlannedLength | None:
    if size is None:  # samples that are batches already
        return None
    try:
        count = len(samples)
    except (TypeError, NotImplementedError):
        return None
    if drop_last:
        count -= count % size
    return PlannedLength(count, min(size, count))
