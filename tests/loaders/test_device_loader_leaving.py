"""Every exit from a loop over a DeviceLoader: nothing stays behind, and nothing hangs."""

import contextlib
import gc
import multiprocessing
import os
import signal
import threading
import time
import traceback
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from loaders import COUNT, Generated, feeding_threads, on_cpu, raise_in_the_loader
from pinfeed.loaders.prefetcher import Prefetcher
from programs import run_program
from samples import FrozenError, assert_same


@contextlib.contextmanager
def no_garbage_collection():
    """Turns the garbage collector off, because users can't wait for it to end workers."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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
        f"DeviceLoader: raised by the loader for batch {number} of this loop, counted from 0"
    ]
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-2:] == ["__iter__", "raise_in_the_loader"]
    assert frames[0] == "test_an_error_in_the_loader"


class FailsOften:
    """An iterator that continues after an error, like a DataLoader with workers."""

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
def test_continuing_after_an_error(depth):
    """After a failure, the loader is called only when the consumer requests a batch."""
    loader = FailsOften()
    batches = iter(on_cpu(loader, prefetch=depth))
    results = []
    while len(results) < 9:
        try:
            results.append(next(batches))
        except ValueError as error:
            results.append(f"error {error}")
            time.sleep(0.05)
            assert loader.number == len(results) - 1
            assert feeding_threads() == []
    assert results == [0, "error 1", 2, 3, "error 4", 5, 6, "error 7", 8]
    assert next(batches, None) is None


@pytest.mark.parametrize("number", [0, 3])
def test_a_dropped_error_releases_everything(number):
    source = iter(Generated(fail_at=number))
    gone = weakref.ref(source)
    with no_garbage_collection():
        with contextlib.suppress(LookupError):
            list(on_cpu(source))
        del source
        assert gone() is None


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), FrozenError(1)]
)
@pytest.mark.parametrize("number", [0, 1])
def test_errors_that_are_not_exceptions_or_reject_notes(error, number):
    def loader():
        yield from range(number)
        raise error

    with pytest.raises(type(error)) as caught:
        list(on_cpu(loader()))
    assert caught.value is error


def test_garbage_collection_in_the_loaders_thread():
    def loader():
        yield 0
        gate.wait(10)
        iterators.clear()  # the last reference to the iterator goes in its own thread
        yield 1

    gate = threading.Event()
    iterators = [iter(on_cpu(loader(), prefetch=1))]
    assert next(iterators[0]) == 0
    (thread,) = feeding_threads()
    gate.set()
    while thread.is_alive():  # without the GIL, the iterator can end in this thread
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


def test_a_loader_that_blocks_does_not_block_a_break(monkeypatch):
    monkeypatch.setattr(Prefetcher.close, "__defaults__", (0.1,))

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
    assert 0.09 < time.monotonic() - start < 50
    (thread,) = feeding_threads()
    with no_garbage_collection():  # it returns with an error that nobody receives
        gate.set()
        thread.join()
        del source, thread
        assert gone() is None


def test_a_new_loop_waits_until_the_old_one_has_left_the_loader(monkeypatch):
    monkeypatch.setattr(Prefetcher.close, "__defaults__", (0.1,))

    class Exclusive:
        """A dataset that is not thread-safe, like many."""

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


# Workers.


class Failing(Dataset[Any]):
    """Samples 0 to 39, one of which raises."""

    def __init__(self, at, fail):
        self.at, self.fail = at, fail

    def __len__(self):
        return 40

    def __getitem__(self, index):
        if index == self.at:
            self.fail(index)
        return index


def with_workers(at, fail, timeout):
    options = {"num_workers": 2, "timeout": timeout, "multiprocessing_context": "fork"}
    return on_cpu(DataLoader(Failing(at, fail), 4, **options))


@pytest.mark.parametrize("missing", [0, 5, 39])
def test_an_error_in_a_worker(missing):
    received = []
    with pytest.raises(LookupError, match=f"batch {missing} is missing") as caught:
        received.extend(with_workers(missing, raise_in_the_loader, 60))
    assert_same(received, list(torch.arange(missing // 4 * 4).split(4))[: missing // 4])
    assert f"for batch {missing // 4} of this loop" in caught.value.__notes__[0]
    assert "__getitem__" in str(caught.value)  # the worker's own traceback
    del caught
    gc.collect()  # errors hold frames, which hold the loader's iterator
    assert multiprocessing.active_children() == []


def killed(index):
    time.sleep(0.3)  # the batches before it arrived
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed():
    with pytest.raises(RuntimeError, match=r"DataLoader (worker.*(killed|exited)|timed out)"):
        list(with_workers(20, killed, 1))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and feeding_threads():
        time.sleep(0.01)  # the thread checks the workers once per timeout
    gc.collect()
    assert multiprocessing.active_children() == []


# Programs, because Python prints complaints at exit.


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("list", "cycle"),
        ("list", "other thread"),
        ("busy", "plain"),
        ("workers", "plain"),
        ("workers", "cycle"),
        ("persistent", "plain"),
        ("nested", "other thread"),
        ("blocked", "plain"),  # which never return
        ("pure", "plain"),
    ],
)
def test_a_process_ends_in_the_middle_of_a_loop(kind, how):
    assert run_program("ends_in_a_loop", kind, how) == "end\n"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux's /proc")
def test_the_loader_uses_torchs_configured_number_of_threads():
    run_program("threads_of_the_loader")


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        ("forked_loop", ""),
        ("forked_while_a_loader_works", ""),
        ("interrupted_loops", ""),
        ("interrupted_training", "interrupted\n"),
    ],
)
def test_forks_and_interrupts(program, printed):
    assert run_program(program) == printed
