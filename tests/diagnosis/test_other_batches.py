"""Changes that alter the batches, such as more workers or a thread, are not recommended."""

import io
import itertools
import os
import random
import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, get_worker_info

import pinfeed
from sleeping import Sleeping, Stream, offered

RNG = np.random.default_rng(0)


def drawing(draw):
    """A dataset whose samples are numbers drawn by a function."""
    return Sleeping(0.001, get=draw)


class PerWorker:
    rng = None

    def __call__(self, index):
        if self.rng is None:
            self.rng = random.Random(getattr(get_worker_info(), "id", 9))
        return self.rng.random()


def windows():
    """Random slices of one array, as in language-model training."""
    return (torch.randint(1000, (3,)) for _ in itertools.count())


def next_tokens(samples):
    tokens = torch.stack([sample["x"] * sample["y"] for sample in samples])
    return {"x": tokens[:, :-1], "y": tokens[:, 1:], "w": torch.ones(1).expand(4)}


class Opened(Sleeping):
    def __init__(self):
        super().__init__(0.001)
        self.file = io.FileIO(os.devnull)


class IntoOneBuffer:
    out = None

    def __call__(self, samples):
        if self.out is None:
            self.out = torch.empty(len(samples), 4)
        return torch.stack([sample["x"] * sample["y"] for sample in samples], out=self.out)


class Unordered(DataLoader):
    """Two workers without batch order, of samples that take 1 to 5 ms."""

    def __init__(self, draw, **options):
        dataset = drawing(lambda index: time.sleep(0.001 * (index % 5)) or draw())
        super().__init__(dataset, 4, num_workers=2, in_order=False)


REPEAT = "because two workers drew the same random numbers"
WHOLE = "because each worker reads the whole stream"
FILES = "because the dataset holds open files, whose position forked workers share"
REUSED = "because later batches overwrite the memory"
LOADERS = {
    "samples": (DataLoader(Sleeping(), 4), None),
    "a generator": (DataLoader(drawing(lambda index: RNG.random()), 4), REPEAT),
    "a method": (DataLoader(drawing(np.random.default_rng(0).normal), 4), REPEAT),
    "a stream": (DataLoader(Stream(), 4), WHOLE),
    "a random stream": (DataLoader(Stream(windows, 0.001), 4), None),
    "a constant stream": (DataLoader(Stream(lambda: itertools.repeat(torch.zeros(3), 1000), 0), 4), None),
    "a sharded stream": (DataLoader(pinfeed.StreamDataset(range(1000), shuffle_buffer=8), 4), None),
    "a generator per worker": (DataLoader(drawing(PerWorker()), 4), None),
    "Python's generator": (DataLoader(drawing(lambda index: random.random()), 4), None),
    "NumPy's generator": (DataLoader(drawing(lambda index: np.random.random()), 4), None),  # noqa: NPY002
    "a generator per sample": (DataLoader(drawing(lambda index: random.Random(index).random()), 4), None),
    "no order": (Unordered(random.random), None),
    "no order, a generator": (Unordered(random.Random().random), REPEAT),
    "views": (DataLoader(Sleeping(0.001), 4, collate_fn=next_tokens), None),
    "one buffer": (DataLoader(Sleeping(0.001), 4, collate_fn=IntoOneBuffer()), REUSED),
    "an open file": (DataLoader(Opened(), 4), FILES),
}  # fmt: skip


@pytest.mark.parametrize("name", LOADERS)
def test_workers_and_a_thread_are_offered_if_batches_stay_equal(name):
    loader, note = LOADERS[name]
    copy, changes = offered(loader, step=0.1)
    notes = [one for one in copy.notes if one.startswith("more workers were not tried, ")]
    assert [one.split(", ", 1)[1][: len(note or "")] for one in notes] == [note] * bool(note)
    assert copy.can_add_workers is (note is None)
    assert (f"{2 * loader.num_workers or 2} workers" in changes) is (note is None)
    thread = "a thread instead of workers" if loader.num_workers else "prefetch during the step"
    assert (thread in changes) is (note is not REUSED)


def test_rarely_equal_random_samples_are_not_repetitions():
    """Eight pairs of tossed coins are all equal once in 256 times."""
    tossed = DataLoader(drawing(lambda index: torch.rand(1) < 0.5), batch_size=1)
    assert sum(offered(tossed)[0].can_add_workers for _ in range(3)) >= 2
