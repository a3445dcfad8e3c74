"""Draws results of ``make bench``: ``PYTHONPATH=. python docs/plots/benchmarks.py``.

Of the workloads epoch, cold-rows, workers-images and workers-jpeg, as ``bench/results`` has them.
"""

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drawing import LIMIT, PEER, PINFEED, new_plot, save_plot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

RESULTS = Path(__file__).parents[2] / "bench" / "results" / "results.json"
COLOURS = {"limit": LIMIT, "pinfeed": PINFEED, "other": PEER}


def bars(axes: Axes, record: Any, value: Callable[[float], float], unit: str) -> None:
    """One bar for each way, the slowest on top."""
    medians = {
        way["name"].replace("*", "").replace("`", ""): (
            value(statistics.median(way["samples"]["seconds"])),
            COLOURS[way["role"]],
        )
        for way in record["ways"]
    }
    ways = sorted(medians.items(), key=lambda way: -way[1][0])
    drawn = axes.barh(
        [name for name, _ in ways],
        [number for _, (number, _) in ways],
        color=[colour for _, (_, colour) in ways],
    )
    axes.bar_label(drawn, [f"{number:,.0f} {unit}" for _, (number, _) in ways], padding=4)
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Draws the three plots that pages show."""
    records = json.loads(RESULTS.read_text())["workloads"]
    figure, axes = new_plot("Epoch over 50,000 images of 32×32×3, shuffled, normalized, 1 thread")
    bars(axes, records["epoch"], lambda seconds: seconds * 1e3, "ms")
    axes.set_xlabel("ms, median; grey: what can't be avoided")
    save_plot(figure, "epoch")

    figure, axes = new_plot("256 random rows of 150 KB of a file that is not in memory")
    size = 256 * 224 * 224 * 3 / 1e6
    bars(axes, records["cold-rows"], lambda seconds: size / seconds, "MB/s")
    axes.set_xlabel("MB/s, median; grey: what the disk gives to 16 readers")
    save_plot(figure, "cold-rows")

    figure = Figure(figsize=(7.5, 2.6), layout="constrained")
    figure.suptitle("Milliseconds for a batch", x=0.01, ha="left", fontsize=11)
    titles = {
        "workers-images": "256×3×224×224 float32 from memory",
        "workers-jpeg": "32 JPEGs, decoded, normalized",
    }
    for axes, (name, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        bars(axes, records[name], lambda seconds: seconds * 1e3, "ms")
        axes.set_title(title, fontsize=9, loc="left")
    save_plot(figure, "workers")


if __name__ == "__main__":
    main()
