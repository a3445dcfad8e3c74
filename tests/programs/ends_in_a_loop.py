"""A process that exits in the middle of a loop, and must print nothing then; argv: its loader, and the exit."""

import os
import sys
import threading
import time
import warnings

os.dup2(1, 2)
warnings.simplefilter("ignore")
import torch
from torch.utils.data import DataLoader, Dataset

from pinfeed.loaders import prefetcher
from pinfeed.loaders.device_loader import DeviceLoader


class Slow(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.ones(100, 100) * index


def blocked():
    yield 0
    threading.Event().wait()


def busy():
    while True:
        yield torch.randn(300, 300) @ torch.randn(300, 300)


def pure():
    yield 0
    while True:
        pass


loader = {
    "list": lambda: [1] * 1000,
    "busy": busy,
    "blocked": blocked,
    "pure": pure,
    "workers": lambda: DataLoader(Slow(), 4, num_workers=2),
    "persistent": lambda: DataLoader(Slow(), 4, num_workers=2, persistent_workers=True),
    "nested": lambda: DeviceLoader(DataLoader(Slow(), 4, num_workers=2), "cpu"),
}[sys.argv[1]]()
if sys.argv[1] in ("blocked", "pure"):
    prefetcher._SECONDS_TO_EXIT = 0.3
loop = iter(DeviceLoader(loader, "cpu", prefetch=4))
next(loop)
if sys.argv[2] == "cycle":

    class Holder:
        pass

    holder = Holder()
    holder.loop, holder.cycle = loop, holder
    del loop, holder
elif sys.argv[2] == "other thread":
    threading.Thread(target=lambda: [next(loop) for _ in range(3)]).start()
print("end")
