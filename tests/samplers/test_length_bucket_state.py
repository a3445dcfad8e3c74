"""LengthBucketSampler: epochs, resuming anywhere, loaders and distributed jobs."""

from __future__ import annotations

import copy
import io
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from length_buckets import (
    LENGTHS,
    NAME,
    Options,
    all_ranks,
    batches_of,
    new_sampler,
    options,
    position,
    state_at,
)
from pinfeed.samplers.length_buckets import LengthBucketSampler
from programs import run_python


@pytest.fixture
def sampler() -> LengthBucketSampler:
    return new_sampler()


@given(options(), st.integers(0, 3), st.data())
def test_resume_at_every_batch(options: Options, epoch: int, data: st.DataObject) -> None:
    samplers = all_ranks(options, epoch)
    sampler = data.draw(st.sampled_from(samplers))
    batches, following = list(sampler), list(sampler)
    sampler.set_epoch(epoch)
    iterator = iter(sampler)
    for yielded in range(len(batches) + 1):
        state = sampler.state_dict()
        assert (state["epoch"], state["yielded"], state["finished"]) == (epoch, yielded, False)
        other = LengthBucketSampler(**options, rank=sampler.rank)
        other.load_state_dict(json.loads(json.dumps(state)))
        assert other.state_dict() == state
        assert other.epoch == epoch
        assert len(other) == len(batches)
        assert list(other) == batches[yielded:]
        assert other.epoch == epoch + 1
        assert list(other) == following
        assert next(iterator, None) == (batches[yielded] if yielded < len(batches) else None)
    state = sampler.state_dict()
    assert (state["epoch"], state["yielded"], state["finished"]) == (epoch, 0, True)
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert list(other) == following


@given(options(), st.integers(0, 3))
def test_the_state_is_the_same_for_all_ranks(options: Options, epoch: int) -> None:
    samplers = all_ranks(options, epoch)
    states = []
    for sampler in samplers:
        iterator = iter(sampler)
        next(iterator, None)
        states.append(sampler.state_dict())
    assert states == states[:1] * len(states)
    file = io.BytesIO()
    torch.save(states[0], file)
    file.seek(0)
    assert torch.load(file, weights_only=True) == states[0]


def test_the_usual_loop_resumes(sampler: LengthBucketSampler) -> None:
    """Calling set_epoch for the epoch that was loaded keeps the position."""
    sampler.load_state_dict(state_at(sampler, 1, 3))
    seen = []
    for epoch in range(sampler.epoch, 3):
        sampler.set_epoch(epoch)
        seen.append(list(sampler))
    assert seen == [batches_of(1)[3:], batches_of(2)]


def test_another_epoch_starts_at_its_beginning(sampler: LengthBucketSampler) -> None:
    sampler.load_state_dict(state_at(sampler, 1, 3))
    sampler.set_epoch(2)
    assert position(sampler) == (2, 0)
    sampler.set_epoch(1)
    assert list(sampler) == batches_of(1)


def test_lengths_of_epochs_differ(sampler: LengthBucketSampler) -> None:
    counts = []
    for epoch in range(10):
        sampler.set_epoch(epoch)
        counts.append(len(sampler))
        assert len(list(sampler)) == counts[-1]
    assert len(set(counts)) > 1


def test_a_broken_off_iteration(sampler: LengthBucketSampler) -> None:
    iterator = iter(sampler)
    for _ in range(3):
        next(iterator)
    del iterator
    assert position(sampler) == (0, 3)
    assert list(sampler) == batches_of(1)
    assert position(sampler) == (1, 0)


def test_set_epoch_while_iterating(sampler: LengthBucketSampler) -> None:
    iterator = iter(sampler)
    seen = [next(iterator), next(iterator)]
    sampler.set_epoch(1)
    assert position(sampler) == (1, 0)
    assert len(sampler) == len(batches_of(1))
    seen += iterator
    assert seen == batches_of(0)
    assert position(sampler) == (1, 0)
    assert list(sampler) == batches_of(1)


def test_two_iterators_at_once(sampler: LengthBucketSampler) -> None:
    sampler.load_state_dict(state_at(sampler, 1, 2))
    iter(sampler)  # which counts for nothing
    first, second = iter(sampler), iter(sampler)
    expected, following = batches_of(1), batches_of(2)
    assert [next(first) for _ in range(3)] == expected[2:5]
    assert position(sampler) == (1, 5)
    assert next(second) == following[0]
    assert position(sampler) == (2, 1)  # of the one that began last
    assert list(first) == expected[5:]
    assert position(sampler) == (2, 1)
    assert list(second) == following[1:]
    assert list(sampler) == batches_of(3)


def test_load_while_iterating(sampler: LengthBucketSampler) -> None:
    iterator, not_begun = iter(sampler), iter(sampler)
    next(iterator)
    sampler.load_state_dict(state_at(sampler, 2, 4))
    assert list(iterator) == batches_of(0)[1:]
    assert position(sampler) == (2, 4)
    assert list(not_begun) == batches_of(2)[4:]
    assert list(sampler) == batches_of(3)


