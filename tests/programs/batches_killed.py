"""The main process is killed between two batches."""

import os
import signal

import numpy as np
from torch.utils.data import DataLoader

import batches  # noqa: F401
import pinfeed
from forked_main_process import go_on_in_a_fork

go_on_in_a_fork()

loader = DataLoader(np.ones((64, 5000)), 1, num_workers=2, collate_fn=pinfeed.Collate())
iterator = iter(loader)
# One batch of each worker, because before its first one torch doesn't notice that the main process died.
next(iterator), next(iterator)
print(*[worker.pid for worker in iterator._workers], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
