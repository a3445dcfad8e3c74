"""Draws results of ``make bench``: ``PYTHONPATH=. python docs/plots/benchmarks.py``.

From ``bench/results``, as the tables of README.md and bench/README.md are: draw them when these are written.
"""

import json
import re
import statistics
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

from drawing import LIMIT, PEER, PINFEED, WIDTH, new_plot, save_plot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results" / "results.json"


class Way(NamedTuple):
    """A way to do a job, and the median of what it took."""

    name: str
    role: str  # pinfeed, other or reference
    value: float


def bars(axes: Axes, ways: list[Way], unit: str, *, more_is_better: bool = False) -> None:
    """Draws the bars of pinfeed on top, then the others from the best on; the reference is a line."""
    sign = -1 if more_is_better else 1
    drawn = [way for way in ways if way.role != "reference"]
    drawn.sort(key=lambda way: (way.role != "pinfeed", sign * way.value))
    longest = sorted(way.value for way in drawn)[-2] * 1.25  # one that is off the scale is cut
    bar = axes.barh(
        [textwrap.fill(way.name, 24) for way in drawn],
        [min(way.value, longest) for way in drawn],
        color=[PINFEED if way.role == "pinfeed" else PEER for way in drawn],
    )
    axes.bar_label(
        bar,
        [f"{way.value:,.0f} {unit}{' →' if way.value > longest else ''}" for way in drawn],
        padding=4,
    )
    axes.invert_yaxis()
    axes.margins(x=0.3)
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    for way in ways:
        if way.role == "reference":
            axes.axvline(way.value, color=LIMIT, linestyle=":")


def from_record(record: Any) -> list[Way]:
    """The ways of a workload in ``results.json``, with medians in seconds."""
    return [
        Way(
            ("pinfeed " if way["role"] == "pinfeed" else "") + way["name"].replace("`", ""),
            way["role"],
            statistics.median(way["samples"]["seconds"]),
        )
        for way in record["ways"]
    ]


def main() -> None:
    """Draws the three plots that pages show."""
    records = json.loads(RESULTS.read_text())["workloads"]
    names = {
        "fill all of the output once": "filling the output",
        "pinfeed ArrayDataset, Collate(Image)": "pinfeed",
        "no DataLoader: slices + torch": "slices + torch",
        "DataLoader(TensorDataset) + torch on the batch": "TensorDataset + torch on the batch",
        "DataLoader, torchvision v2 per sample": "DataLoader, torchvision v2",
    }
    ways = [
        way._replace(name=names[way.name], value=way.value * 1e3)
        for way in from_record(records["epoch"])
        if way.name in names
    ]
    figure, axes = new_plot("An epoch over 50,000 images of 32×32, normalized")
    bars(axes, ways, "ms")
    axes.set_xlabel("one thread; dotted: only writing the output", fontsize=8)
    save_plot(figure, "epoch")

    figure, axes = new_plot("256 random rows of 150 KB of a file that is not in memory")
    size = 256 * 224 * 224 * 3 / 1e6
    speeds = [way._replace(value=size / way.value) for way in from_record(records["cold-rows"])]
    bars(axes, speeds, "MB/s", more_is_better=True)
    axes.set_xlabel("dotted: what the disk gives to 16 readers", fontsize=8)
    save_plot(figure, "cold-rows")

    figure = Figure(figsize=(WIDTH, 4), layout="constrained")
    figure.suptitle("Milliseconds for a batch", x=0.01, ha="left", fontsize=11)
    titles = {
        "workers-images": "256×3×224×224 float32 from memory",
        "workers-jpeg": "32 JPEGs, decoded, normalized",
    }
    for axes, (name, title) in zip(figure.subplots(2, 1), titles.items(), strict=True):
        ways = [
            way._replace(name=re.sub(r" Collate\(.*\),", ",", way.name), value=way.value * 1e3)
            for way in from_record(records[name])
        ]
        bars(axes, ways, "ms")
        axes.set_title(title, fontsize=9, loc="left")
    save_plot(figure, "workers")


if __name__ == "__main__":
    main()
