"""Forks while threads gather; argv: a folder, and the forking process."""

import os
import signal
import sys
import threading
import time

import numpy as np

import pinfeed

signal.alarm(60)  # ends a hang
folder = sys.argv[1]
array = np.arange(4000 * 500).reshape(4000, 500)
np.save(f"{folder}/one.npy", array)
parts = [f"{folder}/part-{i}.npy" for i in range(400)]
for path, part in zip(parts, np.split(array, 400), strict=True):
    np.save(path, part)
datasets = [pinfeed.ArrayDataset(s) for s in (f"{folder}/one.npy", pinfeed.ConcatArray(parts))]
collate = pinfeed.Collate()
images = np.random.default_rng(0).integers(0, 256, (64, 96, 96, 3), np.uint8)
in_memory, normalize = pinfeed.ArrayDataset(images), pinfeed.Collate(pinfeed.Image(0.5, 0.25))
pinfeed.set_num_threads(2)  # each fork starts new threads, because it has none
normalized = normalize(in_memory.__getitems__(range(64))).numpy()


def gather(seed):
    indices = np.random.default_rng(seed).integers(0, len(array), 64)
    batch = collate(datasets[seed % 2].__getitems__(indices))
    assert np.array_equal(batch.numpy(), array[indices])
    if seed % 3 == 0:
        # Filled by NumPy, because torch's own threads don't survive a fork.
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


gather(0), gather(1)  # complete late imports now, so that no fork interrupts them
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
