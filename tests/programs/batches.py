"""Common beginning of programs about worker memory: hides warnings, and prints the log."""

import gc
import logging
import sys
import warnings

import pinfeed
from worker_memory import in_worker_memory

__all__ = ["in_worker_memory", "nothing_is_left"]

warnings.simplefilter("ignore")
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)


def nothing_is_left():
    gc.collect()
    stats = pinfeed.testing.worker_memory_stats()
    assert (stats["workers"], stats["live_slots"], stats["resident_bytes"]) == (0, 0, 0), stats
