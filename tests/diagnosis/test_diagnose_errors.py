"""What can not be diagnosed, or only in part, is said."""

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from typing import Any

import pytest
from torch.utils.data import (
    DataLoader,
    get_worker_info,
)

import pinfeed
from pinfeed.diagnosis import diagnose as module
from pinfeed.diagnosis import runs, stages
from programs import run_program
from sleeping import Sleeping, Stream, short


class Failing(Sleeping):
    def __getitem__(self, index):
        raise LookupError(f"no file for {index}")


async def later(batch):
    raise AssertionError


def never(batch):
    yield


def test_an_interrupt_gives_the_report_so_far(monkeypatch):
    loader = DataLoader(Sleeping(0.001), batch_size=4)
    before = multiprocessing.active_children()  # of other tests' garbage

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "time_step", interrupt)
    report = short(loader, lambda batch: None)
    assert report.measured.loop is not None
    assert report.measured.runs == {}
    assert any("interrupted" in note for note in report.notes)
    with pytest.raises(KeyboardInterrupt):  # there is nothing to report yet
        pinfeed.diagnose(loader, interrupt, 0.3)
    assert set(multiprocessing.active_children()) <= set(before)


def test_a_step_that_fails_when_it_is_timed_alone():
    calls = []

    def step(batch):
        calls.append(batch)
        if len(calls) > 6:
            raise OverflowError("tried to step 7 times, of 6")

    report = short(DataLoader(Sleeping(0.01), batch_size=4), step, seconds=0.3)
    (note,) = [note for note in report.notes if note.startswith("the step: not measured")]
    assert "OverflowError: tried to step 7 times, of 6; raised by the step, which diagnose" in note
    assert report.limit == "dataset"


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
    assert report.measured.runs == {}
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
        (OnlyInWorkers(), 1, None),
    ],
)
def test_what_a_dataset_can_not_do_is_said(dataset, workers, note):
    report = short(DataLoader(dataset, batch_size=4, num_workers=workers))
    assert report.measured.loop is not None
    assert report.limit == "dataset"
    assert (note is None and not report.notes) or any(one.startswith(note) for one in report.notes)


class ForOne(Sleeping):
    def __getitem__(self, index):
        if get_worker_info().num_workers > 1:
            raise LookupError(f"no file for {index}")
        return super().__getitem__(index)


@pytest.mark.usefixtures("leaves_no_workers")
def test_a_run_that_raises_is_said():
    report = short(DataLoader(ForOne(0.01), batch_size=4, num_workers=1))
    (note,) = [note for note in report.notes if note.startswith("workers: 2")]
    said = "workers: 2: not measured: LookupError: no file for"
    assert note.startswith(said)  # without the traceback of the worker
    assert "raised by the dataset for sample" in note
    assert not report.is_complete


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
    assert "a lock that a thread held when it was forked" in note
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


def test_what_can_not_be_done_or_told_is_said(monkeypatch):
    monkeypatch.setattr(stages, "TELLS", False)
    dataset = Sleeping(0.001)
    with open(__file__) as dataset.file:
        report = short(OwnLoop(dataset, batch_size=4), seconds=0.1)
    for said in ("TextIOWrapper", "OwnLoop.__iter__ was not run", "does not tell"):
        assert any(said in note for note in report.notes)


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


ARGUMENTS = {
    "a list": (([1, 2],), TypeError, r"must be a torch DataLoader, .* got list; give"),
    "step": ((DataLoader([1]), 3), TypeError, "step must be callable"),
    "seconds": ((DataLoader([1]), None, 0), ValueError, "seconds must be from"),
    "empty": ((DataLoader([], batch_size=4),), ValueError, "has no batch"),
    "dropped": ((DataLoader([1], 4, drop_last=True),), ValueError, "has no batch"),
    "short": (
        (DataLoader(Sleeping(0.2), 1), None, 0.1),
        ValueError,
        r"too short: the first batch took 0\.\d s; give at least",
    ),
    "later": (
        (DataLoader([1, 2]), later),
        TypeError,
        "when it is called, and returned a coroutine",
    ),
    "never": (
        (DataLoader([1, 2]), never),
        TypeError,
        "when it is called, and returned a generator",
    ),
}


@pytest.mark.filterwarnings("ignore:coroutine 'later' was never awaited")
@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name):
    arguments, kind, message = ARGUMENTS[name]
    with pytest.raises(kind, match=message):
        pinfeed.diagnose(*arguments)


def test_a_loader_in_the_middle_of_a_loop():
    batches = pinfeed.DeviceLoader(DataLoader(Sleeping(0.001), batch_size=4), "cpu")
    loop = iter(batches)
    next(loop)
    with pytest.raises(RuntimeError, match="in the middle of a loop"):
        pinfeed.diagnose(batches)
    loop.close()


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
@pytest.mark.parametrize("program", [SPAWNED, SPAWNED_FROM_HERE])
def test_spawn_without_a_main_guard(program, tmp_path):
    """An error where the loader has workers, else a note."""
    (tmp_path / "train.py").write_text(program)
    command = [sys.executable, str(tmp_path / "train.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == (program is SPAWNED)
    said = done.stderr if program is SPAWNED else done.stdout
    assert "diagnose under if __name__ == '__main__'" in said
    assert done.stdout.count("The loop:") == (program is SPAWNED_FROM_HERE)


def test_a_step_beside_other_ranks_is_warned_of(tmp_path):
    assert run_program("diagnosis_beside_ranks", tmp_path / "file").strip().endswith("done")
