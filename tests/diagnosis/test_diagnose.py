"""Diagnoses of loaders, short ones: what is gross is found, and nothing of the user's changes."""

import gc
import itertools
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    TensorDataset,
    default_collate,
    get_worker_info,
)

import pinfeed
from pinfeed.__main__ import main
from pinfeed.demo import training
from pinfeed.diagnosis import diagnose as module
from pinfeed.diagnosis import runs, stages
from pinfeed.diagnosis.changes import have_equal_values
from pinfeed.diagnosis.model import LIMITS
from pinfeed.diagnosis.runs import LoaderCopy
from programs import run_python


class Sleeping:
    """Samples that take 5 ms, or some much longer."""

    def __init__(self, seconds=0.005, length=64, slow=-1):
        self.seconds, self.length, self.slow = seconds, length, slow

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        time.sleep(100 * self.seconds if index == self.slow else self.seconds)
        return {"x": torch.ones(4), "y": index}


class Changing(Sleeping):
    """It counts the samples that it gave, and draws from generators."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.given = 0
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index):
        self.given += 1
        self.rng.random()
        random.random()
        np.random.random()  # noqa: NPY002
        torch.rand(1)
        return super().__getitem__(index)


class Failing(Sleeping):
    def __getitem__(self, index):
        raise LookupError(f"no file for {index}")


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self):
        for i in range(1000):
            time.sleep(0.005)
            yield torch.tensor(i)


@pytest.fixture(autouse=True)
def no_run_is_left_out(monkeypatch):
    """Other tests may take most of the machine's time; trials are for the tests that ask for them."""
    monkeypatch.setattr(module, "_OVERTIME", 100.0)
    monkeypatch.setattr(module, "_MOST_TRIALS", 0)


@pytest.fixture
def trials(monkeypatch):
    monkeypatch.setattr(module, "_MOST_TRIALS", 2)


@pytest.fixture
def leaves_no_workers():
    gc.collect()
    before = set(multiprocessing.active_children())
    gc.disable()  # what a cycle holds would stay
    yield
    left = set(multiprocessing.active_children()) - before
    gc.enable()
    assert not left


def short(loader, step=None, seconds=0.5):
    report = pinfeed.diagnose(loader, step, seconds)
    assert str(report)
    json.dumps(report.to_dict())
    return report


@pytest.mark.usefixtures("trials")
def test_slow_samples_are_the_limit_and_workers_are_proven():
    loader = DataLoader(Sleeping(), batch_size=4, shuffle=True)
    report = short(loader, lambda batch: time.sleep(0.001), 1.0)
    assert report.limit == "dataset"
    assert next(iter(report.measured.functions)) == "time.sleep"
    assert report.measured.loop.wait_share > 0.8
    assert report.advised
    assert all(one.gain > 0.03 for one in report.advised)
    assert any("worker" in one.name for one in report.changes)
    assert report.to_dict()["cpus"]["usable"] >= 1


def test_a_slow_step_leaves_nothing_to_gain():
    loader = DataLoader(TensorDataset(torch.arange(6400)), batch_size=4, num_workers=1)
    report = short(loader, lambda batch: time.sleep(0.3))
    assert report.limit == "step"
    assert report.advised == []
    assert "nothing to gain here" in str(report)


@pytest.mark.usefixtures("trials")
def test_nothing_of_the_users_changes():
    dataset = Changing(0.0005)
    sampler = pinfeed.ShuffleSampler(64, 4)
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(dataset, batch_sampler=sampler, generator=generator)
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    states = random.getstate(), torch.get_rng_state(), generator.get_state(), dataset.rng.random()
    numpy = np.random.get_state()[1].tolist()  # noqa: NPY002
    dataset.rng = np.random.default_rng(0)
    short(loader, lambda batch: torch.rand(1))
    assert dataset.given == 0
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    assert torch.equal(generator.get_state(), states[2])
    assert dataset.rng.random() == states[3]
    assert np.random.get_state()[1].tolist() == numpy  # noqa: NPY002
    assert sampler.epoch == pinfeed.ShuffleSampler(64, 4).epoch
    assert list(sampler) == list(pinfeed.ShuffleSampler(64, 4))


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
    assert change.is_advised
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


