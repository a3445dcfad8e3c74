"""Every way to leave a loop over a DeviceLoader: nothing stays behind, and nothing hangs."""

import contextlib
import gc
import threading
import time
import traceback
import weakref

import pytest
import torch

from loaders import COUNT, Generated, feeding_threads, on_cpu, raise_in_the_loader
from pinfeed.loaders.prefetcher import Prefetcher
from programs import run_program
from samples import FrozenError


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("number", range(COUNT))
def test_an_error_in_the_loader(number, depth):
    loader = Generated(fail_at=number)
    received = []
    with pytest.raises(LookupError, match=f"batch {number} is missing") as caught:
        received.extend(on_cpu(loader, prefetch=depth))
    assert received == [torch.tensor(i) for i in range(number)]
    assert feeding_threads() == []
    assert loader.open == 0
    assert caught.value.__notes__ == [
        f"DeviceLoader: raised by the loader for batch {number} of this iteration, counted from 0"
    ]
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-2:] == ["__iter__", "raise_in_the_loader"]
    assert frames[0] == "test_an_error_in_the_loader"


class FailsOften:
    """An iterator that continues after an error, as a DataLoader with workers does."""

    def __init__(self):
        self.number = -1

    def __iter__(self):
        return self

    def __next__(self):
        self.number += 1
        if self.number >= 9:
            raise StopIteration
        if self.number % 3 == 1:
            raise ValueError(self.number)
        return self.number


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_going_on_after_an_error(depth):
    batches = iter(on_cpu(FailsOften(), prefetch=depth))
    results = []
    while len(results) < 9:
        try:
            results.append(next(batches))
        except ValueError as error:
            results.append(f"error {error}")
    assert results == [0, "error 1", 2, 3, "error 4", 5, 6, "error 7", 8]
    assert next(batches, None) is None


def test_nothing_is_asked_of_a_loader_that_failed_until_the_consumer_asks():
    loader = FailsOften()
    batches = iter(on_cpu(loader, prefetch=5))
    assert next(batches) == 0
    with pytest.raises(ValueError, match="1"):
        next(batches)
    time.sleep(0.05)
    assert loader.number == 1
    assert feeding_threads() == []


@pytest.mark.parametrize("number", [0, 3])
def test_an_error_that_is_dropped_leaves_nothing(number):
    source = iter(Generated(fail_at=number))
    gone = weakref.ref(source)
    gc.disable()  # a loader's workers can't wait for it
    try:
        with contextlib.suppress(LookupError):
            list(on_cpu(source))
        del source
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), FrozenError(1)]
)
@pytest.mark.parametrize("number", [0, 1])
def test_errors_that_are_no_exceptions_or_take_no_note(error, number):
    def loader():
        yield from range(number)
        raise error

    with pytest.raises(type(error)) as caught:
        list(on_cpu(loader()))
    assert caught.value is error


def test_garbage_that_the_thread_itself_collects():
    def loader():
        yield 0
        gate.wait(10)
        kept.clear()  # the last reference to the iterator goes in its own thread
        yield 1

    gate = threading.Event()
    kept = [iter(on_cpu(loader(), prefetch=1))]
    assert next(kept[0]) == 0
    (thread,) = feeding_threads()
    gate.set()
    while thread.is_alive():  # without the GIL the iterator ends in this thread, between two lines
        thread.join(0.01)


def test_close_while_another_thread_waits_for_a_batch():
    gate = threading.Event()

    def loader():
        yield 0
        gate.wait()
        yield 1

    batches = iter(on_cpu(loader()))
    next(batches)
    results = []
    consumer = threading.Thread(target=lambda: results.append(next(batches, "end")))
    consumer.start()
    threading.Timer(0.05, gate.set).start()
    batches.close()
    consumer.join()
    assert results[0] in (1, "end")


def test_a_loader_that_blocks_does_not_block_a_break():
    def loader():
        yield 0
        gate.wait(60)
        raise_in_the_loader(1)

    gate = threading.Event()
    source = loader()
    gone = weakref.ref(source)
    start = time.monotonic()
    for _ in on_cpu(source):
        break
    assert time.monotonic() - start > 0.9
    (thread,) = feeding_threads()
    gc.disable()  # neither does it leave anything when it returns, with an error that nobody gets
    try:
        gate.set()
        thread.join()
        del source, thread
        assert gone() is None
    finally:
        gc.enable()


def test_a_new_loop_waits_until_the_old_one_has_left_the_loader(monkeypatch):
    monkeypatch.setattr(Prefetcher.close, "__defaults__", (0.1,))

    class Exclusive:
        """Not thread-safe, like many datasets."""

        users = most = 0

        def __iter__(self):
            for i in range(COUNT):
                self.users += 1
                self.most = max(self.most, self.users)
                time.sleep(0.3 if i == 1 else 0.01)  # longer than a break waits
                self.users -= 1
                yield i

    loader = Exclusive()
    batches = on_cpu(loader)
    for _ in range(2):
        for _ in batches:
            break
    assert list(batches) == list(range(COUNT))
    assert loader.most == 1


def test_an_iterator_in_a_forked_process():
    run_program("forked_loop")


def test_loops_in_a_process_forked_while_the_loader_works():
    run_program("forked_while_a_loader_works", timeout=90)


def test_an_interrupt_while_a_loop_begins(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    for after in ([0, 1], []):
        loop = iter(on_cpu([0, 1]))
        with monkeypatch.context() as patch:
            patch.setattr("weakref.finalize", interrupt)
            with pytest.raises(KeyboardInterrupt):
                next(loop)
        if not after:
            loop.close()
        assert list(loop) == after


def test_interrupts_at_any_moment():
    run_program("interrupted_loops")
