"""Builds one dataset of paths in a fresh process: `python -m bench.string_probe`.

Reports as JSON what a path costs, and the memory of the trainer and its forked workers together
(proportional set size: pages that several share count once) before an epoch and after it.

Usage: python -m bench.string_probe WAY COUNT
"""

import itertools
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, default_collate

import pinfeed
from bench.dataset_probe import CHUNK, held_memory
from bench.epoch import IndexDataset

WORKERS = 4
BATCH_SIZE = 1_000


def draw(count: int) -> Iterator[str]:
    """Yield paths such as those of ImageNet."""
    for i in range(count):
        yield f"/data/imagenet/train/n{i % 1000 * 7919:08d}/n{i % 1000 * 7919:08d}_{i}.JPEG"


def build(key: str, count: int) -> Any:
    """Return a dataset of that many paths."""
    if key == "pinfeed":
        return pinfeed.ArrayDataset(pinfeed.RaggedArray.from_strings(draw(count)))
    if key == "list":
        return list(draw(count))
    if key == "objects":
        return np.fromiter(draw(count), object, count)
    return IndexDataset(count)


class Lengths:
    """A collate function that sends back how many characters a batch has, so that all are read."""

    def __init__(self, key: str) -> None:
        self.collate = pinfeed.Collate() if key == "pinfeed" else default_collate

    def __call__(self, samples: Any) -> int:
        batch = self.collate(samples)
        return sum(map(len, batch)) if isinstance(batch, list) else 0


class Batches:
    """The first batches of a shuffled epoch.

    Attributes:
        count: How many; None: all of them.
    """

    def __init__(self, samples: int) -> None:
        self.sampler = pinfeed.ShuffleSampler(samples, BATCH_SIZE)
        self.count: int | None = WORKERS

    def __iter__(self) -> Iterator[Any]:
        return (batch.tolist() for batch in itertools.islice(self.sampler, self.count))


def shared_memory() -> int:
    """Return the proportional set size of this process and its children, in bytes (Linux)."""
    processes = [os.getpid(), *(child.pid for child in multiprocessing.active_children())]
    rollups = [Path(f"/proc/{process}/smaps_rollup").read_text() for process in processes]
    lines = [line for text in rollups for line in text.splitlines() if line.startswith("Pss:")]
    return sum(int(line.split()[1]) for line in lines) * 1024


def main(key: str, count: str) -> None:
    torch.set_num_threads(1)
    build(key, CHUNK)  # whatever is loaded or allocated at first use is no part of a dataset
    before = held_memory()
    dataset = build(key, int(count))
    size = held_memory() - before
    batches = Batches(int(count))
    loader = DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=WORKERS,
        collate_fn=Lengths(key),
        multiprocessing_context="fork",
        persistent_workers=True,
    )
    sum(loader)  # starts the workers
    started = shared_memory()
    batches.count = None
    characters = sum(loader)
    if key != "indices" and characters != sum(map(len, draw(int(count)))):
        raise RuntimeError(f"{key}: an epoch has {characters} characters, which is wrong")
    report = {"size": size / int(count), "before": started, "after": shared_memory()}
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
