"""An epoch as one writes it in torch when DataLoader's own collation is the cost."""

import torch

from bench.epoch import Epoch, IndexDataset
from bench.harness import Way


def _same(batch):
    return batch


def ways(epoch: Epoch) -> list[Way]:
    """Whole batches out of tensors: through DataLoader, and without it."""
    images, labels = epoch.tensors

    class BatchDataset(IndexDataset):
        def __getitems__(self, indices):
            chosen = torch.tensor(indices)
            return epoch.normalize(images[chosen]), labels[chosen]

    def slicing():
        order = torch.randperm(epoch.count)
        for start in range(0, epoch.count, epoch.batch_size):
            chosen = order[start : start + epoch.batch_size]
            yield epoch.normalize(images[chosen]), labels[chosen]

    def getitems():
        loader = epoch.loader(BatchDataset(epoch.count), _same)
        return lambda: iter(loader)

    return [
        Way("DataLoader, `__getitems__` + torch", getitems, tolerance=2e-6),
        Way("no DataLoader: slices + torch", lambda: slicing, tolerance=2e-6),
    ]
