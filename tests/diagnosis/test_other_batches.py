"""Changes that alter the batches, such as more workers or a thread, are not recommended."""

import itertools
import random
import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, default_collate, get_worker_info

import pinfeed
from pinfeed.diagnosis.runs import LoaderCopy
from sleeping import Sleeping, Stream, changes_of, short

RNG = np.random.default_rng(0)


def drawing(draw):
    """A dataset whose samples are numbers drawn by a function."""
    return Sleeping(0.002, get=draw)


def closure():
    rng = random.Random()
    return lambda index: rng.random()


class OfTheClass:
    rng = random.Random()

    def __call__(self, index):
        return self.rng.random()


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rng = torch.Generator()

    def forward(self, index):
        return torch.rand(1, generator=self.rng)


class PerWorker:
    rng = None

    def __call__(self, index):
        if self.rng is None:
            self.rng = random.Random(getattr(get_worker_info(), "id", 9))
        return self.rng.random()


def adds_noise(samples):
    return default_collate(samples), torch.from_numpy(RNG.normal(size=4))


class Own(Stream):
    def __init__(self):
        super().__init__(self.draw, 0.002)
        self.rng = random.Random(0)

    def draw(self):
        return (self.rng.random() + i for i in range(1000))


def windows():
    """Random slices of one array, as in language-model training."""
    return (torch.randint(1000, (3,)) for _ in itertools.count())


def constant():
    return itertools.repeat(torch.zeros(3), 1000)


REPEAT = "two workers drew the same random numbers"
WHOLE = "each worker reads the whole stream"


@pytest.mark.parametrize(
    ("dataset", "collate", "note"),
    [
        (drawing(lambda index: RNG.random()), None, REPEAT),
        (drawing(closure()), None, REPEAT),
        (drawing(OfTheClass()), None, REPEAT),
        (drawing(Module()), None, REPEAT),
        (drawing(np.random.default_rng(0).normal), None, REPEAT),
        (Sleeping(0.002), adds_noise, REPEAT),
        (Stream(), None, WHOLE),
        (Own(), None, WHOLE),
        (Stream(windows, 0.002), None, None),
        (Stream(constant, 0), None, None),
        (drawing(PerWorker()), None, None),
        (drawing(lambda index: random.random()), None, None),
        (drawing(lambda index: np.random.random()), None, None),  # noqa: NPY002
        (drawing(lambda index: random.Random(index).random()), None, None),
        (pinfeed.StreamDataset(range(1000), shuffle_buffer=8), None, None),
    ],
)
def test_no_workers_that_repeat_the_samples_of_another(dataset, collate, note):
    copy = LoaderCopy(DataLoader(dataset, 4, collate_fn=collate))
    copy.run(copy.settings, 0.01)
    copy.compare_workers()
    assert copy.repeats is (note is not None)


@pytest.mark.parametrize(
    ("dataset", "note"), [(Sleeping(), None), (drawing(OfTheClass()), REPEAT), (Stream(), WHOLE)]
)
def test_workers_are_offered_if_batches_stay_equal(dataset, note, monkeypatch):
    loader = DataLoader(dataset, batch_size=4)
    report = short(loader)
    assert [one[: len(note or "")] for one in report.notes if REPEAT in one or WHOLE in one] == (
        [] if note is None else [note]
    )
    for is_compared in (True, False):
        if not is_compared:
            monkeypatch.setattr(LoaderCopy, "compare_workers", lambda self: None)
        offered = [change for change in changes_of(loader) if change.name.endswith("workers")]
        assert bool(offered) is (note is None and is_compared)


def test_workers_without_batch_order_are_compared_in_turns():
    for draw, repeats in ((random.Random().random, True), (random.random, False)):
        drawn = drawing(lambda index, draw=draw: time.sleep(0.001 * (index % 5)) or draw())
        copy = LoaderCopy(DataLoader(drawn, 2, num_workers=2, in_order=False))
        copy.run(copy.settings, 0.01)
        copy.compare_workers()
        assert copy.repeats is repeats


def test_rarely_equal_random_samples_are_not_repetitions():
    for seed in range(10):
        torch.manual_seed(seed)
        flipped = drawing(lambda index: torch.rand(1) < 0.5)
        copy = LoaderCopy(DataLoader(flipped, batch_size=1))
        copy.run(copy.settings, 0.01)
        copy.compare_workers()
        assert not copy.repeats


def next_tokens(samples):
    tokens = torch.stack([sample["x"] * sample["y"] for sample in samples])
    return {"x": tokens[:, :-1], "y": tokens[:, 1:], "w": torch.ones(1).expand(4)}


class IntoOneBuffer:
    out = None

    def __call__(self, samples):
        if self.out is None:
            self.out = torch.empty(len(samples), 4)
        return torch.stack([sample["x"] * sample["y"] for sample in samples], out=self.out)


def test_no_thread_or_workers_for_reused_memory():
    for collate, is_reused in (
        (default_collate, False),
        (next_tokens, False),
        (IntoOneBuffer(), True),
    ):
        loader = DataLoader(Sleeping(0.002), 4, collate_fn=collate)
        names = {change.name for change in changes_of(loader, step=0.005)}
        assert ("2 workers" in names) is ("prefetch during the step" in names) is not is_reused
    report = short(loader)
    assert any("later batches overwrite" in note for note in report.notes)
