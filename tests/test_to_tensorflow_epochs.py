"""to_tensorflow: how often the loader is iterated, what ends it, and whose memory it is."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed
from pinfeed import _core
from samples import run_python
from tensorflow_elements import WAYS, address

# Python 3.12 and later warn of every fork of a process that has threads.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

BATCHES = 6


@pytest.fixture(scope="module")
def tf() -> ModuleType:
    import tensorflow

    return tensorflow


class Loader:
    """Yields numbered batches, and counts how often it was asked to begin."""

    def __init__(self, batches: int = BATCHES) -> None:
        self.batches = batches
        self.begun = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        self.begun += 1
        return (torch.full((2,), number) for number in range(self.batches))


def numbers(elements: list[Any]) -> list[int]:
    return [int(element[0]) for element in elements]


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
def test_a_generator_is_used_up(way: str) -> None:
    dataset = pinfeed.to_tensorflow(iter(Loader()))
    assert len(WAYS[way](dataset)) == BATCHES
    for _ in range(2):
        with pytest.raises(RuntimeError, match="loader, a generator, was used up by an earlier"):
            WAYS[way](dataset)


@pytest.mark.parametrize("way", WAYS)
def test_a_generator_in_a_loader_is_used_up(way: str) -> None:
    loader = pinfeed.DeviceLoader(iter(Loader()), device="cpu")
    dataset = pinfeed.to_tensorflow(loader)
    assert len(WAYS[way](dataset)) == BATCHES
    with pytest.raises(RuntimeError, match="a DeviceLoader, was used up"):
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


@pytest.mark.parametrize("leave", LEFT)
@pytest.mark.parametrize("way", ["loop", "prefetch"])
def test_a_loop_that_is_left_ends_the_loader(way: str, leave: Callable[[Any], None]) -> None:
    loader = Watched()
    dataset = pinfeed.to_tensorflow(loader)
    assert loader.open == 1
    for _ in range(2):
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


class Squares:
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, number: int) -> int:
        return number**2


@pytest.mark.parametrize("leave", LEFT)
@pytest.mark.parametrize("way", ["loop", "prefetch"])
def test_workers_end(way: str, leave: Callable[[Any], None]) -> None:
    before = multiprocessing.active_children()
    dataset = pinfeed.to_tensorflow(DataLoader(Squares(), batch_size=4, num_workers=2))
    assert len(multiprocessing.active_children()) == len(before) + 2
    for _ in range(2):  # the second time, TensorFlow's own thread starts them
        leave(dataset.prefetch(2) if way == "prefetch" else dataset)
        assert multiprocessing.active_children() == before


def test_workers_of_two_epochs() -> None:
    loader = DataLoader(Squares(), batch_size=100, num_workers=2)
    dataset = pinfeed.to_tensorflow(loader).prefetch(2)
    for _ in range(2):
        values = np.concatenate([batch.numpy() for batch in dataset])
        assert values.tolist() == [number**2 for number in range(1000)]


def test_the_process_ends_with_iterators_open() -> None:
    run_python(
        """
        import time, torch, pinfeed
        from torch.utils.data import DataLoader

        def slow():
            while True:
                time.sleep(0.02)
                yield torch.zeros(2)

        workers = DataLoader(range(100), num_workers=1)
        open = []
        for loader in (slow(), workers):
            dataset = pinfeed.to_tensorflow(loader)
            for batches in (dataset, dataset.prefetch(2)):
                open.append(iter(batches))
                if loader is workers or batches is dataset:
                    next(open[-1])
    """.replace("\n        ", "\n")
    )


# Of memory.


def live_buffers() -> int:
    return _core.pool_stats()["live_buffers"]


def pooled(batches: int, size: int = 1 << 18) -> Iterator[torch.Tensor]:
    for number in range(batches):
        yield pinfeed.permute(torch.full((4, size // 16), float(number)), "ab", "ab")


@pytest.mark.parametrize("way", WAYS)
def test_no_copy(way: str) -> None:
    batch: dict[str, Any] = {
        "tensor": torch.zeros(256, 64),
        "small": torch.zeros(3),
        "bfloat16": torch.zeros(8, 8, dtype=torch.bfloat16),
        "bool": torch.zeros(8, dtype=torch.bool),
        "pooled": next(pooled(1)),
        "channels_last": torch.zeros(2, 3, 8, 8).to(memory_format=torch.channels_last),
        "jagged": pinfeed.JaggedBatch(torch.zeros(9, 2), torch.tensor([0, 4, 9])),
    }
    (element,) = WAYS[way](pinfeed.to_tensorflow([batch], channels_last="channels_last"))
    batch["jagged"], element["jagged"] = batch["jagged"].values, element["jagged"].values
    for key, tensor in batch.items():
        assert address(element[key]) == address(tensor), key


def test_no_copy_of_an_ndarray() -> None:
    array = pinfeed.permute(np.zeros((64, 64), np.float32), "ab", "ba")  # of the pool
    (element,) = pinfeed.to_tensorflow([array])
    assert address(element) == address(array)


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_lives_as_long_as_tensorflow_holds_it(way: str) -> None:
    before = live_buffers()
    elements = WAYS[way](pinfeed.to_tensorflow(pooled(BATCHES)))
    assert live_buffers() == before + BATCHES
    # These would be written where the kept ones are, were they not kept.
    assert sum(float(other[0, 0]) for other in pooled(2 * BATCHES)) == 66
    assert [float(element[-1, -1]) for element in elements] == list(range(BATCHES))
    view = elements[2][1:]
    kept = np.asarray(elements[3])
    del elements
    assert live_buffers() == before + 2
    assert float(view[0, 0]) == 2
    assert float(kept[-1, -1]) == 3
    del view, kept
    assert live_buffers() == before


def test_what_tensorflow_has_read_ahead_lives() -> None:
    before = live_buffers()
    iterator = iter(pinfeed.to_tensorflow(pooled(50)).shuffle(8))
    first = next(iterator)
    assert before + 8 <= live_buffers() <= before + 10  # it refills by and by
    del iterator
    assert live_buffers() == before + 1
    del first
    assert live_buffers() == before


def test_a_loop_reuses_two_buffers() -> None:
    _core.trim_pool()
    before = _core.pool_stats()["mapped_total"]
    for batches in (pooled(50), pooled(50)):
        for _ in pinfeed.to_tensorflow(batches):
            pass
    # The one that the loop holds, the next one, and the one that stood in the generator.
    assert _core.pool_stats()["mapped_total"] - before <= 3


def test_tensorflow_does_not_write_into_batches(tf: ModuleType) -> None:
    """Its kernels put their result where their only input was, if that is memory of its own."""
    batch = torch.ones(256, 256)
    dataset = pinfeed.to_tensorflow([batch] * 3)
    double = tf.function(lambda x: tf.nn.relu(x * 2) + 1)
    for element in dataset.map(lambda x: tf.nn.relu(x - 5) * 3).prefetch(1):
        assert float(element[0, 0]) == 0
    for element in dataset:
        element += 4
        element = double(element)
        assert float(element[0, 0]) == 11
    assert float(batch.sum()) == batch.numel()


def test_buffers_die_in_any_thread() -> None:
    """ndarrays die with Python's lock, which a thread of TensorFlow has to wait for."""
    dataset = pinfeed.to_tensorflow([np.ones((64, 64), np.float32) for _ in range(40)])
    doubled = dataset.map(lambda x: x + x, num_parallel_calls=2).prefetch(4)

    def loop() -> None:
        for _ in range(5):
            assert all(float(x[0, 0]) == 2 for x in doubled.take(20))

    threads = [threading.Thread(target=loop) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        next(iter(doubled))
    for thread in threads:
        thread.join()


# Of errors.


class Broken(Exception):
    """An error that neither Python nor TensorFlow knows."""


def breaking(error: BaseException, after: int = 2) -> Iterator[torch.Tensor]:
    yield from Loader(after)
    raise error


ERRORS = [
    Broken("of the\nloader", 5),
    ValueError("text"),
    KeyError("key"),
    MemoryError(),
    KeyboardInterrupt(),
    SystemExit(3),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_of_the_loader_is_raised_as_itself(error: BaseException, way: str) -> None:
    with pytest.raises(type(error)) as caught:
        WAYS[way](pinfeed.to_tensorflow(breaking(error)))
    assert caught.value is error
    assert error.__context__ is error.__cause__ is None
    assert "breaking" in [entry.name for entry in caught.traceback]


def test_an_error_comes_after_the_batches_before_it() -> None:
    for way in (lambda dataset: dataset, lambda dataset: dataset.prefetch(3)):
        batches = iter(way(pinfeed.to_tensorflow(breaking(Broken()))))
        assert [int(next(batches)[0]), int(next(batches)[0])] == [0, 1]
        with pytest.raises(Broken):
            next(batches)


def test_an_error_in_other_uses(tf: ModuleType) -> None:
    def dataset() -> Any:
        return pinfeed.to_tensorflow(breaking(Broken("text")))

    with pytest.raises(Broken):
        dataset().reduce(0, lambda total, _: total + 1)
    with pytest.raises(Broken):
        list(dataset().as_numpy_iterator())
    iterator = iter(dataset().prefetch(1).skip(2))
    with pytest.raises(Broken):
        iterator.get_next()
    with pytest.raises(Broken):
        pinfeed.to_tensorflow(breaking(Broken("text")), in_memory=True)
    with pytest.raises(Broken):
        pinfeed.to_tensorflow(breaking(Broken("text"), after=0))

    @tf.function
    def loop(batches: Any) -> Any:
        count = 0
        for _ in batches:
            count += 1
        return count

    with pytest.raises(tf.errors.OpError, match="Broken: text"):
        loop(dataset())


def test_an_error_of_tensorflow_stays_one(tf: ModuleType) -> None:
    class Breaking:
        def __iter__(self) -> Iterator[torch.Tensor]:
            return breaking(ValueError("of the loader"))

    dataset = pinfeed.to_tensorflow(Breaking())
    with pytest.raises(tf.errors.OpError, match="ValueError: of the loader"):
        tf.function(lambda batches: batches.reduce(0, lambda n, _: n + 1))(dataset)
    # Nobody raised the loader's error, so it is still known.
    failing = dataset.map(lambda x: tf.ensure_shape(x, [3]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="not compatible"):
        list(failing)


def test_a_loader_that_goes_on_after_an_error() -> None:
    class Flaky:
        def __iter__(self) -> Iterator[torch.Tensor]:
            return FlakyIterator()

    class FlakyIterator(Iterator[torch.Tensor]):
        number = -1

        def __next__(self) -> torch.Tensor:
            self.number += 1
            if self.number == 4:
                raise StopIteration
            if self.number == 2:
                raise Broken
            return torch.full((1,), self.number)

    dataset = pinfeed.to_tensorflow(Flaky())
    assert numbers(list(dataset.ignore_errors())) == [0, 1, 3]
    iterator = iter(dataset)
    assert [int(next(iterator)[0]) for _ in range(2)] == [0, 1]
    with pytest.raises(Broken):
        next(iterator)
    assert numbers(list(iterator)) == [3]


def test_workers_end_after_an_error() -> None:
    before = multiprocessing.active_children()
    dataset = pinfeed.to_tensorflow(DataLoader(BrokenSquares(), batch_size=4, num_workers=2))
    for _ in range(2):
        with pytest.raises(Broken, match="in the worker"):
            list(dataset.prefetch(1))
        gc.collect()
        assert multiprocessing.active_children() == before


class BrokenSquares(Squares):
    def __getitem__(self, number: int) -> int:
        if number == 20:
            raise Broken("in the worker")
        return number**2


def test_interrupt() -> None:
    """Ctrl-C ends a loop at once, wherever the loader is; or with the next batch of TensorFlow."""
    code = """
        import os, signal, threading, time, torch, pinfeed

        def slow():
            for number in range(100):
                time.sleep(0.1)
                yield torch.full((2,), number)

        for way in ("loop", "prefetch"):
            dataset = pinfeed.to_tensorflow(slow())
            timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
            try:
                for batch in dataset.prefetch(1) if way == "prefetch" else dataset:
                    if batch[0] == 0:
                        timer.start()
            except KeyboardInterrupt:
                print(way, int(batch[0]) < 50)
    """.replace("\n        ", "\n")
    assert run_python(code) == "loop True\nprefetch True\n"


def test_a_slow_loader_does_not_hold_up_the_end() -> None:
    def slow() -> Iterator[torch.Tensor]:
        while True:
            time.sleep(0.1)
            yield torch.zeros(2)

    iterator = iter(pinfeed.to_tensorflow(slow()).prefetch(2))
    next(iterator)
    start = time.monotonic()
    del iterator
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("way", ["held", "failed"])
def test_the_process_ends_while_tensorflow_has_an_iterator(way: str) -> None:
    code = """
        import gc, sys, torch, pinfeed

        def batches():
            yield torch.zeros(2)
            while sys.argv[1] == "held":
                yield torch.zeros(2)
            raise OSError("the disk went away")

        gc.disable()
        iterator = iter(pinfeed.to_tensorflow(batches()).prefetch(1000))
        try:
            while True:
                next(iterator)
                if sys.argv[1] == "held":
                    break
        except OSError:
            del iterator
    """.replace("\n        ", "\n")
    for _ in range(3):
        run_python(code, way)


@pytest.mark.parametrize("text", ["the disk went away", "no such file: \udc80"])
def test_an_error_leaves_no_iterator_to_the_garbage_collection(text: str) -> None:
    from pinfeed.tensorflow_data.feed_iterator import _in_use

    def batches() -> Iterator[torch.Tensor]:
        yield torch.zeros(2)
        raise OSError(text)

    gc.collect()
    gc.disable()
    try:
        before = len(_in_use)
        for way in ("prefetch", "map"):
            with contextlib.suppress(OSError):
                WAYS[way](pinfeed.to_tensorflow(batches()))
            assert len(_in_use) == before
    finally:
        gc.enable()
