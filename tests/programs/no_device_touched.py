"""No device is touched before a loop begins."""

import torch


def touched(*_, **__):
    raise AssertionError("a device was touched")


for name in (
    "device_count",
    "current_device_index",
    "current_stream",
    "set_stream",
    "is_available",
):
    setattr(torch.accelerator, name, touched)
torch.Stream = torch.Event = touched
torch.cuda._lazy_init = touched
import pinfeed
from pinfeed.loaders.device_loader import DeviceLoader

for device in (None, "cpu", "cuda", "cuda:3"):
    loader = DeviceLoader([torch.ones(1)], device, {"x": pinfeed.Image(0.5)})
    len(loader), repr(loader), loader.stats()
assert list(DeviceLoader([1, 2], "cpu")) == [1, 2]
