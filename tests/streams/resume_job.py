"""A training job that saves after every batch, and goes on where it was: ``python resume_job.py``."""

from __future__ import annotations

import os
import pickle
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import RandomSampler

import pinfeed
from pinfeed import ArrayDataset, Collate, LengthBucketSampler, RaggedArray, StreamDataset

EPOCHS, SAMPLES, BATCH = 2, 90, 4

SetEpoch = Callable[[int], None]


def array_loader(workers: int) -> tuple[Any, SetEpoch]:
    rows = np.arange(SAMPLES * 6.0).reshape(SAMPLES, 6)
    dataset = ArrayDataset({"x": rows, "i": np.arange(SAMPLES)})
    # A generator that the loader shares would be elsewhere in the epoch after: without workers,
    # torchdata 0.11 doesn't draw the workers' seed from it again.
    sampler = RandomSampler(dataset, generator=torch.Generator().manual_seed(7))
    options = {"sampler": sampler, "num_workers": workers}
    return StatefulDataLoader(dataset, BATCH, collate_fn=Collate(), **options), ignore


def ignore(epoch: int) -> None:
    pass


def bucket_loader(workers: int) -> tuple[Any, SetEpoch]:
    texts = RaggedArray.from_sequences([list(range(i, i + i % 17)) for i in range(SAMPLES)])
    sampler = LengthBucketSampler(texts, max_tokens=60, bucket_batches=3)
    loader = StatefulDataLoader(
        ArrayDataset(texts),
        batch_sampler=sampler,
        collate_fn=Collate(pinfeed.Pad()),
        num_workers=workers,
    )
    return loader, sampler.set_epoch


def read_shard(number: int) -> list[dict[str, Any]]:
    return [{"i": 9 * number + i, "x": np.full(3, i)} for i in range(9)]


def stream_loader(workers: int) -> tuple[Any, SetEpoch]:
    dataset = StreamDataset(list(range(SAMPLES // 9)), 16, open_shard=read_shard)
    loader = StatefulDataLoader(dataset, BATCH, collate_fn=Collate(), num_workers=workers)
    return loader, dataset.set_epoch


LOADERS = {"array": array_loader, "bucket": bucket_loader, "stream": stream_loader}


def train(
    kind: str, workers: int, ahead: bool, path: Path, killed_after: int | None = None
) -> list[Any]:
    """Runs the job to its end; returns all batches, those of processes before this one included.

    With ``killed_after`` it ends soon after that many batches, at any instruction.
    """
    loader, set_epoch = LOADERS[kind](workers)
    if ahead:
        loader = pinfeed.DeviceLoader(loader, "cpu", depth=3)
    epoch, batches = 0, []
    if path.exists():
        saved = pickle.loads(path.read_bytes())
        epoch, batches = saved["epoch"], saved["batches"]
        loader.load_state_dict(saved["loader"])
    for number in range(epoch, EPOCHS):
        set_epoch(number)
        for batch in loader:
            batches.append((number, plain(batch)))
            save(path, {"epoch": number, "batches": batches, "loader": loader.state_dict()})
            if len(batches) == killed_after:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 0.004))
            if killed_after is not None:
                time.sleep(0.002)
    return batches


def save(path: Path, content: Any) -> None:
    """Complete or not at all, whenever the process is killed."""
    draft = path.with_suffix(".draft")
    draft.write_bytes(pickle.dumps(content))
    os.replace(draft, path)


def plain(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    if isinstance(batch, dict):
        return {key: plain(value) for key, value in batch.items()}
    return batch and [plain(part) for part in batch]  # a Padded without a mask has None


if __name__ == "__main__":
    kind, workers, path, *killed_after = sys.argv[1:]
    train(kind, int(workers), True, Path(path), *map(int, killed_after))
