"""What one writes in NumPy: tuned by hand, and as it is usually written."""

from collections.abc import Callable

import numpy as np
import torch

from bench.harness import Way
from bench.image_ways import MEAN, ROUNDING, STD, ImageBatch


def ways(batch: ImageBatch) -> list[Way]:
    """Any layouts and dtype but bfloat16, which NumPy lacks."""
    if batch.dtype == torch.bfloat16:
        return []
    dtype = batch.out.numpy().dtype
    rounding = ROUNDING[batch.dtype]
    shape = [-1 if axis == "C" else 1 for axis in batch.input]
    mean = np.asarray(MEAN, np.float32).reshape(shape)
    std = np.asarray(STD, np.float32).reshape(shape)

    def by_hand() -> Callable[[], np.ndarray]:
        out = batch.out.numpy()
        buffer = out if dtype == np.float32 else np.zeros(out.shape, np.float32)
        scale = (1 / (255 * std)).transpose(batch.order)
        bias = (-mean / std).transpose(batch.order)
        images = batch.images.transpose(batch.order)

        def run() -> np.ndarray:
            np.multiply(images, scale, out=buffer)
            np.add(buffer, bias, out=out, casting="same_kind")
            return out

        return run

    def as_written() -> Callable[[], np.ndarray]:
        def run() -> np.ndarray:
            normalized = (batch.images.astype(np.float32) / 255 - mean) / std
            return np.ascontiguousarray(normalized.transpose(batch.order), dtype=dtype)

        return run

    return [
        Way("NumPy, best by hand (`multiply`, `add` into `out`)", by_hand, tolerance=rounding),
        Way("NumPy, as usually written", as_written, tolerance=rounding),
    ]
