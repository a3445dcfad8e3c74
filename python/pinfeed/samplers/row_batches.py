"""Batches of row numbers for `from_numpy`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Self

import torch
from torch.utils.data import Sampler

from pinfeed.arguments import checked_integer
from pinfeed.ranks import ranks_now


class RowBatches(Sampler[list[int]]):
    """Batches of row numbers, split over ranks; a ``batch_sampler``.

    All ranks get the same number of batches, of the same sizes. Step by step, each rank takes
    ``batch_size`` neighbours of the epoch's order. The rows left are split evenly in a last step,
    which takes at most ``world_size - 1`` rows from the beginning of the order again; ``drop_last``
    leaves that step out.

    On one rank, a shuffled order is drawn as torch's RandomSampler draws it. On several it follows
    from the number of the epoch alone, or from ``generator``, which must then be in the same state
    on all ranks. The number goes up with each iteration, unless `set_epoch` says otherwise.

    Args:
        count: How many rows there are.
        batch_size: Rows in a batch of one rank.
        shuffle: Whether each epoch has another order.
        drop_last: Whether to leave out rows that don't make a whole batch for each rank.
        generator: Draws the order; None: torch's global generator, on one rank.
        ranks: Rank and world size. None: those of the process group or the environment, when an
            iteration begins.
        prefetch: Called with each batch while the one before it is read; the first one is read at
            once. Errors are passed over, since whoever reads the rows meets them again.
    """

    def __init__(
        self,
        count: int,
        batch_size: int,
        *,
        shuffle: bool,
        drop_last: bool,
        generator: torch.Generator | None,
        ranks: tuple[int, int] | None,
        prefetch: Callable[[list[int]], None] | None,
    ) -> None:
        self.rows = count
        self.batch_size = checked_integer(batch_size, "from_numpy: batch_size", 1)
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.generator = generator
        self._ranks = ranks
        self._prefetch = prefetch
        self._epoch = 0

    @property
    def sampler(self) -> Self:
        """Itself: on this attribute of a batch sampler, Lightning and others call ``set_epoch``."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch, from which the order on several ranks follows."""
        self._epoch = checked_integer(epoch, "from_numpy: epoch", 0)

    def __len__(self) -> int:
        step = self.batch_size * self._ranks_now()[1]
        return self.rows // step if self.drop_last else -(-self.rows // step)

    def __iter__(self) -> Iterator[list[int]]:
        # All of this happens at the first batch: a DataLoader with workers begins two iterations,
        # and uses only the second.
        batches = self._batches()
        batch = next(batches, None)
        while batch is not None:
            following = next(batches, None)
            if following is not None and self._prefetch is not None:
                with contextlib.suppress(Exception):
                    self._prefetch(following)
            yield batch
            batch = following

    def _batches(self) -> Iterator[list[int]]:
        rank, world_size = self._ranks_now()
        order = self._order(world_size)

        def rows(start: int, size: int) -> list[int]:
            places = torch.arange(start, start + size, device="cpu") % self.rows
            chosen: list[int] = (places if order is None else order[places]).tolist()
            return chosen

        step = self.batch_size * world_size
        whole = self.rows - self.rows % step
        for start in range(0, whole, step):
            yield rows(start + rank * self.batch_size, self.batch_size)
        if whole < self.rows and not self.drop_last:
            size = -(-(self.rows - whole) // world_size)
            yield rows(whole + rank * size, size)

    def _order(self, world_size: int) -> torch.Tensor | None:
        """The row at each place of the epoch that begins; None: its number is its place."""
        epoch, self._epoch = self._epoch, self._epoch + 1
        if not self.shuffle:
            return None
        generator = self.generator
        if generator is None:
            seed = torch.empty(
                (), dtype=torch.int64, device="cpu"
            ).random_()  # as RandomSampler does
            generator = torch.Generator().manual_seed(int(seed) if world_size == 1 else epoch)
        return torch.randperm(self.rows, generator=generator, device=generator.device).cpu()

    def _ranks_now(self) -> tuple[int, int]:
        return self._ranks or ranks_now("from_numpy")
