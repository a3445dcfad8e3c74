"""Batches, streams and torch's shared memory with a small /dev/shm."""

import multiprocessing

import numpy as np
from torch.utils.data import DataLoader

import pinfeed
from pinfeed.memory.outputs import _shared_output

multiprocessing.set_start_method("fork")

dataset = pinfeed.ArrayDataset(np.ones((64, 3, 224, 224), np.float32))
for batch in DataLoader(dataset, 32, num_workers=2, collate_fn=pinfeed.Collate(), timeout=60):
    assert int(batch.sum()) == 32 * 3 * 224 * 224  # 19 MB


def collate(samples):
    return _shared_output((500_000,), "float32")


streams = [pinfeed.StreamDataset(range(3)) for _ in range(300)]
_shared_output((200_000,), "float32")
try:
    next(iter(DataLoader(range(8), 8, collate_fn=collate, num_workers=1)))
except OSError as error:
    print(str(error).splitlines()[-1])
