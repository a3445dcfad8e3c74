"""DataLoader with two worker processes: the cost of a batch from them."""

import random
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader

import pinfeed
from bench import peers
from bench.data import MEAN, STD
from bench.harness import Job, at_least, at_most, difference, other, ours, workload

SIZE = 224
PER_SAMPLE = "DataLoader, torch per sample"


class Repeated:
    """Tensors that are ready in memory: a worker only stacks them."""

    def __init__(self, tensors, times):
        self.tensors, self.times = tensors, times

    def __len__(self):
        return self.times * len(self.tensors)

    def __getitem__(self, index):
        return self.tensors[index % len(self.tensors)]


class Photographs:
    """Photographs from scikit-learn, decoded and cropped anew for each sample."""

    def __init__(self, is_normalized=False):
        import sklearn.datasets

        self.files = sorted((Path(sklearn.datasets.__file__).parent / "images").glob("*.jpg"))
        self.is_normalized = is_normalized

    def __len__(self):
        return 16 * 32

    def __getitem__(self, index):
        from PIL import Image

        image, position = Image.open(self.files[index % len(self.files)]), random.Random(index)
        left = position.randrange(image.width - SIZE)
        top = position.randrange(image.height - SIZE)
        window = image.convert("RGB").crop((left, top, left + SIZE, top + SIZE))
        if not self.is_normalized:
            return np.asarray(window)
        (mean,), (std,) = peers.constants()
        return torch.from_numpy(np.array(window)).permute(2, 0, 1).float().sub_(mean).div_(std)


def last(batches):
    """Returns the last batch of an epoch, while the others die."""
    for batch in batches:  # noqa: B007
        pass
    return batch


def in_turns(alternatives, size, tolerance=0.0):
    """Epochs of persistent workers: (name, dataset, collate function, number of workers)."""
    runs = []
    for name, dataset, collate, workers in alternatives:
        options = {"num_workers": workers, "persistent_workers": True} if workers else {}
        loader = DataLoader(dataset, size, collate_fn=collate, **options)
        kind = ours if isinstance(collate, pinfeed.Collate) else other
        run = partial(iter, loader)
        runs.append(kind(f"{name}, {workers} workers", run, units=len(loader), tolerance=tolerance))
    expected = last(runs[0].run()).clone()
    return Job(*runs, expected=lambda batches: difference(last(batches), expected))


@workload(
    at_least(6, "`default_collate`, 2 workers", why=(3.5, "not known; met on an AMD EPYC")),
    at_most(1, "`Collate()`, 2 workers", unit="ms of CPU"),
    at_most(1, "`Collate()`, 2 workers", unit="page faults"),
)
def workers_images():
    """A batch of 154 MB from two workers that only stack it."""
    generator = torch.Generator().manual_seed(0)
    dataset = Repeated(torch.randn(256, 3, SIZE, SIZE, generator=generator), 6)
    collates = ("`Collate()`", pinfeed.Collate()), ("`default_collate`", None)
    alternatives = [(name, dataset, collate, n) for name, collate in collates for n in (2, 0)]
    return in_turns(alternatives, 256)


@workload(
    at_least(1.15, PER_SAMPLE),
    at_most(0.85, "`Collate(Image())`, 2 workers", PER_SAMPLE, quantity="cpu"),
)
def workers_jpeg():
    """32 random crops of 224×224 of JPEGs, decoded with Pillow in two workers, normalized."""
    collate = pinfeed.Collate(pinfeed.Image(MEAN, STD))
    alternatives = [("`Collate(Image())`", Photographs(), collate, n) for n in (2, 0)]
    alternatives.append((PER_SAMPLE, Photographs(is_normalized=True), None, 2))
    return in_turns(alternatives, 32, tolerance=1e-5)


@workload(at_least(1, "`default_collate`"))
def workers_small():
    """A batch of 64 KB from two workers that only stack it."""
    dataset = Repeated(torch.arange(64 * 128).reshape(64, 128), 300)
    collates = ("`Collate()`", pinfeed.Collate()), ("`default_collate`", None)
    return in_turns([(name, dataset, collate, 2) for name, collate in collates], 64)
