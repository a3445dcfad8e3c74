"""Diagnoses of loaders, short ones: what is gross is found."""

import itertools
import time
from typing import Any

import numpy as np
import pytest
import torch
from examples.demo import training
from PIL import Image
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    TensorDataset,
    default_collate,
    get_worker_info,
)

import pinfeed
from pinfeed.diagnosis import diagnose as module
from pinfeed.diagnosis import runs
from pinfeed.diagnosis.runs import LoaderCopy
from sleeping import Sleeping, Stream, short


@pytest.mark.usefixtures("trials")
def test_slow_samples_are_the_limit_and_workers_are_proven():
    loader = DataLoader(Sleeping(), batch_size=4, shuffle=True)
    report = short(loader, lambda batch: time.sleep(0.001), 1.0)
    assert report.limit == "dataset"
    assert report.measured.loop.wait_share > 0.8
    assert report.recommended
    assert all(one.gain > 0.03 for one in report.recommended)
    assert any("worker" in one.name for one in report.changes)
    assert report.to_dict()["cpus"]["usable"] >= 1


def test_a_slow_step_leaves_nothing_to_gain():
    loader = DataLoader(TensorDataset(torch.arange(6400)), batch_size=4, num_workers=1)
    report = short(loader, lambda batch: time.sleep(0.3))
    assert report.limit == "step"
    assert report.recommended == []
    assert "nothing to gain here" in str(report)


def test_a_straggler_is_named():
    loader = DataLoader(Sleeping(0.001, 40, slow=17), batch_size=5)
    report = short(loader, seconds=1.5)
    assert any(17 in outlier.samples for outlier in report.measured.outliers())


def test_an_epoch_of_a_few_batches_starts_workers_in_trials_too():
    report = short(DataLoader(Sleeping(length=12), batch_size=4), seconds=2)
    (workers,) = (change for change in report.changes if "worker" in change.name)
    assert workers.settings.epoch == 3
    assert workers.settings.workers <= 3
    assert "persistent_workers=True" in workers.code


def test_samples_that_are_batches_and_a_device_loader():
    inner = DataLoader(Sleeping(0.005), batch_size=None, num_workers=1)
    report = short(pinfeed.DeviceLoader(inner, "cpu"), lambda batch: None)
    assert report.measured.loop.samples == 1
    assert report.measured.loop.stats.waited > 0
    assert "copy" in str(report)


def test_batches_of_several_sizes():
    batches = [[0]] + [list(range(8))] * 7
    loop = short(DataLoader(Sleeping(0.001), batch_sampler=batches)).to_dict()["loop"]
    assert 4 < loop["batch_samples"] <= 8
    assert 200 < loop["samples_per_second"] < 1000


def test_a_stream_that_is_shorter_than_four_batches_and_what_is_not_measured_of_it():
    for drop_last in (False, True):
        loader = DataLoader(ShortStream(), batch_size=4, drop_last=drop_last)
        report = short(loader)
        assert report.limit == "dataset"
        assert report.measured.large is None
        assert report.measured.ready is None
        assert any("stream" in note for note in report.notes)
        assert report.measured.loop.samples == 4


class Split(Stream):
    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return itertools.islice(super().__iter__(), first, None, step)


@pytest.mark.usefixtures("leaves_no_workers")
@pytest.mark.parametrize("stream", [Stream, Split])
def test_more_workers_for_streams_that_are_split_among_them(stream):
    report = short(DataLoader(stream(), batch_size=4, num_workers=2))
    is_split = stream is Split
    assert any("reads the whole stream" in note for note in report.notes) is not is_split
    names = [change.name for change in report.changes]
    assert any(name.endswith("workers") for name in names if name[0].isdigit()) <= is_split


def test_a_short_stream_starts_its_workers_again_and_again():
    report = short(DataLoader(ShortStream(), batch_size=4, num_workers=1), seconds=1)
    loop, eager = report.measured.loop, report.measured.eager[1]
    assert loop.settings.epoch == 3
    assert len(loop.batches) > 3
    assert report.measured.starting(loop.settings) > 0
    assert eager.settings.persistent
    assert "workers that stay for the next epoch" in {change.name for change in report.changes}


class ShortStream(Stream):
    def __iter__(self):
        return itertools.islice(super().__iter__(), 11)


class Indexed:
    """Samples that one index gets, and a list of them at once."""

    def __init__(self):
        self.x = torch.arange(64.0)

    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.002)
        return self.x[index], torch.as_tensor(index) % 2


@pytest.mark.usefixtures("trials")
def test_a_dataset_that_gives_whole_batches_is_told_so():
    report = short(DataLoader(Indexed(), batch_size=8), seconds=1)
    change = next(c for c in report.changes if c.name.startswith("whole batches"))
    assert change.is_recommended
    assert abs(change.error) < 1
    assert "def __getitems__(self, indices): return self[indices]" in str(report)


class WarmsUp:
    """As torch.compile does."""

    calls = 0

    def __call__(self, batch):
        self.calls += 1
        time.sleep(0.3 if self.calls <= 3 else 0.001)


def test_a_step_that_warms_up():
    report = short(DataLoader(Sleeping(0.005), batch_size=4), WarmsUp(), seconds=1)
    assert report.limit == "dataset"
    assert report.measured.loop.period < 0.1


def slowly(worker):
    time.sleep(0.3)


