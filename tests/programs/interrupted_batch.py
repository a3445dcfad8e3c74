"""Ctrl-C during a batch; argv: the samples, and a path."""

import os
import signal
import sys
import threading
import time

import numpy as np

import pinfeed

images = np.ones((256, 224, 224, 3), np.uint8)
collate = pinfeed.Collate(pinfeed.Image(0.5, 0.25))
dataset = pinfeed.ArrayDataset(images)
pinfeed.set_num_threads(2)
rows = dataset.__getitems__(range(256))
np.save(sys.argv[2], images)
batches = {
    "rows": rows,
    "samples": list(rows),
    "rows of a file": pinfeed.ArrayDataset(sys.argv[2]).__getitems__(range(256)),
}
collate(rows)
sent = None


def interrupt():
    global sent
    time.sleep(0.3)
    sent = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)


threading.Thread(target=interrupt).start()
try:
    while True:
        collate(batches[sys.argv[1]])
except KeyboardInterrupt:
    seconds = time.monotonic() - sent
assert seconds < 10, seconds
assert collate(rows).shape == (256, 3, 224, 224)  # later batches are complete
print("interrupted")
