"""Streams, the expected samples of each worker of each rank, and workers without processes."""

import contextlib
import itertools
from unittest import mock

import numpy as np
import torch
from torch.utils.data import _utils

from pinfeed import StreamDataset
from pinfeed.samplers.order_sampler import ROUNDS, permutation, random_keys


@contextlib.contextmanager
def as_worker(worker, workers, seed=0):
    """Makes this process look like a worker of a DataLoader with a seed, if it has any."""
    seed += worker
    info = _utils.worker.WorkerInfo(id=worker, num_workers=workers, seed=seed, dataset=None)
    info = info if workers else None
    with mock.patch.object(_utils.worker, "_worker_info", info):
        yield


def numbered(sizes):
    """Returns shards of these sizes, with consecutively numbered samples."""
    numbers = itertools.count()
    return [[next(numbers) for _ in range(size)] for size in sizes]


def expected_parts(shards, world_size, workers, uneven):
    """Returns, by definition, the samples of each (rank, worker) in order.

    ``shards`` are divided as a whole; a stream without shards is a single one.
    """
    turns = [(rank, worker) for worker in range(workers) for rank in range(world_size)]
    parts = {turn: [] for turn in turns}
    if uneven == "keep" and len(shards) >= len(turns):
        for number, shard in enumerate(shards):
            parts[turns[number % len(turns)]].extend(shard)
        return parts
    if uneven == "keep":
        for number, sample in enumerate(itertools.chain(*shards)):
            parts[turns[number % len(turns)]].append(sample)
        return parts
    rows = []  # per worker, a sample for each rank
    if len(shards) >= workers:
        for worker in range(workers):
            samples = list(itertools.chain(*shards[worker::workers]))
            rows += [(worker, row) for row in cut(samples, world_size)]
    else:
        samples = list(itertools.chain(*shards))
        rows = [(n % workers, row) for n, row in enumerate(cut(samples, world_size))]
    for worker, row in rows:
        if len(row) == world_size or uneven == "repeat":
            for rank in range(world_size):
                parts[rank, worker].append(row[rank % len(row)])
    return parts


def cut(samples, size):
    return [samples[start : start + size] for start in range(0, len(samples), size)]


def stream(source, buffer=0, **options):
    """Returns a function that creates the StreamDataset of a rank."""
    return lambda **ranks: StreamDataset(source, buffer, **{"uneven": "keep"} | options | ranks)


def parts_of(make, world_size, workers, epoch=0):
    """Returns the samples of each (rank, worker); without workers, the process is worker 0."""
    parts = {}
    for rank in range(world_size):
        dataset = make(rank=rank, world_size=world_size)
        dataset.set_epoch(epoch)
        for worker in range(max(workers, 1)):
            with as_worker(worker, workers):
                parts[rank, worker] = list(dataset)
    return parts


def read_shard(path):
    """Yields the samples of a file with a number per line; ``bad`` raises."""
    with open(path) as lines:
        for line in lines:
            yield int(line)


def keep(samples):
    return samples


def to_tensor(samples):
    return torch.tensor(samples)


def expected_order(samples, size, seed, epoch):
    """Returns, by definition, the output of the only worker's buffer, for a stream without shards."""
    draws = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(epoch, 1, 0, 1, 0)))
    held, order = samples[:size], []
    for sample in samples[size:]:
        place = int(draws.random_raw()) % size
        order.append(held[place])
        held[place] = sample
    last = permutation(len(held), random_keys(seed, (epoch, 1, 0, 1, 1), ROUNDS))
    return order + [held[place] for place in last]
