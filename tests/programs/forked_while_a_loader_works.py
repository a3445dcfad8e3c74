"""Loops in a process that was forked while the loader built a batch."""

import os
import signal
import sys
import threading
import warnings

from pinfeed.loaders.device_loader import DeviceLoader

warnings.simplefilter("ignore")


def numbers():
    yield 0
    if os.getpid() == parent:
        at_work.set()
        go_on.wait()
    yield 1


class Loader:
    def __iter__(self):
        return numbers()

    def state_dict(self):
        return {}


parent, at_work, go_on = os.getpid(), threading.Event(), threading.Event()
batches = DeviceLoader(Loader(), "cpu")
waiting = iter(batches)
loop = iter(batches)
next(loop)
at_work.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(30)
    assert list(waiting) == [0, 1]
    assert list(batches) == [0, 1]
    assert DeviceLoader(batches, "cpu").state_dict() == {}
    sys.exit(0)
go_on.set()
assert os.waitpid(pid, 0)[1] == 0
assert list(loop) == [1]
assert list(waiting) == [0, 1]
