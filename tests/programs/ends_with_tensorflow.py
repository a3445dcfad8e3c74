"""A process that exits while TensorFlow has iterators; argv: held, failed or slow."""

import gc
import sys
import time

import torch
from torch.utils.data import DataLoader

import pinfeed


def batches():
    yield torch.zeros(2)
    while sys.argv[1] != "failed":
        time.sleep(0.02 * (sys.argv[1] == "slow"))
        yield torch.zeros(2)
    raise OSError("the disk went away")


gc.disable()
iterators = []
for loader in (batches(), DataLoader(range(1000), num_workers=1)):
    dataset = pinfeed.to_tensorflow(loader)
    for ahead in (dataset, dataset.prefetch(1000)):
        iterators.append(iter(ahead))
        try:
            for _ in range(2):
                next(iterators[-1])
        except Exception as error:
            assert sys.argv[1] == "failed" or "exhausted" in str(error), error
