"""What is advised gives the same batches."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
from torch.utils.data import WeightedRandomSampler as Weighted

import pinfeed
from pinfeed.diagnosis.changes import _kept, _of_samples, _of_workers
from pinfeed.diagnosis.model import Cpus, Measured
from pinfeed.diagnosis.runs import LoaderCopy


class Samples:
    def __init__(self, *samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


class EachEpoch(Samples):
    def set_epoch(self, epoch: int) -> None: ...


class FromOne(Samples):
    def __getitem__(self, index: int) -> Any:
        return {1: self.samples[0], 2: self.samples[1]}[index]


def kept(dataset: Any, **options: Any) -> str | None:
    """How its samples would be written and read."""
    found = _kept(LoaderCopy(DataLoader(dataset, batch_size=2, **options)), [0, 1])
    return None if found is None else found.code


def first_row(samples: list[Any]) -> Any:
    samples.sort(key=len)
    return samples[0]


def stacked(samples: list[Any]) -> Any:
    return torch.stack(samples)


ROWS = (torch.arange(8.0), torch.ones(8))
PAIRS = tuple((row, i) for i, row in enumerate(ROWS))


def test_what_is_read_again_makes_the_same_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, samples in enumerate((ROWS, PAIRS, [{"x": row, "y": 3} for row in ROWS])):
        code = kept(Samples(*samples))
        assert code is not None
        first, second = code.replace('"decoded"', f'"{number}"').split("; ")
        names = {"pinfeed": pinfeed, "DataLoader": DataLoader, "dataset": Samples(*samples)}
        exec(first, names)
        (batch,) = eval(second.replace("...", "batch_size=2"), names)
        (expected,) = DataLoader(Samples(*samples), batch_size=2)
        torch.testing.assert_close(batch, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (Samples(*[{"a": {"b": row}} for row in ROWS]), {}),  # write_array takes no dicts in dicts
        (Samples([*ROWS], [*ROWS]), {}),  # a list would become an array of rows
        (Samples(*ROWS), {"collate_fn": stacked}),  # which takes no arrays
        (Samples(*ROWS), {"collate_fn": first_row}),  # nor what is no list
        (Samples(*[{"x": row, "weight": 0.5} for row in ROWS]), {}),  # float64, and then float32
        (FromOne(*ROWS), {"sampler": [1, 2]}),
    ],
)
def test_what_would_make_others_is_not_to_be_written(dataset: Any, options: Any) -> None:
    assert kept(dataset, **options) is None


def changes_of(loader: Any, of: Any = _of_samples) -> list[Any]:
    copy = LoaderCopy(loader)
    loop = copy.run(copy.settings, 0.01)
    one = copy.run(runs_with(copy, 1), 0.01)
    return [*of(Measured(Cpus(4, 4, None, 1), loop, {0: loop, 1: one}), copy)]


def runs_with(copy: LoaderCopy, workers: int) -> Any:
    return type(copy.settings)(workers)


def test_what_changes_with_the_epoch_or_the_worker_is_not_to_be_written() -> None:
    names = {"samples decoded once, and kept"}
    for dataset, options, offered in (
        (Samples(*ROWS), {}, names),
        (EachEpoch(*ROWS), {}, set()),
        (Samples(*ROWS), {"worker_init_fn": print}, set()),
    ):
        changes = changes_of(DataLoader(dataset, batch_size=2, **options))
        assert names & {change.name for change in changes} == offered


class Scaled(TensorDataset):
    def __getitem__(self, index: Any) -> Any:
        return (super().__getitem__(index)[0] / 255,)


def test_arrays_are_to_be_read_by_from_numpy_where_the_batches_are_the_same() -> None:
    plain = TensorDataset(torch.arange(64).reshape(8, 8))
    part = RandomSampler(plain, num_samples=4)
    first = RandomSampler(range(4))
    for dataset, options, code in (
        (
            plain,
            {"batch_size": 2},
            "pinfeed.from_numpy(dataset.tensors, batch_size=2, shuffle=False)",
        ),
        (
            plain,
            {"batch_size": 3, "shuffle": True, "drop_last": True},
            "shuffle=True, drop_last=True)",
        ),
        (plain, {"batch_size": 2, "sampler": Weighted([1.0] * 8, 8)}, "def __getitems__"),
        (plain, {"batch_size": 2, "sampler": part}, "def __getitems__"),
        (plain, {"batch_size": 2, "sampler": first}, "def __getitems__"),
        (Scaled(*plain.tensors), {"batch_size": 2}, "def __getitems__"),
    ):
        (found,) = (c.code for c in changes_of(DataLoader(dataset, **options)) if "whole" in c.name)
        assert code in found
    sampler = BatchSampler(Weighted([1.0] * 8, 8), 2, False)
    assert LoaderCopy(DataLoader(plain, batch_sampler=sampler)).shuffles is None


class Numbers:
    """Rows of a file that is open, or is opened for the first sample."""

    def __init__(self, path: Path, file: Any = None) -> None:
        self.path, self.file = path, file

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.002)
        with contextlib.nullcontext(self.file) if self.file else self.path.open("rb") as file:
            file.seek(8 * index)
            return np.frombuffer(file.read(8), np.int64)


def test_no_workers_for_files_whose_position_they_would_share(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(np.arange(64).tobytes())
    with path.open("rb", buffering=0) as file:
        loader = DataLoader(Numbers(path, file), batch_size=4)  # type: ignore[arg-type]
        assert changes_of(loader, _of_workers) == []
        note = " ".join(pinfeed.diagnose(loader, seconds=0.2).notes)
    assert "holds open files, whose position forked workers share" in note
    assert changes_of(DataLoader(Numbers(path), batch_size=4), _of_workers)  # type: ignore[arg-type]
