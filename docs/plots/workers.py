"""Draws what a batch costs with two workers and with none: ``PYTHONPATH=. python docs/plots/workers.py``."""

import json
import subprocess
import sys
from pathlib import Path

from drawing import PEER, PINFEED, save_plot
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
PANELS = {
    "workers-images": "256×3×224×224 float32 from memory",
    "workers-jpeg": "32 JPEGs, decoded, normalized",
}


def main() -> None:
    """One panel for each workload, one bar for each way; the ways take turns."""
    figure = Figure(figsize=(7.5, 2.6), layout="constrained")
    figure.suptitle("Milliseconds for a batch", x=0.01, ha="left", fontsize=11)
    for axes, (name, title) in zip(figure.subplots(1, 2), PANELS.items(), strict=True):
        command = [sys.executable, "-m", "bench.workers", name]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        ways = json.loads(done.stdout)
        labels = [
            ("pinfeed" if "pinfeed" in way else "DataLoader")
            + (", 0 workers" if "0 workers" in way else ", 2 workers")
            for way in ways
        ]
        values = [report["ms"] for report in ways.values()]
        colours = [PINFEED if "pinfeed" in way else PEER for way in ways]
        bars = axes.barh(labels, values, color=colours)
        axes.bar_label(bars, [f"{value:.0f}" for value in values], padding=3)
        axes.invert_yaxis()
        axes.set_title(title, fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.15)
        print(name, dict(zip(labels, values, strict=True)))
    save_plot(figure, "workers")


if __name__ == "__main__":
    main()
