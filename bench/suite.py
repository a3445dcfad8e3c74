"""Every workload by name, and one workload run in a process of its own."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import (
    arrays,
    arrow_epoch,
    augmented,
    chunked_tables,
    cold_rows,
    collators,
    dataset_memory,
    draining,
    fresh,
    gathered,
    image_kinds,
    images,
    jagged,
    mixed_sizes,
    mixtures,
    packed_epoch,
    packing,
    ragged_epoch,
    ray_batches,
    resized,
    samplers,
    sequences,
    small_batches,
    stream,
    tensorflow_feed,
    unaligned_outputs,
    workers,
)
from bench.epoch import Epoch, epoch_workload
from bench.harness import Workload, measure, use_threads
from bench.peers import torch_epoch, torchvision

ROOT = Path(__file__).parents[1]


def _epoch(name: str) -> Workload:
    epoch = Epoch()
    return epoch_workload(name, epoch, [*torch_epoch.ways(epoch), *torchvision.epoch_ways(epoch)])


TIMED: dict[str, tuple[int, Callable[[str], Workload]]] = {
    **images.workloads(),
    "gathered": (1, gathered.gathered),
    "epoch": (1, _epoch),
    **augmented.workloads(),
    **resized.workloads(),
    **image_kinds.workloads(),
    **arrays.workloads(),
    **unaligned_outputs.workloads(),
    **sequences.workloads(),
    **jagged.workloads(),
    **collators.workloads(),
    **mixed_sizes.workloads(),
    **ragged_epoch.workloads(),
    **arrow_epoch.workloads(),
    **chunked_tables.workloads(),
    **draining.workloads(),
    **ray_batches.workloads(),
    **tensorflow_feed.workloads(),
    **cold_rows.workloads(),
    **stream.workloads(),
    **samplers.workloads(),
    **packing.workloads(),
    **packed_epoch.workloads(),
    **small_batches.workloads(),
}
FRESH = {
    **fresh.WORKLOADS,
    **mixtures.WORKLOADS,
    **dataset_memory.WORKLOADS,
    **draining.WORKLOADS,
    **workers.WORKLOADS,
}
NAMES = [*TIMED, *FRESH]


def run_here(name: str, rounds: int, budget: float, progress) -> dict[str, Any]:
    """Measure one workload in this process."""
    threads, make = TIMED[name]
    with use_threads(threads):
        result = measure(make(name), rounds=rounds, budget=budget, progress=progress)
    return result | {"threads": threads}


def run(name: str, rounds: int, budget: float) -> dict[str, Any]:
    """Measure one workload in a fresh process, so that none finds what another left behind."""
    if name in FRESH:
        return FRESH[name](name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "result.json")
        command = [sys.executable, "-m", "bench", name, "--here", str(path)]
        command += ["--rounds", str(rounds), "--budget", str(budget)]
        done = subprocess.run(command, cwd=ROOT, check=False)
        if done.returncode:
            way = {"name": "the whole workload", "role": "peer", "status": "failed"}
            way["note"] = f"exit status {done.returncode}"
            return {"name": name, "title": name, "kind": "timing", "images": 0, "ways": [way]}
        return json.loads(path.read_text())
