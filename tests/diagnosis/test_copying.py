"""Copies of a loader's state."""

import gc
import io
import random
import threading

import numpy as np
import pytest
import torch

import pinfeed
from pinfeed.diagnosis.copying import copied, random_states_kept


class Holder:
    count = 0

    def method(self):
        self.count += 1


class Opened:
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
    "an object with a finalizer": Opened(),
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
    assert Opened.ended == 0


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


def test_random_states_are_restored():
    def drawn():
        return random.random(), np.random.random(), torch.rand(()).item()  # noqa: NPY002

    with random_states_kept():
        expected = drawn()
    assert drawn() == expected
