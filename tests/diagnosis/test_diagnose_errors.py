"""Messages for loaders that can't be diagnosed, or only partly."""

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, get_worker_info

import pinfeed
from pinfeed.diagnosis import diagnose as module
from pinfeed.diagnosis import runs, stages
from programs import PROGRAMS, run_program
from sleeping import Sleeping, Stream, note_of, short


def loader_of(get=None, seconds=0.001, **options):
    return DataLoader(Sleeping(seconds, get=get), batch_size=4, **options)


def fail(what):
    raise LookupError(f"no file for {what}")


def interrupt(*_):
    raise KeyboardInterrupt


class Interrupting:
    """An object whose finalizer is interrupted; Python can't raise there."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_gives_the_report_so_far(monkeypatch):
    before = multiprocessing.active_children()  # from garbage of other tests
    calls = itertools.count(1)
    report = short(loader_of(), lambda batch: next(calls) == 4 and Interrupting() and None)
    assert report.measured.single is None
    assert note_of(report.notes, "interrupted")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):  # nothing to report yet
        pinfeed.diagnose(loader_of(), interrupt, 0.3)
    monkeypatch.setattr(runs.Run, "repeatable", interrupt)
    assert note_of(short(loader_of()).notes, "interrupted")
    assert set(multiprocessing.active_children()) <= set(before)


# Runs that fail.


def in_the_loop(index):
    assert get_worker_info() is None, "the connection is not for workers"
    return index


def in_workers(index):
    assert get_worker_info() is not None, "where is the worker?"
    return index


def in_one_worker(index):
    return index if get_worker_info().num_workers == 1 else fail(index)


# The loader, and words at the beginning of its note.
RUNS = {
    "no workers": (lambda: loader_of(in_the_loop, 0.005), "one worker: not measured"),
    "one worker": (
        lambda: loader_of(in_one_worker, 0.01, num_workers=1),
        "comparing two workers: not measured: LookupError: no file for",  # without the worker's traceback
        "raised by the dataset for sample",
    ),
    "nothing to send": (
        lambda: DataLoader([1, 2], 1, collate_fn=lambda samples: (one for one in samples)),
        "one worker: not measured",
        "timed out after",
        "batch can't be pickled, which stderr shows",
        "a lock that a thread held when the worker was forked",
    ),
}


@pytest.mark.usefixtures("leaves_no_workers")
@pytest.mark.parametrize("name", RUNS)
def test_a_failing_run_is_reported(name, monkeypatch):
    make, begins, *words = RUNS[name]
    if name == "nothing to send":
        monkeypatch.setattr(runs, "_PATIENCE", 1.0)
    report = short(make())
    assert note_of(report.notes, begins, *words).startswith(begins)
    assert report.limit == "dataset" or name != "no workers"
    assert not any(change.name == "2 workers" for change in report.changes)


def test_a_dataset_that_needs_workers():
    report = short(loader_of(in_workers, 0.005, num_workers=1), seconds=0.3)
    assert (report.limit, report.notes) == ("dataset", [])


def test_skipped_runs_are_reported(monkeypatch):
    monkeypatch.setattr(module, "_OVERTIME", 1.0)
    start = time.perf_counter()
    report = short(loader_of(seconds=0.1), seconds=0.5)
    assert time.perf_counter() - start < 5
    assert note_of(report.notes, "there was no time for: ", "pass seconds=")


class OwnLoop(DataLoader[Any]):
    def __iter__(self):
        yield from super().__iter__()


def test_limitations_are_reported(monkeypatch):
    monkeypatch.setattr(stages, "TELLS", False)
    dataset = Sleeping(0.001)
    with open(__file__) as dataset.file:
        report = short(OwnLoop(dataset, batch_size=4), seconds=0.1)
    for words in ("TextIOWrapper", "OwnLoop.__iter__ was not called", "reports neither disk reads"):
        assert note_of(report.notes, words)


# The user's own errors, with the sample.


def broken():
    yield from range(7)
    raise OSError("the shard ends here")


BROKEN = {
    "the dataset": (loader_of, fail, LookupError, "no file for 0", "dataset for sample 0"),
    "a stream": (lambda get, **options: DataLoader(Stream(get), 4, **options), broken, OSError, "the shard ends here", "dataset for sample 7"),
    "the collate function": (lambda get, **options: loader_of(collate_fn=get, **options), fail, LookupError, "no file for", "collate function for samples [0, 1, 2, 3]"),
}  # fmt: skip


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("name", BROKEN)
def test_user_errors_name_the_sample(name, workers):
    make, get, kind, text, where = BROKEN[name]
    with pytest.raises(kind, match=text) as caught:
        pinfeed.diagnose(make(get, num_workers=workers), seconds=1)
    assert f"raised by the {where}" in "".join(traceback.format_exception_only(caught.value))


@pytest.mark.parametrize(("samples", "key"), [(Sleeping(0.001), "'image'"), ([(1, 2)] * 9, "0")])
def test_errors_of_the_step(samples, key):
    loader = DataLoader(samples, batch_size=4)
    with pytest.raises(LookupError, match="no file for") as caught:
        pinfeed.diagnose(loader, fail)
    assert "raised by step(batch), which diagnose calls many times" in caught.value.__notes__[0]
    with pytest.raises((AttributeError, TypeError)) as caught:
        pinfeed.diagnose(loader, torch.nn.Flatten())
    kind = "dict" if key == "'image'" else "list"
    note = f"which gets the whole {kind}; pass step=lambda batch: model(batch[{key}])"
    assert note in caught.value.__notes__[0]


async def later(batch):
    raise AssertionError


def never(batch):
    yield


CALLED = "train on the batch when called, but returned a "
ARGUMENTS = {
    "a list": (([1, 2],), TypeError, r"must be a torch DataLoader, .* got list; pass"),
    "step": ((DataLoader([1]), 3), TypeError, "step must be callable"),
    "seconds": ((DataLoader([1]), None, 0), ValueError, "seconds must be from"),
    "empty": ((DataLoader([], batch_size=4),), ValueError, "at least one batch, got none"),
    "dropped": ((DataLoader([1], 4, drop_last=True),), ValueError, "drop_last drops all"),
    "later": ((DataLoader([1, 2]), later), TypeError, CALLED + "coroutine"),
    "never": ((DataLoader([1, 2]), never), TypeError, CALLED + "generator"),
}


@pytest.mark.filterwarnings("ignore:coroutine 'later' was never awaited")
@pytest.mark.parametrize(("arguments", "kind", "message"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_bad_arguments(arguments, kind, message):
    with pytest.raises(kind, match=message):
        pinfeed.diagnose(*arguments)


@pytest.mark.slow
def test_spawn_without_a_main_guard():
    """The worker's error says what to do, and only the main process prints a report."""
    command = [sys.executable, str(PROGRAMS / "diagnosis_where_workers_spawn.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "diagnose under if __name__ == '__main__'" in done.stderr
    assert done.stdout.count("The loop:") == 1


def test_a_step_beside_other_ranks_gets_a_warning(tmp_path):
    assert run_program("diagnosis_beside_ranks", tmp_path / "file").strip().endswith("done")
