"""LengthBucketSampler in loaders, and in distributed jobs."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from length_buckets import (
    LENGTHS,
    batches_of,
    new_sampler,
)
from pinfeed.samplers.length_buckets import LengthBucketSampler
from samples import run_python


@pytest.fixture
def sampler() -> LengthBucketSampler:
    return new_sampler()


@pytest.mark.parametrize("workers", [0, 2])
def test_in_a_data_loader(workers: int, sampler: LengthBucketSampler) -> None:
    loader = DataLoader(range(50), batch_sampler=sampler, num_workers=workers, collate_fn=list)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        assert len(loader) == len(batches_of(epoch))
        assert list(loader) == batches_of(epoch)
    sampler.load_state_dict(sampler.state_dict() | {"epoch": 1, "yielded": 3, "finished": False})
    assert list(loader) == batches_of(1)[3:]
    assert list(loader) == batches_of(1)


@pytest.mark.parametrize("workers", [0, 2])
def test_resume_a_data_loader(workers: int, sampler: LengthBucketSampler) -> None:
    """As the docstring says: whoever trains counts, because workers run ahead."""
    loader = DataLoader(range(50), batch_sampler=sampler, num_workers=workers, collate_fn=list)
    expected = batches_of(1)
    for trained in range(len(expected) + 1):
        sampler.set_epoch(1)
        iterator = iter(loader)
        for _ in range(trained):
            next(iterator)
        state = sampler.state_dict() | {"yielded": trained}
        other = LengthBucketSampler(LENGTHS[:50], max_tokens=512)
        other.load_state_dict(state)
        assert list(other) == expected[trained:]


@pytest.mark.parametrize("sets_epochs", [True, False])
@pytest.mark.parametrize("workers", [0, 2])
def test_in_a_stateful_data_loader(workers: int, sets_epochs: bool) -> None:
    """Saved anywhere, a new loader yields exactly the rest, and then the epochs to come."""
    import torchdata.stateful_dataloader as stateful

    def new_loader() -> Any:
        sampler = LengthBucketSampler(LENGTHS[:50], max_tokens=2048)
        return stateful.StatefulDataLoader(
            range(50), batch_sampler=sampler, num_workers=workers, collate_fn=list
        )

    def epoch_of(loader: Any, epoch: int) -> Any:
        if sets_epochs:
            loader.batch_sampler.set_epoch(epoch)
        return iter(loader)

    loader = new_loader()
    expected = []
    for epoch in range(4):
        loader.batch_sampler.set_epoch(epoch if sets_epochs else 0)
        expected.append(list(loader.batch_sampler))

    loader = new_loader()
    list(epoch_of(loader, 0))
    states = []
    iterator = epoch_of(loader, 1)
    for _ in range(len(expected[1])):
        states.append(copy.deepcopy(loader.state_dict()))
        next(iterator)
    states.append(copy.deepcopy(loader.state_dict()))
    assert next(iterator, None) is None
    over = copy.deepcopy(loader.state_dict())

    for yielded, state in enumerate(states):
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
    next(epoch_of(loader, 1))
    epoch_of(loader, 1)
    state = loader.state_dict()
    loader = new_loader()
    loader.load_state_dict(state)
    assert list(epoch_of(loader, 1)) == expected[1]


RANKS = """
import os, sys
import torch.distributed as dist
from pinfeed.samplers.length_buckets import LengthBucketSampler

early = LengthBucketSampler(range(40), 4)
assert (early.rank, early.world_size, len(early)) == (0, 1, 10)
child = os.fork()
rank = 0 if child else 1
dist.init_process_group(
    "gloo", store=dist.FileStore(sys.argv[1] + "/store", 2), rank=rank, world_size=2
)
sampler = LengthBucketSampler(range(40), 4)
assert (sampler.rank, sampler.world_size) == (rank, 2)
assert (early.rank, early.world_size, len(early)) == (rank, 2, 5)
assert list(early) == list(sampler)
given = LengthBucketSampler(range(40), 4, rank=2, world_size=3)
assert (given.rank, given.world_size) == (2, 3)
theirs = [None, None]
dist.all_gather_object(theirs, list(sampler))
assert sorted(i for batches in theirs for batch in batches for i in batch) == list(range(40))
dist.destroy_process_group()
if child:
    assert os.waitpid(child, 0)[1] == 0
    print("both")
"""


def test_ranks_of_torch_distributed(tmp_path: Path) -> None:
    assert run_python(RANKS, str(tmp_path)).split() == ["both"]


def test_no_rank_without_torch_distributed() -> None:
    sampler = LengthBucketSampler([1], 1)
    assert (sampler.rank, sampler.world_size) == (0, 1)


def test_trainers_that_know_torch_s_batch_samplers() -> None:
    """They set the epoch of a batch sampler's sampler, or make both anew; that must be an error."""
    sampler = LengthBucketSampler([1, 2], 1)
    sampler.sampler.set_epoch(3)
    assert sampler.epoch == 3
    theirs = torch.utils.data.DistributedSampler([1, 2], 1, 0)
    with pytest.raises(TypeError, match=r"got a DistributedSampler.*use_distributed_sampler=False"):
        LengthBucketSampler(theirs, batch_size=sampler.batch_size, drop_last=sampler.drop_last)
