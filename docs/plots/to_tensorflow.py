"""Draws how long an epoch for TensorFlow takes: ``PYTHONPATH=. python docs/plots/to_tensorflow.py``.

From the results of ``make bench ARGS="--keep tensorflow"``.
"""

import json
from pathlib import Path

from drawing import LIMIT, PEER, PINFEED, new_plot, save_plot

RESULTS = Path(__file__).parents[2] / "bench" / "results" / "results.json"
COLOURS = {"limit": LIMIT, "pinfeed": PINFEED, "peer": PEER}


def main() -> None:
    """The batches are pinfeed's in all ways; what differs is how TensorFlow gets them."""
    workloads = json.loads(RESULTS.read_text())["workloads"]
    (workload,) = (one for one in workloads if one["name"] == "tensorflow")
    ways = sorted(workload["ways"], key=lambda way: -way["median_s"])
    names = [way["name"].replace("**", "").replace("`", "").split(": ")[-1] for way in ways]
    times = [way["median_s"] * 1e3 for way in ways]
    figure, axes = new_plot("Epoch over 50,000 images of 32×32×3, batches of 256", height=2.2)
    bars = axes.barh(names, times, color=[COLOURS[way["role"]] for way in ways])
    axes.bar_label(bars, [f"{time:,.0f} ms" for time in times], padding=4)
    axes.set_xlim(right=1.15 * max(times))
    axes.set_xlabel("ms, median")
    save_plot(figure, "to-tensorflow")


if __name__ == "__main__":
    main()
