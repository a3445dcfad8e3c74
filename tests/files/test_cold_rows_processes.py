"""Rows of files in workers, threads and forks, in bounded memory."""

import threading

import numpy as np
import pytest

import pinfeed
from arrays import random_array
from cold_files import bring_to, every_temperature, saved
from programs import run_python

pytestmark = pytest.mark.kernels


@every_temperature
def test_in_threads(temperature, tmp_path):
    array = random_array((2000, 500), np.int16)
    path = saved(tmp_path, array)
    dataset, collate = pinfeed.ArrayDataset(path), pinfeed.Collate()
    bring_to(temperature, dataset, path)
    wrong = []

    def read(seed):
        rng = np.random.default_rng(seed)
        for _ in range(30):
            indices = rng.integers(0, 2000, 100)
            if not np.array_equal(collate(dataset.__getitems__(indices)).numpy(), array[indices]):
                wrong.append(seed)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


STREAMED = """
import sys
import numpy as np, pinfeed, torch

def anonymous():  # what the system can't take back, as it can the pages of a file
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))

def epoch(rows):
    loader = pinfeed.from_numpy(rows, 64, shuffle=True, device="cpu")
    most = total = 0
    for batch in loader:
        total += int(batch[:, 0].long().sum())
        most = max(most, anonymous())
    return total, most

_, before = epoch(np.zeros((640, 150_000), np.uint8))
(first, _), (second, most) = (epoch(sys.argv[1]) for _ in range(2))
assert first == second
print(most - before)
"""


@pytest.mark.processes
def test_memory_stays_bounded(tmp_path):
    row, count = 150_000, 1800
    path = tmp_path / "large.npy"
    large = np.lib.format.open_memmap(path, "w+", np.uint8, (count, row))
    for start in range(0, count, 100):
        large[start : start + 100] = random_array((100, row), np.uint8, start)
    del large
    grown = int(run_python(STREAMED, str(path), timeout=300))
    batch = 64 * row
    assert grown < 2 * batch + (16 << 20)


FORKING = """
import os, signal, sys, threading, time
import numpy as np, pinfeed
signal.alarm(60)  # hangs don't last
folder = sys.argv[1]
array = np.arange(4000 * 500).reshape(4000, 500)
np.save(f"{folder}/one.npy", array)
parts = [f"{folder}/part-{i}.npy" for i in range(400)]
for path, part in zip(parts, np.split(array, 400)):
    np.save(path, part)
datasets = [pinfeed.ArrayDataset(s) for s in (f"{folder}/one.npy", pinfeed.ConcatArray(parts))]
collate = pinfeed.Collate()
images = np.random.default_rng(0).integers(0, 256, (64, 96, 96, 3), np.uint8)
in_memory, normalize = pinfeed.ArrayDataset(images), pinfeed.Collate(pinfeed.Image(0.5, 0.25))
pinfeed.set_num_threads(2)  # new ones start in each fork, which has none of those here
normalized = normalize(in_memory.__getitems__(range(64))).numpy()

def gather(seed):
    indices = np.random.default_rng(seed).integers(0, len(array), 64)
    batch = collate(datasets[seed % 2].__getitems__(indices))
    assert np.array_equal(batch.numpy(), array[indices])
    if seed % 3 == 0:
        # By NumPy: threads of torch's own don't survive a fork.
        assert np.array_equal(normalize(in_memory.__getitems__(range(64))).numpy(), normalized)
    if seed % 5 == 0:
        descriptor = os.open(parts[seed % 400] if seed % 2 else f"{folder}/one.npy", os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)

def keep_gathering(number):
    seed = number
    while not stop.is_set():
        gather(seed)
        seed += 3
        rounds[number] += 1

gather(0), gather(1)  # what is imported late is imported now: a fork may not come in between
stop, rounds = threading.Event(), [0, 0, 0]
threads = [threading.Thread(target=keep_gathering, args=(i,)) for i in range(3)]
for thread in threads:
    thread.start()
children = []

def fork_often():
    end = time.monotonic() + 2
    while time.monotonic() < end or len(children) < 3:
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            code = 1
            try:
                for seed in range(6):
                    gather(len(children) * 10 + seed)
                code = 0
            finally:
                os._exit(code)
        children.append(os.waitpid(pid, 0)[1])

if sys.argv[2] == "thread":
    forking = threading.Thread(target=fork_often)
    forking.start()
    forking.join()
else:
    fork_often()
assert children == [0] * len(children)
stop.set()
for thread in threads:
    thread.join()
assert min(rounds) > 0, rounds
print("done")
"""


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("place", ["main", "thread"])
def test_forks_beside_threads_that_gather(place, tmp_path):
    assert run_python(FORKING, str(tmp_path), place, timeout=120).split() == ["done"]
