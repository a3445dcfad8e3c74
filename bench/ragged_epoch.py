"""Part of an epoch over a million sequences in memory, through torch's DataLoader, shuffled."""

import ctypes
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Sampler

import pinfeed
from bench.epoch import IndexDataset, exhaust
from bench.harness import Role, Way, Workload
from bench.sequences import tensor_lengths

Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


class PartSampler(Sampler[int]):
    """The same random part of a dataset in a new order for each epoch.

    Costs for each sample what DataLoader's own sampler for ``shuffle=True`` costs: a permutation,
    and a list of it.
    """

    def __init__(self, part: torch.Tensor) -> None:
        self.part = part

    def __len__(self) -> int:
        return len(self.part)

    def __iter__(self) -> Iterator[int]:
        yield from self.part[torch.randperm(len(self.part))].tolist()


class RaggedEpoch:
    """Sequences that count on through the whole dataset, so that every batch can be checked.

    Args:
        count: Sequences.
        longest: They have from 1 to as many items.
        part: How many of them, drawn at random, an epoch visits.
        batch_size: Sequences in one batch.
    """

    def __init__(
        self,
        count: int = 1_000_000,
        longest: int = 256,
        part: int = 250_000,
        batch_size: int = 256,
    ) -> None:
        random = np.random.default_rng(0)
        self.longest = longest
        self.batch_size = batch_size
        self.lengths = random.integers(1, longest + 1, count)
        self.offsets = np.zeros(count + 1, np.int64)
        np.cumsum(self.lengths, out=self.offsets[1:])
        self.values = np.arange(self.offsets[-1])
        self.part = torch.from_numpy(random.permutation(count)[:part])
        self.batches = range(0, part, batch_size)

    def loader(self, dataset, collate: Callable) -> DataLoader:
        """Return torch's DataLoader over the part, without workers."""
        return DataLoader(
            dataset, self.batch_size, sampler=PartSampler(self.part), collate_fn=collate
        )

    def error(self, batches: Batches) -> float:
        """Check every batch by its values; infinity unless each sequence comes up once."""
        seen: list[np.ndarray] = []
        for values, lengths, *_ in batches:
            rows, sizes = values.numpy(), lengths.numpy()
            seen.append(np.searchsorted(self.offsets, rows[:, 0]))
            place = np.arange(sizes.max())
            expected = (self.offsets[seen[-1]][:, None] + place) * (place < sizes[:, None])
            if not (sizes == self.lengths[seen[-1]]).all() or not np.array_equal(rows, expected):
                return float("inf")
        return self.index_error(seen)

    def index_error(self, batches: Iterable) -> float:
        """Check that an epoch names each sequence of the part once."""
        indices = np.sort(np.concatenate([np.asarray(batch) for batch in batches]))
        return 0.0 if np.array_equal(indices, np.sort(self.part.numpy())) else float("inf")


def _limit_ways(epoch: RaggedEpoch) -> list[Way]:
    def memcpy():
        size = epoch.values.nbytes // len(epoch.lengths) * epoch.batch_size
        target = np.zeros(size, np.uint8)
        start = epoch.values.ctypes.data
        return lambda: (
            ctypes.memmove(target.ctypes.data, start + size * number, size)
            for number in range(len(epoch.batches))
        )

    def fill():
        out = torch.zeros(epoch.batch_size, epoch.longest, dtype=torch.int64)
        return lambda: (out.fill_(1) for _ in epoch.batches)

    return [
        Way("physical limit: `memcpy` of as many values in order", memcpy, Role.LIMIT),
        Way("fill one batch's buffer, batch by batch", fill, Role.LIMIT),
    ]


def _loader_ways(epoch: RaggedEpoch) -> list[Way]:
    def overhead():
        loader = epoch.loader(IndexDataset(len(epoch.lengths)), lambda indices: indices)
        return lambda: iter(loader)

    def ragged():
        dataset = pinfeed.ArrayDataset(pinfeed.RaggedArray(epoch.values, epoch.offsets))
        loader = epoch.loader(dataset, pinfeed.Collate(pinfeed.Pad()))
        return lambda: iter(loader)

    def stock():
        # Views of one memory, in order: no list of tensors lies better.
        tensors = list(torch.split(torch.from_numpy(epoch.values), epoch.lengths.tolist()))

        def collate(batch):
            return pad_sequence(batch, batch_first=True), tensor_lengths(batch)

        loader = epoch.loader(tensors, collate)
        return lambda: iter(loader)

    return [
        Way("DataLoader alone (indices only)", overhead, Role.OVERHEAD, error=epoch.index_error),
        Way("**pinfeed** `ArrayDataset(RaggedArray)`, `Collate(Pad())`", ragged, Role.PINFEED),
        Way("list of tensors, `pad_sequence`", stock),
    ]


def ragged_epoch(name: str) -> Workload:
    """A quarter of an epoch; all of it takes torch several seconds."""
    epoch = RaggedEpoch()
    title = (
        f"{len(epoch.part):,} of {len(epoch.lengths):,} int64 sequences of 1–{epoch.longest} in "
        f"memory, chosen and shuffled at random, batches of {epoch.batch_size}, padded, with "
        f"lengths, 0 workers, {torch.get_num_threads()} thread(s)"
    )
    ways = [*_limit_ways(epoch), *_loader_ways(epoch)]
    return Workload(name, title, ways, error=epoch.error, consume=exhaust)


def workloads() -> dict[str, tuple[int, Callable[[str], Workload]]]:
    """Return the workload here by name: its number of threads and what makes it."""
    return {"epoch-ragged": (1, ragged_epoch)}
