"""The main process is killed before a worker builds its first batch, while memory is full."""

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


class Samples:
    def __len__(self):
        return 64

    def __getitem__(self, i):
        if i == 0:
            open(sys.argv[1] + ".begun", "x").close()
            while not os.path.exists(sys.argv[1]):
                time.sleep(0.05)
            time.sleep(0.3)
        return [np.zeros(60_000)] * 4


pinfeed.set_worker_memory_limit(2**20)  # less than a batch, and never freed
iterator = iter(
    DataLoader(Samples(), 1, num_workers=1, collate_fn=pinfeed.Collate(), prefetch_factor=32)
)
print(*[worker.pid for worker in iterator._workers], flush=True)
while not os.path.exists(sys.argv[1] + ".begun"):  # before that, torch's own worker would stay
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
