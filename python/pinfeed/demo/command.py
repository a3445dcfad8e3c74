"""Command: ``python -m pinfeed demo``, from the options to the exit status."""

import argparse
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from pinfeed.demo.agreement import compare_batches
from pinfeed.demo.extra import require_extras
from pinfeed.demo.feeds import BATCH_SIZE
from pinfeed.demo.patches import (
    PatchFiles,
    held_out_tops,
    load_photos,
    sample_positions,
    save_patches,
    training_tops,
)
from pinfeed.demo.plot import save_plot
from pinfeed.demo.report import format_notes, format_table, format_verdicts
from pinfeed.demo.training import SEED, Run, Settings, train


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo.

    Args:
        argv: Arguments after ``python -m pinfeed demo``; by default those of the process.

    Returns:
        0 if both runs saw the same batches and ended at the same accuracy, else 1.

    Raises:
        ImportError: A library of the ``demo`` extra is missing.
    """
    options = _parse(argv)
    require_extras()
    start = time.perf_counter()
    photos = load_photos()
    settings, positions = _prepare(photos, options)
    print(
        f"{options.patches:,} training patches of 64x64x3 uint8 in {settings.training.images}\n"
        f"batch size {BATCH_SIZE}, {settings.epochs} epochs, {settings.threads} threads, "
        "no loader workers, for both feeds",
        flush=True,
    )
    # Comparing first also brings both files into the page cache, so that neither run reads cold.
    batches = compare_batches(settings.training)
    stock, pinfeed = (_train_apart(feed, settings) for feed in ("stock", "pinfeed"))
    plot = options.out / "demo.png"
    save_plot(plot, photos, positions, [stock, pinfeed])
    verdicts, verified = format_verdicts(batches, stock, pinfeed)
    print(f"\n{format_table(stock, pinfeed)}\n")
    print(f"{format_notes(settings.training.images.stat().st_size)}\n")
    print(f"{verdicts}\n")
    print(f"plot: {plot}")
    print(f"took {time.perf_counter() - start:.0f} s", flush=True)
    return 0 if verified else 1


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m pinfeed demo",
        description="Train a small CNN on patches of two photographs, fed by stock torch and by "
        "pinfeed, and compare.",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("demo-out"),
        metavar="DIR",
        help="folder for patches and plot (default: %(default)s; the patches take 12 KiB each)",
    )
    parser.add_argument("--epochs", type=int, help="epochs of each run (default: 10)")
    parser.add_argument("--patches", type=int, help="training patches to cut (default: 20000)")
    parser.add_argument(
        "--quick", action="store_true", help="2 epochs on 2000 patches, to see that it works"
    )
    options = parser.parse_args(argv)
    if options.epochs is None:
        options.epochs = 2 if options.quick else 10
    if options.patches is None:
        options.patches = 2_000 if options.quick else 20_000
    if options.epochs < 1 or options.patches < 10:
        parser.error("--epochs must be at least 1 and --patches at least 10")
    return options


def _prepare(
    photos: Sequence[NDArray[np.uint8]], options: argparse.Namespace
) -> tuple[Settings, NDArray[np.int64]]:
    """Cuts the patches; one held-out patch for every ten training patches."""
    height = photos[0].shape[0]
    rng = np.random.default_rng(SEED)
    training = sample_positions(photos, training_tops(height), options.patches, rng)
    held_out = sample_positions(photos, held_out_tops(height), options.patches // 10, rng)
    settings = Settings(
        training=PatchFiles.in_folder(options.out / "training"),
        held_out=PatchFiles.in_folder(options.out / "held-out"),
        epochs=options.epochs,
        threads=torch.get_num_threads(),
    )
    save_patches(photos, training, settings.training)
    save_patches(photos, held_out, settings.held_out)
    return settings, training


def _train_apart(feed: str, settings: Settings) -> Run:
    """Trains in a fresh process, whose peak memory is then that of this run alone."""
    # By default OpenMP's threads spin while they wait for each other, and where another program
    # wants the same cores, training takes ten times as long and its times mean nothing.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as executor:
        return executor.submit(train, feed, settings).result()
