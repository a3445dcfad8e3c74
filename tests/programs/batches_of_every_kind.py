"""Batches of every kind open no file, and leave nothing behind."""

import os

import numpy as np
import torch
from torch.utils.data import DataLoader

import pinfeed
from batches import nothing_is_left

kinds = {
    "arrays": [np.full(3, i) for i in range(400)],
    "large arrays": [np.full(3000, i) for i in range(400)],
    "integers": range(400),
    "fractions": [i / 2 for i in range(400)],
    "numbers of NumPy": [np.float32(i) for i in range(400)],
    "0-d tensors": [torch.tensor(i) for i in range(400)],
    "kept tensors": [torch.full((3,), i) for i in range(400)],
    "large kept tensors": [torch.full((3000,), i) for i in range(400)],
    "kept tensors and strings": [(str(i), {"x": torch.tensor([i])}) for i in range(400)],
    "strings": [str(i) for i in range(400)],
}
specs = {
    "kept tensors": pinfeed.Keep(),
    "large kept tensors": pinfeed.Keep(),
    "kept tensors and strings": (None, {"x": pinfeed.Keep()}),
}

for kind, samples in kinds.items():
    before = len(os.listdir("/proc/self/fd"))
    options = {"batch_size": 2, "collate_fn": pinfeed.Collate(specs.get(kind))}
    held_batches = list(DataLoader(list(samples), num_workers=1, timeout=60, **options))
    opened = len(os.listdir("/proc/self/fd")) - before
    assert opened <= 8, (kind, opened)
    assert str(held_batches) == str(list(DataLoader(list(samples), **options))), kind
    live = pinfeed.testing.worker_memory_stats()["live_slots"]
    assert live == {"large arrays": 200, "large kept tensors": 400}.get(kind, 0), (kind, live)
    del held_batches
    nothing_is_left()
