"""A diagnosis leaves the user's objects unchanged: it uses copies of the loader's parts."""

import gc
import io
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
from pinfeed.diagnosis.copying import copied
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
    short(loader, lambda batch: torch.rand(1), 0.3)
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
    """An iterator that doesn't start again."""

    left = 100

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.left


class BeginsAnew(OnceOnly):
    """An iterator, like torch's IterDataPipe, that starts again."""

    def __iter__(self):
        self.left = 100
        return self


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
    assert note_of(short(DataLoader(Dealt(), batch_size=4), seconds=0.2).notes, "Queue")


class Holder:
    count = 0

    def method(self):
        self.count += 1


class Finalized:
    """An object that closes or deletes something at its end."""

    ended = 0

    def __del__(self):
        type(self).ended += 1


class Forwarding:
    """An object that forwards every attribute, which fails before it has a target."""

    def __init__(self):
        self.held = Holder()

    def __getattr__(self, name):
        return getattr(self.held, name)


class Named:
    def __new__(cls, name):
        return super().__new__(cls)


COPIED = {
    "an object": Holder(),
    "a cache": {1: 2},
    "a NumPy generator": np.random.default_rng(1),
    "a torch generator": torch.Generator(),
    "a small array": np.arange(5),
    "a small tensor": torch.arange(5),
    "the order of samples": [*range(50_000)],
    "a buffer": io.BytesIO(b"a"),
    "a sampler": pinfeed.samplers.ShuffleSampler(10, 2),
    "a method of an object": Holder().method,
}
SHARED = {
    "a large array": np.zeros(1_000_001, np.uint8),
    "an array of a subclass": np.ma.zeros(3),
    "a tensor in shared memory": torch.zeros(5).share_memory_(),
    "a long list": ["text"] * 200_000,
    "a function": lambda x: x,
}
NOT_COPIED = {
    "a lock": threading.Lock(),
    "an object with a finalizer": Finalized(),
    "an object that forwards attributes": Forwarding(),
    "an object with arguments": Named("a"),
}


@pytest.mark.parametrize("name", [*COPIED, *SHARED, *NOT_COPIED])
def test_state_is_copied_and_large_data_is_shared(name):
    one = (COPIED | SHARED | NOT_COPIED)[name]
    (two, [again]), not_copied = copied((one, [one]))
    assert two is again
    assert (two is one) == (name not in COPIED)
    assert [*map(id, not_copied)] == [id(one)] * 2 * (name in NOT_COPIED)
    if isinstance(one, torch.Tensor | np.ndarray) and name in COPIED:
        two += 1
        assert one.tolist() == [0, 1, 2, 3, 4]
    del two, again
    gc.collect()
    assert Finalized.ended == 0


def test_many_arrays_are_not_in_memory_twice():
    one = [np.zeros(1_000_000, np.uint8) for _ in range(60)]
    assert sum(a is not b for a, b in zip(one, copied(one)[0], strict=True)) == 50
    again, _ = copied([one[0]] * 60)
    assert all(array is again[0] for array in again)
    rows = torch.zeros(100, 1_000_000, dtype=torch.uint8).unbind()
    assert all(a is b for a, b in zip(rows, copied(rows)[0], strict=True))


class Closed(Holder):
    def __setstate__(self, state):
        raise LookupError


def test_nothing_is_copied_if_a_state_cannot_be_set():
    one = (Closed(), [3])
    one[0].x = 1
    assert copied(one) == (one, [*one])
