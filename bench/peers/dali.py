"""NVIDIA DALI's CPU operator, in an environment and a process of its own.

DALI's packages and torch's don't go together in one environment, so a worker process holds the
pipeline, does its batch when it is told to, and reads its own clock. It takes its turn in the
same rounds as the ways in this process.
"""

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.epoch import Epoch
from bench.harness import Way
from bench.image_ways import MEAN, STD, ImageBatch

ENVIRONMENT = Path(__file__).parents[2] / ".venv-dali"
WORKER = Path(__file__).with_name("dali_worker.py")
PACKAGES = ("nvidia-dali-cuda130==2.4.*", "numpy>=2")


def _interpreter() -> Path:
    folder = "Scripts" if sys.platform == "win32" else "bin"
    return ENVIRONMENT / folder / "python"


def install() -> None:
    """Create the environment, unless it is there."""
    if not _interpreter().exists():
        venv.create(ENVIRONMENT, with_pip=True)
    pip = [str(_interpreter()), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, *PACKAGES], check=True)


class Worker:
    """DALI's side of the benchmark: a process that answers one line with one line."""

    def __init__(self, images: np.ndarray, **job: Any) -> None:
        if not _interpreter().exists():
            raise ImportError("DALI needs an environment of its own: make bench ARGS=--dali")
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name, "images.npy")
        self._result = Path(self._folder.name, "result.npz")
        np.save(path, images)
        self._process = subprocess.Popen(
            [_interpreter(), WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._ask(
            {
                "images": str(path),
                "mean": [255 * value for value in MEAN],
                "std": [255 * value for value in STD],
                "threads": torch.get_num_threads(),
                **job,
            }
        )

    def _ask(self, question) -> float:
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            lines = self._process.stderr.read().splitlines() or ["it ended without a word"]
            raise RuntimeError(f"DALI's worker: {lines[-1]}")
        return json.loads(answer)

    def __call__(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Do the job once and return its batches and their indices, by way of a file."""
        self._ask({"save": str(self._result)})
        with np.load(self._result) as arrays:
            batches = list(arrays.values())
        return list(zip(batches[::2], batches[1::2], strict=True))

    def seconds(self, calls: int) -> float:
        """Do the job `calls` times and return the worker's own measurement."""
        return self._ask({"calls": calls})


def ways(batch: ImageBatch) -> list[Way]:
    """NHWC to float32 NCHW or NHWC, in buffers that DALI reuses."""

    def build():
        return Worker(batch.images, output=batch.output[1:])

    def error(batches):
        return batch.error(batches[0][0])

    return [Way("NVIDIA DALI CPU `crop_mirror_normalize`", build, tolerance=2e-6, error=error)]


def cropped_epoch(epoch: Epoch, padding: int) -> Worker:
    """Shuffled epochs of images that are padded, cropped and mirrored at random."""
    return Worker(epoch.images, output="CHW", batch_size=epoch.batch_size, padding=padding)
