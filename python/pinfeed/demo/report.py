"""Report: the table and the verdicts that end the demo."""

import statistics

from pinfeed.demo.agreement import (
    BATCH_TOLERANCE,
    HELD_OUT_ACCURACY_TOLERANCE,
    TRAINING_ACCURACY_TOLERANCE,
    BatchAgreement,
    accuracies_agree,
)
from pinfeed.demo.patches import HELD_OUT_ROWS
from pinfeed.demo.training import Run

_MIB = 1 << 20


def waiting_share(run: Run) -> float:
    """Gives the share of the training time spent waiting for data, in the median epoch."""
    epochs = zip(run.data_seconds, run.compute_seconds, strict=True)
    return statistics.median(data / (data + compute) for data, compute in epochs)


def format_table(stock: Run, pinfeed: Run) -> str:
    """Lays the measurements of both runs out as a table; times are medians over the epochs."""
    data = [statistics.median(run.data_seconds) for run in (stock, pinfeed)]
    rate = [_images_per_second(run) for run in (stock, pinfeed)]

    def row(name: str, cells: list[str], speed_up: str = "") -> tuple[str, str, str, str]:
        return name, cells[0], cells[1], speed_up

    def shares(values: list[float]) -> list[str]:
        return [f"{value:.1%}" for value in values]

    runs = (stock, pinfeed)
    return _align(
        [
            row("", [run.feed for run in runs], "speed-up"),
            row(
                "data time per epoch",
                [f"{seconds * 1e3:,.0f} ms" for seconds in data],
                f"{data[0] / data[1]:.1f} x",
            ),
            row(
                "images/s from the loader",
                [f"{stock.images / seconds:,.0f}" for seconds in data],
                f"{data[0] / data[1]:.1f} x",
            ),
            row(
                "images/s in training",
                [f"{images:,.0f}" for images in rate],
                f"{rate[1] / rate[0]:.1f} x",
            ),
            row("share of the step waiting for data", shares([waiting_share(run) for run in runs])),
            row(
                "peak memory of the process",
                [f"{run.peak_bytes / _MIB:,.0f} MiB" for run in runs],
            ),
            row("accuracy, training patches", shares([run.training_accuracy for run in runs])),
            row("accuracy, held-out patches", shares([run.held_out_accuracy for run in runs])),
        ]
    )


def _images_per_second(run: Run) -> float:
    steps = [
        data + compute for data, compute in zip(run.data_seconds, run.compute_seconds, strict=True)
    ]
    return run.images / statistics.median(steps)


def _align(rows: list[tuple[str, str, str, str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        ).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * (sum(widths) + 6), *lines[1:]])


def format_notes(memmap_bytes: int) -> str:
    """Says what the numbers of the table do and don't mean."""
    return (
        f"Peak memory includes {memmap_bytes / _MIB:,.0f} MiB of memory-mapped patches that both "
        "processes share with the page cache.\n"
        f"Held-out patches lie in rows {HELD_OUT_ROWS.start}-{HELD_OUT_ROWS.stop - 1} of the "
        "photographs, which no training patch touches; training patches overlap each other."
    )


def format_verdicts(batches: BatchAgreement, stock: Run, pinfeed: Run) -> tuple[str, bool]:
    """Words the checks.

    Returns:
        One line per check, and whether all of them hold.
    """
    same_batches = (
        f"batches: all {batches.batches} of an epoch compared, largest difference "
        f"{batches.max_difference:.1e} (at most {BATCH_TOLERANCE:.0e}), labels equal"
    )
    same_order = "order: the same labels in the same order in every epoch of both runs"
    same_accuracy = (
        f"accuracy: the same within {TRAINING_ACCURACY_TOLERANCE:.0%} on training patches "
        f"and {HELD_OUT_ACCURACY_TOLERANCE:.0%} on held-out patches"
    )
    checks = [
        (batches.holds, same_batches),
        (stock.order == pinfeed.order, same_order),
        (accuracies_agree(stock, pinfeed), same_accuracy),
    ]
    lines = [f"{'verified' if holds else 'FAILED  '}  {text}" for holds, text in checks]
    return "\n".join(lines), all(holds for holds, _ in checks)
