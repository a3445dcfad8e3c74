"""Memory is too small for an erased batch; argv: the value."""

import resource
import sys

import numpy as np
import torch

import pinfeed

is_random = sys.argv[1] == "random"
erase = pinfeed.augment.RandomErasing(
    1, scale=(0.2, 0.2), ratio=(1e-8, 1.1e-7), value="random" if is_random else 1
)
dtype = torch.float32 if is_random else torch.uint8
collate = pinfeed.Collate(pinfeed.Image(augment=erase, dtype=dtype))
image = np.zeros((4, 30_000_000, 1), np.uint8)
collate([image])  # later batches reuse its memory
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 8 * 2**20, -1))
try:
    collate([image])
except MemoryError:
    print("an error")
