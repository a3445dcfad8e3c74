"""A diagnosis without a main guard, on a platform that spawns workers."""

import torch
from torch.utils.data import DataLoader

import pinfeed

torch.multiprocessing.set_start_method("spawn", force=True)
print(pinfeed.diagnose(DataLoader(torch.arange(9)), seconds=1))
