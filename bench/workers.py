"""DataLoader with two worker processes: what it takes to get a batch from them.

`python -m bench.workers NAME` measures the ways of one workload in turn and prints JSON.
"""

import gc
import json
import os
import random
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

import pinfeed
from bench.fresh import probe_json
from bench.image_ways import MEAN, STD
from bench.peers.torchvision import transforms
from bench.resized import VIEW

WORKERS = 2
SIZE = 224
COLUMNS = {
    "ms": "ms a batch",
    "to_pinfeed": "to pinfeed",
    "trainer_ms": "trainer's CPU, ms",
    "cpu_s": "CPU of all, s per 1,000 samples",
    "faults": "page faults",
    "mappings": "new mappings",
    "files": "new files",
}


class Tensors:
    """Images that are in memory as they should be: a worker only stacks them."""

    def __init__(self) -> None:
        self.images = torch.randn(256, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return 8 * len(self.images)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.images[index % len(self.images)]


class Tokens:
    """Short sequences: what counts is what a batch costs, however small it is."""

    def __init__(self) -> None:
        self.tokens = torch.arange(64 * 128).reshape(64, 128)

    def __len__(self) -> int:
        return 300 * len(self.tokens)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.tokens[index % len(self.tokens)]


class Photographs:
    """The photographs that scikit-learn ships, decoded and cropped anew for each sample."""

    def __init__(self) -> None:
        import sklearn.datasets

        folder = Path(sklearn.datasets.__file__).parent / "images"
        self.files = sorted(folder.glob("*.jpg"))

    def __len__(self) -> int:
        return 16 * 32

    def decoded(self, index: int) -> Any:
        from PIL import Image

        return Image.open(self.files[index % len(self.files)]).convert("RGB")

    def __getitem__(self, index: int) -> np.ndarray:
        photograph = self.decoded(index)
        place = random.Random(index)
        left = place.randrange(photograph.width - SIZE)
        top = place.randrange(photograph.height - SIZE)
        return np.asarray(photograph.crop((left, top, left + SIZE, top + SIZE)))


class Normalized(Photographs):
    """The same, each sample normalized as it is done without pinfeed."""

    def __getitem__(self, index: int) -> torch.Tensor:
        pixels = torch.from_numpy(super().__getitem__(index).copy()).permute(2, 0, 1).contiguous()
        mean, std = (torch.tensor(values).reshape(3, 1, 1) for values in (MEAN, STD))
        return pixels.float().div_(255).sub_(mean).div_(std)


class Whole(Photographs):
    """The same, not cropped."""

    def __getitem__(self, index: int) -> np.ndarray:
        return np.asarray(self.decoded(index))


class Resized(Photographs):
    """The same, with the windows that pinfeed draws, by torchvision v2: uint8 until the end."""

    def __init__(self) -> None:
        super().__init__()
        v2 = self.v2 = transforms()
        sizes = [np.broadcast_to(np.uint8(0), (*self.decoded(i).size[::-1], 3)) for i in (0, 1)]
        images = pinfeed.IndexedDataset(sizes * (len(self) // 2)).__getitems__(range(len(self)))
        collate = pinfeed.Collate(pinfeed.Image(augment=VIEW, windows=True), seed=0)
        self.windows = collate(images)[1].long().tolist()
        self.finish = v2.Compose(
            [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD, inplace=True)]
        )

    def __getitem__(self, index: int) -> torch.Tensor:
        pixels = torch.from_numpy(np.array(self.decoded(index))).permute(2, 0, 1)
        *window, _, flipped = self.windows[index]
        view = self.v2.functional.resized_crop(pixels, *window, [SIZE, SIZE], antialias=True)
        return self.finish(self.v2.functional.horizontal_flip(view) if flipped else view)


def nothing(samples: list[Any]) -> torch.Tensor:
    """What is left of a batch where only the dataset's time counts."""
    return torch.empty(0)


@dataclass(frozen=True)
class Job:
    """A workload: the dataset and collate function of each way, the first being pinfeed's."""

    title: str
    batch: int
    rounds: int
    ways: dict[str, Callable[[], tuple[Any, Any, int]]]  # dataset, collate_fn, workers
    tolerance: float = 0.0


JOBS = {
    "workers-images": Job(
        "256x3x224x224 float32, workers only stack",
        256,
        7,
        {
            "**pinfeed** `Collate()`": lambda: (Tensors(), pinfeed.Collate(), WORKERS),
            "**pinfeed** `Collate()`, 0 workers": lambda: (Tensors(), pinfeed.Collate(), 0),
            "DataLoader, `default_collate`": lambda: (Tensors(), None, WORKERS),
            "DataLoader, `default_collate`, 0 workers": lambda: (Tensors(), None, 0),
        },
    ),
    "workers-jpeg": Job(
        "32 random crops 224x224 of JPEGs, decoded with Pillow, normalized",
        32,
        7,
        {
            "**pinfeed** `Collate(Image())`": lambda: (
                Photographs(), pinfeed.Collate(pinfeed.Image(MEAN, STD)), WORKERS,
            ),
            "DataLoader, torch per sample": lambda: (Normalized(), None, WORKERS),
            "**pinfeed** `Collate(Image())`, 0 workers": lambda: (
                Photographs(), pinfeed.Collate(pinfeed.Image(MEAN, STD)), 0,
            ),
        },
        tolerance=1e-5,
    ),
    "workers-jpeg-resized": Job(
        "32 JPEGs, decoded with Pillow, random crops resized to 224x224, flipped, normalized",
        32,
        7,
        {
            "**pinfeed** `Collate(Image(augment=))`": lambda: (
                pinfeed.IndexedDataset(Whole()),
                pinfeed.Collate(pinfeed.Image(MEAN, STD, augment=VIEW), seed=0),
                WORKERS,
            ),
            "decoding alone": lambda: (Whole(), nothing, WORKERS),
            "DataLoader, torchvision v2 per sample": lambda: (Resized(), None, WORKERS),
        },
        tolerance=1e-5,
    ),
    "workers-small": Job(
        "64 sequences of 128 int64",
        64,
        15,
        {
            "**pinfeed** `Collate()`": lambda: (Tokens(), pinfeed.Collate(), WORKERS),
            "DataLoader, `default_collate`": lambda: (Tokens(), None, WORKERS),
        },
    ),
}  # fmt: skip


class Loader:
    """A loader with workers that persist, and what its epochs took."""

    def __init__(self, dataset: Any, collate: Any, workers: int, batch: int) -> None:
        options = {"num_workers": workers, "persistent_workers": True} if workers else {}
        self.loader = DataLoader(dataset, batch, collate_fn=collate, **options)
        self.batch = batch
        self.samples: dict[str, list[float]] = {}

    def last_batch(self) -> torch.Tensor:
        for batch in self.loader:  # noqa: B007, an epoch as a trainer sees it
            pass
        return batch.clone()

    def _counts(self) -> dict[str, float]:
        iterator = getattr(self.loader, "_iterator", None)
        pids = [worker.pid for worker in iterator._workers] if iterator else []
        trainer = time.process_time()
        return {
            "ms": time.perf_counter() * 1e3,
            "trainer_ms": trainer * 1e3,
            "cpu_s": trainer + sum(map(_cpu_seconds, pids)),
            "faults": resource.getrusage(resource.RUSAGE_SELF).ru_minflt,
            "mappings": sum(1 for _ in open("/proc/self/maps")),
            "files": len(os.listdir("/proc/self/fd")),
        }

    def sample(self) -> None:
        before, count = self._counts(), 0
        for _ in self.loader:
            count += 1
        after = self._counts()
        for key, value in after.items():
            per = self.batch / 1e3 * count if key == "cpu_s" else count
            self.samples.setdefault(key, []).append((value - before[key]) / per)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(job: Job) -> dict[str, Any]:
    """Verify every way, and let each take an epoch in every round, in an order drawn anew."""
    loaders = {}
    reference = None
    for name, make in job.ways.items():
        loader = Loader(*make(), job.batch)
        result = loader.last_batch()
        reference = result if reference is None else reference
        if len(result) > 0 and not torch.allclose(result, reference, rtol=0, atol=job.tolerance):
            raise RuntimeError(f"{name}: another result than {next(iter(job.ways))}")
        loaders[name] = loader
    order = random.Random(0)
    gc.collect()
    gc.disable()
    for _ in range(job.rounds):
        for name in order.sample(list(loaders), len(loaders)):
            loaders[name].sample()
    ours = next(iter(loaders.values())).samples["ms"]
    report = {}
    for name, loader in loaders.items():
        pairs = zip(loader.samples["ms"], ours, strict=True)
        medians = {key: statistics.median(values) for key, values in loader.samples.items()}
        report[name] = medians | {"to_pinfeed": statistics.median(a / b for a, b in pairs)}
    return report


def workload(name: str) -> dict[str, Any]:
    """The table of one workload, measured in a process of its own."""
    job = JOBS[name]
    try:
        report, note = probe_json(["bench.workers", name]), ""
    except RuntimeError as error:
        report, note = {}, str(error)[:200]
    ways = []
    for way in job.ways:
        values = [round(report[way][key], 2) for key in COLUMNS] if way in report else None
        ways.append(
            {
                "name": way,
                "role": "pinfeed" if "pinfeed" in way else "peer",
                "status": "failed" if note else "ok",
                "note": note,
                "report": report.get(way),
                "values": values,
            }
        )
    return {
        "name": name,
        "title": f"{job.title}: {WORKERS} persistent workers unless it says 0",
        "kind": "counts",
        "columns": list(COLUMNS.values()),
        "ways": ways,
    }


WORKLOADS = dict.fromkeys(JOBS, workload)

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(json.dumps(measure(JOBS[sys.argv[1]])))
