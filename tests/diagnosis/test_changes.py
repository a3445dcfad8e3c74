"""What is advised gives the same batches."""

import contextlib
import time

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
from torch.utils.data import WeightedRandomSampler as Weighted

import pinfeed
from pinfeed.diagnosis.changes import _of_samples, _of_workers, have_equal_values
from pinfeed.diagnosis.model import Cpus, Measured
from pinfeed.diagnosis.runs import LoaderCopy


class Samples:
    def __init__(self, *samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


ROWS = (torch.arange(8.0), torch.ones(8))


def changes_of(loader, of=_of_samples):
    copy = LoaderCopy(loader)
    loop = copy.run(copy.settings, 0.01)
    one = copy.run(runs_with(copy, 1), 0.01)
    copy.compare_workers()
    return [*of(Measured(Cpus(4, 4, None, 1), loop, {0: loop, 1: one}), copy)]


def runs_with(copy, workers):
    return type(copy.settings)(workers)


def test_decoding_once_is_an_estimate():
    """That each sample is the same every time is the user's to know."""
    (change,) = (
        change
        for change in changes_of(DataLoader(Samples(*ROWS), batch_size=2))  # of 32 bytes each
        if change.name == "samples decoded once, at most"
    )
    assert "about 6.4e-05 MB" in change.note
    assert change.settings is None
    assert not change.is_recommended


class Scaled(TensorDataset):
    def __getitem__(self, index):
        return (super().__getitem__(index)[0] / 255,)


class Centred(TensorDataset):
    def __getitem__(self, index):
        (row,) = super().__getitem__(index)
        return (row - row.sum(),)  # of a batch, if there are several


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 2},
        {"batch_size": 3, "shuffle": True, "drop_last": True},
        {"batch_size": 2, "sampler": Weighted([1.0] * 8, 5)},
        {"batch_sampler": BatchSampler(RandomSampler(range(8)), 3, False)},
    ],
)
def test_whole_batches_are_the_same(options):
    """What is to be written, run as it stands."""
    rows = torch.arange(64).reshape(8, 8)
    for kind in (type("Own", (TensorDataset,), {}), Scaled):
        (change,) = whole_of(DataLoader(kind(rows), **options))
        methods = {}
        exec(change.code.partition("#")[0], {}, methods)
        whole = type("Whole", (kind,), methods)(rows)
        torch.manual_seed(0)
        expected = [*DataLoader(kind(rows), **options)]
        torch.manual_seed(0)
        batches = [*DataLoader(whole, collate_fn=lambda batch: batch, **options)]
        assert [type(batch) for batch in batches] == [tuple] * len(expected)
        torch.testing.assert_close([[*batch] for batch in batches], expected, rtol=0, atol=0)
    assert not whole_of(DataLoader(Centred(rows), **options))
    for dataset in (rows, TensorDataset(rows)):  # no class of one's own to write it in
        assert not whole_of(DataLoader(dataset, **options))


def whole_of(loader):
    return [c for c in changes_of(loader) if c.name.startswith("whole batches")]


class Numbers:
    """Rows of a file that is open, or is opened for the first sample."""

    def __init__(self, path, file=None):
        self.path, self.file = path, file

    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.002)
        with contextlib.nullcontext(self.file) if self.file else self.path.open("rb") as file:
            file.seek(8 * index)
            return np.frombuffer(file.read(8), np.int64)


def test_no_workers_for_files_whose_position_they_would_share(tmp_path):
    path = tmp_path / "rows"
    path.write_bytes(np.arange(64).tobytes())
    with path.open("rb", buffering=0) as file:
        loader = DataLoader(Numbers(path, file), batch_size=4)
        assert changes_of(loader, _of_workers) == []
        note = " ".join(pinfeed.diagnose(loader, seconds=0.2).notes)
    assert "holds open files, whose position forked workers share" in note
    assert changes_of(DataLoader(Numbers(path), batch_size=4), _of_workers)


IMAGES = torch.ones(2, 3, 4, 4)


class Attributes(dict):
    """A batch whose parts are attributes, too."""

    @property
    def x(self):
        return self["x"]


class Incomparable:
    def __eq__(self, other):
        raise NotImplementedError

    __hash__ = None


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        (float("nan"), float("nan"), True),
        (float("nan"), 1.0, False),
        ({"x": np.array(["a"])}, {"x": np.array(["a"])}, True),
        ([np.array(["a"], object)], [np.array(["b"], object)], False),
        (np.array(["NaT"], "M8[s]"), np.array(["NaT"], "M8[s]"), True),
        (np.array([np.nan]), np.array([np.nan]), True),
        (np.zeros(2), np.zeros(2, np.float32), False),
        (torch.tensor([torch.nan]), torch.tensor([torch.nan]), True),
        (torch.eye(2).to_sparse(), torch.eye(2).to_sparse(), False),  # which have no ==
        ([torch.ones(2), 1], (torch.ones(2), 1), True),  # torch makes lists of tuples
        ({"x": 1}, Attributes({"x": 1}), False),
        (torch.ones(2), torch.ones(2).requires_grad_(), False),
        (IMAGES, IMAGES.contiguous(memory_format=torch.channels_last), False),
        (Incomparable(), Incomparable(), False),
    ],
)
def test_equal_values(one, other, is_equal):
    assert have_equal_values(one, other) is is_equal