def test_a_run_has_the_starts_of_whole_epochs():
    for epoch, workers in ((1, 1), (2, 1), (4, 2), (8, 4), (5, 2)):
        loader = DataLoader(
            Sleeping(0.02, epoch), batch_size=1, num_workers=workers, worker_init_fn=slowly
        )
        copy = LoaderCopy(loader)
        for seconds in (0.05, 0.5):
            period = copy.run(copy.settings, seconds).period
            assert (
                0.9 < period / ((0.3 + 0.02 * -(-epoch // workers)) / epoch) < 4
            )  # where others work


def test_batches_that_are_made_as_fast_as_they_are_measured():
    report = short(DataLoader([1, 2], batch_size=2))
    assert any(note.startswith("batches are made so fast") for note in report.notes)


class Random(Sleeping):
    def __getitem__(self, index):
        time.sleep(self.seconds)
        return np.random.random(4)  # noqa: NPY002


def test_larger_batches_are_offered_where_they_have_more_samples():
    plain = TensorDataset(torch.zeros(640))
    for given, code in (
        ({"batch_size": 1}, "DataLoader(..., batch_size=4)"),
        ({"batch_sampler": BatchSampler(range(640), 1, False)}, "BatchSampler(..., batch_size=4)"),
        ({"batch_size": 1, "collate_fn": lambda samples: samples[0]}, None),
    ):
        report = short(DataLoader(plain, **given))
        assert (report.measured.large is None) is (code is None)
        codes = {c.code for c in report.changes if c.name.startswith("batches of four")}
        assert codes <= {code}  # none, if the machine did something else meanwhile


def test_what_is_offered_only_if_values_are_equal():
    def slow(samples):
        time.sleep(0.01)
        return default_collate(samples)

    def doubled(samples):
        return slow([2 * sample for sample in samples])

    for dataset, collate, is_offered in ((Sleeping, slow, True), (Random, doubled, False)):
        loader = DataLoader(dataset(0.001), batch_size=8, collate_fn=collate)
        names = {change.name for change in short(loader).changes}
        assert ("batches by pinfeed.Collate" in names) is is_offered


class Halves(DataLoader[Any]):
    def __iter__(self):
        return (batch / 2 for batch in super().__iter__())


def test_batches_that_a_subclass_makes():
    loader = Halves([1, 2, 3, 4], batch_size=2)
    with pytest.raises(ZeroDivisionError) as caught:
        pinfeed.diagnose(loader, lambda batch: 1 / (batch[0].item() % 1))
    assert "Halves.__iter__ was not run" in caught.value.__notes__[-1]


@pytest.mark.slow
def test_loaders_of_people(tmp_path):
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    import torchvision_operators  # noqa: F401

    rng = np.random.default_rng(0)
    for label in "ab":
        (tmp_path / "images" / label).mkdir(parents=True)
        for i in range(16):
            image = Image.fromarray(rng.integers(0, 256, (320, 240, 3), np.uint8))
            image.save(tmp_path / "images" / label / f"{i}.jpg")
    view = transforms.Compose([transforms.RandomResizedCrop(32), transforms.ToTensor()])
    photos = rng.integers(0, 256, (2, 300, 300, 3), np.uint8)
    positions = training.draw_positions(photos[0].shape, 600, rng, held_out=False)
    training.cut_patches(photos, positions, tmp_path)
    loaders = [DataLoader(ImageFolder(tmp_path / "images", view), batch_size=4, shuffle=True)]
    for feed in ("stock", "pinfeed"):
        loader = training.training_loader(feed, tmp_path)
        training.set_epoch(loader, 0)
        loaders.append(loader)
    for loader, limit in zip(loaders, ("dataset", "dataset", "collate"), strict=True):
        report = short(loader, seconds=2)
        assert report.limit == limit
        assert not any("not measured" in note or "can't be" in note for note in report.notes)


class OnADevice:
    """What JAX returns is there later."""

    def block_until_ready(self):
        time.sleep(0.01)


def test_a_step_is_over_when_what_it_returns_is_there():
    assert runs.time_step(lambda batch: {"loss": OnADevice()}, torch.ones(3), 0.03).seconds > 0.01


def test_without_a_step_a_thread_shares_no_gil():
    inner = DataLoader(Sleeping(0.002), batch_size=4)
    report = short(pinfeed.DeviceLoader(inner, "cpu"))
    assert not report.measured.shares_gil
    assert report.limit == "dataset"


class ByName(Sleeping):
    def __getitem__(self, name):
        return super().__getitem__(int(name if isinstance(name, str) else name[0]))


@pytest.mark.parametrize("names", [["11", "22", "33"] * 20, [["11", "22"]] * 20])
def test_names_and_lists_as_indices(names):
    size = 4 if isinstance(names[0], str) else None
    for batch_size in {None, size}:
        report = short(DataLoader(ByName(0.002), batch_size, sampler=names), seconds=0.3)
        assert report.limit == "dataset"
        assert not any("not measured" in note for note in report.notes)
        assert report.measured.loop.batches[0].indices is None


class Unsized:
    """A sampler of batches that doesn't tell how many."""

    def __iter__(self):
        return iter([[0, 1], [2, 3], [4, 5]])


def test_a_short_epoch_whose_length_is_not_told_starts_workers():
    loader = DataLoader(Sleeping(0.005), batch_sampler=Unsized(), num_workers=1)
    report = short(loader, seconds=0.5)
    measured = report.measured
    assert measured.loop.settings.epoch == 3
    assert measured.starting(measured.loop.settings) > 0


@pytest.mark.usefixtures("trials")
def test_what_was_tried_once_is_no_advice(monkeypatch):
    monkeypatch.setattr(module._Attempts, "again", lambda *_: None)
    report = short(DataLoader(Sleeping(), batch_size=8, shuffle=True), seconds=2)
    assert report.recommended == []
    assert "Tried once, which may be chance: " in str(report)
