"""The system refuses memory."""

import numpy as np
from torch.utils.data import DataLoader

import batches  # noqa: F401
import pinfeed
from pinfeed.memory import worker
from refused import FALLOCATE, refuse

refuse(FALLOCATE)
worker.PATIENCE = 0.2
dataset = pinfeed.ArrayDataset(np.ones((8, 2**20), np.uint8))
try:
    list(DataLoader(dataset, 2, num_workers=1, collate_fn=pinfeed.Collate(), timeout=60))
except MemoryError as error:
    print("the system refused more: [Errno 1] Operation not permitted" in str(error))
