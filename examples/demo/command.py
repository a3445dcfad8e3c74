"""The demo: one small CNN trained twice on real photographs, fed once by stock torch, once by pinfeed.

Two photographs are cut into overlapping patches, and a CNN learns which photograph and which of its
columns a patch comes from, cropped and flipped at random. Both runs start from the same weights and
see the same batches in the same order, an epoch each in turn, so that what differs between them is
only the time spent waiting for data.

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
    """Runs the demo; 0 if both runs saw the same batches and ended at the same accuracy, else 1."""
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
    # Comparing first also brings both files into the page cache, so that neither run reads cold.
    batches, difference = largest_difference(options.out / "training")
    stock, pinfeed = _train_in_turns(options)
    plot = options.out / "demo.png"
    draw(plot, photos, positions, [stock, pinfeed])
    checks, verified = verdicts(batches, difference, stock, pinfeed)
    print(
        f"\n{table(stock, pinfeed)}\n\n"
        "Times and rates are medians of the epochs, with the lowest and the highest; the speed-up of "
        "training is what less waiting saves.\n"
        f"Peak memory includes {images.stat().st_size >> 20:,} MiB of memory-mapped patches that both "
        "processes share with the page cache.\n"
        "No training patch touches the rows of the held-out patches; training patches overlap each "
        f"other.\n\n{checks}\n\nplot: {plot}"
    )
    print(f"took {time.perf_counter() - start:.0f} s", flush=True)
    return 0 if verified else 1


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description="Train a small CNN on patches of two photographs, once fed by torch and once by "
        "pinfeed, and compare the times.",
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
    """Trains with both feeds, an epoch with each in turn, so that a slow minute slows down both.

    Each has a process of its own, whose peak memory is then that of this run alone.
    """
    # By default OpenMP's threads spin while they wait for each other. Where another program wants
    # the same cores, training would take ten times as long and its times would mean nothing.
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


_trainings: dict[str, Iterator[Run]] = {}  # the one that this process goes on with


def _train_on(feed: str, out: Path, epochs: int, threads: int) -> Run:
    """Trains for one more epoch."""
    if feed not in _trainings:
        _trainings[feed] = train(feed, out, epochs, threads)
    return next(_trainings[feed])
