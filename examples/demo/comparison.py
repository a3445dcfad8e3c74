"""Compares the two runs of the demo: a table, three checks and a plot."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from examples.demo.training import COLUMNS, HELD_OUT_ROWS, PATCH_SIZE, Run, seen

#: The feeds round differently (one fused multiply-add, or three operations): by at most 2 ulp of values
#: below 4.
BATCH_TOLERANCE = 1e-6
TRAINING_TOLERANCE = 0.01
#: Larger, because overlapping held-out patches succeed and fail together.
HELD_OUT_TOLERANCE = 0.03

_COLORS = {"stock": "#b4532a", "pinfeed": "#1f6f8b"}


def waiting_share(run: Run) -> float:
    """Returns the share of the training time spent waiting for data, in the median epoch."""
    epochs = zip(run.data_seconds, run.compute_seconds, strict=True)
    return statistics.median(data / (data + compute) for data, compute in epochs)


def table(stock: Run, pinfeed: Run) -> str:
    """Returns a table of the measurements of both runs: medians over the epochs, and their range.

    Both runs compute the same. The speed-up of training therefore uses one compute time, the median of
    all epochs, so that it shows only the effect of waiting for data.
    """
    runs = (stock, pinfeed)
    data = [statistics.median(run.data_seconds) for run in runs]
    compute = statistics.median([*stock.compute_seconds, *pinfeed.compute_seconds])
    loader_speed_up = f"{data[0] / data[1]:.1f} x"
    speed_up = f"{(data[0] + compute) / (data[1] + compute):.2f} x"
    rates = [
        [
            run.images / sum(times)
            for times in zip(run.data_seconds, run.compute_seconds, strict=True)
        ]
        for run in runs
    ]
    rows = [
        ("", *(run.feed for run in runs), "speed-up"),
        (
            "data time per epoch, ms",
            *(_spread([1e3 * time for time in run.data_seconds]) for run in runs),
            loader_speed_up,
        ),
        ("images/s in training", *map(_spread, rates), speed_up),
        ("share of the step waiting for data", *(f"{waiting_share(run):.1%}" for run in runs), ""),
        ("peak memory of the process", *(f"{run.peak_bytes >> 20:,} MiB" for run in runs), ""),
        ("accuracy, training patches", *(f"{run.training_accuracy:.1%}" for run in runs), ""),
        ("accuracy, held-out patches", *(f"{run.held_out_accuracy:.1%}" for run in runs), ""),
    ]
    lines = [f"{row[0]:34}  {row[1]:>20}  {row[2]:>20}  {row[3]:>8}".rstrip() for row in rows]
    return "\n".join([lines[0], "-" * 88, *lines[1:]])


def _spread(values: Sequence[float]) -> str:
    """Formats median, minimum and maximum."""
    return f"{statistics.median(values):,.0f} ({min(values):,.0f}-{max(values):,.0f})"


def verdicts(batches: int, difference: float, stock: Run, pinfeed: Run) -> tuple[str, bool]:
    """Returns the checks, one per line, and whether all of them pass."""
    training = abs(stock.training_accuracy - pinfeed.training_accuracy)
    held_out = abs(stock.held_out_accuracy - pinfeed.held_out_accuracy)
    checks = {
        f"batches: all {batches} of an epoch, largest difference {difference:.1e} (at most "
        f"{BATCH_TOLERANCE:.0e}), labels equal": difference <= BATCH_TOLERANCE,
        "order: the same labels in the same order in every epoch of both runs": (
            stock.order == pinfeed.order
        ),
        f"accuracy: the same within {TRAINING_TOLERANCE:.0%} on training patches and "
        f"{HELD_OUT_TOLERANCE:.0%} on held-out patches": (
            training <= TRAINING_TOLERANCE and held_out <= HELD_OUT_TOLERANCE
        ),
    }
    lines = [f"{'verified' if holds else 'FAILED  '}  {text}" for text, holds in checks.items()]
    return "\n".join(lines), all(checks.values())


def draw(
    path: Path,
    photos: Sequence[NDArray[np.uint8]],
    positions: NDArray[np.int64],
    runs: Sequence[Run],
) -> None:
    """Draws the images, some augmented patches, the times and the losses."""
    # Without pyplot, which needs a window system and has global state.
    figure = Figure(figsize=(12, 11), layout="constrained")
    grid = figure.add_gridspec(3, 2, height_ratios=(4, 2.4, 4))
    axes = [[figure.add_subplot(grid[row, side]) for side in (0, 1)] for row in (0, 2)]
    figure.suptitle("The task: which image and which column is a 64×64 patch from?")
    for number, (photo, above) in enumerate(zip(photos, axes[0], strict=True)):
        _draw_photo(above, photo, number, positions[positions[:, 0] == number])
    _draw_views(figure.add_subplot(grid[1, :]), photos, positions)
    epochs = np.arange(1, len(runs[0].losses) + 1)
    # The losses coincide, so the first curve is wide and pale, the second thin and dashed.
    styles: list[dict[str, Any]] = [{"linewidth": 6, "alpha": 0.45}, {"linestyle": "--"}]
    for run, style, shift in zip(runs, styles, (-0.2, 0.2), strict=True):
        color = _COLORS[run.feed]
        data, compute = run.data_seconds, run.compute_seconds
        label = f"{run.feed}: waiting for data ({waiting_share(run):.0%} of the step)"
        axes[1][0].bar(epochs + shift, data, 0.38, color=color, label=label)
        axes[1][0].bar(epochs + shift, compute, 0.38, bottom=data, color="#c9ced3")
        accuracy = (
            f"{run.training_accuracy:.1%} on training, {run.held_out_accuracy:.1%} on held-out"
        )
        label = f"{run.feed}: accuracy {accuracy} patches"
        axes[1][1].plot(epochs, run.losses, color=color, label=label, **style)
    titles = ("Time per epoch; gray: computing", "seconds"), ("Training loss", "cross-entropy")
    for below, (title, unit) in zip(axes[1], titles, strict=True):
        top = below.get_ylim()[1] * 1.3  # space for the legend
        below.set(title=title, xlabel="epoch", ylabel=unit, xticks=epochs, ylim=(0, top))
        below.legend(loc="upper right", frameon=False)
        below.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def _draw_photo(
    axes: Any, photo: NDArray[np.uint8], number: int, positions: NDArray[np.int64]
) -> None:
    height, width = photo.shape[:2]
    axes.imshow(photo)
    for column in range(COLUMNS):
        axes.axvline((column + 1) * width / COLUMNS, color="white", linewidth=1)
        name, middle = f"class {number * COLUMNS + column}", (column + 0.5) * width / COLUMNS
        axes.text(middle, 26, name, color="white", backgroundcolor="black", ha="center")
    band = HELD_OUT_ROWS
    axes.axhspan(band.start, band.stop, color="white", alpha=0.45, linewidth=0)
    axes.text(width / 2, (band.start + band.stop) / 2, "held out", ha="center", va="center")
    for _, top, left in positions[:: max(1, len(positions) // 12)].tolist():
        right, bottom = left + PATCH_SIZE, top + PATCH_SIZE
        axes.plot([left, right, right, left, left], [top, top, bottom, bottom, top], "yellow")
    axes.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])


def _draw_views(
    axes: Any, photos: Sequence[NDArray[np.uint8]], positions: NDArray[np.int64]
) -> None:
    """Draws three patches, each followed by its random crops in the first epochs."""
    size, epochs = PATCH_SIZE, 13
    chosen = positions[[len(positions) * tenths // 10 for tenths in (1, 3, 6)]]
    patches = np.stack([photos[i][top : top + size, left : left + size] for i, top, left in chosen])
    views = [next(iter(seen(patches, epoch)))[0] for epoch in range(1, epochs + 1)]
    tiles = np.pad(
        np.stack([patches, *views], axis=1),  # (3, epochs + 1, H, W, C)
        [(0, 0), (0, 0), (0, 4), (0, 4), (0, 0)],
        constant_values=255,
    )
    axes.imshow(np.vstack([np.hstack(row) for row in tiles]))
    axes.set_title("Three patches, and their random crops and flips in 13 epochs")
    axes.axis("off")
