"""DeviceLoader over DataLoaders with worker processes, and how processes end."""

import gc
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from loaders import feeding_threads
from pinfeed.loaders.device_loader import DeviceLoader
from programs import run_program
from samples import assert_same

COUNT, BATCH = 40, 4


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    gc.collect()  # errors hold frames, and these the loader's iterator
    assert feeding_threads() == []
    assert multiprocessing.active_children() == []


class Numbers(Dataset[Any]):
    """0, 1, ..., one of which may be missing."""

    def __init__(self, missing=None):
        self.missing = missing

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        if index == self.missing:
            raise LookupError(f"sample {index} is missing")
        return index


EXPECTED = [torch.arange(first, first + BATCH) for first in range(0, COUNT, BATCH)]


def loader(dataset=None, method="fork", **options):
    options = {"num_workers": 2, "timeout": 60, "multiprocessing_context": method} | options
    return DataLoader(Numbers() if dataset is None else dataset, BATCH, **options)


@pytest.mark.parametrize("method", ["spawn"])  # forked ones are in test_every_loader.py
def test_all_batches_of_workers(method):
    batches = DeviceLoader(loader(method=method, persistent_workers=True), "cpu")
    for _ in range(2):
        assert_same(list(batches), EXPECTED)


@pytest.mark.parametrize("missing", [0, 5, COUNT - 1])
def test_an_error_in_a_worker(missing):
    received = []
    number = missing // BATCH
    with pytest.raises(LookupError, match=f"sample {missing} is missing") as caught:
        received.extend(DeviceLoader(loader(Numbers(missing)), "cpu"))
    assert_same(received, EXPECTED[:number])
    assert f"for batch {number} of this iteration" in caught.value.__notes__[0]
    assert "__getitem__" in str(caught.value)  # the worker's own traceback
    del caught


class Killed(Numbers):
    def __getitem__(self, index):
        if index == 20:
            time.sleep(0.3)  # the batches before are through
            os.kill(os.getpid(), signal.SIGKILL)
        return index


def test_a_worker_that_is_killed():
    with pytest.raises(RuntimeError, match=r"DataLoader (worker.*(killed|exited)|timed out)"):
        list(DeviceLoader(loader(Killed(), timeout=2), "cpu"))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and feeding_threads():
        time.sleep(0.01)  # the thread looks after the workers once in a timeout


def test_other_workers_start_during_a_loop():
    training = DeviceLoader(loader(), "cpu")
    validation = DeviceLoader(loader(), "cpu")
    for i, batch in enumerate(training):
        assert_same(batch, EXPECTED[i])
        if i % 4 == 0:
            assert_same(list(validation), EXPECTED)


# The ways a process ends. It must not print, because Python prints complaints then.


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
def test_the_loader_uses_as_many_threads_as_torch_was_told_to():
    run_program("threads_of_the_loader")


def test_an_interrupt_during_training():
    assert run_program("interrupted_training") == "interrupted\n"
