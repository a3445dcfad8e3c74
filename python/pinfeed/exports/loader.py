"""Loaders, as exports see them: what counts as one, how long it is going to be, and its progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset

from pinfeed.functions.sequences import JaggedBatch, Padded
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.optional import import_extra
from pinfeed.samplers.order_sampler import OrderSampler

# A user who hands over one of these has forgotten the loop around it.
_BATCHES = (np.ndarray, torch.Tensor, str, bytes, Mapping, JaggedBatch, Padded)


def require_loader(loader: Any, function: str) -> None:
    """Raises TypeError for what can't be iterated, and for a single batch."""
    if isinstance(loader, _BATCHES) or not hasattr(loader, "__iter__"):
        hint = "; wrap it in a DataLoader" if isinstance(loader, Dataset) else ""
        raise TypeError(
            f"{function}: loader must be an iterable of batches, got {type(loader).__name__}{hint}"
        )


class PlannedLength(NamedTuple):
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
    if isinstance(sampler, OrderSampler):
        return _batches_of(range(sampler.rank_samples), sampler.batch_size, sampler.drop_last)
    # Any other batch sampler, and one that counts its batches in its own way, tells only their
    # number.
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


class Progress:
    """A tqdm bar of samples, with their rate; or nothing.

    Args:
        shown: Whether there is a bar.
        function: What is written in front of it.

    Raises:
        ImportError: tqdm isn't installed.
    """

    def __init__(self, shown: bool, function: str) -> None:
        self._bar: Any = None
        if shown:
            tqdm = import_extra("tqdm.auto", "progress").tqdm
            self._bar = tqdm(desc=function, unit=" samples", unit_scale=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, samples: int, total: int | None) -> None:
        """Counts so many samples of a ``total``, as far as that is known."""
        if self._bar is not None:
            self._bar.total = total
            self._bar.update(samples)
