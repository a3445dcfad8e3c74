"""Several threads call gather for the first time at once."""

import faulthandler
import sys
import threading

import numpy as np

import pinfeed

faulthandler.dump_traceback_later(30, exit=True)
sys.setswitchinterval(1e-6)
dataset, collate = pinfeed.ArrayDataset(np.arange(10)), pinfeed.Collate()
start = threading.Barrier(8)


def gather():
    start.wait()
    collate(dataset.__getitems__(np.arange(5)))


threads = [threading.Thread(target=gather) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
