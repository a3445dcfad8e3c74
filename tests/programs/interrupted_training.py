"""Ctrl-C during a loop over batches of workers."""

import os
import signal
import threading
import warnings

os.dup2(1, 2)
warnings.simplefilter("ignore")
import torch
from torch.utils.data import DataLoader

from pinfeed.loaders.device_loader import DeviceLoader


def loop():
    batches = DeviceLoader(DataLoader(torch.arange(100_000), 8, num_workers=2), "cpu")
    while True:
        for _ in batches:
            pass


def interrupt():
    while not interrupted.wait(1.0):  # Python drops an interrupt in a finalizer
        os.kill(os.getpid(), signal.SIGINT)


interrupted = threading.Event()
threading.Thread(target=interrupt).start()
try:
    loop()
except KeyboardInterrupt:
    interrupted.set()
assert [thread.name for thread in threading.enumerate() if thread.name == "pinfeed"] == []
print("interrupted")