def test_an_epoch_that_is_over_does_not_take_set_epoch_back(sampler: LengthBucketSampler) -> None:
    """A StatefulDataLoader loads when its iteration starts, and that is after set_epoch."""
    last = len(batches_of(1))
    finished = state_at(sampler, 1, 0) | {"finished": True}
    for over in (state_at(sampler, 1, last), finished):
        sampler.set_epoch(2)
        iter(sampler)
        sampler.load_state_dict(over)
        assert list(sampler) == batches_of(2)
    for going_on in (state_at(sampler, 1, 3), finished | {"yielded": 3}):
        sampler.set_epoch(2)
        sampler.load_state_dict(going_on)
        assert list(sampler) == batches_of(1)[3:]
    sampler.set_epoch(2)
    sampler.load_state_dict(state_at(sampler, 1, 0))  # not begun
    assert list(sampler) == batches_of(1)
    sampler.set_epoch(0)
    sampler.load_state_dict(state_at(sampler, 1, last))  # not later
    assert list(sampler) == []


def test_a_pickled_sampler_goes_on(sampler: LengthBucketSampler) -> None:
    sampler.load_state_dict(state_at(sampler, 1, 3))
    len(sampler)
    for other in (pickle.loads(pickle.dumps(sampler)), copy.deepcopy(sampler)):
        assert other.state_dict() == sampler.state_dict()
        assert list(other) == batches_of(1)[3:]
    large = LengthBucketSampler(LENGTHS, 16)
    len(large)
    assert len(pickle.dumps(large)) < LENGTHS.nbytes + 2000  # without its plan


STATEFUL = {"lengths": [3, 1, 2, 9], "batch_size": 2, "max_tokens": 20, "rank": 0, "world_size": 2}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"batch_size": 3}, "batch_size is 3 there and 2 here"),
        ({"batch_size": None}, "batch_size is None there and 2 here"),
        ({"max_tokens": 21}, "max_tokens is 21 there and 20 here"),
        ({"shuffle": False}, "shuffle is False there and True here"),
        ({"seed": 1}, "seed is 1 there and 0 here"),
        ({"bucket_batches": 50}, "bucket_batches is 50 there and 100 here"),
        ({"drop_last": True}, "drop_last is True there and False here"),
        ({"world_size": 3}, "world_size is 3 there and 2 here"),
        ({"lengths": [3, 1, 2]}, "samples is 3 there and 4 here"),
        ({"lengths": [3, 1, 9, 2]}, r"lengths_crc32 is \d+ there and \d+ here"),
        ({"seed": 1, "batch_size": 3}, "batch_size is 3 there and 2 here, seed is 1 there"),
    ],
)
def test_states_of_other_samplers(changed: Options, message: str) -> None:
    state = LengthBucketSampler(**STATEFUL | changed).state_dict()
    sampler = LengthBucketSampler(**STATEFUL)
    with pytest.raises(ValueError, match=f"{NAME}the state is of another sampler: {message}"):
        sampler.load_state_dict(state)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"planning": 0}, ValueError, "the state is of another sampler: planning is 0 there"),
        ({"epoch": -1}, ValueError, "epoch of the state must be at least 0, got -1"),
        ({"seed": np.arange(2)}, TypeError, "seed of the state must be one value, .* got ndarray"),
        ({"finished": torch.ones(2)}, TypeError, "finished of the state must be one .* got Tensor"),
        ({"epoch": 0.5}, TypeError, r"epoch of the state must be an integer, got 0\.5"),
        ({"yielded": -1}, ValueError, "yielded of the state must be at least 0, got -1"),
        ({"yielded": None}, TypeError, "yielded of the state must be an integer, got None"),
        (
            {"yielded": 2},
            ValueError,
            "yielded of the state must be at most 1, the number of batches in epoch 0, got 2",
        ),
    ],
)
def test_bad_states(changed: Options, error: type[Exception], message: str) -> None:
    sampler = LengthBucketSampler(**STATEFUL)
    before = sampler.state_dict()
    with pytest.raises(error, match=NAME + message):
        sampler.load_state_dict(before | changed)
    assert sampler.state_dict() == before


def test_states_that_are_none() -> None:
    sampler = LengthBucketSampler(**STATEFUL)
    with pytest.raises(TypeError, match="state must be a dict, got list"):
        sampler.load_state_dict([1])  # type: ignore[arg-type]
    state = sampler.state_dict()
    del state["epoch"], state["samples"]
    with pytest.raises(
        ValueError, match=r"what state_dict\(\) returned, but has no epoch, samples"
    ):
        sampler.load_state_dict(state)


def test_the_state_of_another_rank() -> None:
    sampler = LengthBucketSampler(**STATEFUL)
    sampler.load_state_dict(LengthBucketSampler(**STATEFUL | {"rank": 1}).state_dict())


# In loaders, and in distributed jobs.


@pytest.mark.parametrize("workers", [0, 2])
def test_in_a_data_loader(workers: int, sampler: LengthBucketSampler) -> None:
    loader = DataLoader(range(50), batch_sampler=sampler, num_workers=workers, collate_fn=list)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        assert len(loader) == len(batches_of(epoch))
        assert list(loader) == batches_of(epoch)
    sampler.load_state_dict(sampler.state_dict() | {"epoch": 1, "yielded": 3, "finished": False})
    assert list(loader) == batches_of(1)[3:]
    assert list(loader) == batches_of(2)


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
