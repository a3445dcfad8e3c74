"""to_tensorflow: how often the loader is iterated, and what ends it."""

import multiprocessing

import pytest
from torch.utils.data import DataLoader

import pinfeed
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


def test_loops_within_a_loop():
    dataset = pinfeed.to_tensorflow(Loader(3))
    pairs = [(int(one[0]), int(two[0])) for one in dataset for two in dataset.prefetch(1)]
    assert pairs == [(one, two) for one in range(3) for two in range(3)]


@pytest.mark.parametrize("way", WAYS)
def test_a_generator_is_used_up(way, tf):
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
def test_a_loop_that_is_left_ends_the_loader(way):
    loader = Watched()
    dataset = pinfeed.to_tensorflow(loader)
    assert loader.open == 1
    for leave in LEFT:
        leave(dataset.prefetch(2) if way == "prefetch" else dataset)
        assert loader.open == 0


def test_a_dataset_that_is_dropped_ends_the_loader():
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
    for leave in LEFT:  # from the second time on, TensorFlow's own thread starts them
        leave(dataset.prefetch(2) if way == "prefetch" else dataset)
        assert multiprocessing.active_children() == before
