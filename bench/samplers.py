"""Orders of samples: random ones and weighted ones, beside torch's samplers."""

import collections
import functools

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, WeightedRandomSampler

import pinfeed
from bench.harness import Role, Way, Workload

_BATCH = 256


def _count_up(batches):
    """The batches as one array."""
    return np.concatenate([np.asarray(batch) for batch in batches])


def _permutation_error(count):
    """Every index once: 0, else infinity."""

    def error(batches):
        return 0.0 if np.array_equal(np.sort(_count_up(batches)), np.arange(count)) else np.inf

    return error


def order(name: str) -> Workload:
    """All batches of an epoch, and nothing read."""
    count = 10_000_000
    indices = np.arange(count)
    out = np.empty_like(indices)
    ours = pinfeed.ShuffleSampler(count, _BATCH)
    torch_s = BatchSampler(RandomSampler(range(count)), _BATCH, drop_last=False)

    ways = [
        Way(
            "physical limit: copy the indices", lambda: lambda: np.copyto(out, indices), Role.LIMIT
        ),
        Way("**pinfeed** `ShuffleSampler`", lambda: lambda: list(ours), Role.PINFEED),
        Way("torch `RandomSampler` + `BatchSampler`", lambda: lambda: list(torch_s)),
    ]
    title = f"{count:,} indices in random order, in batches of {_BATCH}"
    return Workload(name, title, ways, _permutation_error(count))


def first_batch(name: str) -> Workload:
    """The time to the first batch of an epoch, which RandomSampler needs a list of all indices for."""
    count, few = 1_000_000_000, 10_000_000

    def first(sampler):
        return lambda: lambda: next(iter(sampler))

    def error(batch):
        batch = np.asarray(batch)
        inside = batch.size == _BATCH == len(set(batch.tolist())) and batch.max() < count
        return 0.0 if inside and batch.min() >= 0 else np.inf

    torch_s = BatchSampler(RandomSampler(range(few)), _BATCH, drop_last=False)
    ways = [
        Way(
            "**pinfeed** `ShuffleSampler`",
            first(pinfeed.ShuffleSampler(count, _BATCH)),
            Role.PINFEED,
        ),
        Way(f"torch `RandomSampler`, of {few:,} samples only", first(torch_s)),
    ]
    return Workload(name, f"the first {_BATCH} of {count:,} samples in random order", ways, error)


def epoch(name: str) -> Workload:
    """A DataLoader's epoch of short rows, where the loader's own work shows."""
    rows = np.random.default_rng(0).random((1_000_000, 16), np.float32)
    dataset = pinfeed.ArrayDataset(rows)
    make = functools.partial(DataLoader, dataset, collate_fn=pinfeed.Collate())
    expected = np.sort(rows, axis=0)
    out = np.empty_like(rows)

    def of(loader):
        return lambda: lambda: iter(loader)

    def copied():
        np.copyto(out, rows)
        return ()

    def error(batches):
        found = np.sort(np.concatenate([batch.numpy() for batch in batches]), axis=0)
        return 0.0 if np.array_equal(found, expected) else np.inf

    ways = [
        Way(
            "physical limit: copy the rows in order",
            lambda: copied,
            Role.LIMIT,
        ),
        Way(
            "**pinfeed** `ShuffleSampler`",
            of(make(batch_sampler=pinfeed.ShuffleSampler(dataset, _BATCH))),
            Role.PINFEED,
        ),
        Way(
            "**pinfeed** `from_numpy(shuffle=True)`, ahead in a thread",
            of(pinfeed.from_numpy(rows, _BATCH, shuffle=True, device="cpu")),
            Role.PINFEED,
        ),
        Way("torch's own sampler (`shuffle=True`)", of(make(batch_size=_BATCH, shuffle=True))),
    ]
    title = f"epoch of {len(rows):,} rows of 16 float32, shuffled, batches of {_BATCH}, 0 workers"
    return Workload(name, title, ways, error, consume=collections.deque(maxlen=0).extend)


def weighted(name: str, count: int) -> Workload:
    """Draws with replacement, the table of them built before."""
    draws = 1_000_000
    weights = np.random.default_rng(0).random(count)
    ours = pinfeed.WeightedSampler(weights, draws, batch_size=_BATCH)
    ours.batch(0, 0)  # builds the table
    mean = float((weights * weights).sum() / weights.sum())  # of the weights drawn

    def error(batches):
        drawn = weights[_count_up(batches)]
        deviation = float(drawn.std()) / len(drawn) ** 0.5
        return 0.0 if len(drawn) == draws and abs(drawn.mean() - mean) < 6 * deviation else np.inf

    def torch_way():
        sampler = WeightedRandomSampler(torch.from_numpy(weights), draws)
        batches = BatchSampler(sampler, _BATCH, drop_last=False)
        return lambda: list(batches)

    def multinomial():
        tensor = torch.from_numpy(weights)
        return lambda: [torch.multinomial(tensor, draws, replacement=True).numpy()]

    ways = [
        Way("**pinfeed** `WeightedSampler`", lambda: lambda: list(ours), Role.PINFEED),
        Way("`torch.multinomial`, in one batch", multinomial),
        Way("torch `WeightedRandomSampler` + `BatchSampler`", torch_way),
    ]
    title = f"{draws:,} draws in proportion to {count:,} weights, in batches of {_BATCH}"
    return Workload(name, title, ways, error)


def workloads():
    """Return every workload here by name: its number of threads and what makes it."""
    return {
        "sampler-order": (1, order),
        "sampler-first": (1, first_batch),
        "sampler-epoch": (1, epoch),
        "sampler-weighted": (1, functools.partial(weighted, count=10_000_000)),
        # torch.multinomial refuses as many.
        "sampler-weighted-large": (1, functools.partial(weighted, count=100_000_000)),
    }
