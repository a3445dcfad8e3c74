"""Outputs that begin anywhere but on a cache line, as those of `np.empty` do."""

import numpy as np
import torch

import pinfeed
from bench.arrays import difference
from bench.harness import Role, Way, Workload

OFFSETS = (0, 16, 4, 32, 60)  # bytes after a cache line; 16 is where `np.empty` begins
LINE = 64


def output_at(shape: tuple[int, ...], dtype: torch.dtype, offset: int) -> np.ndarray:
    """Return an array that begins `offset` bytes after a cache line, its pages touched."""
    array = torch.empty(0, dtype=dtype).numpy()
    size = int(np.prod(shape)) * array.itemsize
    memory = np.full(size + 2 * LINE, 255, np.uint8)
    begin = -memory.ctypes.data % LINE + offset
    return memory[begin : begin + size].view(array.dtype).reshape(shape)


def _workload(name: str, job: str, write, images: int) -> Workload:
    """`write(out)` into outputs at each offset; `write(None)` makes the batch to compare with."""
    expected = torch.as_tensor(write(None))

    def at(offset: int):
        out = output_at(tuple(expected.shape), expected.dtype, offset)
        return lambda: write(out)

    ways = [
        Way(
            f"**pinfeed** {offset} bytes after a line" if offset else "the output begins a line",
            lambda offset=offset: at(offset),
            Role.PINFEED if offset else Role.LIMIT,
        )
        for offset in OFFSETS
    ]
    return Workload(
        name, f"{job}, 1 thread", ways, lambda out: difference(out, expected), images=images
    )


def normalize(name: str) -> Workload:
    """Images into float32 planes."""
    images = np.random.default_rng(0).integers(0, 256, (256, 224, 224, 3), np.uint8)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    return _workload(
        name,
        "`normalize(out=)`, 256x224x224x3 to float32 NCHW",
        lambda out: pinfeed.normalize(images, mean, std, out=out),
        256,
    )


def permute(name: str) -> Workload:
    """Float32 planes into pixels."""
    images = np.random.default_rng(0).random((64, 3, 224, 224), np.float32)
    return _workload(
        name,
        "`permute(out=)`, 64x3x224x224 float32 to NHWC",
        lambda out: pinfeed.permute(images, "NCHW", "NHWC", out=out),
        64,
    )


def gather(name: str) -> Workload:
    """Rows of the size of an image."""
    random = np.random.default_rng(0)
    rows = random.integers(0, 256, (256, 150_528), np.uint8)
    order = random.permutation(256)
    return _workload(
        name,
        "`gather(out=)`, 256 rows of 150,528 bytes",
        lambda out: pinfeed.gather(rows, order, out=out),
        256,
    )


def pad(name: str) -> Workload:
    """Frames of audio."""
    random = np.random.default_rng(0)
    frames = [random.random((length, 80), np.float32) for length in random.integers(200, 1600, 64)]
    return _workload(
        name,
        "`pad(out=)`, 64 float32 sequences of (200 to 1,600, 80)",
        lambda out: pinfeed.pad(frames, out=out).values,
        0,
    )


def workloads():
    """Return every workload here by name: its number of threads and what makes it."""
    ways = {"normalize": normalize, "permute": permute, "gather": gather, "pad": pad}
    return {f"unaligned-outputs-{job}": (1, make) for job, make in ways.items()}
