"""Draws how fast random rows come from a cold disk: ``PYTHONPATH=. python docs/plots/cold_rows.py``."""

from typing import Any

from bench.cold_rows import BATCH, cold
from bench.harness import measure, use_threads
from drawing import LIMIT, PEER, PINFEED, new_plot, save_plot

COLOURS = {"limit": LIMIT, "pinfeed": PINFEED, "peer": PEER}


def main() -> None:
    """Measures as ``make bench ARGS=cold-rows-150KB`` does, and draws the medians as rates."""
    with use_threads(1):
        result: dict[str, Any] = measure(cold("cold-rows-150KB"), rounds=15, progress=print)
    ways = sorted(result["ways"], key=lambda way: -way["median_s"])
    names = [way["name"].replace("**", "").replace("`", "") for way in ways]
    rates = [BATCH * 224 * 224 * 3 / 1e6 / way["median_s"] for way in ways]
    figure, axes = new_plot("256 random rows of 150 KB of a file that is not in memory")
    bars = axes.barh(names, rates, color=[COLOURS[way["role"]] for way in ways])
    axes.bar_label(bars, [f"{rate:,.0f} MB/s" for rate in rates], padding=4)
    axes.set_xlim(right=1.15 * max(rates))
    axes.set_xlabel("MB/s, median; grey: what the disk gives to 16 readers")
    save_plot(figure, "cold-rows")


if __name__ == "__main__":
    main()
