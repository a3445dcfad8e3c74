"""A whole loader as one array: `to_numpy`, in time and in peak memory.

`python -m bench.draining WAY` measures the peak of one way in its process, and prints it as JSON.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from bench.fresh import probe
from bench.harness import Role, Way, Workload
from pinfeed.exports.to_numpy import to_numpy

SHAPE = (50_000, 3, 32, 32)
BATCH = 256


def by_hand(batches) -> np.ndarray:
    """Return what one gets who knows the length, and writes the loop."""
    out = np.empty(SHAPE, np.float32)
    start = 0
    for batch in batches:
        out[start : start + len(batch)] = batch.numpy()
        start += len(batch)
    return out


# What a table calls a way, and what it does with a loader of tensors.
WAYS: dict[str, tuple[str, Callable[[Any], np.ndarray]]] = {
    "pinfeed": ("**pinfeed** `to_numpy`", to_numpy),
    "pinfeed-iterator": ("**pinfeed** `to_numpy`, length unknown", lambda x: to_numpy(iter(x))),
    "by-hand": ("NumPy, a loop into `np.empty` of the right size", by_hand),
    "torch": ("torch `cat(list(loader)).numpy()`", lambda x: torch.cat(list(x)).numpy()),
    "numpy": (
        "NumPy `concatenate` of a list",
        lambda x: np.concatenate([batch.numpy() for batch in x]),
    ),
}


def _role(key: str) -> Role:
    return Role.PINFEED if key.startswith("pinfeed") else Role.PEER


def drained(name: str) -> Workload:
    """Batches that are in memory already, so that what is timed is their way into the result."""
    source = np.random.default_rng(0).random(SHAPE, np.float32)
    batches = torch.from_numpy(source).split(BATCH)

    def error(result: np.ndarray) -> float:
        same = result.dtype == source.dtype and np.array_equal(result, source)
        return 0.0 if same else float("inf")

    limit = Way("physical limit: copy the result once", lambda: source.copy, Role.LIMIT)
    ways = [
        Way(label, lambda drain=drain: lambda: drain(batches), _role(key))
        for key, (label, drain) in WAYS.items()
    ]
    size = "x".join(map(str, SHAPE))
    threads = f"{torch.get_num_threads()} thread(s)"
    title = f"{size} float32 in batches of {BATCH} from memory → one array, {threads}"
    return Workload(name, title, [limit, *ways], error, repeat=False, images=SHAPE[0])


def drain_memory(name: str) -> dict[str, Any]:
    """Peak memory of a DataLoader whose batches nobody else holds."""
    ways = []
    for key, (label, _) in WAYS.items():
        way = probe(label, _role(key), ["bench.draining", key], lambda report: [report["peak"]])
        ways.append(way | {"key": key})
    size = "x".join(map(str, SHAPE))
    return {
        "name": name,
        "title": f"Peak memory, {size} float32 in batches of {BATCH} → one array",
        "kind": "counts",
        "columns": ["(peak - 2 batches) / result"],
        "ways": ways,
    }


def workloads():
    """Return every timed workload here by name: its number of threads and what makes it."""
    return {"drain": (1, drained), "drain-2-threads": (2, drained)}


WORKLOADS = {"drain-memory": drain_memory}


def _status(field: str) -> int:
    """Return a field of the process's status in bytes (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def main(key: str) -> None:
    rows = torch.rand(BATCH, *SHAPE[1:])
    loader = DataLoader(range(SHAPE[0]), BATCH, collate_fn=lambda indices: rows[: len(indices)] + 0)
    drain = WAYS[key][1]
    to_numpy([next(iter(loader))])  # whatever is loaded or allocated at first use is no part of it
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # starts the peak anew
    result = drain(loader)
    peak = _status("VmHWM") - before
    json.dump({"peak": (peak - 2 * rows.nbytes) / result.nbytes}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
