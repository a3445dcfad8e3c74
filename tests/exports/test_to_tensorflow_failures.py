"""to_tensorflow: errors of the loader, interrupts, and the end of the process."""

from __future__ import annotations

import gc
import multiprocessing
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed
from programs import run_python
from tensorflow_elements import WAYS
from tensorflow_loaders import Loader, Squares, numbers

# Python 3.12 and later warn of every fork of a process that has threads.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


class Broken(Exception):
    """An error that neither Python nor TensorFlow knows."""


def breaking(error: BaseException, after: int = 2) -> Iterator[torch.Tensor]:
    yield from Loader(after)
    raise error


@pytest.mark.parametrize(
    "error",
    [Broken("of the\nloader", 5), KeyError("key"), KeyboardInterrupt(), SystemExit(3)],
    ids=lambda error: type(error).__name__,
)
def test_a_loop_raises_the_error_of_the_loader(error: BaseException) -> None:
    for after in (2, 0):  # 0: while the first batch is read
        with pytest.raises(type(error)) as caught:
            list(pinfeed.to_tensorflow(breaking(error, after)))
        assert caught.value is error
        assert error.__context__ is error.__cause__ is None
        assert "breaking" in [entry.name for entry in caught.traceback]
    with pytest.raises(type(error)):
        pinfeed.to_tensorflow(breaking(error), in_memory=True)


@pytest.mark.parametrize("error", [Broken("text"), ValueError("a\0b"), OSError("no a\udc80.jpg")])
def test_tensorflow_quotes_the_error_of_the_loader(error: Exception, tf: ModuleType) -> None:
    """Type, message and traceback; text that TensorFlow can't read is escaped."""

    @tf.function
    def loop(batches: Any) -> Any:
        return batches.reduce(0, lambda count, _: count + 1)

    text = {"a\0b": "a\\0b", "no a\udc80.jpg": "no a\\udc80.jpg"}.get(str(error), str(error))
    message = re.escape(f"{type(error).__name__}: {text}")
    for use in (WAYS["prefetch"], WAYS["map"], loop):
        with pytest.raises(tf.errors.OpError, match=message) as caught:
            use(pinfeed.to_tensorflow(breaking(error)))
        assert "in breaking\n" in str(caught.value)


class Flaky(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> int:
        if number == 2:
            raise Broken
        return number


def test_a_loader_that_goes_on_after_an_error(tf: ModuleType) -> None:
    dataset = pinfeed.to_tensorflow(DataLoader(Flaky()))
    iterator = iter(dataset)
    assert numbers([next(iterator), next(iterator)]) == [0, 1]
    with pytest.raises(Broken):
        next(iterator)
    assert numbers(list(iterator)) == [3]
    for ignoring, expected in (
        (dataset.ignore_errors(), [0, 1, 3]),
        (dataset.map(lambda batch: batch + 10).prefetch(2).ignore_errors(), [10, 11, 13]),
        (dataset.prefetch(2).repeat(2).ignore_errors(), [0, 1, 3] * 2),
        (tf.data.Dataset.zip(dataset).ignore_errors().map(lambda batch: batch * 2), [0, 2, 6]),
    ):
        assert numbers(list(ignoring)) == expected


class BrokenSquares(Squares):
    def __getitem__(self, number: int) -> int:
        if number == 20:
            raise Broken("in the worker")
        return number**2


def test_workers_end_after_an_error(tf: ModuleType) -> None:
    before = multiprocessing.active_children()
    dataset = pinfeed.to_tensorflow(DataLoader(BrokenSquares(), batch_size=4, num_workers=2))
    for _ in range(2):
        with pytest.raises(tf.errors.OpError, match="in the worker"):
            list(dataset.prefetch(1))
        gc.collect()
        assert multiprocessing.active_children() == before


def test_an_error_leaves_no_iterator_to_the_garbage_collection(tf: ModuleType) -> None:
    is_open = []

    def batches() -> Iterator[torch.Tensor]:
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
    assert run_python(code, fresh=True) == "loop True\nprefetch True\n"


@pytest.mark.parametrize("way", ["held", "failed", "slow"])
def test_the_process_ends_while_tensorflow_has_an_iterator(way: str) -> None:
    code = """
        import gc, sys, time, torch, pinfeed
        from torch.utils.data import DataLoader

        def batches():
            yield torch.zeros(2)
            while sys.argv[1] != "failed":
                time.sleep(0.02 * (sys.argv[1] == "slow"))
                yield torch.zeros(2)
            raise OSError("the disk went away")

        gc.disable()
        kept = []
        for loader in (batches(), DataLoader(range(1000), num_workers=1)):
            dataset = pinfeed.to_tensorflow(loader)
            for ahead in (dataset, dataset.prefetch(1000)):
                kept.append(iter(ahead))
                try:
                    for _ in range(2):
                        next(kept[-1])
                except Exception as error:
                    assert sys.argv[1] == "failed" or "used up" in str(error), error
    """.replace("\n        ", "\n")
    run_python(code, way, fresh=True)
