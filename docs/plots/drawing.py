"""Shared by the plots of the guide: colors, page size, and file paths."""

import platform
from pathlib import Path

import matplotlib as mpl
import torch
from bench.report import machine_facts
from matplotlib.axes import Axes
from matplotlib.figure import Figure

ASSETS = Path(__file__).parents[1] / "assets"

PINFEED = "#1f6f8b"
PEER = "#b4532a"
OTHER_PEER = "#d9a441"
LIMIT = "#9aa1a8"

WIDTH = 5  # inches: 480 pixels of a browser

# In dark mode, black becomes light; colors stay.
DARK = """<style>@media (prefers-color-scheme: dark) {
  text:not([style*="fill"]) { fill: #d6d9dc }
  path[style*="stroke: #000000"], use[style*="stroke: #000000"] { stroke: #d6d9dc !important }
}</style>
"""

# Keeps text as text, and writes the same file for the same measurement.
mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "pinfeed", "font.size": 10})


def new_plot(title: str, height: float = 3.2) -> tuple[Figure, Axes]:
    """An empty plot, narrow enough to be read on a phone."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots()
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save_plot(figure: Figure, name: str) -> None:
    """Writes ``docs/assets/name.svg``, with a line about the machine."""
    facts = machine_facts()
    machine = (
        f"{facts['cpu']}, {facts['cpus']} CPUs, Python {platform.python_version()}, "
        f"torch {torch.__version__}"
    )
    figure.supxlabel(machine, fontsize=7, color="0.5", x=0.99, ha="right")
    path = ASSETS / f"{name}.svg"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None}, transparent=True)
    for_both(path)
    print(path)


def for_both(path: Path) -> None:
    """Makes a plot readable on a light page and on a dark one."""
    svg = path.read_text()
    path.write_text(svg.replace(" <defs>", f"{DARK} <defs>", 1))
