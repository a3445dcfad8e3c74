"""A small /dev/shm: batches of workers don't need it, and errors of code that does suggest a fix.

Runs in its own mount namespace, so that /dev/shm can be small and contains no other files.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MOUNT = 'mount -t tmpfs -o size=$0 tmpfs /dev/shm && exec "$@"'

PROGRAM = Path(__file__).parents[1] / "programs" / "small_shared_memory.py"


def in_small_shared_memory(size, *command):
    """Runs a command with a private /dev/shm of this size."""
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


def test_batches_are_stored_elsewhere_and_errors_suggest_a_fix():
    done = in_small_shared_memory("1m", sys.executable, PROGRAM)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (of_batch,) = done.stdout.splitlines()
    assert of_batch.startswith("OSError: Collate: not enough shared memory for 2,000,000 bytes (")
    for part in ("of 1,048,576 bytes free)", "--shm-size", "prefetch_f"):
        assert part in of_batch
