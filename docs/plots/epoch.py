"""Draws how long an epoch over images in memory takes: ``PYTHONPATH=. python docs/plots/epoch.py``."""

from collections.abc import Callable
from typing import Any

from bench.epoch import Epoch, epoch_workload
from bench.harness import Role, Way, measure, use_threads
from bench.image_ways import MEAN, STD
from bench.peers import torch_epoch
from drawing import LIMIT, PEER, PINFEED, new_plot, save_plot
from torch.utils.data import DataLoader

import pinfeed

COLOURS = {"limit": LIMIT, "overhead": LIMIT, "pinfeed": PINFEED, "peer": PEER}


def worker_way(epoch: Epoch) -> Way:
    """What pinfeed does, in two processes that live on from epoch to epoch."""

    def build() -> Callable[[], Any]:
        dataset = pinfeed.ArrayDataset((epoch.images, epoch.labels))
        collate = pinfeed.Collate((pinfeed.Image(MEAN, STD), None))
        options = {"shuffle": True, "num_workers": 2, "persistent_workers": True}
        loader = DataLoader(dataset, epoch.batch_size, collate_fn=collate, **options)
        return lambda: iter(loader)

    return Way("pinfeed in 2 worker processes", build, Role.PINFEED)


def main() -> None:
    """Measures as ``make bench ARGS=epoch`` does, and draws the medians."""
    epoch = Epoch()
    with use_threads(1):
        result = measure(
            epoch_workload("epoch", epoch, [worker_way(epoch), *torch_epoch.ways(epoch)]),
            progress=print,
        )
    ways = sorted(result["ways"], key=lambda way: -way["median_s"])
    figure, axes = new_plot("Epoch over 50,000 images of 32×32×3, shuffled, normalized, 1 thread")
    names = [way["name"].replace("**", "").replace("`", "") for way in ways]
    times = [way["median_s"] * 1e3 for way in ways]
    bars = axes.barh(names, times, color=[COLOURS[way["role"]] for way in ways])
    axes.bar_label(bars, [f"{time:,.0f} ms" for time in times], padding=4)
    axes.set_xlim(right=1.12 * max(times))
    axes.set_xlabel("ms, median; grey: what can't be avoided")
    save_plot(figure, "epoch")


if __name__ == "__main__":
    main()
