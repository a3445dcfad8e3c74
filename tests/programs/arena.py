"""What programs about the arena begin with: warnings are no output, and what is logged is."""

import gc
import logging
import sys
import warnings

import pinfeed
from arenas import in_arena

__all__ = ["in_arena", "nothing_is_left"]

warnings.simplefilter("ignore")
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)


def nothing_is_left():
    gc.collect()
    stats = pinfeed.testing.worker_memory_stats()
    assert (stats["workers"], stats["live_slots"], stats["resident_bytes"]) == (0, 0, 0), stats
