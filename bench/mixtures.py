"""Batches of several sizes from one pool of buffers: page faults and time of each round.

Usage: python -m bench.mixtures MIXTURE
"""

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import pinfeed
from bench.fresh import probe

WARM, ROUNDS = 20, 60
Job = Callable[[], object]


def _frames(steps: Sequence[int]) -> list[np.ndarray]:
    return [np.ones((length, 512), np.float32) for length in steps]


def _pad_job(steps: Sequence[int]) -> Job:
    frames = _frames(steps)
    return lambda: pinfeed.pad(frames)


def _loader(count: int, side: int) -> Job:
    """One batch after the other of `count` images, as a loader would make them."""
    images = np.zeros((count, side, side, 3), np.uint8)
    dataset = pinfeed.ArrayDataset(images)
    collate = pinfeed.Collate(pinfeed.Image())
    indices = list(range(count))
    return lambda: collate(dataset.__getitems__(indices))


def _two_sizes() -> list[Job]:
    return [_pad_job([8] * 64), _pad_job([240] * 64)]  # 1 MB and 31 MB


def _two_loaders() -> list[Job]:
    return [_loader(64, 224), _loader(24, 224)]


def _three_leaves() -> list[Job]:
    images = np.zeros((64, 224, 224, 3), np.uint8)
    features = np.zeros((64, 20_000), np.float32)
    tokens = pinfeed.RaggedArray.from_sequences([np.arange(2_000)] * 64)
    dataset = pinfeed.ArrayDataset({"image": images, "features": features, "tokens": tokens})
    collate = pinfeed.Collate({"image": pinfeed.Image(), "tokens": pinfeed.Pad()})
    indices = list(range(64))
    return [lambda: collate(dataset.__getitems__(indices))]


def _changing_sizes() -> list[Job]:
    lengths = np.random.default_rng(0).integers(40, 320, 16)
    return [_pad_job([int(length)] * 64) for length in lengths]


MIXTURES: dict[str, tuple[str, Callable[[], list[Job]]]] = {
    "sizes": ("`pad` of 1 MB and of 31 MB in turns", _two_sizes),
    "loaders": ("two loaders in turns, 39 MB and 14 MB", _two_loaders),
    "leaves": ("one batch of leaves of 39 MB, 5 MB and 1 MB", _three_leaves),
    "changing": ("`pad` of 5 to 42 MB, 16 lengths", _changing_sizes),
}


def _rounds(jobs: Sequence[Job], rounds: int) -> dict[str, list[float]]:
    """Do every job once in each round, each batch dropped before the next is made."""
    faults, seconds = [], []
    for _ in range(WARM + rounds):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        start = time.perf_counter()
        for job in jobs:
            job()
        seconds.append(time.perf_counter() - start)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return {"faults": faults[WARM:], "seconds": seconds[WARM:]}


def report(mixture: str) -> dict[str, Any]:
    """Measure a mixture: faults and seconds of a round, and of its jobs one by one."""
    pinfeed.set_num_threads(1)
    jobs = MIXTURES[mixture][1]()
    alone = sum(statistics.median(_rounds([job], 20)["seconds"]) for job in jobs)
    mixed = _rounds(jobs, ROUNDS)
    return {
        "faults": statistics.median(mixed["faults"]),
        "seconds": statistics.median(mixed["seconds"]),
        "alone": alone,
    }


def mixtures(name: str) -> dict[str, Any]:
    """Return the table of all mixtures, each in a fresh process."""
    ways = [
        probe(
            f"**pinfeed** {label}",
            "pinfeed",
            ["bench.mixtures", key],
            lambda report: [
                report["faults"],
                f"{report['seconds'] * 1e3:.2f} ms",
                f"{report['seconds'] / report['alone']:.2f} x",
            ],
        )
        | {"key": key}
        for key, (label, _) in MIXTURES.items()
    ]
    return {
        "name": name,
        "title": "Batches of several sizes: a round, beside its batches made one by one, 1 thread",
        "kind": "counts",
        "columns": ["page faults", "time", "to one by one"],
        "ways": ways,
    }


WORKLOADS = {"mixtures": mixtures}

if __name__ == "__main__":
    print(json.dumps(report(sys.argv[1])))
