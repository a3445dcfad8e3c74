"""The rows of a DataLoader's next batch, asked for while it makes one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Subset
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from pinfeed.sources.dataset import ArrayDataset

Prefetch = Callable[[Any], None]


def prefetch_ahead(source: Iterator[Any], loader: Any) -> None:
    """Has an iterator over a DataLoader ask for the rows of each batch one batch early.

    Of a loader that makes its batches in this process, of a dataset with a method
    ``prefetch_rows(indices)``, or a Subset of one. Otherwise nothing happens: workers are ahead of
    each other, and a loader that saves where its sampler is would save one batch more.
    """
    if type(source) is not _SingleProcessDataLoaderIter or hasattr(loader, "state_dict"):
        return
    prefetch = _prefetch_of(loader.dataset)
    if prefetch is not None:
        # What DataLoader takes the next indices from, the same in all of its releases since 2019.
        source._sampler_iter = _BatchesAhead(source._sampler_iter, prefetch)


def _prefetch_of(dataset: Any) -> Prefetch | None:
    if type(dataset) is Subset:
        return _prefetch_of_subset(dataset)
    # A class that gives indices another meaning has to say so here as well.
    order = type(dataset).__mro__
    prefetching = _defined_at("prefetch_rows", order)
    reading = (_defined_at(name, order) for name in ("__getitem__", "__getitems__"))
    if any(place < prefetching for place in reading):
        return None
    if not callable(getattr(type(dataset), "prefetch_rows", None)):  # some setting of that name
        return None
    if isinstance(dataset, ArrayDataset) and not dataset.reads_files:
        return None
    prefetch: Prefetch = dataset.prefetch_rows
    return prefetch


def _prefetch_of_subset(subset: Subset[Any]) -> Prefetch | None:
    prefetch = _prefetch_of(subset.dataset)
    if prefetch is None:
        return None
    chosen: Any = subset.indices
    if isinstance(chosen, np.ndarray | torch.Tensor):
        return lambda batch: prefetch(np.asarray(chosen[batch]))
    return lambda batch: prefetch([chosen[position] for position in batch])


def _defined_at(name: str, order: tuple[type, ...]) -> int:
    """The place of the first class that defines a name; behind the last if none does."""
    return next((place for place, kind in enumerate(order) if name in vars(kind)), len(order))


@dataclass(slots=True)
class _Drawn:
    """What came of asking the sampler for a batch.

    Attributes:
        batch: What it gave.
        is_kept: Whether the batch stays as it is while another is drawn.
        error: What it raised instead.
        is_end: Whether it had none left.
    """

    batch: Any = None
    is_kept: bool = False
    error: BaseException | None = None
    is_end: bool = False


class _BatchesAhead(Iterator[Any]):
    """Batches of indices as a sampler gives them, drawn one early, and asked for when they are.

    What a sampler raises is raised when it is that batch's turn. Nothing is drawn early in the main
    thread, where signal handlers may raise, and must not be kept waiting.

    Args:
        batches: What the sampler gives.
        prefetch: Asks for the rows of a batch. What it raises is passed over: who reads the rows is
            told.
    """

    def __init__(self, batches: Iterator[Any], prefetch: Prefetch) -> None:
        self._batches = batches
        self._prefetch = prefetch
        self._drawn: _Drawn | None = None

    def __next__(self) -> Any:
        is_ahead = threading.current_thread() is not threading.main_thread()
        if self._drawn is None and not is_ahead:
            return next(self._batches)
        drawn = self._drawn or self._draw()
        self._drawn = None  # some samplers go on behind an error
        if drawn.is_end:
            raise StopIteration
        if drawn.error is not None:
            try:
                raise drawn.error
            finally:
                del drawn  # the error's traceback knows this frame
        if is_ahead and drawn.is_kept:
            self._drawn = self._draw()
        return drawn.batch

    def _draw(self) -> _Drawn:
        try:
            batch, is_kept = _kept(next(self._batches))
        except StopIteration:
            return _Drawn(is_end=True)
        except BaseException as error:  # noqa: BLE001, raised in its turn
            below = error.__traceback__ and error.__traceback__.tb_next  # without this frame
            return _Drawn(error=error.with_traceback(below))
        if is_kept:
            with contextlib.suppress(Exception):  # raised again when the rows are read
                self._prefetch(batch)
        return _Drawn(batch, is_kept)


def _kept(batch: Any) -> tuple[Any, bool]:
    """A batch that its sampler can't change any more, and whether that could be had."""
    kind = type(batch)
    if kind is list or kind is np.ndarray:
        return batch.copy(), True
    if kind is torch.Tensor:
        return batch.clone(), True
    return batch, kind is tuple or kind is range
