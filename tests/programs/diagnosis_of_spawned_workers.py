"""A diagnosis without a main guard, of a loader with spawned workers."""

import torch
from torch.utils.data import DataLoader

import pinfeed

loader = DataLoader(torch.arange(9), num_workers=1, multiprocessing_context="spawn")
pinfeed.diagnose(loader, seconds=1)
