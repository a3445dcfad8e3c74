"""Checks of loaders, their planned length, and a progress bar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset

from pinfeed.arguments import known_length
from pinfeed.functional.sequences import JaggedBatch, Padded
from pinfeed.imports import import_extra
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.samplers.order_sampler import OrderSampler

# Batches: a user who passes one of these has forgotten the loader around it.
_BATCHES = (np.ndarray, torch.Tensor, str, bytes, Mapping, JaggedBatch, Padded)


def require_loader(loader: Any, function: str) -> None:
    """Raises TypeError for a single batch, or an object that can't be iterated."""
    if isinstance(loader, _BATCHES) or not hasattr(loader, "__iter__"):
        hint = (
            "; wrap it in a DataLoader"
            if isinstance(loader, Dataset)
            else "; pass a DataLoader or a list of batches"
        )
        raise TypeError(
            f"{function}: loader must be an iterable of batches, got {type(loader).__name__}{hint}"
        )


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


class Progress:
    """A tqdm bar of samples with their rate, labeled with a function's name; or nothing."""

    def __init__(self, is_shown: bool, function: str) -> None:
        self._bar: Any = None
        if is_shown:
            tqdm = import_extra("tqdm.auto", "progress").tqdm
            self._bar = tqdm(desc=function, unit=" samples", unit_scale=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if self._bar is not None:
            if error is None:  # the last batch may have been smaller than planned
                self._bar.total = self._bar.n
            self._bar.close()

    def advance(self, samples: int, total: int | None) -> None:
        """Adds samples; ``total`` is None if unknown."""
        if self._bar is not None:
            self._bar.total = total
            self._bar.update(samples)
