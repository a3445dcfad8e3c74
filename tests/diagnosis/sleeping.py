"""Datasets whose samples take their time, and short diagnoses of their loaders."""

import json
import random
import time

import numpy as np
import torch
from torch.utils.data import (
    IterableDataset,
)

import pinfeed
from pinfeed.diagnosis.changes import find_changes, more_workers
from pinfeed.diagnosis.limit import Cpus, Measured
from pinfeed.diagnosis.runs import LoaderCopy, Settings


class Sleeping:
    """Samples that take 5 ms, or some much longer."""

    def __init__(self, seconds=0.005, length=64, slow=-1):
        self.seconds, self.length, self.slow = seconds, length, slow

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        time.sleep(100 * self.seconds if index == self.slow else self.seconds)
        return {"x": torch.ones(4), "y": index}


class Changing(Sleeping):
    """It counts the samples that it gave, and draws from generators."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.given = 0
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index):
        self.given += 1
        self.rng.random()
        random.random()
        np.random.random()  # noqa: NPY002
        torch.rand(1)
        return super().__getitem__(index)


class Indexed:
    """Samples that one index gets, and a list of them at once."""

    def __init__(self):
        self.x = torch.arange(64.0)

    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.002)
        return self.x[index] + 1, torch.as_tensor(index) % 2


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self):
        for i in range(1000):
            time.sleep(0.005)
            yield torch.tensor(i)


def short(loader, step=None, seconds=0.5):
    report = pinfeed.diagnose(loader, step, seconds)
    assert str(report)
    json.dumps(report.to_dict())
    return report


def changes_of(loader, limit="dataset", step=None):
    """The changes that would be tried, the workers among them, if that were the limit."""
    copy = LoaderCopy(loader)
    loop, one = copy.run(copy.settings, 0.01), copy.run(Settings(1), 0.01)
    copy.compare_workers()
    measured = Measured(Cpus(4, 4, None, 1), loop, {1: one}, step=step)
    measured.limit = lambda: limit
    if step is not None:
        loop.batches[-1].done += step * len(loop.steady)
    counts = []
    more_workers(measured, copy, counts.append, loop.period)
    return [*find_changes(measured, copy), *counts]
