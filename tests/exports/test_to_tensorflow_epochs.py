"""to_tensorflow: how often the loader is iterated, and what ends it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed
from tensorflow_elements import WAYS
from tensorflow_loaders import BATCHES, Loader, Squares, numbers

# Python 3.12 and later warn of every fork of a process that has threads.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@pytest.mark.parametrize("way", WAYS)
def test_each_epoch_iterates_the_loader_once(way: str) -> None:
    loader = Loader()
    dataset = pinfeed.to_tensorflow(loader)
    assert loader.begun == 1  # for the first batch
    for epoch in range(1, 4):
        assert numbers(WAYS[way](dataset)) == list(range(BATCHES))
        assert loader.begun == epoch
    assert numbers(WAYS[way](dataset.repeat(2))) == 2 * list(range(BATCHES))
    assert loader.begun == 5


def test_other_transformations(tf: ModuleType) -> None:
    dataset = pinfeed.to_tensorflow(Loader())
    assert sorted(numbers(list(dataset.shuffle(4, seed=0)))) == list(range(BATCHES))
    assert numbers(list(dataset.take(2))) == [0, 1]
    assert numbers(list(dataset.skip(4))) == [4, 5]
    assert int(dataset.reduce(tf.constant(0, tf.int64), lambda total, x: total + x[0])) == 15
    assert [int(x) for x in dataset.unbatch().take(3)] == [0, 0, 1]
    assert numbers(list(dataset.cache().repeat(2))) == 2 * list(range(BATCHES))
    assert numbers(list(dataset.as_numpy_iterator())) == list(range(BATCHES))
    pairs = tf.data.Dataset.zip(dataset, dataset.map(lambda x: -x))
    assert [(int(one[0]), int(other[0])) for one, other in pairs] == [(n, -n) for n in range(6)]


def test_in_a_tf_function(tf: ModuleType) -> None:
    dataset = pinfeed.to_tensorflow(Loader())

    @tf.function
    def total(batches: Any) -> Any:
        result = tf.constant(0, tf.int64)
        for batch in batches:
            result += batch[0]
        return result

    @tf.function
    def first(iterator: Any) -> Any:
        return next(iterator)[0]

    @tf.function
    def captured() -> Any:
        return next(iter(dataset))[0] + total(dataset)

    assert int(total(dataset)) == int(total(dataset.prefetch(1))) == 15
    assert int(captured()) == 15
    for batches in (dataset, dataset.prefetch(1)):
        # By turns in and out of the function: it is one iterator.
        iterator = iter(batches)
        assert [int(first(iterator)), int(next(iterator)[0]), int(first(iterator))] == [0, 1, 2]
        iterator = iter(batches)
        assert [int(next(iterator)[0]), int(first(iterator)), int(next(iterator)[0])] == [0, 1, 2]
        assert int(iterator.get_next()[0]) == 3
        assert numbers(list(iterator)) == [4, 5]


def test_get_next(tf: ModuleType) -> None:
    dataset = pinfeed.to_tensorflow(Loader(2))
    for batches in (dataset, dataset.prefetch(1)):
        iterator = iter(batches)
        assert iterator.element_spec == dataset.element_spec
        assert int(iterator.get_next()[0]) == 0
        assert int(iterator.get_next_as_optional().get_value()[0]) == 1
        assert not iterator.get_next_as_optional().has_value()
        with pytest.raises(tf.errors.OutOfRangeError):
            iterator.get_next()


def test_loops_within_a_loop() -> None:
    dataset = pinfeed.to_tensorflow(Loader(3))
    pairs = [(int(one[0]), int(two[0])) for one in dataset for two in dataset.prefetch(1)]
    assert pairs == [(one, two) for one in range(3) for two in range(3)]


@pytest.mark.parametrize("way", WAYS)
def test_a_generator_is_used_up(way: str, tf: ModuleType) -> None:
    dataset = pinfeed.to_tensorflow(iter(Loader()))
    assert len(WAYS[way](dataset)) == BATCHES
    for _ in range(2):
        with pytest.raises(
            tf.errors.OpError, match="loader, a generator, was used up by an earlier"
        ):
            WAYS[way](dataset)


# Of what ends a loader.


class Watched(Loader):
    """Notes when its iterator is gone."""

    def __init__(self) -> None:
        super().__init__(1000)
        self.open = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        self.open += 1
        try:
            yield from super().__iter__()
        finally:
            self.open -= 1


def broken_off(batches: Any) -> None:
    for _ in batches:
        break


def taken(batches: Any) -> None:
    assert len(list(batches.take(3))) == 3


def next_only(batches: Any) -> None:
    next(iter(batches))


def raised(batches: Any) -> None:
    def train() -> None:
        for _ in batches:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()


LEFT = [broken_off, taken, next_only, raised]


@pytest.mark.parametrize("way", ["loop", "prefetch"])
def test_a_loop_that_is_left_ends_the_loader(way: str) -> None:
    loader = Watched()
    dataset = pinfeed.to_tensorflow(loader)
    assert loader.open == 1
    for leave in LEFT:
        leave(dataset.prefetch(2) if way == "prefetch" else dataset)
        assert loader.open == 0


def test_a_dataset_that_is_dropped_ends_the_loader() -> None:
    loader = Watched()
    dataset = pinfeed.to_tensorflow(loader)
    next_only(dataset.prefetch(1))
    mapped = pinfeed.to_tensorflow(loader).map(lambda x: x)
    assert loader.open == 1
    del dataset, mapped
    assert loader.open == 0


@pytest.mark.parametrize("way", ["loop", "prefetch"])
def test_workers_end(way: str) -> None:
    before = multiprocessing.active_children()
    dataset = pinfeed.to_tensorflow(DataLoader(Squares(), batch_size=4, num_workers=2))
    assert len(multiprocessing.active_children()) == len(before) + 2
    for leave in LEFT:  # from the second time on, TensorFlow's own thread starts them
        leave(dataset.prefetch(2) if way == "prefetch" else dataset)
        assert multiprocessing.active_children() == before
