"""Batches in random order, of any number of samples, without a list of them."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import as_integer, checked_integer, instead
from pinfeed.samplers.epoch_sampler import require_no_sampler
from pinfeed.samplers.order_sampler import MOST_SAMPLES, ROUNDS, OrderSampler, random_keys


class ShuffleSampler(OrderSampler):
    """Batches of samples in random order, computed a batch at a time; a ``batch_sampler``.

    The order of an epoch is a permutation that the seed and the epoch determine. It is computed, not
    stored: the first batch of a billion samples is there at once, and resuming anywhere takes no
    longer. Each loop is of the next epoch; `set_epoch` says of which, where that is another one. The
    batches tell it to `Collate`, for what that draws with a seed. A sampler is for one loop at a time,
    so threads that loop at once need one each.

    With several ranks, the samples of one step lie next to each other in the order, and each rank
    takes its stretch of them.

    Args:
        dataset: The number of samples, or a dataset that has a length.
        batch_size: Samples in a batch of one rank; the last one may be smaller.
        seed: Not negative; the same on all ranks.
        shuffle: False keeps the dataset's order.
        drop_last: Leave out a last batch that isn't full.
        rank: Which of the data-parallel ranks this is. Processes that share their batches, such as a
            tensor-parallel group, pass the same. None: asked each time of ``torch.distributed``, and
            before that is initialized of the environment that torchrun sets.
        world_size: The number of data-parallel ranks; likewise, else 1. Give both or neither.
        uneven: What happens if the samples don't divide evenly over ranks. ``"repeat"`` serves up to
            ``world_size - 1`` samples from the epoch's beginning twice. ``"drop"`` drops up to as many,
            different ones in each epoch. ``"keep"`` serves each sample exactly once: ranks may differ by
            a sample, but not by a batch, because the step before the last passes on some samples. Where
            that is impossible, some ranks get one batch less: with a ``batch_size`` of 1, and if the epoch
            or a state of other sizes has fewer samples left than there are ranks.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: An argument is out of range; there would be no batch.

    Example:
        >>> dataset = pinfeed.ArrayDataset(np.arange(1_000) * 10)
        >>> sampler = pinfeed.samplers.ShuffleSampler(dataset, batch_size=256, seed=7)
        >>> loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler)
        >>> for epoch in range(2):
        ...     batches = list(loader)
        ...     print([len(batch) for batch in batches], int(torch.cat(batches).sum()))
        [256, 256, 256, 232] 4995000
        [256, 256, 256, 232] 4995000
    """

    SETTINGS = ("shuffle", *OrderSampler.SETTINGS)

    @instead()
    def __init__(
        self,
        dataset: int | Sized,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        uneven: Literal["repeat", "drop", "keep"] = "repeat",
    ) -> None:
        self.shuffle = shuffle
        super().__init__(
            _sample_count(dataset, self._name),
            batch_size,
            seed,
            rank,
            world_size,
            drop_last,
            uneven,
            shuffle=shuffle,
        )

    @override
    def order(self, epoch: int, start: int, stop: int) -> npt.NDArray[np.int64]:
        if not self.shuffle:
            return np.arange(start, stop)
        return _core.permuted(self._count, random_keys(self.seed, (epoch,), ROUNDS), start, stop)

    @override
    def data_identity(self) -> dict[str, Any]:
        return {"samples": self._count}


def _sample_count(dataset: Any, name: str) -> int:
    require_no_sampler(dataset, f"{name}: dataset must be a number of samples or have a length")
    count = as_integer(dataset)
    if count is None:
        try:
            count = len(dataset)
        except TypeError as error:
            raise TypeError(
                f"{name}: dataset must be a number of samples or have a length, got "
                f"{type(dataset).__name__}"
            ) from error
    return checked_integer(count, f"{name}: the number of samples", 1, MOST_SAMPLES)
