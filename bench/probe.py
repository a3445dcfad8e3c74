"""Runs one way in a fresh process and reports on it as JSON: `python -m bench.probe`.

Usage: python -m bench.probe (faults | memory) WAY BATCHES KEPT
"""

import json
import resource
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import torch

import pinfeed
from bench.image_ways import MEAN, STD, ImageBatch, torch_ways
from bench.peers import numpy_forms


def make_way(key: str, batch: ImageBatch) -> Callable[[], object]:
    """Return the callable that makes one batch."""
    if key in ("torch-out", "torch"):
        return torch_ways(batch)[key == "torch"].build()
    if key == "numpy":
        return numpy_forms.ways(batch)[1].build()

    pinfeed.set_num_threads(1)
    if key == "collate":
        dataset = pinfeed.ArrayDataset(batch.images)
        collate = pinfeed.Collate(pinfeed.Image(MEAN, STD))
        indices = list(range(len(batch.images)))
        return lambda: collate(dataset.__getitems__(indices))
    keywords = {"out": batch.out} if key == "out" else {}
    return lambda: pinfeed.normalize(batch.tensor, MEAN, STD, **keywords)


def faults(make: Callable[[], object], batches: int, kept: int) -> dict[str, list]:
    """Make batches, keeping the last `kept`, and count the minor page faults of each."""
    live: deque = deque(maxlen=kept)
    counts, seconds = [], []
    for _ in range(batches):
        start = time.perf_counter()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        live.append(make())
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        seconds.append(time.perf_counter() - start)
    return {"faults": counts, "seconds": seconds}


def _status(field: str) -> int:
    """Return a field of the process's status in bytes (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def memory(make: Callable[[], object], batches: int, kept: int, size: int) -> dict[str, float]:
    """Make batches, keeping the last `kept`, and measure the peak beyond what is kept.

    The batch that is being made is not counted as kept, so a way that makes nothing else than
    it is 1 batch beyond; one that writes into an output of the caller is 0.
    """
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # starts the peak anew
    live: deque = deque(maxlen=kept)
    for _ in range(batches):
        live.append(make())
    return {"beyond": (_status("VmHWM") - before) / size - kept}


def main(question: str, key: str, batches: str, kept: str) -> None:
    torch.set_num_threads(1)
    warm = ImageBatch(2, 8, 8)
    make_way(key, warm)()  # whatever is loaded or allocated at first use is no part of a batch
    batch = ImageBatch(256, 224, 224)
    make = make_way(key, batch)
    if question == "faults":
        report = faults(make, int(batches), int(kept))
    else:
        report = memory(make, int(batches), int(kept), batch.out.nbytes)
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
