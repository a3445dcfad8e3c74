"""Many epochs; argv: workers, epochs, whether workers persist, whether a DeviceLoader prefetches."""

import gc
import os
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader

import pinfeed

workers, epochs, persistent, ahead = map(int, sys.argv[1:])
warnings.simplefilter("ignore")
images = np.ones((512, 24, 24, 3), np.uint8)
dataset = pinfeed.ArrayDataset({"image": images, "label": np.arange(len(images))})
options = {"persistent_workers": bool(persistent), "timeout": 60} if workers else {}
if workers:
    options["multiprocessing_context"] = "fork"  # others import torch in each epoch
collate = pinfeed.Collate({"image": pinfeed.Image(0.5)})


def collated(samples):
    if ahead and epoch % 10 == 0:
        torch.ones(50_000).add_(1)  # large enough for torch to use several threads
    return collate(samples)


loader = DataLoader(dataset, 32, shuffle=True, num_workers=workers, collate_fn=collated, **options)
if ahead:
    loader = pinfeed.DeviceLoader(loader, "cpu")


def resources():
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    maps = Path("/proc/self/maps").read_text().count("\n")
    threads = len(os.listdir("/proc/self/task"))
    return pages * 4096, len(os.listdir("/proc/self/fd")), maps, threads


for epoch in range(epochs):
    if epoch == epochs // 5:
        before, memory = resources(), pinfeed.testing.worker_memory_stats()
    for i, batch in enumerate(loader):  # noqa: B007
        if ahead and epoch % 3 == 0 and i == 1:
            break
del batch
deadline = time.monotonic() + 30
while (after := resources())[3] > before[3] and time.monotonic() < deadline:
    time.sleep(0.1)  # threads that fed the queues of the last workers or a loop can be ending
most = 4e6 if ahead else 8e6
assert after[0] - before[0] < most, f"memory grew: {before[0]} to {after[0]} bytes"
assert after[1] <= before[1] + min(workers, 2), f"open files grew: {before[1]} to {after[1]}"
assert after[2] <= before[2] + 20, f"mappings grew: {before[2]} to {after[2]}"
assert after[3] <= before[3] + min(workers, 1), f"threads grew: {before[3]} to {after[3]}"
assert workers or threading.active_count() == 1
now = pinfeed.testing.worker_memory_stats()
assert now["resident_bytes"] <= max(memory["resident_bytes"], 16 * 2**20), (memory, now)
