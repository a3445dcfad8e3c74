"""Batches, streams and shared storages with a small /dev/shm."""

import multiprocessing

import numpy as np
from torch.utils.data import DataLoader

import pinfeed
from pinfeed.memory.outputs import new_shared_storage

multiprocessing.set_start_method("fork")

dataset = pinfeed.ArrayDataset(np.ones((64, 3, 224, 224), np.float32))
for batch in DataLoader(dataset, 32, num_workers=2, collate_fn=pinfeed.Collate(), timeout=60):
    assert int(batch.sum()) == 32 * 3 * 224 * 224  # 19 MB

streams = []
try:
    while True:
        streams.append(pinfeed.StreamDataset(range(3)))
except OSError as error:
    print(error)
del streams


def collate(samples):
    return new_shared_storage(2_000_000, "Collate")


new_shared_storage(900_000, "Collate")
try:
    next(iter(DataLoader(range(8), 8, collate_fn=collate, num_workers=1)))
except OSError as error:
    print(str(error).splitlines()[-1])
