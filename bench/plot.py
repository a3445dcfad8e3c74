"""Draws the JSON file's results: every way against pinfeed, one panel per workload."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PANELS = ("images", "images-float16", "images-bfloat16", "epoch")
SWEEP = (
    "size-1x1-1",
    "size-7x5-1",
    "size-32x32-1",
    "size-224x224-1",
    "size-32x32-256",
    "images",
    "size-1080x1920-4",
)
COLOURS = {"limit": "0.6", "overhead": "0.8", "pinfeed": "tab:green", "peer": "tab:blue"}


def _plain(name: str) -> str:
    return name.replace("**", "").replace("`", "")


def _bars(axes, result: Mapping[str, Any]) -> None:
    ways = [way for way in result["ways"] if "median_s" in way]
    ways.sort(key=lambda way: -way["median_s"])
    names = [_plain(way["name"]) for way in ways]
    times = [way["median_s"] * 1e3 for way in ways]
    bars = axes.barh(names, times, color=[COLOURS[way["role"]] for way in ways])
    axes.bar_label(bars, [f"{time:,.1f}" for time in times], padding=3, fontsize=7)
    axes.set_xscale("log")
    axes.set_xlim(right=max(times) * 3)
    axes.set_xlabel("ms, median")
    axes.set_title(result["title"], fontsize=8)
    axes.tick_params(axis="y", labelsize=7)


def _sweep(axes, results: Mapping[str, Mapping[str, Any]]) -> None:
    """Times of every peer in times of pinfeed's, by size."""
    names = [name for name in SWEEP if name in results]
    lines: dict[str, dict[int, float]] = {}
    for place, name in enumerate(names):
        for way in results[name]["ways"]:
            if way["role"] == "peer" and way.get("to_pinfeed"):
                ratio = way["to_pinfeed"]["median"]
                lines.setdefault(_plain(way["name"]), {})[place] = ratio
    for number, (label, points) in enumerate(lines.items()):
        style = {"color": f"C{number}", "linestyle": "-" if number < 10 else "--"}
        axes.plot(list(points), list(points.values()), "o", markersize=3, label=label, **style)
    axes.axhline(1, color=COLOURS["pinfeed"], linewidth=2)
    axes.set_yscale("log")
    axes.set_ylabel("time / pinfeed's time")
    labels = ["224x224-256" if name == "images" else name.removeprefix("size-") for name in names]
    axes.set_xticks(range(len(names)), labels, rotation=30, fontsize=7)
    axes.set_title("Sizes (height x width - images in the batch)", fontsize=8)
    if lines:
        # In the margin that the names of the bars above leave.
        axes.legend(fontsize=6, loc="upper right", bbox_to_anchor=(-0.12, 1))


def draw(path: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Write the figure; the suffix of `path` chooses the format."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    by_name = {result["name"]: result for result in results}
    panels = [
        by_name[name]
        for name in PANELS
        if name in by_name and any("median_s" in way for way in by_name[name]["ways"])
    ]
    figure, axes = plt.subplots(
        len(panels) + 1, 1, figsize=(9, 3.2 * (len(panels) + 1)), layout="constrained"
    )
    grid = [axes] if not panels else list(axes)
    for one, result in zip(grid, panels, strict=False):
        _bars(one, result)
    _sweep(grid[-1], by_name)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
