"""Collate pins batches once the device is in use; its own choice starts no device."""

import numpy as np
import torch

import pinfeed

ARRAYS = [np.zeros(1000)] * 100
assert not pinfeed.Collate()(ARRAYS).is_pinned()
assert not torch.cuda.is_initialized()
assert pinfeed.Collate(pin_memory=True)(ARRAYS).is_pinned()
torch.zeros(1, device="cuda")
assert pinfeed.Collate()(ARRAYS).is_pinned()
