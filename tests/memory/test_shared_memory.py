"""A small /dev/shm: batches of workers don't need it, and what does need it names the remedy.

In a mount namespace of its own, so that nobody else's files are there and it can be small.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MOUNT = 'mount -t tmpfs -o size=$0 tmpfs /dev/shm && exec "$@"'


def in_small_shared_memory(size, *command):
    """Runs a command that has a /dev/shm of this size for itself."""
    unshare = ["unshare", "--mount", "--map-root-user", "sh", "-c", MOUNT, size]
    return subprocess.run(
        [*unshare, *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parent,
    )


pytestmark = pytest.mark.skipif(
    shutil.which("unshare") is None or in_small_shared_memory("1m", "true").returncode != 0,
    reason="needs Linux's unshare, and leave to mount a /dev/shm",
)


PROGRAM = """
import multiprocessing
import numpy as np, pinfeed
from pinfeed.memory.outputs import new_shared_storage
from torch.utils.data import DataLoader

multiprocessing.set_start_method("fork")

dataset = pinfeed.ArrayDataset(np.ones((64, 3, 224, 224), np.float32))
for batch in DataLoader(dataset, 32, num_workers=2, collate_fn=pinfeed.Collate(), timeout=60):
    assert int(batch.sum()) == 32 * 3 * 224 * 224  # 19 MB

streams = []
try:
    while True:
        streams.append(pinfeed.StreamDataset(range(3)))
except OSError as error:
    print(error)
del streams

def collate(samples):
    return new_shared_storage(2_000_000, "Collate")

new_shared_storage(900_000, "Collate")
try:
    next(iter(DataLoader(range(8), 8, collate_fn=collate, num_workers=1)))
except OSError as error:
    print(str(error).splitlines()[-1])
"""


def test_batches_lie_elsewhere_and_what_fills_it_names_the_remedy():
    done = in_small_shared_memory("1m", sys.executable, "-c", PROGRAM)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    of_stream, of_batch = done.stdout.splitlines()
    assert of_batch.startswith("OSError: Collate: no room for 2,000,000 bytes of shared memory (")
    for part in ("of 1,048,576 bytes free)", "--shm-size", "prefetch_f"):
        assert part in of_batch
    assert of_stream.startswith("StreamDataset: no room for 4,096 bytes of shared memory (")
