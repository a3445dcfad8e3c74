"""A worker has a worker."""

import multiprocessing

import numpy as np
import torch

# Pickling tensors imports this. If the thread that pickles the first batch imported it first, a worker forked
# meanwhile would have half of it.
import torch.nested._internal.nested_tensor
from torch.utils.data import DataLoader

import batches  # noqa: F401
import pinfeed


def outer(samples):
    multiprocessing.current_process()._config["daemon"] = False
    loader = DataLoader(
        [np.full(5000, i) for i in samples], 1, num_workers=1, collate_fn=inner, timeout=60
    )
    return torch.cat(list(loader))


inner = pinfeed.Collate()
assert inner([1, 2]).tolist() == [1, 2]
for i, batch in enumerate(DataLoader(range(4), 2, num_workers=1, collate_fn=outer, timeout=60)):
    assert batch[:, -1].tolist() == [2 * i, 2 * i + 1]
