"""Batches of row numbers for `from_numpy`, split over ranks."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator

import torch
from torch.utils.data import BatchSampler, Sampler

from pinfeed.arguments import checked_integer
from pinfeed.ranks import ranks_now


class RowSampler(Sampler[int]):
    """The row numbers of one rank, in the order of its batches.

    All ranks get the same number of batches, of the same sizes. Step by step, each rank takes
    ``batch_size`` neighbours of the epoch's order. The rows left are split evenly in a last step,
    which takes at most ``world_size - 1`` rows from the beginning of the order again; ``drop_last``
    leaves that step out.

    On one rank, a shuffled order is drawn as torch's RandomSampler draws it. On several it follows
    from the number of the epoch alone, or from ``generator``, which must then be in the same state
    on all ranks. The number goes up with each iteration, unless `set_epoch` says otherwise.

    Args:
        rows: How many rows there are.
        batch_size: Rows in a batch of one rank.
        shuffle: Whether each epoch has another order.
        drop_last: Whether to leave out rows that don't make a whole batch for each rank.
        generator: Draws the order; None: torch's global generator, on one rank.
        ranks: Rank and world size. None: those of the process group or the environment, when an
            iteration begins.
    """

    def __init__(
        self,
        rows: int,
        batch_size: int,
        *,
        shuffle: bool,
        drop_last: bool,
        generator: torch.Generator | None,
        ranks: tuple[int, int] | None,
    ) -> None:
        self.rows = rows
        self.batch_size = checked_integer(batch_size, "from_numpy: batch_size", 1)
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.generator = generator
        self._ranks = ranks
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch, from which the order on several ranks follows."""
        self._epoch = checked_integer(epoch, "from_numpy: epoch", 0)

    def __len__(self) -> int:
        world_size = self._ranks_now()[1]
        whole_steps, rest = divmod(self.rows, self.batch_size * world_size)
        return whole_steps * self.batch_size + (0 if self.drop_last else -(-rest // world_size))

    def __iter__(self) -> Iterator[int]:
        return itertools.chain.from_iterable(self.batches())

    def batches(self) -> Iterator[list[int]]:
        """The rows of this rank's batches in one epoch, which begins with the first."""
        rank, world_size = self._ranks_now()
        order = self._order(world_size)
        step = self.batch_size * world_size
        for start in range(0, self.rows, step):
            size = self.batch_size
            if start + step > self.rows:
                if self.drop_last:
                    return
                size = -(-(self.rows - start) // world_size)
            first = start + rank * size
            places = torch.arange(first, first + size, device="cpu") % self.rows
            yield (places if order is None else order[places]).tolist()

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


class RowBatches(BatchSampler):
    """A ``batch_sampler`` that asks for the rows of each batch while the one before it is read.

    Args:
        sampler: Of the rows.
        prefetch: Called with the rows of a batch, but for the first one. Errors are passed over,
            since whoever reads the rows meets them again. None: nothing is asked for.
    """

    def __init__(self, sampler: RowSampler, prefetch: Callable[[list[int]], None] | None) -> None:
        super().__init__(sampler, sampler.batch_size, sampler.drop_last)
        self.sampler: RowSampler = sampler
        self._prefetch = prefetch

    def __iter__(self) -> Iterator[list[int]]:
        batches = self.sampler.batches()
        batch = next(batches, None)
        while batch is not None:
            following = next(batches, None)
            if following is not None and self._prefetch is not None:
                with contextlib.suppress(Exception):
                    self._prefetch(following)
            yield batch
            batch = following
