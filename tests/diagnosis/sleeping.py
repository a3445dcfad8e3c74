"""Datasets with slow samples, and short diagnoses of their loaders."""

import json
import time

import torch
from torch.utils.data import IterableDataset

import pinfeed
from pinfeed.diagnosis.changes import find_changes, more_workers
from pinfeed.diagnosis.limit import Measured
from pinfeed.diagnosis.runs import LoaderCopy, Settings


class Sleeping:
    """Samples that take 5 ms, some of them much longer; `get` is called with each index."""

    def __init__(self, seconds=0.005, length=64, slow=-1, get=None):
        self.seconds, self.length, self.slow, self.get = seconds, length, slow, get

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        time.sleep(100 * self.seconds if index == self.slow else self.seconds)
        return {"x": torch.ones(4), "y": index} if self.get is None else self.get(index)


class Stream(IterableDataset[torch.Tensor]):
    """Yields the items of `make`, or 1000 numbers; each takes 5 ms."""

    def __init__(self, make=lambda: map(torch.tensor, range(1000)), seconds=0.005):
        self.make, self.seconds = make, seconds

    def __iter__(self):
        for sample in self.make():
            time.sleep(self.seconds)
            yield sample


def short(loader, step=None, seconds=0.5):
    report = pinfeed.diagnose(loader, step, seconds)
    assert str(report)
    json.dumps(report.to_dict())
    return report


def note_of(notes, *words):
    """Returns the only note that contains all the words."""
    (note,) = [note for note in notes if all(word in note for word in words)]
    return note


def offered(loader, limit="dataset", step=0.0, workers=True):
    """Returns a copy of a loader, and the changes that a diagnosis with this limit would try."""
    copy, counts = LoaderCopy(loader), []
    loop = copy.run(copy.settings, 0.01)
    loop.batches[-1].end += step * len(loop.steady)
    measured = Measured(4, loop, step)
    measured.limit = lambda: limit
    if workers:
        copy.compare_workers(loop.bytes)
        measured.single = copy.run(Settings(1), 0.01)
        more_workers(measured, copy, counts.append, loop.period)
    return copy, {change.name: change for change in [*find_changes(measured, copy), *counts]}
