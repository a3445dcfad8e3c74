"""Plot: the photographs with what was cut from them, the time per epoch, and the losses."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pinfeed.demo.extra import import_demo_extra
from pinfeed.demo.patches import COLUMNS, HELD_OUT_ROWS, PATCH_SIZE
from pinfeed.demo.report import waiting_share
from pinfeed.demo.training import Run

_FEED_COLORS = {"stock": "#b4532a", "pinfeed": "#1f6f8b"}
_COMPUTE_COLOR = "#c9ced3"


def save_plot(
    path: Path,
    photos: Sequence[NDArray[np.uint8]],
    positions: NDArray[np.int64],
    runs: Sequence[Run],
) -> None:
    """Draws the plot and writes it as PNG.

    Args:
        path: File to write.
        photos: The photographs (H, W, 3).
        positions: Places of the training patches (N, 3), of which a few are outlined.
        runs: The runs to compare.
    """
    # The figure is made without pyplot: no window system is asked for, no global state is left.
    figure = import_demo_extra("matplotlib.figure").Figure(figsize=(12, 8.6), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1.0, 1.05))
    photo_axes = top.subplots(1, len(photos))
    for number, (axes, photo) in enumerate(zip(photo_axes, photos, strict=True)):
        _draw_photo(axes, photo, number, positions[positions[:, 0] == number])
    top.suptitle(
        "The task: which photograph and which column is a 64×64 patch from?", fontweight="bold"
    )
    time_axes, loss_axes = bottom.subplots(1, 2)
    _draw_times(time_axes, runs)
    _draw_losses(loss_axes, runs)
    figure.savefig(path, dpi=110)


def _draw_photo(
    axes: Any, photo: NDArray[np.uint8], number: int, positions: NDArray[np.int64]
) -> None:
    height, width = photo.shape[:2]
    rectangle = import_demo_extra("matplotlib.patches").Rectangle
    axes.imshow(photo)
    for column in range(COLUMNS):
        middle = (column + 0.5) * width / COLUMNS
        axes.axvline((column + 1) * width / COLUMNS, color="white", linewidth=1)
        label = {"color": "white", "fontsize": 11, "fontweight": "bold", "ha": "center"}
        outline = {"boxstyle": "round", "facecolor": "black", "alpha": 0.55, "linewidth": 0}
        axes.text(middle, 26, f"class {number * COLUMNS + column}", bbox=outline, **label)
    axes.axhspan(HELD_OUT_ROWS.start, HELD_OUT_ROWS.stop, color="white", alpha=0.45, linewidth=0)
    middle_row = (HELD_OUT_ROWS.start + HELD_OUT_ROWS.stop) / 2
    axes.text(width / 2, middle_row, "held out", ha="center", va="center", fontsize=11)
    for _, top, left in positions[:: max(1, len(positions) // 12)].tolist():
        square = rectangle((left, top), PATCH_SIZE, PATCH_SIZE, fill=False, edgecolor="yellow")
        axes.add_patch(square)
    axes.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])


def _draw_times(axes: Any, runs: Sequence[Run]) -> None:
    width = 0.8 / len(runs)
    for number, run in enumerate(runs):
        epochs = np.arange(1, len(run.losses) + 1)
        left = epochs - 0.4 + (number + 0.5) * width
        share = f"{run.feed}: waiting for data ({waiting_share(run):.0%} of the step)"
        color = _FEED_COLORS[run.feed]
        axes.bar(left, run.data_seconds, width * 0.94, color=color, label=share)
        compute = axes.bar(
            left,
            run.compute_seconds,
            width * 0.94,
            bottom=run.data_seconds,
            color=_COMPUTE_COLOR,
        )
    compute.set_label("computing (forward, backward, step)")
    axes.set_title("Time per epoch", fontweight="bold")
    axes.set(xlabel="epoch", ylabel="seconds", xticks=epochs)
    _finish(axes, headroom=1.3)


def _draw_losses(axes: Any, runs: Sequence[Run]) -> None:
    # The curves lie on one another: the first is wide and pale, the last thin and dashed.
    styles: list[dict[str, Any]] = [
        {"linewidth": 6, "alpha": 0.45},
        {"linewidth": 2, "linestyle": "--", "marker": "o", "markersize": 4},
    ]
    for run, style in zip(runs, styles, strict=True):
        epochs = np.arange(1, len(run.losses) + 1)
        label = (
            f"{run.feed}: accuracy {run.training_accuracy:.1%} on training, "
            f"{run.held_out_accuracy:.1%} on held-out patches"
        )
        axes.plot(epochs, run.losses, color=_FEED_COLORS[run.feed], label=label, **style)
    axes.set_title("Training loss", fontweight="bold")
    axes.set(xlabel="epoch", ylabel="cross-entropy", xticks=epochs)
    _finish(axes, headroom=1.2)


def _finish(axes: Any, headroom: float) -> None:
    """Leaves room for the legend above the data, and takes away lines that say nothing."""
    axes.set_ylim(0, axes.get_ylim()[1] * headroom)
    axes.legend(loc="upper right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)
