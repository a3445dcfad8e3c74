"""Draws when a loop loads and when it trains, with and without a DeviceLoader: ``PYTHONPATH=. python docs/plots/overlap.py``."""

import io
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from drawing import PEER, PINFEED, new_plot, save_plot
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import pinfeed

BATCHES, BATCH_SIZE, SIZE = 8, 32, 256

Spans = list[tuple[float, float]]  # start and duration, in seconds


class Jpegs(Dataset[Any]):
    """Images of clouds, decoded one by one."""

    def __init__(self, count: int) -> None:
        rng = np.random.default_rng(0)
        self.files = []
        for _ in range(count):
            coarse = Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8))
            file = io.BytesIO()
            coarse.resize((2 * SIZE, 2 * SIZE), Image.Resampling.BICUBIC).save(file, "jpeg")
            self.files.append(file.getvalue())

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        photo = Image.open(io.BytesIO(self.files[index])).convert("RGB")
        return photo.resize((SIZE, SIZE), Image.Resampling.BILINEAR)


class Recorded:
    """A loader that records when it works."""

    def __init__(self, loader: Iterable[Any], spans: Spans) -> None:
        self.loader, self.spans = loader, spans

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.loader)
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                return
            self.spans.append((start, time.perf_counter() - start))
            yield batch


def train(batches: Iterable[torch.Tensor], model: torch.nn.Module) -> Spans:
    """Runs an epoch and returns the spans of the steps."""
    spans = []
    for images in batches:
        start = time.perf_counter()
        model(images).square().mean().backward()
        spans.append((start, time.perf_counter() - start))
    return spans


def main() -> None:
    """Uses one thread for the model and one for pinfeed, each with a CPU of its own."""
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 7, stride=4),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 5, stride=2),
    )
    collate = pinfeed.Collate(pinfeed.Image(mean=0.5, std=0.25))
    loader = DataLoader(Jpegs(BATCHES * BATCH_SIZE), BATCH_SIZE, collate_fn=collate)
    train(loader, model)

    figure, axes = new_plot(f"{BATCHES} batches of {BATCH_SIZE} JPEGs: decoded, and a step each")
    names = {"DataLoader": lambda loaded: loaded, "DeviceLoader": pinfeed.DeviceLoader}
    ticks = {}
    for row, (name, wrap) in enumerate(names.items()):
        loading: Spans = []
        recorded = wrap(Recorded(loader, loading))
        start = time.perf_counter()
        steps = train(recorded, model)
        total = time.perf_counter() - start
        for position, label, spans, color in [
            (3 * row, "loading", loading, PEER),
            (3 * row + 1, "training", steps, PINFEED),
        ]:
            bars = [(begin - start, length) for begin, length in spans]
            axes.broken_barh(bars, (position - 0.4, 0.8), color=color, edgecolor="white")
            ticks[position] = label
        axes.text(0, 3 * row - 0.55, f"{name}: {total:.2f} s", fontweight="bold")
        print(f"{name}: {total:.3f} s")
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.set(xlabel="seconds", xlim=0, ylim=(4.6, -1.2))
    save_plot(figure, "overlap")


if __name__ == "__main__":
    main()
