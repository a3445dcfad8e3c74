"""Builds one dataset of sequences in a fresh process: `python -m bench.dataset_probe`.

Reports as JSON what the dataset costs beyond its data, and how much a forked worker's own memory
grows while it goes through all of it.

Usage: python -m bench.dataset_probe WAY COUNT BATCH_SIZE
"""

import ctypes
import gc
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

import pinfeed
from bench.epoch import IndexDataset
from bench.sequences import tensor_lengths

LONGEST = 16
CHUNK = 10_000  # sequences that exist beside the dataset while it is built
WORKERS = 2


def own_memory() -> int:
    """Return the bytes of memory that this process alone has written to (Linux)."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/smaps_rollup has no Private_Dirty")


def held_memory() -> int:
    """The same without what Python and glibc keep of memory that has been freed."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return own_memory()


def draw_lengths(count: int) -> np.ndarray:
    """Return the lengths of the sequences."""
    return np.random.default_rng(0).integers(1, LONGEST + 1, count, dtype=np.int8)


def draw(count: int) -> Iterator[np.ndarray]:
    """Yield random int32 sequences, as views."""
    random = np.random.default_rng(1)
    for lengths in np.split(draw_lengths(count), range(CHUNK, count, CHUNK)):
        ends = np.cumsum(lengths, dtype=np.int64)
        values = random.integers(0, 50_000, ends[-1], dtype=np.int32)
        yield from np.split(values, ends[:-1].tolist())


def build(key: str, count: int) -> Any:
    """Return a dataset of that many sequences."""
    if key == "pinfeed":
        return pinfeed.ArrayDataset(pinfeed.RaggedArray.from_sequences(draw(count)))
    if key == "tensors":
        return [torch.tensor(sequence) for sequence in draw(count)]
    if key == "ndarrays":
        return [sequence.copy() for sequence in draw(count)]
    return IndexDataset(count)


def collate(key: str) -> Callable[[Any], Any]:
    """Return what pads a batch of it."""
    if key == "pinfeed":
        return pinfeed.Collate(pinfeed.Pad())
    if key == "indices":
        return lambda indices: indices
    as_tensor = torch.from_numpy if key == "ndarrays" else torch.as_tensor

    def stock(samples):
        rows = [as_tensor(sample) for sample in samples]
        return pad_sequence(rows, batch_first=True), tensor_lengths(rows)

    return stock


class Watched:
    """A collate function that says with each batch how much the worker has grown by then."""

    def __init__(self, collate_fn: Callable[[Any], Any]) -> None:
        self.collate_fn = collate_fn
        self.before = 0

    def start(self, worker: int) -> None:
        """Begin to count, in a worker that has just been forked."""
        self.before = own_memory()

    def __call__(self, samples: Any) -> tuple[Any, int]:
        batch = self.collate_fn(samples)
        return batch, own_memory() - self.before


def growth(dataset: Any, key: str, batch_size: int) -> int:
    """Return the most that a worker has grown after any batch of an epoch, in bytes."""
    watched = Watched(collate(key))
    loader = DataLoader(
        dataset,
        batch_size,
        shuffle=True,
        num_workers=WORKERS,
        collate_fn=watched,
        worker_init_fn=watched.start,
        multiprocessing_context="fork",
    )
    return max(grown for _, grown in loader)


def main(key: str, count: str, batch_size: str) -> None:
    torch.set_num_threads(1)
    build(key, 2 * CHUNK)  # whatever is loaded or allocated at first use is no part of a dataset
    before = held_memory()
    dataset = build(key, int(count))
    size = held_memory() - before
    data = 0 if key == "indices" else int(draw_lengths(int(count)).sum()) * np.int32().itemsize
    report = {
        "beyond": (size - data) / int(count),
        "growth": growth(dataset, key, int(batch_size)),
    }
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
