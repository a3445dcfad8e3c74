"""`ShuffleSampler`: random order without a stored permutation."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import as_integer, checked_integer, with_hints
from pinfeed.samplers.epoch_sampler import require_no_sampler
from pinfeed.samplers.order_sampler import MAX_SAMPLES, ROUNDS, OrderSampler, random_keys


class ShuffleSampler(OrderSampler):
    """Batch sampler that shuffles without storing the permutation.

    The seed and the epoch determine the order. It is computed batch by batch, so the first batch and
    resuming take constant time, even for a billion samples. Each loop starts the next epoch, unless
    `set_epoch` sets it. Batches carry the epoch to `Collate`. A sampler serves one loop at a time; use
    one per thread.

    With several ranks, the samples of a step are consecutive in the order, and each rank takes its part.

    Args:
        dataset: Number of samples, or a dataset with a length.
        batch_size: Samples per batch and rank; the last batch may be smaller.
        seed: Non-negative integer, the same on all ranks.
        shuffle: Whether to shuffle. False keeps the dataset's order.
        drop_last: Whether to drop the last incomplete batch.
        rank: Data-parallel rank of this process. Processes that share their batches, such as a
            tensor-parallel group, pass the same rank. None: taken from ``torch.distributed`` at each
            use, or, before that is initialized, from the environment that torchrun sets.
        world_size: Number of data-parallel ranks. None: as for ``rank``, or else 1. Pass both or
            neither.
        uneven: How to equalize ranks if samples don't divide evenly. ``"repeat"`` repeats up to
            ``world_size - 1`` samples from the epoch's beginning. ``"drop"`` drops up to
            ``world_size - 1`` samples, different ones each epoch. ``"keep"`` yields each sample exactly
            once, so ranks can differ by a sample. They still get the same number of batches, except
            with ``batch_size=1`` or fewer remaining samples than ranks: some then get one batch fewer.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or the sampler has no batch.

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

    @with_hints(num_replicas="pass world_size")
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
        count = _sample_count(dataset, self._name)
        options = drop_last, uneven
        super().__init__(count, batch_size, seed, rank, world_size, *options, shuffle=shuffle)

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
    return checked_integer(count, f"{name}: the number of samples", 1, MAX_SAMPLES)
