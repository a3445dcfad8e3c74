"""The main process is killed while a worker waits for memory."""

import os
import signal
import time

import numpy as np
from torch.utils.data import DataLoader

import batches  # noqa: F401
import pinfeed
from forked_main_process import go_on_in_a_fork

go_on_in_a_fork()

pinfeed.set_worker_memory_limit(2**20)
samples = np.ones((64, 60_000))
iterator = iter(
    DataLoader(samples, 1, num_workers=1, collate_fn=pinfeed.Collate(), prefetch_factor=32)
)
batch = next(iterator)
print(*[worker.pid for worker in iterator._workers], flush=True)
while pinfeed.testing.worker_memory_stats()["waits"] == 0:  # after a batch that nobody reads
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
