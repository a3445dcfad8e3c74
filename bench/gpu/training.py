"""Whether a training step ever waits for its batch."""

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

import pinfeed
from bench.gpu.kernels import MEAN, STD
from bench.gpu.timing import Scale, synchronize


class Bottleneck(nn.Module):
    """1×1, 3×3, 1×1 convolutions with a way around them."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.around: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.around = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of shape (N, inputs, H, W), to (N, 4 * width, H / stride, W / stride)."""
        return torch.relu(self.body(x) + self.around(x))


def residual_network(blocks: tuple[int, ...] = (3, 4, 6, 3)) -> nn.Module:
    """A residual network of the given depth; that of ResNet-50 by default."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    inputs = 64
    for stage, count in enumerate(blocks):
        width = 64 * 2**stage
        for i in range(count):
            layers.append(Bottleneck(inputs, width, 2 if i == 0 and stage > 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def results(scale: Scale) -> Iterable[dict[str, Any]]:
    """One record: how much of the time the loop waits, and a step with and without a loader."""
    batch, side, steps = scale.pick(256, 4), scale.pick(224, 32), scale.pick(60, 4)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (batch * (steps + 10), side, side, 3), np.uint8)
    labels = rng.integers(0, 1000, len(images))
    model = residual_network((1, 1, 1, 1) if scale.is_small else (3, 4, 6, 3))
    model.to(scale.device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    dataset = pinfeed.ArrayDataset((images, labels))
    loader = torch.utils.data.DataLoader(
        dataset, batch, shuffle=True, drop_last=True, collate_fn=pinfeed.Collate()
    )
    image = pinfeed.Image(MEAN, STD, channels_last=True, dtype=torch.bfloat16)
    batches = pinfeed.DeviceLoader(loader, scale.device, fields=(image, None))

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        with torch.autocast(scale.device.type, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    def timed(source: Iterable[Any]) -> tuple[float, float]:
        """Seconds for each step, and the share of them that ``next`` took."""
        iterator = iter(source)
        for _ in range(5):
            step(*next(iterator))
        synchronize(scale.device)
        waited, count, start = 0.0, 0, time.perf_counter()
        for _ in range(steps):
            asked = time.perf_counter()
            x, y = next(iterator)
            waited += time.perf_counter() - asked
            step(x, y)
            synchronize(scale.device)  # or next would be asked long before the device needs it
            count += 1
        seconds = time.perf_counter() - start
        return seconds / count, waited / seconds

    fixed = next(iter(batches))
    alone, _ = timed([fixed] * (steps + 5))
    fed, share = timed(batches)
    yield {
        "name": f"training of a ResNet-50, batches of {batch}",
        "values": {
            "step, ms": fed * 1e3,
            "step on one batch, ms": alone * 1e3,
            "waiting, %": share * 100,
        },
        # The loop may go on while the device waits for a copy, which the step's time shows.
        "targets": {
            "waiting < 2 %": share < 0.02,
            "step ≤ 1.02 × on one batch": fed <= 1.02 * alone,
        },
    }
