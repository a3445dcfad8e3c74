"""A loop in a process that was forked in the middle of it."""

import os
import sys
import warnings

from pinfeed.loaders.device_loader import DeviceLoader

warnings.simplefilter("ignore")
batches = DeviceLoader(range(100), "cpu")
loop = iter(batches)
next(loop), next(loop)
pid = os.fork()
if pid == 0:
    received = []
    try:
        while True:  # prefetched batches
            received.append(next(loop))
    except RuntimeError as error:
        assert "forked process" in str(error), error
    assert len(received) <= 2, received
    del loop
    assert list(batches) == list(range(100))
    sys.exit(0)  # through atexit, which ends threads
assert os.waitpid(pid, 0)[1] == 0
assert list(loop) == list(range(2, 100))