async def later(batch):
    raise AssertionError


def never(batch):
    yield


@pytest.mark.filterwarnings("ignore:coroutine 'later' was never awaited")
def test_a_step_that_is_done_later():
    for step, kind in ((later, "coroutine"), (never, "generator")):
        message = f"must do its work when it is called, and returned a {kind}"
        with pytest.raises(TypeError, match=message):
            pinfeed.diagnose(DataLoader([1, 2]), step)


class Shuffling(Stream):
    def __init__(self):
        self.rng = random.Random(0)

    def __iter__(self):
        self.rng.random()
        return super().__iter__()


class Idle(Sleeping):
    """It holds a generator, and draws from none."""

    def __init__(self):
        super().__init__()
        self.rng = torch.Generator()


def test_no_workers_for_a_dataset_that_draws_from_a_generator_of_its_own():
    for dataset, draws in (
        (Sleeping(), False),
        (Idle(), False),
        (Changing(), True),
        (Shuffling(), True),
        (pinfeed.StreamDataset(range(1000), shuffle_buffer=8), False),
    ):
        report = short(DataLoader(dataset, batch_size=4))
        is_told = any(note.startswith("the dataset draws") for note in report.notes)
        assert is_told is draws
        assert not (
            draws and [c for c in report.changes if c.name.endswith((" worker", " workers"))]
        )


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
            assert 0.9 < period / ((0.3 + 0.02 * -(-epoch // workers)) / epoch) < 2


def test_batches_that_are_made_as_fast_as_they_are_measured():
    report = short(DataLoader([1, 2], batch_size=2))
    assert any(note.startswith("batches are made so fast") for note in report.notes)


class Random(Sleeping):
    def __getitem__(self, index):
        time.sleep(self.seconds)
        return np.random.random(4)  # noqa: NPY002


def test_no_thread_stays():
    before = {*threading.enumerate()}
    short(DataLoader(Sleeping(0.001), batch_size=4))
    assert {*threading.enumerate()} == before


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


def set_offset(worker):
    info = get_worker_info()
    assert type(info.dataset) is Offset
    info.dataset.offset = 100 + info.dataset.length


class Offset(Sleeping):
    offset = 0

    def __getitem__(self, index):
        assert get_worker_info() is None or self.offset == 164
        return super().__getitem__(index)


def test_a_worker_init_fn_reads_and_sets_attributes_of_the_dataset():
    dataset = Offset(0.001)
    short(DataLoader(dataset, batch_size=4, num_workers=1, worker_init_fn=set_offset))
    assert dataset.offset == 0


def test_the_trace_of_a_loop_whose_step_changes_its_batch(tmp_path):
    loader = DataLoader(Sleeping(0.002), batch_size=4, num_workers=1)
    report = short(loader, lambda batch: batch.pop("x"))  # a copy when it is timed alone
    assert report.measured.step is not None
    assert report.measured.loop.bytes > 4 * 16
    report.save_trace(tmp_path / "out.json")
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {"loop", "worker 0", "hand-off of worker 0"}
    stages = [event for event in events if event["ph"] == "X"]
    assert {event["name"] for event in stages} == {"dataset", "collate", "wait", "step"}
    begun, ended = ([e for e in events if e["ph"] == phase] for phase in "be")
    assert {event["name"] for event in begun} == {"hand-off"}
    assert [event["id"] for event in begun] == [event["id"] for event in ended]
    assert all(b["ts"] <= e["ts"] for b, e in zip(begun, ended, strict=True))
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in stages)


PROGRAM = """
import time
from torch.utils.data import DataLoader

class Samples:
    def __len__(self):
        return 100

    def __getitem__(self, index):
        time.sleep(0.005)
        return index

def make_loader():
    print("made")
    return DataLoader(Samples(), batch_size=4, num_workers=1)

loader = make_loader()

def make_list():
    return [1, 2]

def make_some(count):
    return DataLoader(Samples(), batch_size=count)

def step(batch):
    time.sleep(0.001)
"""


def test_the_command(tmp_path, capsys):
    program, trace = tmp_path / "a_program.py", tmp_path / "out.json"
    program.write_text(PROGRAM)
    options = ["--step", f"{program}:step", "--seconds", "0.3", "--trace", str(trace), "--json"]
    assert main(["diagnose", f"{program}:make_loader", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["limit"] in set(LIMITS) - {"step"}
    assert found["loop"]["wait_share"] > 0.3
    assert json.loads(trace.read_text())["traceEvents"]
    lost = ["--seconds", "0.3", "--trace", str(tmp_path / "nowhere" / "out.json")]
    assert main(["diagnose", f"{program}:loader", *lost]) == 2
    printed = capsys.readouterr()
    assert printed.out.startswith("The loop: ")
    assert "--trace can't be written" in printed.err
    assert main(["diagnose", f"{program}:make_list"]) == 2
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith("pinfeed diagnose: loader must be a torch DataLoader")
    assert main(["diagnose", f"{program}:make_some"]) == 2
    assert "make_some is called without arguments: missing a required" in capsys.readouterr().err
    assert main(["diagnose", f"{program}:nothing"]) == 2
    assert "has no function or DataLoader 'nothing'" in capsys.readouterr().err
    assert main(["diagnose", "no.py:loader"]) == 2
    assert "expected FILE:NAME with a file that there is" in capsys.readouterr().err


SPAWNING = """
import argparse
from torch.utils.data import DataLoader
print("imported")
argparse.ArgumentParser().parse_args()
class Samples(list):  # which a worker finds in this file
    pass
loader = DataLoader(Samples([1, 2, 3, 4]), num_workers=1, multiprocessing_context="spawn")
"""


@pytest.mark.slow
def test_what_the_file_asks_for_and_what_its_workers_print(tmp_path):
    (tmp_path / "spawning.py").write_text(SPAWNING)
    command = [sys.executable, "-m", "pinfeed", "diagnose", f"{tmp_path}/spawning.py:loader"]
    command += ["--seconds", "1", "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["loop"]["batches"] > 0
    assert done.stderr.count("imported") > 1


class OnADevice:
    """What JAX returns is there later."""

    def block_until_ready(self):
        time.sleep(0.01)


def test_a_step_is_over_when_what_it_returns_is_there():
    assert runs.time_step(lambda batch: {"loss": OnADevice()}, torch.ones(3), 0.03).seconds > 0.01


def test_a_step_that_changes_a_batch_of_any_kind():
    class Batch:
        def __init__(self, samples):
            self.x, self.copy = torch.stack(samples), True

    def step(batch):
        assert int(batch.x.max()) < 64
        batch.x += 64
        del batch.copy

    loader = DataLoader(range(64), 4, collate_fn=lambda i: Batch([*map(torch.tensor, i)]))
    assert short(loader, step, 0.1).measured.step.seconds > 0


def test_an_interrupt_gives_the_report_so_far(monkeypatch):
    loader = DataLoader(Sleeping(0.001), batch_size=4)
    before = multiprocessing.active_children()  # of other tests' garbage

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "time_step", interrupt)
    report = short(loader, lambda batch: None)
    assert report.measured.loop is not None
    assert report.measured.eager == {}
    assert any("interrupted" in note for note in report.notes)
    with pytest.raises(KeyboardInterrupt):  # there is nothing to report yet
        pinfeed.diagnose(loader, interrupt, 0.3)
    assert set(multiprocessing.active_children()) <= set(before)


class Interrupting:
    """Its end is interrupted, which Python can't raise there."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_a_del_hides_gives_the_report_too():
    count = 0

    def step(batch):
        nonlocal count
        count += 1
        if count == 4:
            Interrupting()

    loader = DataLoader(Sleeping(0.001), batch_size=4)
    report = short(loader, step)
    assert report.measured.loop is not None
    assert report.measured.eager == {}
    assert any("interrupted" in note for note in report.notes)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_there_is_no_time_for_is_said(monkeypatch):
    monkeypatch.setattr(module, "_OVERTIME", 1.0)
    loader = DataLoader(Sleeping(0.1), batch_size=4)
    start = time.perf_counter()
    report = short(loader, seconds=1.5)
    assert time.perf_counter() - start < 2 * 1.5 + 1.5
    (note,) = [note for note in report.notes if note.startswith("there was no time for: ")]
    assert "give seconds=" in note
    assert report.measured.loop is not None


def test_without_a_step_a_thread_shares_no_gil():
    inner = DataLoader(Sleeping(0.002), batch_size=4)
    report = short(pinfeed.DeviceLoader(inner, "cpu"))
    assert not report.measured.shares_gil
    assert report.limit == "dataset"


IMAGES = torch.ones(2, 3, 4, 4)


class Attributes(dict):
    """A batch whose parts are attributes, too."""

    @property
    def x(self):
        return self["x"]


def test_batches_that_do_not_tell_their_size():
    def collate(samples):
        return torch.stack([torch.eye(4)] * len(samples)).to_sparse()

    report = short(DataLoader(Sleeping(0.001), batch_size=4, collate_fn=collate))
    assert report.limit == "dataset"


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


class OnlyHere(Sleeping):
    def __getitem__(self, index):
        assert get_worker_info() is None, "the connection is not for workers"
        return super().__getitem__(index)


class OnlyInWorkers(Sleeping):
    def __getitem__(self, index):
        assert get_worker_info() is not None, "where is the worker?"
        return super().__getitem__(index)


@pytest.mark.parametrize(
    ("dataset", "workers", "note"),
    [
        (OnlyHere(), 0, "workers: 1: not measured"),
        (OnlyInWorkers(), 1, "workers: 0: not"),
    ],
)
def test_what_a_dataset_can_not_do_is_said(dataset, workers, note):
    report = short(DataLoader(dataset, batch_size=4, num_workers=workers))
    assert report.measured.loop is not None
    assert report.limit == "dataset"
    assert any(one.startswith(note) for one in report.notes)
    assert all("worker" not in change.name for change in report.changes if workers == 0)


class Broken(Sleeping):
    def __getitem__(self, index):
        if index == 37:
            raise LookupError("no file for 37")
        return super().__getitem__(index)


@pytest.mark.usefixtures("leaves_no_workers")
def test_a_sample_that_raises_later_is_said():
    report = short(DataLoader(Broken(0.01), batch_size=4, num_workers=1))
    said = "not measured: LookupError: no file for 37; raised by the dataset for sample 37"
    failed = [note for note in report.notes if "not measured: " in note]
    assert all(said in note for note in failed)
    assert any(note.startswith("workers: ") for note in failed)  # whose errors are a traceback


class BrokenStream(Stream):
    def __iter__(self):
        yield from itertools.islice(super().__iter__(), 7)
        raise OSError("the shard ends here")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_that_raises(workers):
    with pytest.raises(OSError, match="the shard ends here") as caught:
        pinfeed.diagnose(DataLoader(BrokenStream(), batch_size=4, num_workers=workers), seconds=1)
    said = "".join(traceback.format_exception_only(caught.value))
    assert "raised by the dataset for sample 7" in said


class Locked(Sleeping):
    """Samples under a lock, which a thread holds when workers are forked."""

    def __init__(self):
        super().__init__(0.001)
        self.lock = threading.Lock()

    def __getitem__(self, index):
        if get_worker_info() is not None:
            with self.lock:
                pass
        return super().__getitem__(index)


def test_a_worker_that_waits_for_a_lock_of_a_thread_is_given_up(
    monkeypatch,
):
    monkeypatch.setattr(runs, "_PATIENCE", 1.0)
    dataset, end = Locked(), threading.Event()

    def hold():
        with dataset.lock:
            end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        report = short(DataLoader(dataset, batch_size=4), seconds=1)
    finally:
        end.set()
        thread.join()
    (note,) = [note for note in report.notes if note.startswith("workers: 1: not measured")]
    assert "timed out after" in note  # ten times what the slowest start took, at least
    assert "a lock that a thread held here" in note
    assert not any(note.startswith("workers: 2") for note in report.notes)


def test_a_batch_that_no_worker_can_send(monkeypatch):
    monkeypatch.setattr(runs, "_PATIENCE", 1.0)
    loader = DataLoader([1, 2], batch_size=1, collate_fn=iter_of)
    report = short(loader, seconds=1)
    (note,) = [note for note in report.notes if note.startswith("workers: 1: not measured")]
    assert "batch can't be pickled, which it says on stderr" in note
    assert not report.is_complete


def iter_of(samples):
    return (sample for sample in samples)


class OwnLoop(DataLoader[Any]):
    def __iter__(self):
        yield from super().__iter__()


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


def test_what_can_not_be_done_or_told_is_said(monkeypatch):
    monkeypatch.setattr(stages, "TELLS", False)
    dataset = Sleeping(0.001)
    with open(__file__) as dataset.file:
        report = short(OwnLoop(dataset, batch_size=4), seconds=0.1)
    for said in ("TextIOWrapper", "OwnLoop.__iter__ was not run", "does not tell"):
        assert any(said in note for note in report.notes)


# Bad input.


def test_the_users_own_error_with_its_sample():
    with pytest.raises(LookupError, match="no file for 0") as caught:
        pinfeed.diagnose(DataLoader(Failing(), batch_size=4))
    assert caught.value.__notes__ == ["raised by the dataset for sample 0"]
    with pytest.raises(LookupError, match=r"(?s)no file for 0.*raised by the dataset for sample 0"):
        pinfeed.diagnose(DataLoader(Failing(), batch_size=4, num_workers=1))

    def fail(batch):
        raise ArithmeticError("the loss is NaN")

    with pytest.raises(ArithmeticError, match="the loss is NaN"):
        pinfeed.diagnose(DataLoader(Sleeping(), batch_size=4), fail)


def test_what_is_no_loader():
    with pytest.raises(TypeError, match=r"must be a torch DataLoader, .* got list; give"):
        pinfeed.diagnose([1, 2])
    with pytest.raises(TypeError, match="step must be callable"):
        pinfeed.diagnose(DataLoader([1]), step=3)
    with pytest.raises(ValueError, match="seconds must be from"):
        pinfeed.diagnose(DataLoader([1]), seconds=0)


def test_an_empty_loader():
    with pytest.raises(ValueError, match="has no batch"):
        pinfeed.diagnose(DataLoader([], batch_size=4))
    with pytest.raises(ValueError, match="has no batch"):
        pinfeed.diagnose(DataLoader([1], batch_size=4, drop_last=True))


class Once:
    def __init__(self, numbers):
        self.numbers = numbers

    def __iter__(self):
        return self.numbers


def test_what_measuring_would_use_up():
    batches = iter([[0], [1]])
    message = "sampler is, or holds, an iterator, which measuring would use up"
    with pytest.raises(TypeError, match=message):
        pinfeed.diagnose(DataLoader([1, 2], batch_sampler=batches))
    numbers = (i for i in range(2))
    for sampler in (numbers, Once(numbers)):
        with pytest.raises(TypeError, match=message):
            pinfeed.diagnose(DataLoader([1, 2], sampler=sampler))
    assert next(numbers) == 0
    stream = Stream()
    stream.samples = (i for i in range(3))
    with pytest.raises(TypeError, match="dataset holds an iterator, which measuring would use up"):
        pinfeed.diagnose(DataLoader(stream, batch_size=4))
    assert next(batches) == [0]
    assert next(stream.samples) == 0


class OnceOnly(IterableDataset[int]):
    def __init__(self):
        self.left = 100

    def __iter__(self):
        while self.left:
            self.left -= 1
            time.sleep(0.001)
            yield self.left


class OfGenerator(OnceOnly):
    def __init__(self):
        self.numbers = (i for i in range(100))


class BeginsAnew(OnceOnly):
    """An iterator, as torch's IterDataPipe is, but one that begins anew."""

    def __iter__(self):
        self.left = 100
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.left


def test_what_can_be_iterated_only_once():
    with pytest.raises(TypeError, match="can be iterated only once: the second time it has no"):
        pinfeed.diagnose(DataLoader(OnceOnly(), batch_size=4), seconds=60)
    with pytest.raises(TypeError, match="dataset holds an iterator"):
        pinfeed.diagnose(DataLoader(OfGenerator(), batch_size=4))
    assert short(DataLoader(BeginsAnew(), batch_size=4), seconds=0.1).measured.loop.samples == 4


def test_a_loader_in_the_middle_of_a_loop():
    batches = pinfeed.DeviceLoader(DataLoader(Sleeping(0.001), batch_size=4), "cpu")
    loop = iter(batches)
    next(loop)
    with pytest.raises(RuntimeError, match="in the middle of a loop"):
        pinfeed.diagnose(batches)
    loop.close()
    iterator = iter(DataLoader(Sleeping(0.001), batch_size=4, num_workers=1))
    report = short(DataLoader(Sleeping(0.001), batch_size=4))
    assert any("daemonic processes" in note for note in report.notes)  # maybe others' too
    del iterator


def test_too_short_a_time():
    dataset = Sleeping(0.2)
    with pytest.raises(ValueError, match=r"too short: the first batch took 0\.\d s; give at least"):
        pinfeed.diagnose(DataLoader(dataset, batch_size=1), seconds=0.1)


@pytest.mark.usefixtures("trials")
def test_runs_of_few_batches_are_called_rough(monkeypatch):
    monkeypatch.setattr(module, "_OVERTIME", 100.0)
    report = short(DataLoader(Sleeping(0.01), batch_size=4), seconds=0.2)
    count = report.measured.fewest_batches
    (note,) = [note for note in report.notes if "are rough" in note]
    assert 1 <= count < 3
    assert note.startswith(f"some runs were {count} batch")
    assert "give seconds=" in note


SPAWNED = """
import torch, pinfeed
from torch.utils.data import DataLoader
loader = DataLoader(torch.arange(9), num_workers=1, multiprocessing_context="spawn")
pinfeed.diagnose(loader, seconds=1)
"""


SPAWNED_FROM_HERE = """
import torch, pinfeed
from torch.utils.data import DataLoader
torch.multiprocessing.set_start_method("spawn")
print(pinfeed.diagnose(DataLoader(torch.arange(9)), seconds=1))
"""


@pytest.mark.slow
def test_spawn_without_a_main_guard_where_the_loader_has_no_workers(tmp_path):
    (tmp_path / "train.py").write_text(SPAWNED_FROM_HERE)
    program = f"""
import subprocess, sys
done = subprocess.run([sys.executable, {str(tmp_path / "train.py")!r}], capture_output=True, text=True)
assert done.stdout.count("The loop:") == 1, done.stdout
print(done.stdout)
"""
    said = run_python(program)
    assert "workers: 1: not measured" in said
    assert "diagnose under if __name__ == '__main__'" in said


@pytest.mark.slow
def test_spawn_without_a_main_guard(tmp_path):
    (tmp_path / "train.py").write_text(SPAWNED)
    program = f"""
import subprocess, sys
done = subprocess.run([sys.executable, {str(tmp_path / "train.py")!r}], capture_output=True, text=True)
assert done.returncode == 1
print(done.stderr)
"""
    assert "diagnose under if __name__ == '__main__'" in run_python(program)
