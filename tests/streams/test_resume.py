"""Jobs that are killed at a random batch and go on in another process with the batches left."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

import resume_job
from pinfeed import ArrayDataset, LengthBucketSampler, StreamDataset

KINDS = sorted(resume_job.LOADERS)
LENGTHS = np.random.default_rng(0).lognormal(4, 0.8, 50).astype(int).clip(1, 512)


def saved(path: Path) -> int:
    """How many batches the job had when it saved last."""
    return len(pickle.loads(path.read_bytes())["batches"])


@pytest.mark.parametrize(
    ("workers", "ahead"),
    [
        (0, False),
        (2, True),
        *(
            pytest.param(workers, ahead, marks=pytest.mark.slow)
            for workers, ahead in [(0, True), (1, False), (1, True), (2, False), (4, True)]
        ),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_killed_and_resumed(kind: str, workers: int, ahead: bool, tmp_path: Path) -> None:
    whole = resume_job.train(kind, workers, False, tmp_path / "whole")
    path = tmp_path / "state"
    # Forks, which know the modules already: the new process is what matters here.
    fork = multiprocessing.get_context("fork")
    for batch in (len(whole) // 4, 3 * len(whole) // 4)[: 1 if workers else 2]:
        job = fork.Process(target=resume_job.train, args=(kind, workers, ahead, path, batch))
        job.start()
        job.join(120)
        assert job.exitcode == -signal.SIGALRM
        assert batch <= saved(path) < len(whole)
    assert resume_job.train(kind, workers, ahead, path) == whole


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_killed_and_resumed_in_another_interpreter(kind: str, tmp_path: Path) -> None:
    whole = resume_job.train(kind, 2, False, tmp_path / "whole")
    path = tmp_path / "state"
    command = [sys.executable, resume_job.__file__, kind, "2", str(path)]
    options: dict[str, Any] = {"timeout": 120, "capture_output": True}
    assert subprocess.run([*command, "9"], check=False, **options).returncode == -signal.SIGALRM
    assert 9 <= saved(path) < len(whole)
    subprocess.run(command, check=True, **options)
    assert pickle.loads(path.read_bytes())["batches"] == whole


# States that are refused.


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda count: ArrayDataset(np.arange(count)), "of 20 samples, and this one has 19"),
        (lambda count: StreamDataset(range(count)), "stream: samples is 20 there and 19 here"),
    ],
)
def test_another_dataset(make: Any, message: str, workers: int) -> None:
    begun, same, other = (
        StatefulDataLoader(make(count), 4, num_workers=workers) for count in (20, 20, 19)
    )
    next(iter(begun))
    same.load_state_dict(begun.state_dict())
    assert sum(len(batch) for batch in same) == 16
    other.load_state_dict(begun.state_dict())
    with pytest.raises(ValueError, match=message):
        list(other)


@pytest.mark.parametrize("state", [5, {}, {"samples": None}])
def test_no_state_of_a_dataset(state: Any) -> None:
    with pytest.raises(ValueError, match=r"the state is of a dataset of .* and this one has 3"):
        ArrayDataset(np.arange(3)).load_state_dict(state)


# Epochs before and after.


@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        *((kind, workers) for kind in ("stream", "buckets") for workers in (0, 2)),
        *((f"{kind}, unset", workers) for kind in ("stream", "buckets") for workers in (0, 2)),
        ("persistent stream", 2),
        ("persistent stream, unset", 2),
    ],
)
def test_epochs_before_and_after(kind: str, workers: int) -> None:
    """Saved anywhere, the last batch and the end included: the rest, and then the epochs to come."""

    def new_loader() -> Any:
        options: dict[str, Any] = {"num_workers": workers, "collate_fn": list}
        if "stream" in kind:
            options["persistent_workers"] = "persistent" in kind
            return StatefulDataLoader(StreamDataset(range(50), 10), 7, **options)
        sampler = LengthBucketSampler(LENGTHS, max_tokens=2048)
        return StatefulDataLoader(range(50), batch_sampler=sampler, **options)

    def epoch_of(loader: Any, epoch: int) -> Iterator[Any]:
        if "unset" not in kind:
            (loader.dataset if "stream" in kind else loader.batch_sampler).set_epoch(epoch)
        return iter(loader)

    loader = new_loader()
    expected = [list(epoch_of(loader, epoch)) for epoch in range(4)]
    assert len({str(batches) for batches in expected}) == 4

    loader = new_loader()
    list(epoch_of(loader, 0))
    iterator = epoch_of(loader, 1)
    states = [copy.deepcopy(loader.state_dict())]
    for _ in iterator:
        states.append(copy.deepcopy(loader.state_dict()))
    over = copy.deepcopy(loader.state_dict())

    for yielded, state in enumerate(states):
        if workers and yielded not in (0, 3, len(states) - 1):
            continue  # starting workers takes long
        loader = new_loader()
        loader.load_state_dict(state)
        assert list(epoch_of(loader, 1)) == expected[1][yielded:]
        assert list(epoch_of(loader, 2)) == expected[2]
    for yielded in (2, len(expected[1])):  # into a loader that has been elsewhere
        loader.load_state_dict(states[yielded])
        assert list(epoch_of(loader, 1)) == expected[1][yielded:]
    loader = new_loader()
    loader.load_state_dict(over)
    assert list(epoch_of(loader, 2)) == expected[2]
    assert list(epoch_of(loader, 3)) == expected[3]

    loader = new_loader()  # a second iteration, broken off, saved before it begins anew
    next(epoch_of(loader, 0))
    epoch_of(loader, 1)
    state = loader.state_dict()
    loader = new_loader()
    loader.load_state_dict(state)
    assert list(epoch_of(loader, 1)) == expected[1]
