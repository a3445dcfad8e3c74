"""The main process is killed; argv: a file that is created then, and after which event."""

import os
import signal
import sys
import time

import numpy as np
from torch.utils.data import DataLoader

import batches  # noqa: F401
import pinfeed
from forked_main_process import go_on_in_a_fork

go_on_in_a_fork()
gone, event = sys.argv[1:]


class Samples:
    def __len__(self):
        return 64

    def __getitem__(self, i):
        if event == "begin" and i == 0:
            open(f"{gone}.begun", "x").close()
            while not os.path.exists(gone):
                time.sleep(0.05)
            time.sleep(0.3)
        return [np.ones(60_000)] * (4 if event == "begin" else 1)


# Before a worker's first batch, torch doesn't notice that the main process died.
received = {"begin": 0, "wait": 1, "two batches": 2}[event]
if event != "two batches":
    pinfeed.set_worker_memory_limit(2**20)  # less than the first batch, or two batches
options = {"num_workers": max(1, received), "prefetch_factor": 32}
iterator = iter(DataLoader(Samples(), 1, collate_fn=pinfeed.Collate(), **options))
held_batches = [next(iterator) for _ in range(received)]
print(*[worker.pid for worker in iterator._workers], flush=True)
while event == "begin" and not os.path.exists(f"{gone}.begun"):
    time.sleep(0.01)
while event == "wait" and pinfeed.testing.worker_memory_stats()["waits"] == 0:
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
