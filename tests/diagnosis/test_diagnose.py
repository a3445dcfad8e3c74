"""Loaders with a known limit: the diagnosis names it, and its recommendations make them faster.

Times are sleeps with large ratios, so that they are visible on a busy machine.
"""

import mmap
import multiprocessing
import os
import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, default_collate

import pinfeed
from pinfeed.diagnosis.runs import LoaderCopy, Settings, do_step
from sleeping import Sleeping, Stream, note_of, short

LOCK = multiprocessing.Lock()


def sleeping_step(seconds):
    return lambda batch: time.sleep(seconds)


class SlowSampler:
    """Takes 2 ms per index."""

    def __len__(self):
        return 640

    def __iter__(self):
        for index in range(640):
            time.sleep(0.002)
            yield index % 64


def locked(index):
    with LOCK:
        time.sleep(0.005)
        return index


class SlowToFree:
    """A batch that takes 30 ms to free, outside all stages."""

    def __init__(self, samples):
        self.samples = samples

    def __del__(self):
        time.sleep(0.03)


def slow_collate(samples):
    time.sleep(0.02)
    return default_collate(samples)


FROZEN = np.zeros(20_000_000, np.uint8)


def frozen(samples):
    return FROZEN  # making one would take a busy machine as long as passing it


def named_index(name):
    return int(name if isinstance(name, str) else name[0])


NAMES = ["11", "22", "33"] * 20
# Loaders by their limit, and the duration of the step, if any.
ARANGE = TensorDataset(torch.arange(64))
LOADERS = {
    "dataset": (DataLoader(Sleeping(), batch_size=4), 0.001),
    "dataset, two workers": (DataLoader(Sleeping(0.02), 4, num_workers=2), None),
    "dataset, a stream": (DataLoader(Stream(), batch_size=4), None),
    "dataset, a short stream": (DataLoader(Stream(lambda: range(11)), 4, drop_last=True), None),
    "dataset, whole batches": (DataLoader(Sleeping(), batch_size=None), None),
    "dataset, in a thread": (pinfeed.DeviceLoader(DataLoader(Sleeping(), 4), "cpu"), 0.001),
    "dataset, several sizes": (DataLoader(Sleeping(), batch_sampler=[[0], [*range(8)]] * 4), None),
    "dataset, names": (DataLoader(Sleeping(get=named_index), 4, sampler=NAMES), None),
    "dataset, a name": (DataLoader(Sleeping(get=named_index), None, sampler=NAMES), None),
    "dataset, lists of names": (DataLoader(Sleeping(get=named_index), None, sampler=[NAMES]), None),
    "collate": (DataLoader(Sleeping(0.0005), 8, collate_fn=slow_collate), None),
    "sampler": (DataLoader(ARANGE, 8, sampler=SlowSampler()), 0.001),
    "sampler, two workers": (DataLoader(ARANGE, 8, sampler=SlowSampler(), num_workers=2), None),
    "step": (DataLoader(Sleeping(0.0005), 2, num_workers=1), 0.2),
    "stragglers": (DataLoader(Sleeping(0.004, 20, slow=17), 4), None),
    "lock": (DataLoader(Sleeping(0, get=locked), 4, num_workers=4), None),
    "hand_off": (DataLoader([0] * 64, 4, collate_fn=frozen, num_workers=2), None),
    "unexplained": (DataLoader(Sleeping(0.0005), 2, collate_fn=SlowToFree), None),
    "start": (DataLoader(Sleeping(0.0005, 4), 2, num_workers=1), 0.001),
}


def diagnosed(limit, *arguments):
    """Returns the first report that names the limit, or the third: other tests use the CPUs too."""
    for _ in range(3):
        report = short(*arguments)
        if report.limit == limit:
            break
    return report


@pytest.mark.parametrize("name", LOADERS)
def test_the_limit_is_named(name):
    loader, seconds = LOADERS[name]
    step = None if seconds is None else sleeping_step(seconds)
    seconds = {"stragglers": 4.0, "start": 4.0, "hand_off": 2.0}.get(name, 1.5)
    limit = name.split(",")[0]
    report = diagnosed(limit, loader, step, seconds)
    assert report.limit == limit, report
    assert (report.measured.loop.wait > 0.5 * report.measured.loop.period) is (name != "step")
    assert not any("not measured" in note for note in report.notes)
    if name == "stragglers":
        assert report.to_dict()["stragglers"]["samples"] == [17]
    if name == "dataset, a stream":
        assert note_of(report.notes, "trials have other samples")


