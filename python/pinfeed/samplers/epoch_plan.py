"""Which samples make a batch: the batches of similar lengths of one epoch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pinfeed.samplers.order_sampler import ROUNDS, epoch_keys, permutation


@dataclass(frozen=True)
class EpochPlan:
    """The batches of one epoch, of all ranks.

    Attributes:
        order: int64 of shape (N,), the samples, batch after batch.
        cuts: int64 of shape (B + 1,), where in ``order`` batches begin, and where the last one
            ends.
        groups: int64 of shape (steps, world_size), the number of each rank's batch in each step.
    """

    order: npt.NDArray[np.int64]
    cuts: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int64]

    def batch(self, number: int) -> npt.NDArray[np.int64]:
        """The samples of one batch."""
        return self.order[self.cuts[number] : self.cuts[number + 1]]


def plan_epoch(
    lengths: npt.NDArray[np.int64],
    epoch: int,
    *,
    batch_size: int | None,
    max_tokens: int | None,
    shuffle: bool,
    seed: int,
    bucket_batches: int,
    drop_last: bool,
    world_size: int,
) -> EpochPlan:
    """Plans an epoch; see `pinfeed.LengthBucketSampler` for what the settings mean."""
    count = len(lengths)
    keys = epoch_keys(seed, epoch, 2 * ROUNDS)
    order = permutation(count, keys[:ROUNDS]) if shuffle else np.arange(count)
    sizes = np.maximum(lengths, 1)  # so that no batch has endless empty samples
    if bucket_batches > 1:
        samples = count if batch_size is None else batch_size
        if max_tokens is not None:
            samples = min(samples, max_tokens * count // _sum(sizes))
        bucket = samples * bucket_batches * world_size
        most = max(count // 4, samples) if shuffle else count
        order = order[_bucket_order(lengths[order], min(bucket, most, count))]
    if max_tokens is None:
        assert batch_size is not None
        cuts = np.append(np.arange(0, count, min(batch_size, count)), count)
        is_full = count % batch_size == 0
    else:
        cuts, is_full = _cut(sizes[order], batch_size or max_tokens, max_tokens)
    batches = len(cuts) - 1
    if drop_last and not is_full:
        batches -= 1
    groups = _groups(batches, world_size, drop_last)
    if shuffle:
        groups = groups[permutation(len(groups), keys[ROUNDS:])]
    return EpochPlan(order, cuts, groups)


def _sum(sizes: npt.NDArray[np.int64]) -> int:
    # Of both halves, because the sum of a few large sizes is beyond 64 bits.
    return (int((sizes >> 32).sum()) << 32) + int((sizes & 0xFFFFFFFF).sum())


def _bucket_order(lengths: npt.NDArray[np.int64], bucket: int) -> npt.NDArray[np.int64]:
    """The order that sorts every ``bucket`` neighbours, up and down in turn.

    So lengths go on where the next bucket begins, and a batch may take samples of both.
    """
    buckets = np.arange(len(lengths)) // bucket
    return np.lexsort((np.where(buckets % 2 == 0, lengths, -lengths), buckets))


def _cut(
    sizes: npt.NDArray[np.int64], batch_size: int, max_tokens: int
) -> tuple[npt.NDArray[np.int64], bool]:
    """Cuts into batches, each as long as longest × count <= max_tokens and batch_size allow.

    Returns:
        The beginnings of the batches and the end of the last one, and whether that is full.
    """
    cuts = []
    longest = end = 0  # of the batch under way: its longest sample, and where it has to end
    start = 0
    for position, size in enumerate(sizes.tolist()):
        if size > longest:
            longest = size
            end = start + min(batch_size, max_tokens // size)
        if position >= end:
            cuts.append(position)
            start = position
            longest = size
            end = start + min(batch_size, max_tokens // size)
    return np.array([0, *cuts, len(sizes)]), end == len(sizes)


def _groups(batches: int, world_size: int, drop_last: bool) -> npt.NDArray[np.int64]:
    """The numbers of neighbouring batches, ``world_size`` in each row."""
    steps = batches // world_size if drop_last else -(-batches // world_size)
    starts = np.arange(steps) * world_size
    if not drop_last:
        # The last row ends with the last batch, so what it repeats are batches of similar length.
        starts = np.minimum(starts, batches - world_size)
    return (starts[:, None] + np.arange(world_size)) % max(batches, 1)
