"""How long things take on a device: in turns, as medians."""

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

Run = Callable[[], Any]


@dataclass(frozen=True)
class Scale:
    """How large the workloads are.

    Attributes:
        device: Where they run.
        is_small: Whether they only have to show that they run.
        rounds: Samples of each way.
    """

    device: torch.device
    is_small: bool
    rounds: int

    def pick(self, whole: int, small: int) -> int:
        """The size for this scale."""
        return small if self.is_small else whole


def synchronize(device: torch.device) -> None:
    """Wait for all that the device has to do."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def device_seconds(run: Run, device: torch.device, calls: int) -> float:
    """How long one of several calls in a row takes on the device, launches hidden behind them."""
    if device.type == "cpu":
        return host_seconds(run, device, calls)
    begin, end = (torch.Event(device, enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / calls


def host_seconds(run: Run, device: torch.device, calls: int) -> float:
    """How long one call keeps this thread, which doesn't wait for the device."""
    synchronize(device)
    start = time.perf_counter()
    for _ in range(calls):
        run()
    seconds = (time.perf_counter() - start) / calls
    synchronize(device)
    return seconds


def medians(
    ways: Mapping[str, Run],
    scale: Scale,
    seconds: Callable[[Run, torch.device, int], float] = device_seconds,
    calls: int = 10,
) -> dict[str, float]:
    """The median of each way, after a warm-up, in an order drawn anew for each round."""
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for run in ways.values():
        seconds(run, scale.device, calls)
    for _ in range(scale.rounds):
        for name in random.sample(list(ways), len(ways)):
            samples[name].append(seconds(ways[name], scale.device, calls))
    return {name: statistics.median(values) for name, values in samples.items()}
