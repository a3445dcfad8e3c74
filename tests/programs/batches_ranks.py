"""Processes are started, and start workers themselves; argv: the start method."""

import multiprocessing
import sys

import numpy as np
from torch.utils.data import DataLoader

import pinfeed
from batches import in_worker_memory, nothing_is_left


class Samples:
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return np.full((90, 90), 100 * self.rank + index)


def train(rank, collate, method, results):
    loader = DataLoader(
        Samples(rank),
        3,
        num_workers=2,
        collate_fn=collate,
        timeout=60,
        multiprocessing_context=method,
        persistent_workers=True,
    )
    for _ in range(2):
        batches = list(loader)
    assert [int(b[0, 0, 0]) for b in batches] == [100 * rank + i for i in (0, 3, 6, 9)]
    assert all(in_worker_memory(batch) for batch in batches)
    results.put(pinfeed.testing.worker_memory_stats()["workers"])
    del batches


if __name__ == "__main__":
    method = sys.argv[1]
    context = multiprocessing.get_context(method)
    collate = pinfeed.Collate()
    results = context.Queue()
    train(7, collate, "fork", results)
    held_batch = next(iter(DataLoader(Samples(9), 3, num_workers=1, collate_fn=collate)))
    ranks = [context.Process(target=train, args=(i, collate, method, results)) for i in range(2)]
    for rank in ranks:
        rank.start()
    assert [results.get(timeout=100) for _ in range(3)] == [2] * 3  # each has its own workers
    for rank in ranks:
        rank.join(60)
        assert rank.exitcode == 0, rank.exitcode
    assert (held_batch[0] == 900).all()
    del held_batch
    nothing_is_left()
