"""Workers are killed at random; argv: the seed, and the number of kills."""

import faulthandler
import gc
import multiprocessing.connection
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

import pinfeed
from batches import nothing_is_left


def resources():
    gc.collect()
    maps = Path("/proc/self/maps").read_text().count("\n")
    return {"mappings": maps, "files": len(os.listdir("/proc/self/fd"))}


def nothing_was_added(before):
    deadline = time.monotonic() + 30
    while True:  # threads that fed the queues of dead workers end with a delay
        after = resources()
        if after["files"] <= before["files"] + 2 and after["mappings"] <= before["mappings"] + 20:
            return
        assert time.monotonic() < deadline, (before, after)
        time.sleep(0.1)


# One kill in several hundred makes the stock DataLoader hang, with any collate_fn. This test avoids both causes:
# its signal handler raises between taking a lock and the block that releases it; and a worker dies while it
# holds the lock of the event that tells it to end.
_MultiProcessingDataLoaderIter._try_get_data.__defaults__ = (0.2,)  # checks for dead workers


def kill(worker, iterator):
    with iterator._workers_done_event._cond:
        worker.kill()
        multiprocessing.connection.wait([worker.sentinel])  # leaves reaping to torch


random.seed(int(sys.argv[1]))
rng = np.random.default_rng(0)
arrays = rng.integers(0, 2**60, (64, 3000))
dataset = pinfeed.ArrayDataset({"x": arrays, "row": np.arange(64)})
before, good = None, 0
for run in range(int(sys.argv[2])):
    loader = DataLoader(
        dataset,
        4,
        num_workers=2,
        collate_fn=pinfeed.Collate(),
        sampler=torch.utils.data.RandomSampler(dataset, replacement=True, num_samples=10**6),
        prefetch_factor=random.choice([1, 2, 5]),
    )
    iterator = iter(loader)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    workers = list(iterator._workers)
    delay = random.random() * 0.2
    killer = threading.Timer(delay, kill, (random.choice(workers), iterator))
    killer.start()
    held_batches = []
    began = time.monotonic()
    faulthandler.dump_traceback_later(60, exit=True)
    try:
        for batch in iterator:
            assert np.array_equal(batch["x"].numpy(), arrays[batch["row"].numpy()])
            held_batches.append(batch)
            if len(held_batches) > 8:
                del held_batches[random.randrange(8)]
                good += 1
    except RuntimeError as error:
        if not any(part in str(error) for part in ("exited unexpectedly", "killed", "was lost")):
            raise
    else:
        raise AssertionError("nobody noticed that a worker was killed")
    assert time.monotonic() - began < 10, "the loader took long to notice"
    for batch in held_batches:  # received batches are unchanged
        assert np.array_equal(batch["x"].numpy(), arrays[batch["row"].numpy()])
    killer.join()
    for worker in workers:  # after a failure, DataLoader waits for seconds for the other worker
        kill(worker, iterator)
    del iterator, loader, held_batches, worker, workers, killer
    batch = None
    if run == 20:
        nothing_is_left()
        before = resources()
nothing_is_left()
assert good > 0  # thousands on an idle machine
nothing_was_added(before)
print(good)
