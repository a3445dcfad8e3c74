"""Loaders that tests can inspect, and fixtures of every DeviceLoader test."""

import faulthandler
import gc
import threading

import pytest
import torch

from pinfeed.loaders.device_loader import DeviceLoader

COUNT = 6


@pytest.fixture(autouse=True)
def watchdog():
    """Ends a test that hangs, with the stacks of all threads."""
    faulthandler.dump_traceback_later(120, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    if feeding_threads():
        gc.collect()  # errors in cycles, whose tracebacks hold the loop's frames
    assert feeding_threads() == []


def feeding_threads():
    return [thread for thread in threading.enumerate() if thread.name == "pinfeed"]


def on_cpu(loader, **options):
    return DeviceLoader(loader, "cpu", **options)


class Generated:
    """A loader that records every iteration."""

    def __init__(self, count=COUNT, fail_at=None):
        self.count, self.fail_at = count, fail_at
        self.requests = 0  # batches, in all iterations
        self.open = 0  # iterations in progress

    def __iter__(self):
        self.open += 1
        try:
            for i in range(self.count):
                self.requests += 1
                if i == self.fail_at:
                    raise_in_the_loader(i)
                yield torch.tensor(i)
        finally:
            self.open -= 1


def raise_in_the_loader(number):
    raise LookupError(f"batch {number} is missing")
