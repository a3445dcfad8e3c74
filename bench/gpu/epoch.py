"""Shuffled batches of a large array in memory, normalized on the device, beside the bus's own speed."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import pinfeed
from bench.gpu.kernels import MEAN, STD
from bench.gpu.timing import Scale, synchronize

SIDE, BATCH = 224, 512


class Rows(torch.utils.data.Dataset[Any]):
    """The usual dataset of someone who has read about ``__getitems__``."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, indices: list[int]) -> Any:
        return self.images[indices], self.labels[indices]


def as_it_is(batch: Any) -> Any:
    """The batch that the dataset made."""
    return batch


class Epoch:
    """The data, and the ways to its batches.

    Args:
        scale: How large.
    """

    def __init__(self, scale: Scale) -> None:
        self.device = scale.device
        self.batch = scale.pick(BATCH, 8)
        side = scale.pick(SIDE, 16)
        self.count = scale.pick(20_000_000_000, 1_000_000) // (side * side * 3)
        self.images = np.empty((self.count, side, side, 3), np.uint8)
        block = np.random.default_rng(0).integers(
            0, 256, (min(1024, self.count), side, side, 3), np.uint8
        )
        for start in range(0, self.count, len(block)):
            part = self.images[start : start + len(block)]
            part[:] = block[: len(part)]
        # An image tells which one it is, so that mixed-up batches are noticed.
        self.images.reshape(self.count, -1)[:, :4] = (
            np.arange(self.count, dtype="<u4").view(np.uint8).reshape(-1, 4)
        )
        self.labels = np.arange(self.count)
        self.batch_bytes = self.batch * side * side * 3
        # Ways that take minutes for all of it are measured on some batches.
        self.few = scale.pick(24, 4)

    def pinfeed(self) -> Iterable[Any]:
        """Rows gathered into pinned memory, copied as bytes, normalized on the device."""
        loader = DataLoader(
            pinfeed.ArrayDataset((self.images, self.labels)), self.batch, shuffle=True, drop_last=True,
            collate_fn=pinfeed.Collate(),
        )  # fmt: skip
        image = pinfeed.Image(MEAN, STD, dtype=torch.bfloat16, channels_last=True)
        return pinfeed.DeviceLoader(loader, self.device, fields=(image, None))

    def tensor_dataset(self) -> Iterable[Any]:
        """DataLoader(TensorDataset, pin_memory=True), and torch on the device."""
        dataset = TensorDataset(torch.from_numpy(self.images), torch.from_numpy(self.labels))
        return self._with_torch(dataset, None)

    def rows(self) -> Iterable[Any]:
        """``__getitems__``, ``pin_memory`` and ``non_blocking``, and torch on the device."""
        dataset = Rows(torch.from_numpy(self.images), torch.from_numpy(self.labels))
        return self._with_torch(dataset, as_it_is)

    def copies(self) -> Iterable[Any]:
        """One pinned buffer, copied again and again: as fast as the bus is."""
        is_pinned = self.device.type != "cpu"
        source = torch.zeros(self.batch_bytes, dtype=torch.uint8, pin_memory=is_pinned)
        target = torch.empty_like(source, device=self.device)
        for _ in range(self.count // self.batch):
            target.copy_(source, non_blocking=True)
            yield None

    def _with_torch(self, dataset: Any, collate: Callable[[Any], Any] | None) -> Iterable[Any]:
        loader = DataLoader(
            dataset, self.batch, shuffle=True, drop_last=True, collate_fn=collate,
            pin_memory=self.device.type != "cpu",
        )  # fmt: skip
        mean = torch.tensor(MEAN, device=self.device).view(1, 3, 1, 1)
        std = torch.tensor(STD, device=self.device).view(1, 3, 1, 1)
        for images, labels in loader:
            there = images.to(self.device, non_blocking=True).permute(0, 3, 1, 2).float()
            there = there.div_(255).sub_(mean).div_(std)
            there = there.to(torch.bfloat16, memory_format=torch.channels_last)
            yield there, labels.to(self.device, non_blocking=True)

    def check(self, batch: Any) -> None:
        """Compare a batch with the CPU's function."""
        images, labels = batch
        expected = pinfeed.normalize(self.images[labels.cpu().numpy()], MEAN, STD, output="NHWC")
        error = np.abs(images.permute(0, 2, 3, 1).float().cpu().numpy() - expected).max()
        assert error < 0.02, error
        assert images.is_contiguous(memory_format=torch.channels_last)

    def rate(self, batches: Iterable[Any], most: int | None) -> float:
        """Bytes of images a second, from the first batch on."""
        iterator = iter(batches)
        next(iterator)
        synchronize(self.device)
        count, start = 0, time.perf_counter()
        for _ in iterator:
            count += 1
            if count == most:
                break
        synchronize(self.device)
        return count * self.batch_bytes / (time.perf_counter() - start)


def results(scale: Scale) -> Iterable[dict[str, Any]]:
    """One record: rates of all ways, in GB/s."""
    epoch = Epoch(scale)
    ways = {
        "one pinned buffer": (epoch.copies, None),
        "pinfeed": (epoch.pinfeed, None),
        "TensorDataset": (epoch.tensor_dataset, epoch.few),
        "__getitems__": (epoch.rows, 4 * epoch.few),
    }
    for name, (way, _) in ways.items():
        if name != "one pinned buffer":
            epoch.check(next(iter(way())))
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(3):
        for name, (way, most) in ways.items():
            rates[name].append(epoch.rate(way(), most))
    rate = {name: sorted(values)[1] for name, values in rates.items()}
    share = rate["pinfeed"] / rate["one pinned buffer"]
    slow, stock = (rate["pinfeed"] / rate[name] for name in ("TensorDataset", "__getitems__"))
    yield {
        "name": f"epoch of {epoch.images.nbytes / 1e9:.3g} GB, shuffled, batches of {epoch.batch}",
        "values": {f"{name}, GB/s": value / 1e9 for name, value in rate.items()},
        "targets": {
            f"≥ 0.90 of the bus ({share:.2f})": share >= 0.9,
            f"≥ 5 × TensorDataset ({slow:.1f})": slow >= 5,
            f"≥ 2 × __getitems__ ({stock:.1f})": stock >= 2,
        },
    }
