"""The demo: where patches are cut, what the report says, and one quick run of the whole command."""

import io
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from pinfeed.demo.agreement import BatchAgreement, compare_batches
from pinfeed.demo.extra import import_demo_extra
from pinfeed.demo.feeds import FEEDS, stock_loader
from pinfeed.demo.patches import (
    COLUMNS,
    HELD_OUT_ROWS,
    PATCH_SIZE,
    PatchFiles,
    held_out_tops,
    labels_of,
    sample_positions,
    save_patches,
    training_tops,
)
from pinfeed.demo.progress import Progress
from pinfeed.demo.report import format_table, format_verdicts
from pinfeed.demo.training import Run, peak_resident_bytes

HEIGHT, WIDTH = 427, 640


@pytest.fixture
def photos():
    rng = np.random.default_rng(7)
    return [rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8) for _ in range(2)]


def run_with(feed="stock", training_accuracy=0.99, held_out_accuracy=0.65, order="a"):
    return Run(
        feed,
        images=1000,
        data_seconds=[0.2, 0.4, 0.3],
        compute_seconds=[0.7, 0.7, 0.7],
        losses=[1.0, 0.5, 0.4],
        order=order,
        training_accuracy=training_accuracy,
        held_out_accuracy=held_out_accuracy,
        peak_bytes=512 << 20,
    )


def rows_touched(tops):
    return {row for top in tops for row in range(top, top + PATCH_SIZE)}


def test_training_and_held_out_patches_share_no_row():
    training = rows_touched(training_tops(HEIGHT))
    held_out = rows_touched(held_out_tops(HEIGHT))
    assert held_out == set(HELD_OUT_ROWS)
    assert training == set(range(HEIGHT)) - held_out


def test_positions_are_different_places_inside_the_photographs(photos):
    tops = training_tops(HEIGHT)
    positions = sample_positions(photos, tops, 5_000, np.random.default_rng(0))
    photo, top, left = positions.T
    assert positions.shape == (5_000, 3)
    assert len(np.unique(positions, axis=0)) == 5_000
    assert set(photo) == {0, 1}
    assert set(top) <= set(tops)
    assert left.min() >= 0
    assert left.max() <= WIDTH - PATCH_SIZE


def test_all_places_can_be_drawn_and_no_more(photos):
    places = 2 * 1 * (WIDTH - PATCH_SIZE + 1)
    assert len(sample_positions(photos, [5], places, np.random.default_rng(0))) == places
    with pytest.raises(ValueError, match=f"at most {places}, .* got {places + 1}"):
        sample_positions(photos, [5], places + 1, np.random.default_rng(0))


def test_label_is_the_column_of_the_centre():
    # Columns are 160 wide, so a patch of 64 at 127 has its centre in the last pixel of column 0.
    positions = np.array([[0, 0, 0], [0, 9, 127], [0, 9, 128], [1, 0, 0], [1, 3, 576]])
    assert labels_of(positions, WIDTH).tolist() == [0, 0, 1, COLUMNS, 2 * COLUMNS - 1]


def test_saved_patches_are_the_pixels_at_their_positions(photos, tmp_path):
    positions = np.array([[0, 3, 5], [1, 300, 576], [1, 0, 0]])
    files = PatchFiles.in_folder(tmp_path / "set")
    save_patches(photos, positions, files)
    images = np.load(files.images, mmap_mode="r")
    assert images.dtype == np.uint8
    assert images.shape == (3, PATCH_SIZE, PATCH_SIZE, 3)
    for image, (photo, top, left) in zip(images, positions, strict=True):
        np.testing.assert_array_equal(
            image, photos[photo][top : top + PATCH_SIZE, left : left + PATCH_SIZE]
        )
    labels = np.load(files.labels)
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(labels, labels_of(positions, WIDTH))


@pytest.fixture
def patch_files(photos, tmp_path):
    files = PatchFiles.in_folder(tmp_path)
    positions = sample_positions(photos, training_tops(HEIGHT), 600, np.random.default_rng(0))
    save_patches(photos, positions, files)
    return files


