"""`Collate()` beside torch's `default_collate`, for batches that are small: what a drop-in costs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

import pinfeed
from bench.arrays import difference
from bench.harness import Role, Way, Workload

COUNTS = (1, 8, 32, 256, 1024)


def _dicts(count: int, of_tensors: bool) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    kind = torch.from_numpy if of_tensors else np.asarray
    return [
        {
            "image": kind(rng.random((3, 32, 32), np.float32)),
            "features": kind(rng.random(16, np.float32)),
            "label": int(rng.integers(1000)),
            "weight": float(rng.random()),
        }
        for _ in range(count)
    ]


def _rows(count: int) -> Any:
    rng = np.random.default_rng(0)
    arrays = {
        "image": rng.random((count, 3, 32, 32), np.float32),
        "features": rng.random((count, 16), np.float32),
        "label": rng.integers(0, 1000, count),
        "weight": rng.random(count),
    }
    return pinfeed.ArrayDataset(arrays).__getitems__(rng.permutation(count))


SAMPLES: dict[str, Callable[[int], Any]] = {
    "tensors": lambda count: _dicts(count, True),
    "ndarrays": lambda count: _dicts(count, False),
    "ints": lambda count: np.random.default_rng(0).integers(0, 1000, count).tolist(),
    "rows": _rows,
}


def _workload(name: str) -> Workload:
    _, kind, count = name.rsplit("-", 2)
    samples = SAMPLES[kind](int(count))
    expected = default_collate(samples)

    def error(batch: Any) -> float:
        if isinstance(batch, dict):
            return max(difference(batch[key], expected[key]) for key in expected)
        return difference(batch, expected)

    def way(name: str, collate: Callable[[Any], Any], role: Role) -> Way:
        return Way(name, lambda: lambda: collate(samples), role)

    leaves = "integers" if kind == "ints" else f"dicts of four leaves, {kind}"
    return Workload(
        name,
        f"{count} samples: {leaves}",
        [
            way("torch `default_collate`", default_collate, Role.PEER),
            way("pinfeed `Collate()`", pinfeed.Collate(), Role.PINFEED),
        ],
        error,
    )


def workloads() -> dict[str, tuple[int, Callable[[str], Workload]]]:
    """By name, with the threads that each takes."""
    return {f"small-batches-{kind}-{count}": (1, _workload) for kind in SAMPLES for count in COUNTS}
