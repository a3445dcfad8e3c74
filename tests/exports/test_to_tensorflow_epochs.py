"""to_tensorflow: iterations of the loader, early ends, errors, and process exit."""

import gc
import multiprocessing
import re

import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed
from programs import run_program
from tensorflow_elements import BATCHES, WAYS, Loader, Squares, numbers


@pytest.mark.parametrize("way", WAYS)
def test_each_epoch_iterates_the_loader_once(way):
    loader = Loader()
    dataset = pinfeed.to_tensorflow(loader)
    assert loader.begun == 1  # for the first batch
    for epoch in range(1, 4):
        assert numbers(WAYS[way](dataset)) == list(range(BATCHES))
        assert loader.begun == epoch
    assert numbers(WAYS[way](dataset.repeat(2))) == 2 * list(range(BATCHES))
    assert loader.begun == 5


def test_nested_loops():
    dataset = pinfeed.to_tensorflow(Loader(3))
    pairs = [(int(one[0]), int(two[0])) for one in dataset for two in dataset.prefetch(1)]
    assert pairs == [(one, two) for one in range(3) for two in range(3)]


@pytest.mark.parametrize("way", WAYS)
def test_a_generator_yields_one_epoch(way, tf):
    dataset = pinfeed.to_tensorflow(iter(Loader()))
    assert len(WAYS[way](dataset)) == BATCHES
    for _ in range(2):
        with pytest.raises(tf.errors.OpError, match="loader, a generator, was exhausted by an"):
            WAYS[way](dataset)


# Early ends.


class Watched(Loader):
    """A loader that records the end of its iterator."""

    def __init__(self):
        super().__init__(1000)
        self.open = 0

    def __iter__(self):
        self.open += 1
        try:
            yield from super().__iter__()
        finally:
            self.open -= 1


def broken_off(batches):
    for _ in batches:
        break


def taken(batches):
    assert len(list(batches.take(3))) == 3


def next_only(batches):
    next(iter(batches))


def raised(batches):
    def train():
        for _ in batches:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()


LEFT = [broken_off, taken, next_only, raised]


@pytest.mark.parametrize("way", ["loop", "prefetch"])
def test_leaving_a_loop_ends_the_loader(way):
    loader = Watched()
    dataset = pinfeed.to_tensorflow(loader)
    assert loader.open == 1
    for leave in LEFT:
        leave(dataset.prefetch(2) if way == "prefetch" else dataset)
        assert loader.open == 0


def test_dropping_a_dataset_ends_the_loader():
    loader = Watched()
    dataset = pinfeed.to_tensorflow(loader)
    next_only(dataset.prefetch(1))
    mapped = pinfeed.to_tensorflow(loader).map(lambda x: x)
    assert loader.open == 1
    del dataset, mapped
    assert loader.open == 0


@pytest.mark.parametrize("way", ["loop", "prefetch"])
def test_workers_end(way):
    before = multiprocessing.active_children()
    dataset = pinfeed.to_tensorflow(DataLoader(Squares(), batch_size=4, num_workers=2))
    assert len(multiprocessing.active_children()) == len(before) + 2
    for leave in LEFT:  # after the first epoch, TensorFlow's own thread starts them
        leave(dataset.prefetch(2) if way == "prefetch" else dataset)
        assert multiprocessing.active_children() == before


class Broken(Exception):
    """An error that is neither Python's nor TensorFlow's."""


def breaking(error, after=2):
    yield from Loader(after)
    raise error


def test_a_loader_error_in_the_first_batch():
    error = Broken("of the loader", 5)
    for in_memory in (False, True):
        with pytest.raises(Broken) as caught:
            pinfeed.to_tensorflow(breaking(error, 0), in_memory=in_memory)
        assert caught.value is error


@pytest.mark.parametrize("error", [Broken("text"), KeyError("key"), ValueError("of\na line")])
def test_tensorflow_quotes_loader_errors(error, tf):
    """With type, message and traceback."""

    @tf.function
    def loop(batches):
        return batches.reduce(0, lambda count, _: count + 1)

    message = re.escape(f"{type(error).__name__}: {error}")
    for use in (*WAYS.values(), loop):
        with pytest.raises(tf.errors.OpError, match=message) as caught:
            use(pinfeed.to_tensorflow(breaking(error)))
        assert "in breaking\n" in str(caught.value)


class Flaky(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, number):
        if number == 2:
            raise Broken
        return number


def test_a_loader_that_continues_after_an_error(tf):
    dataset = pinfeed.to_tensorflow(DataLoader(Flaky()))
    iterator = iter(dataset)
    assert numbers([next(iterator), next(iterator)]) == [0, 1]
    with pytest.raises(tf.errors.OpError, match="Broken"):
        next(iterator)
    assert int(next(iterator)[0]) == 3


class BrokenSquares(Squares):
    def __getitem__(self, number):
        if number == 20:
            raise Broken("in the worker")
        return number**2


def test_workers_end_after_an_error(tf):
    before = multiprocessing.active_children()
    dataset = pinfeed.to_tensorflow(DataLoader(BrokenSquares(), batch_size=4, num_workers=2))
    for _ in range(2):
        with pytest.raises(tf.errors.OpError, match="in the worker"):
            list(dataset.prefetch(1))
        gc.collect()
        assert multiprocessing.active_children() == before


def test_an_error_leaves_no_iterator_to_the_garbage_collector(tf):
    is_open = []

    def batches():
        is_open.append(True)
        try:
            yield torch.zeros(2)
            yield torch.zeros(3, 1)
        finally:
            is_open.clear()

    gc.disable()
    try:
        for way in ("prefetch", "map"):
            with pytest.raises(tf.errors.OpError, match="expected shape"):
                WAYS[way](pinfeed.to_tensorflow(batches()))
            assert not is_open
    finally:
        gc.enable()


@pytest.mark.parametrize("way", ["held", "failed", "slow"])
def test_the_process_exits_while_tensorflow_has_an_iterator(way):
    run_program("ends_with_tensorflow", way, fresh=True)


@pytest.mark.parametrize("ahead", ["0", "3"])
def test_an_interrupt_ends_a_loop(ahead):
    assert run_program("interrupted_tensorflow", ahead, fresh=True) == "interrupted\n"
