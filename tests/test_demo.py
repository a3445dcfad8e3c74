"""The demo: patch positions, the report, and one quick run of the whole command."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from examples.demo import training
from examples.demo.comparison import table, verdicts
from examples.demo.training import (
    COLUMNS,
    HELD_OUT_ROWS,
    PATCH_SIZE,
    Run,
    cut_patches,
    draw_positions,
    largest_difference,
    make_loader,
    progress,
    set_epoch,
)
from PIL import Image

from programs import run_program

SHAPE = (427, 640, 3)
ROOT = Path(__file__).parents[1]


@pytest.fixture
def photos():
    rng = np.random.default_rng(7)
    return [rng.integers(0, 256, SHAPE, dtype=np.uint8) for _ in range(2)]


def run_with(feed="stock", training_accuracy=0.99, held_out_accuracy=0.65, order="a"):
    times = {"data_seconds": [0.2, 0.4, 0.3], "compute_seconds": [0.7, 0.7, 0.7]}
    accuracies = {"training_accuracy": training_accuracy, "held_out_accuracy": held_out_accuracy}
    return Run(feed, images=1000, order=order, peak_bytes=512 << 20, **times, **accuracies)


@pytest.mark.parametrize("held_out", [True, False])
def test_positions_are_distinct_and_on_one_side_of_the_held_out_rows(held_out):
    positions = draw_positions(SHAPE, 5_000, np.random.default_rng(0), held_out=held_out)
    photo, top, left = positions.T
    assert len(np.unique(positions, axis=0)) == 5_000
    assert set(photo) == {0, 1}
    assert left.min() >= 0
    assert left.max() <= SHAPE[1] - PATCH_SIZE
    touched = {row for first in set(top) for row in range(first, first + PATCH_SIZE)}
    assert touched == (
        set(HELD_OUT_ROWS) if held_out else set(range(SHAPE[0])) - set(HELD_OUT_ROWS)
    )


def test_patches_equal_their_pixels_and_labels_their_columns(photos, tmp_path):
    # Columns are 160 wide, so the center of a patch of 64 at 127 is in the last pixel of column 0.
    positions = np.array([[0, 9, 127], [0, 9, 128], [1, 300, 576], [1, 0, 0]])
    images = np.load(cut_patches(photos, positions, tmp_path), mmap_mode="r")
    assert images.dtype == np.uint8
    for image, (photo, top, left) in zip(images, positions, strict=True):
        np.testing.assert_array_equal(
            image, photos[photo][top : top + PATCH_SIZE, left : left + PATCH_SIZE]
        )
    assert np.load(tmp_path / "labels.npy").tolist() == [0, 1, 2 * COLUMNS - 1, COLUMNS]


@pytest.mark.parametrize("spoiled", [None, 1e-5, float("nan"), "label"])
def test_feeds_give_equal_batches_and_one_wrong_value_is_detected(
    photos, tmp_path, monkeypatch, spoiled
):
    def spoiled_collate(samples):
        batch = torch.utils.data.default_collate(samples)
        if spoiled == "label":
            batch["label"][-1] += 1
        else:
            batch["image"][-1, -1, -1, -1] += spoiled
        return batch

    def spoiled_loader(feed, folder, **options):
        if feed == "stock":
            return make_loader("stock", folder, **options)
        return make_loader("stock", folder, collate_fn=spoiled_collate, **options)

    positions = draw_positions(SHAPE, 600, np.random.default_rng(0), held_out=False)
    cut_patches(photos, positions, tmp_path)
    if spoiled is not None:
        monkeypatch.setattr(training, "make_loader", spoiled_loader)
    batches, difference = largest_difference(tmp_path)
    assert batches == 3
    assert verdicts(batches, difference, run_with(), run_with())[1] == (spoiled is None)


def test_the_stock_feed_crops_and_flips_anew_in_each_epoch(photos, tmp_path):
    positions = draw_positions(SHAPE, 300, np.random.default_rng(0), held_out=False)
    cut_patches(photos, positions, tmp_path)
    loader = make_loader("stock", tmp_path)
    plain = next(iter(loader))["image"]
    epochs = []
    for epoch in (0, 1):
        set_epoch(loader, epoch)
        epochs.append(next(iter(loader))["image"])
    assert not torch.equal(epochs[0], epochs[1])
    crops = loader.dataset.crops[:256]
    assert set(crops[:, 2]) == {0, 1}
    still = torch.from_numpy((crops == 0).all(axis=1))
    assert torch.equal(epochs[1][still], plain[still])
    assert not torch.equal(epochs[1][~still], plain[~still])


def test_the_stock_feed_uses_torchvision_if_installed(photos, tmp_path, monkeypatch):
    torchvision = pytest.importorskip("torchvision.transforms")
    positions = draw_positions(SHAPE, 300, np.random.default_rng(0), held_out=False)
    cut_patches(photos, positions, tmp_path)
    with_it = make_loader("stock", tmp_path)
    assert isinstance(with_it.dataset.transform, torchvision.Compose)
    monkeypatch.setitem(sys.modules, "torchvision.transforms", None)
    without = make_loader("stock", tmp_path)
    assert not isinstance(without.dataset.transform, torchvision.Compose)
    assert torch.equal(next(iter(with_it))["image"], next(iter(without))["image"])


def test_the_table_has_medians_ranges_and_the_effect_of_waiting():
    pinfeed = run_with("pinfeed")
    pinfeed.data_seconds = [0.1, 0.1, 0.2]
    pinfeed.compute_seconds = [0.1, 0.1, 0.7]  # two fast epochs by chance
    rows = {
        line[:34].strip(): line[34:].split()
        for line in table(run_with("stock"), pinfeed).splitlines()[2:]
    }
    assert rows["data time per epoch, ms"] == ["300", "(200-400)", "100", "(100-200)", "3.0", "x"]
    assert rows["images/s in training"][:2] == ["1,000", "(909-1,111)"]
    assert rows["images/s in training"][-2:] == ["1.25", "x"]  # (0.3 + 0.7) / (0.1 + 0.7)
    assert rows["share of the step waiting for data"] == ["30.0%", "50.0%"]
    assert rows["peak memory of the process"][:2] == ["512", "MiB"]


@pytest.mark.parametrize(
    ("difference", "pinfeed", "failing"),
    [
        (5e-7, run_with(), []),
        (2e-6, run_with(), ["batches:"]),
        (float("nan"), run_with(), ["batches:"]),
        (5e-7, run_with(order="b"), ["order:"]),
        (5e-7, run_with(training_accuracy=0.97), ["accuracy:"]),
        (5e-7, run_with(held_out_accuracy=0.75), ["accuracy:"]),
    ],
)
def test_the_verdict_names_the_failing_check(difference, pinfeed, failing):
    lines, verified = verdicts(8, difference, run_with(), pinfeed)
    failed = [line.split()[1] for line in lines.splitlines() if line.startswith("FAILED")]
    assert failed == failing
    assert verified == (not failing)


def test_peak_memory_follows_an_allocation():
    run_program("peak_memory_of_the_demo")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_full_bar_is_written_once(monkeypatch, terminal):
    log = io.StringIO()
    log.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", log)
    with progress("reading", 2) as bar:
        bar.update()
        bar.update()
    assert log.getvalue().count("100%") == 1
    assert ("\r" in log.getvalue()) == terminal
    assert log.getvalue().endswith("\n")


@pytest.mark.slow
def test_the_command_verifies_and_reports(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--quick", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verified = [line for line in done.stdout.splitlines() if line.startswith("verified")]
    assert [line.split()[1] for line in verified] == ["batches:", "order:", "accuracy:"]
    for row in ("data time per epoch", "images/s", "waiting for data", "peak memory"):
        assert row in done.stdout
    for bar in ("comparing batches", "stock  epoch  3/3", "pinfeed  epoch  3/3"):
        assert bar in done.stderr
    assert "\r" not in done.stderr
    with Image.open(tmp_path / "demo.png") as plot:
        assert min(plot.size) > 500