def test_feeds_give_the_same_batches(patch_files):
    agreement = compare_batches(patch_files)
    assert agreement.holds
    assert agreement.batches == 3


@pytest.mark.parametrize("pixel", [1e-5, float("nan")])
def test_one_wrong_pixel_is_seen(patch_files, monkeypatch, pixel):
    def spoiled_collate(samples):
        batch = torch.utils.data.default_collate(samples)
        batch["image"][-1, -1, -1, -1] += pixel
        return batch

    def spoiled_loader(files, **options):
        return stock_loader(files, collate_fn=spoiled_collate, **options)

    monkeypatch.setitem(FEEDS, "pinfeed", spoiled_loader)
    assert not compare_batches(patch_files).holds


def test_table_takes_medians_over_epochs():
    table = format_table(run_with("stock"), run_with("pinfeed"))
    rows = {line[:34].strip(): line[34:].split() for line in table.splitlines()[2:]}
    assert rows["data time per epoch"][:2] == ["300", "ms"]
    assert rows["images/s in training"][:2] == ["1,000", "1,000"]
    assert rows["share of the step waiting for data"] == ["30.0%", "30.0%"]
    assert rows["peak memory of the process"][:2] == ["512", "MiB"]


SAME_BATCHES = BatchAgreement(batches=8, max_difference=5e-7, labels_equal=True)


@pytest.mark.parametrize(
    ("batches", "pinfeed", "failing"),
    [
        (SAME_BATCHES, run_with(), None),
        (BatchAgreement(8, 2e-6, labels_equal=True), run_with(), "batches"),
        (BatchAgreement(8, float("nan"), labels_equal=True), run_with(), "batches"),
        (BatchAgreement(8, 0.0, labels_equal=False), run_with(), "batches"),
        (SAME_BATCHES, run_with(order="b"), "order"),
        (SAME_BATCHES, run_with(training_accuracy=0.97), "accuracy"),
        (SAME_BATCHES, run_with(held_out_accuracy=0.75), "accuracy"),
    ],
)
def test_verdict_names_the_check_that_fails(batches, pinfeed, failing):
    verdicts, verified = format_verdicts(batches, run_with(), pinfeed)
    failed = [line.split()[1] for line in verdicts.splitlines() if line.startswith("FAILED")]
    assert failed == ([] if failing is None else [f"{failing}:"])
    assert verified == (failing is None)


def test_peak_memory_follows_an_allocation():
    before = peak_resident_bytes()
    block = np.ones(before + (64 << 20), dtype=np.uint8)
    assert peak_resident_bytes() >= before + (64 << 20)
    del block


@pytest.mark.parametrize("terminal", [True, False])
def test_full_bar_is_written_once(monkeypatch, terminal):
    log = io.StringIO()
    log.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", log)
    with Progress("reading", total=2, unit="file") as bar:
        bar.advance()
        bar.advance("done")
    assert log.getvalue().count("100%") == 1
    assert ("\r" in log.getvalue()) == terminal
    assert log.getvalue().endswith("\n")


def test_missing_extra_says_what_to_install(monkeypatch):
    # None in sys.modules makes the import system report the module as missing.
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ImportError, match=r"tqdm is not installed: pip install pinfeed\[demo\]"):
        import_demo_extra("tqdm")


def test_quick_run_verifies_and_reports(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "pinfeed", "demo", "--quick", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = [line for line in done.stdout.splitlines() if line.startswith("verified")]
    assert [line.split()[1] for line in verdicts] == ["batches:", "order:", "accuracy:"]
    for row in ("data time per epoch", "images/s", "waiting for data", "peak memory"):
        assert row in done.stdout
    for bar in ("comparing batches", "stock  epoch  2/2", "pinfeed  epoch  2/2"):
        assert bar in done.stderr
    assert "\r" not in done.stderr
    with Image.open(tmp_path / "demo.png") as plot:
        assert min(plot.size) > 500
    patches = np.load(tmp_path / "training" / "patches.npy", mmap_mode="r")
    assert patches.shape == (2_000, PATCH_SIZE, PATCH_SIZE, 3)
