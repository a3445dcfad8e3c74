"""The main process holds many batches."""

import numpy as np
from torch.utils.data import DataLoader

import pinfeed
from batches import in_worker_memory, nothing_is_left

dataset = pinfeed.ArrayDataset(np.arange(1200).repeat(3000).reshape(1200, 3000))
held_batches = list(DataLoader(dataset, 1, num_workers=2, collate_fn=pinfeed.Collate(), timeout=60))
assert [batch[0, -1].item() for batch in held_batches] == list(range(1200))
assert in_worker_memory(held_batches[-1])
assert pinfeed.testing.worker_memory_stats()["live_slots"] == 1200
del held_batches
nothing_is_left()
