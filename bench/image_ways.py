"""A batch of uint8 images and the ways of normalizing it that need only torch."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import pinfeed
from bench.harness import Role, Way, Workload

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

# One rounding of the largest normalized value, 2.64: peers round elsewhere than pinfeed does.
ROUNDING = {torch.float32: 2e-6, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}


def normalize_table(mean: tuple[float, ...] = MEAN, std: tuple[float, ...] = STD) -> torch.Tensor:
    """Return what each byte becomes in each channel: float32 (256, C).

    Computed in float64 from the two float32 constants of the documented arithmetic, so that the
    only rounding left is the last one.
    """
    scale = (np.float64(1 / 255) / np.asarray(std)).astype(np.float32)
    bias = (-np.asarray(mean) / np.asarray(std)).astype(np.float32)
    bytes_ = np.arange(256, dtype=np.float64)[:, None]
    return torch.from_numpy((bytes_ * scale + bias.astype(np.float64)).astype(np.float32))


def largest_difference(result: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest absolute difference, NaN if there is one, infinity for other shapes."""
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return float("inf")
    # In slices: a whole float32 copy of both would disturb the memory that is measured.
    return max(
        float((a.float() - b.float()).abs().max())
        for a, b in zip(torch.split(result, 16), torch.split(expected, 16), strict=True)
    )


@dataclass
class ImageBatch:
    """A batch of random uint8 images and the buffer that its normalized form goes into.

    Attributes:
        count: Images in the batch.
        height: Rows of one image.
        width: Columns of one image.
        input: "NHWC" or "NCHW", the layout of `images`.
        output: "NHWC" or "NCHW", the layout of `out`.
        dtype: Of `out`.
        images: uint8 (N, H, W, 3) or (N, 3, H, W).
        tensor: The same memory as a tensor.
        out: The buffer that every way with an `out=` writes into, its pages already there.
    """

    count: int
    height: int
    width: int
    input: str = "NHWC"
    output: str = "NCHW"
    dtype: torch.dtype = torch.float32
    images: np.ndarray = field(init=False)
    tensor: torch.Tensor = field(init=False)
    out: torch.Tensor = field(init=False)
    _expected: torch.Tensor | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Fill the input with random bytes and touch every page of the output."""
        self.images = np.random.default_rng(0).integers(
            0, 256, self._shape(self.input), dtype=np.uint8
        )
        self.tensor = torch.from_numpy(self.images)
        self.out = torch.zeros(self._shape(self.output), dtype=self.dtype)

    def _shape(self, layout: str) -> tuple[int, ...]:
        sizes = {"N": self.count, "H": self.height, "W": self.width, "C": len(MEAN)}
        return tuple(sizes[axis] for axis in layout)

    @property
    def order(self) -> tuple[int, ...]:
        """The axes of the input in the order of the output, for `permute`."""
        return tuple(self.input.index(axis) for axis in self.output)

    def permuted(self) -> torch.Tensor:
        """View the input in the layout of the output."""
        return self.tensor.permute(self.order)

    def per_channel(self, values: tuple[float, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return values that broadcast over the channels of the output."""
        shape = [-1 if axis == "C" else 1 for axis in self.output]
        return torch.tensor(values, dtype=dtype).view(shape)

    def expected(self, table: torch.Tensor) -> torch.Tensor:
        """Look every byte up in `table` (256, C) and return the batch as it has to come out."""
        result = torch.empty(self._shape(self.output), dtype=self.dtype)
        axis = self.output.index("C")
        for channel in range(len(MEAN)):
            bytes_ = self.permuted().select(axis, channel)
            for i in range(self.count):
                result[i].select(axis - 1, channel).copy_(table[:, channel][bytes_[i].int()])
        return result

    def error(self, result: Any) -> float:
        """Return the largest absolute difference of a result from the reference."""
        if self._expected is None:
            self._expected = self.expected(normalize_table())
        if not isinstance(result, torch.Tensor):
            result = torch.from_numpy(result)
        return largest_difference(result, self._expected)


def fill_ways(out: torch.Tensor) -> list[Way]:
    """Return the physical limits: writing the output once, by torch and by the C library."""

    def memset() -> int | None:
        return ctypes.memset(out.data_ptr(), 1, out.nbytes)

    return [
        Way(
            "physical limit: fill the output (`out.fill_`)",
            lambda: lambda: out.fill_(1),
            Role.LIMIT,
        ),
        Way("C library's `memset` of the output", lambda: memset, Role.LIMIT),
    ]


def pinfeed_ways(batch: ImageBatch) -> list[Way]:
    """Return `pinfeed.normalize` into a buffer of the caller and of its pool, and of ndarrays."""
    layouts: dict[str, Any] = {"input": batch.input, "output": batch.output, "dtype": batch.dtype}

    def into_out() -> Callable[[], Any]:
        return lambda: pinfeed.normalize(batch.tensor, MEAN, STD, out=batch.out, **layouts)

    def pooled() -> Callable[[], Any]:
        return lambda: pinfeed.normalize(batch.tensor, MEAN, STD, **layouts)

    def arrays() -> Callable[[], Any]:
        out = batch.out.numpy()
        return lambda: pinfeed.normalize(batch.images, MEAN, STD, out=out, **layouts)

    ways = [
        Way("**pinfeed** `normalize(out=)`", into_out, Role.PINFEED),
        Way("**pinfeed** `normalize`, pooled", pooled, Role.PINFEED),
    ]
    if batch.dtype != torch.bfloat16:  # NumPy has no such type
        ways.append(Way("**pinfeed** `normalize(out=)` of ndarrays", arrays, Role.PINFEED))
    return ways


def torch_ways(batch: ImageBatch) -> list[Way]:
    """Return what one writes in torch: tuned by hand, and as it is usually written."""
    rounding = ROUNDING[batch.dtype]

    def constants() -> tuple[torch.Tensor, torch.Tensor]:
        mean = batch.per_channel(MEAN, torch.float32) * 255
        return mean, batch.per_channel(STD, torch.float32) * 255

    def by_hand() -> Callable[[], torch.Tensor]:
        mean, std = constants()
        out = batch.out
        # Subtracting in 16 bits would lose most of them: these formats need a float32 buffer.
        buffer = out if batch.dtype == torch.float32 else torch.zeros_like(out, dtype=torch.float32)

        def run() -> torch.Tensor:
            buffer.copy_(batch.permuted())
            buffer.sub_(mean).div_(std)
            return out if buffer is out else out.copy_(buffer)

        return run

    def as_written() -> Callable[[], torch.Tensor]:
        mean, std = constants()
        return lambda: batch.permuted().float().sub_(mean).div_(std).to(batch.dtype).contiguous()

    return [
        Way(
            "torch, best by hand (`copy_`, `sub_`, `div_` into `out`)", by_hand, tolerance=rounding
        ),
        Way("torch, as usually written", as_written, tolerance=rounding),
    ]


def core_ways(batch: ImageBatch) -> list[Way]:
    """Return every way that torch and pinfeed offer, after the limits."""
    return [*fill_ways(batch.out), *pinfeed_ways(batch), *torch_ways(batch)]


def image_workload(name: str, title: str, batch: ImageBatch, ways: list[Way]) -> Workload:
    """Return the workload of normalizing `batch`."""
    return Workload(name, title, ways, error=batch.error, images=batch.count)
