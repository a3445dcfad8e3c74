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
from sleeping import Sleeping, Stream, changes_of, compared, short

RNG = np.random.default_rng(0)


def drawing(draw):
    """A dataset whose samples are numbers drawn by a function."""
    return Sleeping(0.002, get=draw)


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
        super().__init__(0.002)
        self.file = io.FileIO(os.devnull)


class IntoOneBuffer:
    out = None

    def __call__(self, samples):
        if self.out is None:
            self.out = torch.empty(len(samples), 4)
        return torch.stack([sample["x"] * sample["y"] for sample in samples], out=self.out)


class Unordered(DataLoader):
    def __init__(self, dataset, batch_size, **options):
        super().__init__(dataset, batch_size, num_workers=2, in_order=False, **options)


def late(draw):
    return drawing(lambda index: time.sleep(0.001 * (index % 5)) or draw())


REPEAT = "because two workers drew the same random numbers"
WHOLE = "because each worker reads the whole stream"
FILES = "because the dataset holds open files, whose position forked workers share"
REUSED = "because later batches overwrite the memory"


@pytest.mark.parametrize(
    ("dataset", "collate", "note"),
    [
        (Sleeping(), None, None),
        (drawing(lambda index: RNG.random()), None, REPEAT),
        (drawing(np.random.default_rng(0).normal), None, REPEAT),
        (Stream(), None, WHOLE),
        (Stream(windows, 0.002), None, None),
        (Stream(lambda: itertools.repeat(torch.zeros(3), 1000), 0), None, None),
        (drawing(PerWorker()), None, None),
        (drawing(lambda index: random.random()), None, None),
        (drawing(lambda index: np.random.random()), None, None),  # noqa: NPY002
        (drawing(lambda index: random.Random(index).random()), None, None),
        (pinfeed.StreamDataset(range(1000), shuffle_buffer=8), None, None),
        (Sleeping(0.002), next_tokens, None),
        (Sleeping(0.002), IntoOneBuffer(), REUSED),
        (Opened(), None, FILES),
    ],
)
def test_workers_and_a_thread_are_offered_if_batches_stay_equal(dataset, collate, note):
    loader = DataLoader(dataset, 4, collate_fn=collate)
    copy = compared(loader)
    notes = [one for one in copy.notes if one.startswith("more workers were not tried, ")]
    assert [one.split(", ", 1)[1][: len(note or "")] for one in notes] == [note] * bool(note)
    assert copy.can_add_workers is (note is None)
    names = [change.name for change in changes_of(loader, step=0.005)]
    assert ("2 workers" in names) is (note is None)
    assert ("prefetch during the step" in names) is (note is not REUSED)


@pytest.mark.parametrize(
    ("draw", "repeats"), [(random.Random().random, True), (random.random, False)]
)
def test_workers_without_batch_order_are_compared_in_turns(draw, repeats):
    assert compared(Unordered(late(draw), 2)).can_add_workers is not repeats


def test_rarely_equal_random_samples_are_not_repetitions():
    """Eight pairs of tossed coins are all equal once in 256 times."""
    tossed = DataLoader(drawing(lambda index: torch.rand(1) < 0.5), batch_size=1)
    assert sum(compared(tossed).can_add_workers for _ in range(5)) >= 4


def test_reports_say_why_workers_were_not_tried():
    report = short(DataLoader(drawing(lambda index: RNG.random()), batch_size=4))
    assert f"Note: more workers were not tried, {REPEAT}" in str(report)
