"""The rows of a DataLoader's next batch, asked for while it makes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, Subset
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

Prefetch = Callable[[Any], None]


def prefetch_ahead(source: Iterator[Any], loader: Any) -> None:
    """Has an iterator over a DataLoader ask for the rows of each batch one batch early.

    Of a loader that makes its batches in this process, of a dataset with a method
    ``prefetch_rows(indices)``, or a Subset of one. Otherwise nothing happens: workers are ahead of
    each other, and a loader that saves where its sampler is (torchdata's) would save one batch more.
    """
    if type(source) is not _SingleProcessDataLoaderIter or not isinstance(loader, DataLoader):
        return
    prefetch = _prefetch_of(loader.dataset)
    if prefetch is not None and loader.batch_sampler is not None:
        # What DataLoader takes the next indices from, the same in all of its releases since 2019.
        source._sampler_iter = _BatchesAhead(source._sampler_iter, prefetch)


def _prefetch_of(dataset: Any) -> Prefetch | None:
    prefetch: Prefetch | None = getattr(dataset, "prefetch_rows", None)
    if prefetch is None and type(dataset) is Subset:
        inner = _prefetch_of(dataset.dataset)
        if inner is not None:
            return lambda batch: inner([dataset.indices[position] for position in batch])
    return prefetch


@dataclass(slots=True)
class _Drawn:
    """What came of asking the sampler for a batch, and the system for its rows."""

    batch: Any = None
    error: Exception | None = None


class _BatchesAhead(Iterator[Any]):
    """Batches of indices as a sampler gives them, drawn one early, and asked for when they are.

    What is raised meanwhile is raised when it is that batch's turn.

    Args:
        batches: Of lists of indices.
        prefetch: Asks for the rows of one.
    """

    def __init__(self, batches: Iterator[Any], prefetch: Prefetch) -> None:
        self._batches = batches
        self._prefetch = prefetch
        self._drawn: _Drawn | None = None

    def __next__(self) -> Any:
        drawn = self._drawn or self._draw()
        if drawn.error is not None:
            self._drawn = None  # some samplers go on behind an error
            raise drawn.error
        self._drawn = self._draw()
        return drawn.batch

    def _draw(self) -> _Drawn:
        try:
            batch = next(self._batches)
            self._prefetch(batch)
        except Exception as error:  # noqa: BLE001, StopIteration too
            return _Drawn(error=error)
        return _Drawn(batch)
