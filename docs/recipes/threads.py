"""Loads batches in threads, in the order of a sampler."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pinfeed

# stands for images that a dataset decodes
images = [np.full((32, 32, 3), i, np.uint8) for i in range(64)]
dataset = pinfeed.IndexedDataset(images)
sampler = pinfeed.samplers.ShuffleSampler(dataset, batch_size=16)
collate = pinfeed.Collate(pinfeed.Image(mean=0.5, std=0.25))


def load(indices):
    return collate(dataset.__getitems__(indices))


def batches(threads, ahead=4):
    """Yields an epoch in the sampler's order, prefetched by threads."""
    waiting = deque()
    with ThreadPoolExecutor(threads) as pool:
        for indices in sampler:
            waiting.append(pool.submit(load, indices))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


for batch in batches(threads=2):
    print(batch.shape)  # torch.Size([16, 3, 32, 32])
