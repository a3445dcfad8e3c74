"""Several ConcatArrays share the limit of open files; argv: a folder, the number of files, and the limit."""

import os
import resource
import sys

import numpy as np

import pinfeed

folder, limit = sys.argv[1], int(sys.argv[2])
for i in range(300):
    np.save(f"{folder}/{i}.npy", np.full((2, 3), i))
count_open = lambda: len(os.listdir("/proc/self/fd"))
paths = [f"{folder}/{i}.npy" for i in range(300)]
others = [open(os.devnull) for _ in range(int(sys.argv[3]))]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
before = count_open()
dataset = pinfeed.ArrayDataset({name: pinfeed.ConcatArray(paths) for name in "abcde"})
for _ in range(3):
    batch = pinfeed.Collate()(dataset.__getitems__(range(0, 600, 2)))
    assert all(np.array_equal(rows[:, 0], np.arange(300)) for rows in batch.values())
    assert count_open() <= before + min(limit // 4, 256)
    spare = [open(os.devnull) for _ in range(limit // 4 if not others else 0)]
    del spare
del dataset
assert count_open() == before
