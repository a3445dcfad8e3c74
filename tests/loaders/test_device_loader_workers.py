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
from programs import run_python
from samples import assert_same

COUNT, BATCH = 40, 4
BATCHES = COUNT // BATCH


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    gc.collect()  # errors hold frames, and these the loader's iterator
    assert feeding_threads() == []
    assert multiprocessing.active_children() == []


class Numbers(Dataset[Any]):
    """0, 1, ..., of which one can be missing."""

    def __init__(self, missing=None):
        self.missing = missing

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        if index == self.missing:
            raise LookupError(f"sample {index} is missing")
        return index


def expected(number):
    return torch.arange(number * BATCH, (number + 1) * BATCH)


def loader(dataset=None, method="fork", **options):
    options = {"num_workers": 2, "timeout": 60, "multiprocessing_context": method} | options
    return DataLoader(Numbers() if dataset is None else dataset, BATCH, **options)


@pytest.mark.parametrize(
    ("method", "persistent"), [("fork", False), ("fork", True), ("spawn", True)]
)
def test_all_batches(method, persistent):
    batches = DeviceLoader(loader(method=method, persistent_workers=persistent), "cpu")
    for _ in range(2):
        assert_same(list(batches), [expected(i) for i in range(BATCHES)])


@pytest.mark.parametrize("persistent", [False, True])
def test_a_break_at_every_batch(persistent):
    batches = DeviceLoader(loader(persistent_workers=persistent), "cpu")
    for stop in range(BATCHES) if persistent else (0, 4, BATCHES - 1):  # workers take long to start
        for i, batch in enumerate(batches):
            assert_same(batch, expected(i))
            if i == stop:
                break
        if not persistent:
            assert multiprocessing.active_children() == []


def test_persistent_workers_serve_the_last_loop():
    batches = DeviceLoader(loader(persistent_workers=True), "cpu")
    for _ in range(5):
        first = iter(batches)
        next(first)
        assert_same(list(batches), [expected(i) for i in range(BATCHES)])
        with pytest.raises(RuntimeError, match="ended when a later one began"):
            next(first)


@pytest.mark.parametrize("missing", [0, 5, COUNT - 1])
def test_an_error_in_a_worker(missing):
    received = []
    number = missing // BATCH
    with pytest.raises(LookupError, match=f"sample {missing} is missing") as caught:
        received.extend(DeviceLoader(loader(Numbers(missing)), "cpu"))
    assert_same(received, [expected(i) for i in range(number)])
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
        assert_same(batch, expected(i))
        if i % 4 == 0:
            assert_same(list(validation), [expected(j) for j in range(BATCHES)])


# How a process ends. Nothing may be written then, for that is where Python complains.

ENDING = """
import os, sys, threading, time, warnings
os.dup2(1, 2)
warnings.simplefilter("ignore")
import torch
from torch.utils.data import DataLoader, Dataset
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.loaders import feed

class Slow(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.ones(100, 100) * index

def blocked():
    yield 0
    threading.Event().wait()

def busy():
    while True:
        yield torch.randn(300, 300) @ torch.randn(300, 300)

def pure():
    yield 0
    while True:
        pass

loader = {
    "list": lambda: [1] * 1000,
    "busy": busy,
    "blocked": blocked,
    "pure": pure,
    "workers": lambda: DataLoader(Slow(), 4, num_workers=2),
    "persistent": lambda: DataLoader(Slow(), 4, num_workers=2, persistent_workers=True),
    "nested": lambda: DeviceLoader(DataLoader(Slow(), 4, num_workers=2), "cpu"),
}[sys.argv[1]]()
if sys.argv[1] in ("blocked", "pure"):
    feed._SECONDS_TO_EXIT = 0.3
loop = iter(DeviceLoader(loader, "cpu", depth=4))
next(loop)
if sys.argv[2] == "cycle":
    class Holder: pass
    holder = Holder()
    holder.loop, holder.cycle = loop, holder
    del loop, holder
elif sys.argv[2] == "other thread":
    threading.Thread(target=lambda: [next(loop) for _ in range(3)]).start()
print("end")
"""


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
    assert run_python(ENDING, kind, how) == "end\n"


NUM_THREADS = """
import os
import torch
from pinfeed.loaders.device_loader import DeviceLoader

def loader():
    matrix = torch.ones(400, 400)
    for _ in range(3):
        matrix @ matrix
        yield len(os.listdir("/proc/self/task"))

torch.set_num_threads(1)
first, *others = DeviceLoader(loader(), "cpu")
assert others == [first + 1] * 2, (first, others)
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux's /proc")
def test_the_loader_uses_as_many_threads_as_torch_was_told_to():
    run_python(NUM_THREADS)


INTERRUPTED_TRAINING = """
import os, signal, threading, time, warnings
os.dup2(1, 2)
warnings.simplefilter("ignore")
import torch
from torch.utils.data import DataLoader
from pinfeed.loaders.device_loader import DeviceLoader

def loop():
    batches = DeviceLoader(DataLoader(torch.arange(100_000), 8, num_workers=2), "cpu")
    while True:
        for batch in batches:
            pass

def interrupt():
    while not interrupted.wait(1.0):  # one that comes in a finalizer is lost, as Python does it
        os.kill(os.getpid(), signal.SIGINT)

interrupted = threading.Event()
threading.Thread(target=interrupt).start()
try:
    loop()
except KeyboardInterrupt:
    interrupted.set()
assert [thread.name for thread in threading.enumerate() if thread.name == "pinfeed"] == []
print("interrupted")
"""


def test_an_interrupt_during_training():
    assert run_python(INTERRUPTED_TRAINING) == "interrupted\n"
