"""A DeviceLoader's thread computes with torch's configured number of threads."""

import os

import torch

from pinfeed.loaders.device_loader import DeviceLoader


def loader():
    matrix = torch.ones(400, 400)
    for _ in range(3):
        matrix @ matrix
        yield len(os.listdir("/proc/self/task"))


torch.set_num_threads(1)
first, *others = DeviceLoader(loader(), "cpu")
assert others == [first + 1] * 2, (first, others)
