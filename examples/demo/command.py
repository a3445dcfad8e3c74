"""The demo: trains one small CNN twice on real images, fed once by stock torch and once by pinfeed.

Two images are cut into overlapping patches, and a CNN learns which image and which of its columns a
patch comes from, cropped and flipped at random. Both runs start from the same weights, see the same
batches in the same order, and alternate epoch by epoch. They differ only in the time spent waiting
for data.

    make demo ARGS="--out demo-out"
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_sample_images

from examples.demo.comparison import draw, table, verdicts
from examples.demo.training import (
    BATCH_SIZE,
    SEED,
    Run,
    cut_patches,
    draw_positions,
    largest_difference,
    train,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo; returns 0 if both runs saw the same batches and reached the same accuracy, else 1."""
    options = _parse(argv)
    start = time.perf_counter()
    photos = load_sample_images().images
    rng = np.random.default_rng(SEED)
    positions = draw_positions(photos[0].shape, options.patches, rng, held_out=False)
    held_out = draw_positions(photos[0].shape, options.patches // 10, rng, held_out=True)
    images = cut_patches(photos, positions, options.out / "training")
    cut_patches(photos, held_out, options.out / "held-out")
    print(
        f"{options.patches:,} training patches of 64x64x3 uint8 in {images}\n"
        f"batch size {BATCH_SIZE}, {options.epochs} epochs, {torch.get_num_threads()} threads, "
        "no loader workers, for both feeds",
        flush=True,
    )
    # This also brings both files into the page cache, so that neither run reads them from disk.
    batches, difference = largest_difference(options.out / "training")
    stock, pinfeed = _train_in_turns(options)
    plot = options.out / "demo.png"
    draw(plot, photos, positions, [stock, pinfeed])
    checks, verified = verdicts(batches, difference, stock, pinfeed)
    print(
        f"\n{table(stock, pinfeed)}\n\n"
        "Times and rates are medians of the epochs, with the lowest and the highest; the speed-up of "
        "training comes from shorter waits alone.\n"
        f"Peak memory includes {images.stat().st_size >> 20:,} MiB of memory-mapped patches, which both "
        "processes share with the page cache.\n"
        "No training patch touches the rows of the held-out patches; training patches overlap each "
        f"other.\n\n{checks}\n\nplot: {plot}"
    )
    print(f"took {time.perf_counter() - start:.0f} s", flush=True)
    return 0 if verified else 1


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description="Train a small CNN on patches of two images, fed once by torch and once by pinfeed, "
        "and compare the times.",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("demo-out"),
        help="folder for the results (default: demo-out)",
    )
    parser.add_argument("--epochs", type=int, default=10, help="epochs of each run (default: 10)")
    parser.add_argument(
        "--patches", type=int, default=20_000, help="training patches (default: 20,000)"
    )
    parser.add_argument("--quick", action="store_true", help="3 epochs on 2,000 patches")
    options = parser.parse_args(argv)
    if options.quick:
        options.epochs, options.patches = 3, 2_000
    if options.epochs < 1 or options.patches < 10:
        parser.error("--epochs must be at least 1 and --patches at least 10")
    return options


def _train_in_turns(options: argparse.Namespace) -> list[Run]:
    """Trains with both feeds, alternating epoch by epoch, so that a slow minute slows down both.

    Each run has its own process, so that peak memory is measured per run.
    """
    # By default OpenMP's threads spin while they wait for each other. If another program needs the
    # same cores, training takes ten times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    spawn, threads, runs = multiprocessing.get_context("spawn"), torch.get_num_threads(), []
    with ExitStack() as stack:
        executors = {
            feed: stack.enter_context(ProcessPoolExecutor(max_workers=1, mp_context=spawn))
            for feed in ("stock", "pinfeed")
        }
        for _ in range(options.epochs):
            runs = [
                executor.submit(_train_on, feed, options.out, options.epochs, threads).result()
                for feed, executor in executors.items()
            ]
    return runs


_trainings: dict[str, Iterator[Run]] = {}  # the training that this process resumes


def _train_on(feed: str, out: Path, epochs: int, threads: int) -> Run:
    """Trains for one more epoch."""
    if feed not in _trainings:
        _trainings[feed] = train(feed, out, epochs, threads)
    return next(_trainings[feed])
