"""What is left in /dev/shm when processes are killed, and what a full one says.

In a mount namespace of its own, so that nobody else's files are there and it can be small.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MOUNT = 'mount -t tmpfs -o size=$0 tmpfs /dev/shm && exec "$@"'


def in_small_shared_memory(size: str, code: str) -> str:
    """What a Python program prints that has a /dev/shm of this size for itself."""
    unshare = ["unshare", "--mount", "--map-root-user", "sh", "-c", MOUNT, size]
    done = subprocess.run(
        [*unshare, sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parent,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", MOUNT, "1m", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(
    not can_mount(), reason="needs Linux's unshare, and leave to mount a /dev/shm"
)

PREPARED = """
import gc, os, signal, sys, time
import numpy as np
import torch
from torch.utils.data import DataLoader
import pinfeed

images = np.zeros((400, 64, 64, 3), np.uint8)
dataset = pinfeed.ArrayDataset({"image": images, "label": np.arange(400)})
collate = pinfeed.Collate({"image": pinfeed.Image(0.5, 0.25)})
loader = DataLoader(dataset, 8, collate_fn=collate, num_workers=2, prefetch_factor=4)

def left(seconds=0):
    deadline = time.monotonic() + seconds
    while os.listdir("/dev/shm") and time.monotonic() < deadline:
        time.sleep(0.1)
    return os.listdir("/dev/shm")
"""


def test_a_killed_worker() -> None:
    printed = in_small_shared_memory(
        "200m",
        PREPARED
        + """
def read_on():
    for batch in batches:
        pass

batches = iter(loader)
kept = [next(batches) for _ in range(3)]
start = time.monotonic()
try:
    with batches._workers_done_event._cond:  # the worker must not die holding it: DataLoader would hang
        os.kill(batches._workers[1].pid, signal.SIGKILL)
        time.sleep(10)  # the DataLoader's signal handler raises here
except RuntimeError as error:
    print(error)
try:
    read_on()
except Exception as error:  # torch's, whichever comes first
    print(type(error).__name__)
print(time.monotonic() - start < 20)
del batches, kept
gc.collect()
print(left(10))
""",
    )
    killed, _, in_time, files = printed.splitlines()
    assert killed.startswith("DataLoader worker (pid")
    assert "killed by signal: Killed" in killed
    assert in_time == "True"
    assert files == "[]"


def test_a_killed_trainer() -> None:
    printed = in_small_shared_memory(
        "200m",
        PREPARED
        + """
trainer = os.fork()
if trainer == 0:
    for number, batch in enumerate(loader):
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
print(os.WTERMSIG(os.waitpid(trainer, 0)[1]) == signal.SIGKILL)
print(left(30))
""",
    )
    assert printed.split() == ["True", "[]"]


def test_a_full_one_names_the_remedy() -> None:
    printed = in_small_shared_memory(
        "1m",
        PREPARED
        + """
from pinfeed.memory.outputs import new_shared_storage

def collate(samples):
    return new_shared_storage(2_000_000, "Collate")

new_shared_storage(900_000, "Collate")
try:
    next(iter(DataLoader(dataset, 8, collate_fn=collate, num_workers=1)))
except OSError as error:
    print(str(error).splitlines()[-1])
""",
    )
    assert printed.startswith("OSError: Collate: no room for 2,000,000 bytes of shared memory (")
    assert "of 1,048,576 bytes free)" in printed
    assert "No space left on device" in printed
    assert "--shm-size" in printed
    assert "prefetch_factor" in printed


def test_a_stream_in_a_full_one() -> None:
    printed = in_small_shared_memory(
        "4k",
        """
import pinfeed

first = pinfeed.StreamDataset(range(3))
try:
    pinfeed.StreamDataset(range(3))
except OSError as error:
    print(error)
""",
    )
    assert printed.startswith("StreamDataset: no room for 4,096 bytes of shared memory (")
