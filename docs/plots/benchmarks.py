"""Draws results of ``make bench``: ``PYTHONPATH=. python docs/plots/benchmarks.py``.

Reads ``bench/results``, as the tables of README.md and bench/README.md do: update both together.
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


class Alternative(NamedTuple):
    """An alternative for a job, and its median time."""

    name: str
    role: str  # pinfeed, other or reference
    value: float


def bars(
    axes: Axes, alternatives: list[Alternative], unit: str, *, more_is_better: bool = False
) -> None:
    """Draws pinfeed's bars on top, then the others from best to worst; the reference is a line."""
    sign = -1 if more_is_better else 1
    drawn = [alternative for alternative in alternatives if alternative.role != "reference"]
    drawn.sort(key=lambda alternative: (alternative.role != "pinfeed", sign * alternative.value))
    longest = (
        sorted(alternative.value for alternative in drawn)[-2] * 1.25
    )  # the longest bar is cut if it is off the scale
    bar = axes.barh(
        [textwrap.fill(alternative.name, 24) for alternative in drawn],
        [min(alternative.value, longest) for alternative in drawn],
        color=[PINFEED if alternative.role == "pinfeed" else PEER for alternative in drawn],
    )
    axes.bar_label(
        bar,
        [
            f"{alternative.value:,.0f} {unit}{' →' if alternative.value > longest else ''}"
            for alternative in drawn
        ],
        padding=4,
    )
    axes.invert_yaxis()
    axes.margins(x=0.3)
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    for alternative in alternatives:
        if alternative.role == "reference":
            axes.axvline(alternative.value, color=LIMIT, linestyle=":")


def from_record(record: Any) -> list[Alternative]:
    """The alternatives of a workload in ``results.json``, with medians in seconds."""
    return [
        Alternative(
            ("pinfeed " if alternative["role"] == "pinfeed" else "")
            + alternative["name"].replace("`", ""),
            alternative["role"],
            statistics.median(alternative["samples"]["seconds"]),
        )
        for alternative in record["alternatives"]
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
    alternatives = [
        alternative._replace(name=names[alternative.name], value=alternative.value * 1e3)
        for alternative in from_record(records["epoch"])
        if alternative.name in names
    ]
    figure, axes = new_plot("An epoch over 50,000 images of 32×32, normalized")
    bars(axes, alternatives, "ms")
    axes.set_xlabel("one thread; dotted: only writing the output", fontsize=8)
    save_plot(figure, "epoch")

    figure, axes = new_plot("256 random rows of 150 KB of a file that is not in memory")
    size = 256 * 224 * 224 * 3 / 1e6
    speeds = [
        alternative._replace(value=size / alternative.value)
        for alternative in from_record(records["cold-rows"])
    ]
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
        alternatives = [
            alternative._replace(
                name=re.sub(r" Collate\(.*\),", ",", alternative.name),
                value=alternative.value * 1e3,
            )
            for alternative in from_record(records[name])
        ]
        bars(axes, alternatives, "ms")
        axes.set_title(title, fontsize=9, loc="left")
    save_plot(figure, "workers")


if __name__ == "__main__":
    main()
