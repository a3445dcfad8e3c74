"""A small /dev/shm: batches of workers don't need it, and what does need it names the remedy.

In a mount namespace of its own, so that nobody else's files are there and it can be small.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MOUNT = 'mount -t tmpfs -o size=$0 tmpfs /dev/shm && exec "$@"'
SETUP = """
import multiprocessing
import numpy as np, pinfeed
from pinfeed.memory.outputs import new_shared_storage
from torch.utils.data import DataLoader

multiprocessing.set_start_method("fork")
"""


def in_small_shared_memory(size: str, *command: str) -> subprocess.CompletedProcess[str]:
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


def printed(size: str, code: str) -> str:
    done = in_small_shared_memory(size, sys.executable, "-c", SETUP + code)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


pytestmark = pytest.mark.skipif(
    shutil.which("unshare") is None or in_small_shared_memory("1m", "true").returncode != 0,
    reason="needs Linux's unshare, and leave to mount a /dev/shm",
)


def test_batches_of_workers_lie_elsewhere() -> None:
    """Each is 19 MB."""
    code = """
dataset = pinfeed.ArrayDataset(np.ones((64, 3, 224, 224), np.float32))
for batch in DataLoader(dataset, 32, num_workers=2, collate_fn=pinfeed.Collate(), timeout=60):
    print(int(batch.sum()) == 32 * 3 * 224 * 224)
"""
    assert printed("1m", code).split() == ["True", "True"]


def test_a_full_one_names_the_remedy() -> None:
    code = """
def collate(samples):
    return new_shared_storage(2_000_000, "Collate")

new_shared_storage(900_000, "Collate")
try:
    next(iter(DataLoader(range(8), 8, collate_fn=collate, num_workers=1)))
except OSError as error:
    print(str(error).splitlines()[-1])
"""
    message = printed("1m", code)
    assert message.startswith("OSError: Collate: no room for 2,000,000 bytes of shared memory (")
    for part in ("of 1,048,576 bytes free)", "--shm-size", "prefetch_f"):
        assert part in message


def test_a_stream_in_a_full_one() -> None:
    code = """
first = pinfeed.StreamDataset(range(3))
try:
    pinfeed.StreamDataset(range(3))
except OSError as error:
    print(error)
"""
    message = printed("8k", code)
    assert message.startswith("StreamDataset: no room for 4,096 bytes of shared memory (")
