"""Ctrl-C during a loop over a dataset; argv: the number of prefetched batches."""

import os
import signal
import sys
import threading

import torch

import pinfeed


def batches():
    while True:
        yield torch.zeros(1000)


def interrupt():
    while not done.wait(0.5):
        os.kill(os.getpid(), signal.SIGINT)


dataset = pinfeed.to_tensorflow(batches())
ahead, done = int(sys.argv[1]), threading.Event()
thread = threading.Thread(target=interrupt)
thread.start()
try:
    for _ in dataset.prefetch(ahead) if ahead else dataset:
        pass
except BaseException as error:
    done.set()
    assert "KeyboardInterrupt" in repr(error), error
thread.join()
print("interrupted")
