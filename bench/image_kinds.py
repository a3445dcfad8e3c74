"""Images of 16 bits and of floats, clips, and masks of classes: beside reading and filling memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import pinfeed
from bench.harness import Role, Way, Workload
from bench.image_ways import MEAN, STD, largest_difference
from pinfeed import augment

COUNT, SIZE = 256, 224


def _batches(field: pinfeed.Field, samples: npt.NDArray[Any]) -> Callable[[], Any]:
    collate = pinfeed.Collate(field, seed=0)
    rows = pinfeed.ArrayDataset(samples).__getitems__(np.arange(len(samples)))
    return lambda: collate(rows)


def _read_and_fill(samples: npt.NDArray[Any]) -> Callable[[], Any]:
    words = torch.from_numpy(samples.reshape(-1).view(np.int64))
    out = torch.empty(samples.shape)

    def run() -> torch.Tensor:
        words.sum()
        return out.fill_(1)

    return run


def _pixels(*shape: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def images(dtype: str) -> Callable[[str], Workload]:
    """Photographs of another dtype than uint8, normalized."""

    def workload(name: str) -> Workload:
        photos = _pixels(COUNT, SIZE, SIZE, 3).astype(dtype)
        scaled = torch.from_numpy(photos.astype(np.float32)).permute(0, 3, 1, 2)
        if dtype == "uint16":
            scaled = scaled / 65535
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
        ways = [
            Way("reading and filling", lambda: _read_and_fill(photos), Role.LIMIT),
            Way(
                "**pinfeed**",
                lambda: _batches(pinfeed.Image(MEAN, STD), photos),
                Role.PINFEED,
                tolerance=1e-6,  # one rounding for torch's three
            ),
            Way("torch", lambda: lambda: (scaled - mean) / std),
        ]
        title = f"{COUNT} images of {SIZE}x{SIZE}x3 {dtype}, {torch.get_num_threads()} thread(s)"
        expected = (scaled - mean) / std
        largest = float(expected.abs().max())
        return Workload(
            name,
            title,
            ways,
            error=lambda result: largest_difference(result, expected) / largest,
        )

    return workload


def clips(name: str) -> Workload:
    """Clips, beside the same pixels as images."""
    frames = _pixels(COUNT, SIZE, SIZE, 3)
    clip = frames.reshape(COUNT // 16, 16, SIZE, SIZE, 3)
    expected = pinfeed.normalize(torch.from_numpy(frames), MEAN, STD)
    expected = expected.view(COUNT // 16, 16, 3, SIZE, SIZE).transpose(1, 2)
    field = pinfeed.Image(MEAN, STD, input="THWC", output="CTHW")
    ways = [
        Way("the same as images", lambda: _batches(pinfeed.Image(MEAN, STD), frames), Role.LIMIT),
        Way("**pinfeed**", lambda: _batches(field, clip), Role.PINFEED),
    ]
    title = f"{COUNT // 16} clips of 16 frames of {SIZE}x{SIZE}x3 to (B, C, T, H, W)"
    return Workload(name, title, ways, error=lambda result: largest_difference(result, expected))


def masks(name: str) -> Workload:
    """Masks of bytes to int64, flipped."""
    classes = _pixels(COUNT, SIZE, SIZE)
    expected = torch.from_numpy(classes.astype(np.int64)).flip(2)
    flip = augment.RandomHorizontalFlip(1)
    field = pinfeed.Image(input="HW", output="HW", dtype=torch.int64, augment=flip)
    ways = [
        Way("not flipped", lambda: _batches(pinfeed.Stack(torch.int64), classes), Role.LIMIT),
        Way("**pinfeed**", lambda: _batches(field, classes), Role.PINFEED),
    ]
    title = f"{COUNT} masks of {SIZE}x{SIZE} bytes to int64, flipped"
    return Workload(name, title, ways, error=lambda result: largest_difference(result, expected))


def workloads() -> dict[str, tuple[int, Callable[[str], Workload]]]:
    """Return the workloads here by name: their number of threads and what makes them."""
    return {
        "images-uint16": (1, images("uint16")),
        "images-float32": (1, images("float32")),
        "clips": (1, clips),
        "masks": (1, masks),
    }
