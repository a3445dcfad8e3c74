"""Threads of one process that make batches at the same time."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

import pinfeed
from bench.harness import Job, at_least, at_most, ours, workload

ONE, TWO = "`gather`, one thread", "`gather`, two threads"


def pool_of(threads):
    """Threads with a CPU each, or the system may leave two of them on one."""
    cpus = sorted(os.sched_getaffinity(0))[:threads]
    return ThreadPoolExecutor(threads, initializer=lambda: os.sched_setaffinity(0, {cpus.pop()}))


def gathered(width, count):
    """So many batches of 256 rows of float32, made by one thread, or by two of which each makes half.

    They are ndarrays, since torch lets go of the GIL where a tensor dies.
    """
    generator = np.random.default_rng(0)
    rows, indices = generator.random((1024, width), np.float32), generator.integers(0, 1024, 256)

    def calls(times):
        for _ in range(times):
            batch = pinfeed.gather(rows, indices)
        return batch

    def run(pool, threads):
        return list(pool.map(calls, [count // threads] * threads))[-1]

    ways = [
        ours(name, partial(run, pool_of(threads), threads), units=count)
        for threads, name in ((1, ONE), (2, TWO))
    ]
    return Job(*ways, expected=rows[indices])


@workload(at_most(1.2, TWO, ONE))
def threads_small():
    """Batches of 64 KiB, by threads that would lose if they handed the GIL to and fro."""
    return gathered(64, 2000)


@workload(at_least(1.5, ONE, TWO))
def threads_large():
    """Batches of 4 MiB, by threads."""
    return gathered(4096, 50)
