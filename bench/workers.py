"""Batches from two worker processes, and from threads that build them at the same time."""

import os
import random
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader

import pinfeed
from bench import peers
from bench.data import MEAN, STD, difference, epochs, held_bytes
from bench.harness import compare, other, ours, workload
from bench.targets import DISTURBED, ELSEWHERE, at_least, at_most

SIZE = 224
PER_SAMPLE = "DataLoader, torch per sample"


class Repeated:
    """Tensors that are ready in memory: a worker only stacks them."""

    def __init__(self, tensors, times):
        self.tensors, self.times = tensors, times

    def __len__(self):
        return self.times * len(self.tensors)

    def __getitem__(self, index):
        return self.tensors[index % len(self.tensors)]


class Photographs:
    """Photographs from scikit-learn, decoded and cropped anew for each sample."""

    def __init__(self, is_normalized=False):
        import sklearn.datasets

        self.files = sorted((Path(sklearn.datasets.__file__).parent / "images").glob("*.jpg"))
        self.is_normalized = is_normalized

    def __len__(self):
        return 16 * 32

    def __getitem__(self, index):
        from PIL import Image

        image, position = Image.open(self.files[index % len(self.files)]), random.Random(index)
        left = position.randrange(image.width - SIZE)
        top = position.randrange(image.height - SIZE)
        window = image.convert("RGB").crop((left, top, left + SIZE, top + SIZE))
        if not self.is_normalized:
            return np.asarray(window)
        (mean,), (std,) = peers.constants()
        return torch.from_numpy(np.array(window)).permute(2, 0, 1).float().sub_(mean).div_(std)


def last(batches):
    """Returns the last batch of an epoch, while the others die."""
    for batch in batches:  # noqa: B007
        pass
    return batch


def in_turns(alternatives, size, tolerance=0.0):
    """Epochs of persistent workers: (name, dataset, collate function, number of workers)."""
    runs = []
    for name, dataset, collate, workers in alternatives:
        kind = ours if isinstance(collate, pinfeed.Collate) else other
        run, units = epochs(dataset, size, collate, workers), -(-len(dataset) // size)
        runs.append(kind(f"{name}, {workers} workers", run, units=units, tolerance=tolerance))
    expected = last(runs[0].run()).clone()
    return compare(*runs, expected=lambda batches: difference(last(batches), expected))


@workload(
    at_least(6, "`default_collate`, 2 workers", why=(3.5, ELSEWHERE)),
    at_most(1, "`Collate()`, 2 workers", unit="ms of CPU"),
    at_most(1, "`Collate()`, 2 workers", unit="page faults"),
)
def workers_images():
    """A batch of 154 MB from two workers that only stack it."""
    generator = torch.Generator().manual_seed(0)
    dataset = Repeated(torch.randn(256, 3, SIZE, SIZE, generator=generator), 6)
    collates = ("`Collate()`", pinfeed.Collate()), ("`default_collate`", None)
    alternatives = [(name, dataset, collate, n) for name, collate in collates for n in (2, 0)]
    return in_turns(alternatives, 256)


@workload(
    at_least(1.15, PER_SAMPLE),
    at_most(0.85, "`Collate(Image())`, 2 workers", PER_SAMPLE, quantity="cpu"),
)
def workers_jpeg():
    """32 random crops of 224×224 of JPEGs, decoded with Pillow in two workers, normalized."""
    collate = pinfeed.Collate(pinfeed.Image(MEAN, STD))
    alternatives = [("`Collate(Image())`", Photographs(), collate, n) for n in (2, 0)]
    alternatives.append((PER_SAMPLE, Photographs(is_normalized=True), None, 2))
    return in_turns(alternatives, 32, tolerance=1e-5)


@workload(at_least(1, "`default_collate`"))
def workers_small():
    """A batch of 64 KB from two workers that only stack it."""
    dataset = Repeated(torch.arange(64 * 128).reshape(64, 128), 300)
    collates = ("`Collate()`", pinfeed.Collate()), ("`default_collate`", None)
    return in_turns([(name, dataset, collate, 2) for name, collate in collates], 64)


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

    return compare(
        ours(ONE, partial(run, pool_of(1), 1), units=count),
        ours(TWO, partial(run, pool_of(2), 2), units=count),
        expected=rows[indices],
    )


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
    """Compares epochs by threads, by workers, and by neither."""
    alone, units = epochs(dataset, size, collate), len(dataset) // size
    expected = last(alone())
    return compare(
        ours(THREADS, partial(from_threads, dataset, size, collate), units=units),
        ours(WORKERS, epochs(dataset, size, collate, workers=2), units=units),
        ours("neither", alone, units=units),
        expected=lambda batches: difference(last(batches), expected),
    )


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
    return held_bytes()


@workload(at_most(0.9, THREADS, WORKERS))
def threads_memory():
    """Memory of the main process and its workers while they decode the JPEGs of `threads-jpeg`."""
    dataset, collate = Photographs(), pinfeed.Collate(pinfeed.Image(MEAN, STD))
    by_threads = partial(from_threads, dataset, 32, collate)
    # Its workers end with the epoch, or they would count as memory of the threads.
    by_workers = partial(iter, DataLoader(dataset, 32, collate_fn=collate, num_workers=2))
    return compare(
        ours(THREADS, partial(memory_of, by_threads)),
        ours(WORKERS, partial(memory_of, by_workers)),
        returns="bytes",
    )
