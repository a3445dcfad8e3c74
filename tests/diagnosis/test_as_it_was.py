"""A diagnosis leaves the user's objects unchanged."""

import itertools
import queue
import random
import threading
import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import pinfeed
from pinfeed.diagnosis import runs
from sleeping import Sleeping, Stream, note_of, short


class Changing(Sleeping):
    """Counts its samples, and draws from generators."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.calls = 0
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index):
        self.calls += 1
        self.rng.random()
        random.random()
        np.random.random()  # noqa: NPY002
        torch.rand(1)
        return super().__getitem__(index)


@pytest.mark.usefixtures("trials")
def test_user_objects_stay_unchanged():
    dataset = Changing(0.0005)
    sampler = pinfeed.samplers.ShuffleSampler(64, 4)
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(dataset, batch_sampler=sampler, generator=generator)
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)

    def states():
        numpy = np.random.get_state()[1].tolist()  # noqa: NPY002
        tensors = torch.get_rng_state().tolist(), generator.get_state().tolist()
        return dataset.calls, random.getstate(), numpy, *tensors, dataset.rng.bit_generator.state

    before, threads = states(), {*threading.enumerate()}
    short(loader, lambda batch: torch.rand(1))
    for thread in {*threading.enumerate()} - threads:
        thread.join(10)  # which can be ending
    assert {*threading.enumerate()} <= threads  # a thread of another test can have ended
    assert states() == before
    assert sampler.epoch == pinfeed.samplers.ShuffleSampler(64, 4).epoch
    assert list(sampler) == list(pinfeed.samplers.ShuffleSampler(64, 4))


def set_offset(worker):
    info = get_worker_info()
    assert type(info.dataset) is Offset
    info.dataset.offset = 100 + info.dataset.length


class Offset(Sleeping):
    offset = 0

    def __getitem__(self, index):
        assert get_worker_info() is None or self.offset == 164
        return super().__getitem__(index)


def test_a_worker_init_fn_reads_and_sets_attributes_of_the_dataset():
    dataset = Offset(0.001)
    short(DataLoader(dataset, batch_size=4, num_workers=1, worker_init_fn=set_offset))
    assert dataset.offset == 0


class Once:
    def __init__(self, numbers):
        self.numbers = numbers

    def __iter__(self):
        return self.numbers


class OnceOnly(IterableDataset[int]):
    left = 100

    def __iter__(self):
        while self.left:
            self.left -= 1
            yield self.left


class BeginsAnew(OnceOnly):
    """An iterator, like torch's IterDataPipe, that starts again."""

    def __iter__(self):
        self.left = 100
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.left


def holding(dataset, numbers):
    dataset.numbers = numbers
    return dataset


USED_UP = {
    "batch sampler": lambda it: DataLoader([1], batch_sampler=it),
    "sampler": lambda it: DataLoader([1], sampler=it),
    "in a sampler": lambda it: DataLoader([1], sampler=Once(it)),
    "in a stream": lambda it: DataLoader(holding(Stream(), it), 4),
    "in a dataset": lambda it: DataLoader(holding(Sleeping(), it), 4),
}


@pytest.mark.parametrize("name", USED_UP)
def test_generators_are_not_used_up(name):
    numbers = (i for i in range(3))
    wrong = "loader must be iterable several times, but its dataset or sampler holds a generator; "
    with pytest.raises(TypeError, match=wrong):
        pinfeed.diagnose(USED_UP[name](numbers))
    assert next(numbers) == 0


def test_iterables_that_allow_one_iteration():
    for loader in (DataLoader(OnceOnly(), 4), DataLoader([1] * 9, sampler=iter([1, 2, 3]))):
        with pytest.raises(TypeError, match="several times, but the second time it had no"):
            pinfeed.diagnose(loader, seconds=60)
    assert short(DataLoader(BeginsAnew(), batch_size=4), seconds=0.1).measured.loop.samples > 3


class Dealt(IterableDataset[int]):
    """A thread fills its queue."""

    def __init__(self):
        self.queue = queue.Queue(4)
        threading.Thread(target=self.fill, daemon=True).start()

    def fill(self):
        for number in itertools.count():
            self.queue.put(number)

    def __iter__(self):
        while True:
            time.sleep(0.001)
            yield self.queue.get()


def test_a_queue_that_a_thread_fills_serves_diagnosis_and_user(monkeypatch):
    monkeypatch.setattr(runs, "_PATIENCE", 1.0)  # a fork has no threads
    assert note_of(short(DataLoader(Dealt(), batch_size=4), seconds=0.2), "Queue")
