"""A container refuses memfd_create."""

import numpy as np
from torch.utils.data import DataLoader

import pinfeed
from batches import in_worker_memory
from refused import MEMFD_CREATE, refuse

refuse(MEMFD_CREATE)
loader = DataLoader(
    np.arange(80_000).reshape(8, 10_000), 2, num_workers=2, timeout=60, collate_fn=pinfeed.Collate()
)
for i, batch in enumerate(loader):
    assert batch.is_shared()
    assert not in_worker_memory(batch)
    assert batch[:, 0].tolist() == [20_000 * i, 20_000 * i + 10_000]
