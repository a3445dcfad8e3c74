"""Threads that build batches at the same time, compared with worker processes."""

import multiprocessing
import os
import random
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from torch.utils.data import DataLoader

import pinfeed
from bench.data import MEAN, STD
from bench.harness import DISTURBED, Job, at_least, at_most, difference, ours, workload
from bench.workers import Photographs, last

ONE, TWO = "`gather`, one thread", "`gather`, two threads"
THREADS, WORKERS = "two threads, `ThreadPoolExecutor`", "two worker processes, `DataLoader`"


def pool_of(threads):
    """Returns threads with a CPU each, because the system can leave two of them on one."""
    cpus = sorted(os.sched_getaffinity(0))[:threads]
    return ThreadPoolExecutor(threads, initializer=lambda: os.sched_setaffinity(0, {cpus.pop()}))


def gathered(width, count):
    """Builds batches of 256 rows of float32 in one thread, or half of them in each of two.

    They are ndarrays, because torch releases the GIL when it frees a tensor.
    """
    generator = np.random.default_rng(0)
    rows, indices = generator.random((1024, width), np.float32), generator.integers(0, 1024, 256)

    def calls(times):
        for _ in range(times):
            batch = pinfeed.functional.gather(rows, indices)
        return batch

    def run(pool, threads):
        return list(pool.map(calls, [count // threads] * threads))[-1]

    alternatives = [
        ours(name, partial(run, pool_of(threads), threads), units=count)
        for threads, name in ((1, ONE), (2, TWO))
    ]
    return Job(*alternatives, expected=rows[indices])


@workload(at_most(1.2, TWO, ONE, why=(1.42, DISTURBED)))
def threads_small():
    """Batches of 64 KiB by threads, where releasing the GIL costs more than the work."""
    return gathered(64, 2000)


@workload(at_least(1.5, ONE, TWO, why=(1.2, DISTURBED)))
def threads_large():
    """Batches of 4 MiB, by threads."""
    return gathered(4096, 50)


class Words:
    """A dataset in pure Python: the words of a line become numbers."""

    def __init__(self):
        self.numbers = {str(number): number for number in range(30_000)}

    def __len__(self):
        return 32 * 32

    def __getitem__(self, index):
        draw = random.Random(index)
        line = " ".join(str(draw.randrange(30_000)) for _ in range(256))
        return np.array([self.numbers[word] for word in line.split()])


def from_threads(dataset, size, collate):
    """Yields the batches of a dataset in order; two threads build up to four batches ahead."""

    def batch(begin):
        return collate([dataset[i] for i in range(begin, begin + size)])

    ahead = deque()
    with ThreadPoolExecutor(2) as pool:
        for begin in range(0, len(dataset), size):
            ahead.append(pool.submit(batch, begin))
            if len(ahead) > 4:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def beside_workers(dataset, collate, size=32):
    loaders = [DataLoader(dataset, size, collate_fn=collate)]
    options = {"num_workers": 2, "persistent_workers": True}
    loaders.append(DataLoader(dataset, size, collate_fn=collate, **options))
    runs = partial(from_threads, dataset, size, collate), partial(iter, loaders[1])
    names = THREADS, WORKERS, "neither"
    alternatives = [
        ours(name, run, units=len(loaders[0]))
        for name, run in zip(names, (*runs, partial(iter, loaders[0])), strict=True)
    ]
    expected = last(alternatives[-1].run())
    return Job(*alternatives, expected=lambda batches: difference(last(batches), expected))


@workload(at_most(1.1, THREADS, WORKERS, why=(1.21, "decoding in Pillow holds the GIL at times")))
def threads_jpeg():
    """32 random crops of 224×224 of JPEGs, decoded with Pillow, which releases the GIL."""
    return beside_workers(Photographs(), pinfeed.Collate(pinfeed.Image(MEAN, STD)))


@workload(at_least(1.5, THREADS, WORKERS))
def threads_python():
    """32 lines of 256 words, looked up in Python: threads share one GIL."""
    return beside_workers(Words(), pinfeed.Collate())


def memory_of(make):
    """Returns the bytes of the process and its workers together, during an epoch."""
    batches = make()
    next(batches)
    processes = [os.getpid(), *(child.pid for child in multiprocessing.active_children())]
    rollups = [Path(f"/proc/{process}/smaps_rollup").read_text() for process in processes]
    return sum(int(rollup.split("Pss:")[1].split()[0]) * 1024 for rollup in rollups)


@workload(at_most(0.9, THREADS, WORKERS))
def threads_memory():
    """Memory of the main process and its workers while they decode the JPEGs of `threads-jpeg`."""
    dataset, collate = Photographs(), pinfeed.Collate(pinfeed.Image(MEAN, STD))
    loader = DataLoader(dataset, 32, collate_fn=collate, num_workers=2)
    alternatives = (
        (THREADS, partial(from_threads, dataset, 32, collate)),
        (WORKERS, partial(iter, loader)),
    )
    return Job(
        *(ours(name, partial(memory_of, make)) for name, make in alternatives), returns="bytes"
    )