class Evicted:
    """Rows of a file larger than memory: read-ahead loads far more than 100 bytes, and nothing stays."""

    def __init__(self, path):
        self.rows = np.load(path, mmap_mode="r")
        self.file = os.open(path, os.O_RDONLY)
        os.fsync(self.file)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = torch.from_numpy(self.rows[index, :100].copy())
        self.rows._mmap.madvise(mmap.MADV_DONTNEED)
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)
        return row


def test_a_file_that_does_not_fit_in_memory_is_read_by_its_path(tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((64, 1 << 21), np.uint8))
    loader = DataLoader(Evicted(tmp_path / "rows.npy"), batch_size=4, shuffle=True)
    report = diagnosed("files", loader, None, 2.0)
    if not report.measured.loop.disk_bytes:
        pytest.skip("nothing comes from a disk here")
    assert report.measured.reads_too_much
    assert report.limit == "files", report
    assert "ArrayDataset(path) or from_numpy(path)" in str(report)


@pytest.mark.usefixtures("trials")
def test_recommendations_were_tried():
    report = short(DataLoader(Sleeping(0.02, 16), 4), None, 2.0)
    (actual,) = [change for change in report.recommended if "workers" in change.name]
    assert actual.gain > report.measured.min_gain
    assert len(actual.before) == len(actual.after) == 3
    assert "Do this: " in str(report)


@pytest.mark.usefixtures("trials")
def test_a_slow_step_needs_no_change():
    loader = DataLoader(TensorDataset(torch.arange(6400)), batch_size=4, num_workers=1)
    report = short(loader, sleeping_step(0.2))
    assert report.limit == "step"
    assert report.recommended == report.changes == []
    assert "nothing to gain here" in str(report)
    assert "No change was tried.\nWhat helps against this limit: a faster step;" in str(report)


@pytest.mark.parametrize(("length", "workers"), [(64, 0), (7, 0), (64, 1), (7, 3)])
def test_trials_use_the_same_samples(length, workers):
    """For any number of workers and any position of the sampler, whose own time is included."""
    copy = LoaderCopy(DataLoader(Sleeping(0.001, length), 2, shuffle=True))
    copy.again = copy.run(copy.settings, 0.05).repeatable(0.05)
    runs = [copy.run(Settings(workers), 0.2) for _ in range(2)]
    samples = [sorted(i for batch in run.steady for i in batch.indices) for run in runs]
    counts = [{i: s.count(i) / len(s) for i in s} for s in samples]
    assert counts[0] == counts[1]
    assert all(len(run.draws) >= len(run.batches) for run in runs)


def slowly(worker):
    time.sleep(0.2)


@pytest.mark.parametrize(("epoch", "workers"), [(1, 1), (5, 2)])
def test_a_period_includes_its_share_of_the_start_of_workers(epoch, workers):
    loader = DataLoader(Sleeping(0.02, epoch), 1, num_workers=workers, worker_init_fn=slowly)
    copy = LoaderCopy(loader)
    period = copy.run(copy.settings, 0.05).period
    assert 0.9 < period / (0.2 / epoch + 0.02 / workers) < 6  # others work there


class WarmsUp:
    """A step that is slow at first, like torch.compile."""

    calls = 0

    def __call__(self, batch):
        self.calls += 1
        time.sleep(0.3 if self.calls <= 2 else 0.001)


class OnADevice:
    """A result that is not computed yet, as JAX returns it."""

    def block_until_ready(self):
        time.sleep(0.01)


def test_the_time_of_a_step():
    report = short(DataLoader(Sleeping(0.005), batch_size=4), WarmsUp())
    assert report.limit == "dataset"
    assert report.measured.step < 0.1
    pytest.importorskip("jax")
    start = time.perf_counter()
    do_step(lambda batch: {"loss": OnADevice()}, None)
    assert time.perf_counter() - start > 0.01
