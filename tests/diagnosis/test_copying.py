"""Copies of a loader's state."""

import gc
import io
import random
import threading

import numpy as np
import torch

import pinfeed
from pinfeed.diagnosis.copying import copied, random_states_kept


class Holder:
    def __init__(self):
        self.count = 0
        self.cache = {}
        self.rng = np.random.default_rng(1)
        self.generator = torch.Generator()
        self.array = np.arange(5)
        self.tensor = torch.arange(5)
        self.large_array = np.zeros(1_000_001, np.uint8)
        self.subclass = np.ma.zeros(3)
        self.shared_tensor = torch.zeros(5).share_memory_()
        self.paths = [str(i) for i in range(20_000)]
        self.order = list(range(20_000))
        self.lock = threading.Lock()
        self.function = lambda x: x
        self.method = self.meth

    def meth(self): ...


def test_state_is_copied_and_large_data_is_shared():
    one = Holder()
    (two, other), originals = copied((one, [one]))
    assert type(two) is Holder
    assert two is not one
    assert other[0] is two
    for name in ("cache", "rng", "generator", "array", "tensor", "order"):
        assert getattr(two, name) is not getattr(one, name)
    two.array += 1
    two.tensor += 1
    assert one.array.tolist() == one.tensor.tolist() == [0, 1, 2, 3, 4]
    for name in ("large_array", "subclass", "shared_tensor", "paths", "lock", "function"):
        assert getattr(two, name) is getattr(one, name)
    assert two.method.__self__ is two
    assert originals == [one.lock]
    two.rng.random()
    assert one.rng.random() == np.random.default_rng(1).random()


class Opened:
    """An object that closes or deletes something at its end."""

    ended = 0

    def __del__(self):
        type(self).ended += 1


def test_objects_with_finalizers_are_not_copied():
    one = {"opened": Opened(), "buffer": io.BytesIO(b"a")}
    two, originals = copied(one)
    assert originals == [one["opened"]]
    assert two["opened"] is one["opened"]
    assert two["buffer"] is not one["buffer"]
    del two
    gc.collect()
    assert Opened.ended == 0


def test_many_arrays_are_not_in_memory_twice():
    one = [np.zeros(1_000_000, np.uint8) for _ in range(60)]
    two, _ = copied(one)
    assert sum(a is not b for a, b in zip(one, two, strict=True)) == 50
    two[0][0] = 1
    assert one[0][0] == 0
    again, _ = copied([one[0]] * 60)
    assert all(array is again[0] for array in again)
    rows = torch.zeros(100, 1_000_000, dtype=torch.uint8).unbind()
    assert all(a is b for a, b in zip(rows, copied(rows)[0], strict=True))


class Wrapper:
    """An object that forwards every attribute, which fails before it has a target."""

    def __init__(self, held):
        self.held = held

    def __getattr__(self, name):
        return getattr(self.held, name)


class Named:
    def __new__(cls, name):
        return super().__new__(cls)


class Closed:
    def __setstate__(self, state):
        raise LookupError


def test_objects_that_cannot_be_copied_are_shared():
    one = [Wrapper(Holder()), Named("a"), [3]]
    two, originals = copied(one)
    assert two[0] is one[0]
    assert two[1] is one[1]
    assert two[2] is not one[2]
    assert originals == one[:2]
    closed = Closed()
    closed.x = 1
    parts = (closed, [3])
    assert copied(parts) == (parts, list(parts))


def test_samplers_keep_their_epoch():
    sampler = pinfeed.samplers.ShuffleSampler(10, 2)
    ((copy,), originals) = copied((sampler,))
    expected = [list(copy) for _ in range(3)]
    assert originals == []
    assert [list(sampler) for _ in range(3)] == expected


def test_random_states_are_restored():
    def draw():
        return [random.random(), np.random.random(), torch.rand(()).item()]  # noqa: NPY002

    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    expected = draw()
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    with random_states_kept():
        draw()
    assert draw() == expected
