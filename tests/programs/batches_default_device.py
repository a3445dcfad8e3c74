"""The default device of tensors changes while batches arrive."""

import numpy as np
import torch
from torch.utils.data import DataLoader

import batches  # noqa: F401
import pinfeed
from pinfeed.memory import outputs

outputs._POISON = True  # as with PINFEED_DEBUG=1
for size in (100, 10_000):
    iterator = iter(DataLoader(np.ones((8, size)), 2, num_workers=1, collate_fn=pinfeed.Collate()))
    torch.set_default_device("meta")
    found = [(batch.device.type, float(batch.numpy().sum())) for batch in iterator]
    assert found == [("cpu", 2 * size)] * 4
    torch.set_default_device("cpu")
