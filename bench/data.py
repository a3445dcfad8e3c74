"""Samples, their loaders, and the comparison of results with the expected ones."""

import math
import multiprocessing
import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# One rounding of the largest normalized value, 2.64: other libraries round at other steps.
ROUNDED = 2e-6
# The normalized difference of 1 in an image of bytes.
ONE = 1 / 255 / min(STD)


def random_bytes(*shape: int) -> np.ndarray:
    """Returns random uint8."""
    size = int(np.prod(shape))
    return np.frombuffer(bytearray(np.random.default_rng(0).bytes(size)), np.uint8).reshape(shape)


def smooth_images(count: int, height: int, width: int) -> np.ndarray:
    """Returns smooth images, whose pixels are similar under different interpolations."""
    coarse = torch.from_numpy(random_bytes(count, 3, 6, 8))
    sizes: dict[str, Any] = {"size": (height, width), "mode": "bicubic", "antialias": True}
    images = torch.nn.functional.interpolate(coarse, **sizes)
    return images.permute(0, 2, 3, 1).contiguous().numpy()


@cache
def normalize_table(std: tuple[float, ...] = STD) -> torch.Tensor:
    """Returns the normalized value of each byte in each channel: float32 (256, 3).

    Computed in float64 from the two float32 constants of the documented arithmetic, so that only
    the last rounding remains.
    """
    scale = (np.float64(1 / 255) / np.asarray(std)).astype(np.float32)
    bias = (-np.asarray(MEAN) / np.asarray(std)).astype(np.float32)
    values = np.arange(256, dtype=np.float64)[:, None] * scale + bias.astype(np.float64)
    return torch.from_numpy(values.astype(np.float32))


def normalized(
    images: np.ndarray, dtype: torch.dtype = torch.float32, std: tuple[float, ...] = STD
) -> torch.Tensor:
    """Returns (N, H, W, 3) bytes as (N, 3, H, W), normalized by the table."""
    count, height, width, _ = images.shape
    result = torch.empty((count, 3, height, width), dtype=dtype)
    table, channels = normalize_table(std), torch.arange(3)
    step = max(1, 500_000 // (height * width))
    for start in range(0, count, step):
        some = torch.from_numpy(images[start : start + step]).int()
        result[start : start + step] = table[some, channels].permute(0, 3, 1, 2)
    return result


def sequences(count: int, longest: int, *item: int, dtype: Any = np.int64) -> list[np.ndarray]:
    """Returns arrays of 1 to `longest` items, the first the longest."""
    rng = np.random.default_rng(0)
    sizes = [longest, *rng.integers(1, longest + 1, count - 1).tolist()]
    return [rng.integers(1, 50_000, (size, *item)).astype(dtype) for size in sizes]


def padded(arrays: list[np.ndarray]) -> torch.Tensor:
    """Returns the arrays padded with 0."""
    shape = (len(arrays), max(map(len, arrays)), *arrays[0].shape[1:])
    result = np.zeros(shape, arrays[0].dtype)
    for row, array in zip(result, arrays, strict=True):
        row[: len(array)] = array
    return torch.from_numpy(result)


def lengths_of(samples: Any) -> torch.Tensor:
    """Returns the lengths, computed as torch code usually does."""
    return torch.tensor([len(sample) for sample in samples])


def by_torch(tensors: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Pads as torch code usually does, including lengths."""
    return pad_sequence(tensors, batch_first=True), lengths_of(tensors)


def document_lengths(count: int, mean: float, longest: int) -> np.ndarray:
    """Returns lognormal lengths; `mean` is of their logarithm."""
    lengths = np.random.default_rng(0).lognormal(mean, 1.1, count)
    return lengths.astype(np.int64).clip(1, longest)


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Returns the beginnings of the documents, and the end of the last."""
    return np.append(0, np.cumsum(lengths))


class Draw:
    """Random indices, redrawn before each sample, so that rows come from memory, not the cache.

    Attributes:
        batches: int64 (batches, size). `array` is the first of them.
    """

    def __init__(self, rows: int, size: int = 256, batches: int = 1) -> None:
        self._rng, self._rows = np.random.default_rng(1), rows
        self.batches = np.zeros((batches, size), np.int64)
        self.array = self.batches[0]
        self.tensor = torch.from_numpy(self.array)
        self.again()

    def again(self) -> None:
        """Draws new indices."""
        self.batches[:] = self._rng.integers(0, self._rows, self.batches.shape)


@cache
def _much() -> np.ndarray:
    return np.zeros(256 << 20, np.uint8)


def empty_caches() -> None:
    """Evicts the samples from the CPU's caches."""
    _much()[:] += 1


class Labeled:
    """Images, transformed when they are read, with their indices as labels."""

    def __init__(self, images: Any, transform: Any = None) -> None:
        self.images, self.transform = images, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        image = self.images[index]
        return (image if self.transform is None else self.transform(image)), index


def epochs(
    dataset: Any, size: int = 1, collate: Any = None, workers: int = 0, **options: Any
) -> Any:
    """Returns a function that begins an epoch of a DataLoader, whose workers persist."""
    options |= {"num_workers": workers, "persistent_workers": workers > 0}
    return partial(iter, DataLoader(dataset, size, collate_fn=collate, **options))


def difference(result: Any, expected: Any) -> float:
    """Returns the largest absolute difference of arrays, tensors, and structures of them.

    Infinite if shapes or dtypes differ, and NaN if there is one. Further items of a tuple must be
    None.
    """
    if isinstance(expected, Mapping):
        pairs = [(result[key], expected[key]) for key in expected]
        same = result.keys() == expected.keys()
    elif isinstance(expected, list | tuple):
        pairs = list(zip(result, expected, strict=False))
        same = len(pairs) == len(expected) and not any(x is not None for x in result[len(pairs) :])
    else:
        one, two = torch.as_tensor(result), torch.as_tensor(expected)
        if one.shape != two.shape or one.dtype != two.dtype:
            return math.inf
        if torch.equal(one, two):
            return 0.0
        # In slices, because whole float32 copies disturb the measured memory.
        slices = zip(one.flatten().split(1 << 20), two.flatten().split(1 << 20), strict=True)
        return float(np.max([float((a.float() - b.float()).abs().max()) for a, b in slices]))
    return float(np.max([difference(*pair) for pair in pairs])) if same else math.inf


def entry_is(key: Any, expected: Any) -> Callable[[Any], float]:
    """Returns a function that compares one entry of a batch."""
    return lambda batch: difference(batch[key], expected)


def joined(batches: Iterable[tuple[torch.Tensor, ...]]) -> tuple[torch.Tensor, ...]:
    """Returns the entries of all batches of an epoch, concatenated."""
    return tuple(map(torch.cat, zip(*batches, strict=True)))


def zero_if(is_right: Any) -> float:
    """Returns 0 for a right result, else infinity."""
    return 0.0 if is_right else math.inf


def held_bytes() -> int:
    """Returns the proportional set size of this process and its children (Linux)."""
    processes = [os.getpid(), *(child.pid for child in multiprocessing.active_children())]
    rollups = [Path(f"/proc/{process}/smaps_rollup").read_text() for process in processes]
    return sum(int(rollup.split("Pss:")[1].split()[0]) * 1024 for rollup in rollups)
