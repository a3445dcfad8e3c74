"""to_tensorflow: errors of the loader, interrupts, and the end of the process."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed
from samples import run_python
from tensorflow_elements import WAYS
from tensorflow_loaders import Loader, Squares, numbers

# Python 3.12 and later warn of every fork of a process that has threads.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


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


def test_errors_of_a_loader_that_has_a_length_are_ignored() -> None:
    """In a process of its own: TensorFlow can't be stopped while it ignores errors without end."""
    code = """
        import tensorflow as tf, torch, pinfeed

        class Batches(torch.utils.data.Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, number):
                if number == 2:
                    raise OSError("the disk went away")
                return number

        def numbers(dataset):
            return [int(batch[0]) for batch in dataset]

        @tf.function
        def total():
            batches = dataset.map(lambda batch: batch + 1).ignore_errors()
            return batches.reduce(tf.constant(0, tf.int64), lambda sum, batch: sum + batch[0])

        dataset = pinfeed.to_tensorflow(torch.utils.data.DataLoader(Batches()))
        print(len(dataset), int(dataset.ignore_errors().cardinality()))
        print(numbers(dataset.ignore_errors()), numbers(dataset.ignore_errors()))
        print(numbers(dataset.map(lambda batch: batch + 10).prefetch(2).ignore_errors()))
        print(numbers(dataset.prefetch(2).repeat(2).ignore_errors().map(lambda batch: batch * 2)))
        print(numbers(dataset.apply(lambda same: same.skip(1).ignore_errors())))
        print(numbers(dataset.ignore_errors(log_warning=True).prefetch(1).ignore_errors()))
        print(int(total()))
        try:
            numbers(dataset.prefetch(1))
        except OSError:
            print("counted elsewhere")
    """.replace("\n        ", "\n")
    expected = """
        4 -2
        [0, 1, 3] [0, 1, 3]
        [10, 11, 13]
        [0, 2, 6, 0, 2, 6]
        [1, 3]
        [0, 1, 3]
        7
        counted elsewhere
    """
    assert run_python(code, timeout=100).split("\n") == [
        line.strip() for line in expected.split("\n")[1:]
    ]


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
    from pinfeed.exports.to_tensorflow.feed_iterator import _in_use

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
