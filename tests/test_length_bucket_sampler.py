"""LengthBucketSampler: the plan against plain Python, ranks, epochs, and resuming anywhere."""

from __future__ import annotations

import copy
import io
import json
import pickle
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from pinfeed.length_bucket_sampler import LengthBucketSampler
from samples import run_python

pytestmark = [
    # Python 3.12 and later warn of every fork of a process that has threads.
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]

Options = dict[str, Any]


@st.composite
def options(draw: st.DrawFn, **fixed: Any) -> Options:
    """Arguments of a sampler but for its rank."""
    lengths = draw(st.lists(st.integers(0, 30), min_size=1, max_size=60))
    limits = draw(st.sampled_from(["batch_size", "max_tokens", "both"]))
    most = max(1, *lengths) if len(lengths) > 1 else max(1, lengths[0])
    drawn = {
        "lengths": lengths,
        "batch_size": None if limits == "max_tokens" else draw(st.integers(1, 12)),
        "max_tokens": None if limits == "batch_size" else draw(st.integers(most, most + 100)),
        "shuffle": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**70)),
        "bucket_batches": draw(st.integers(1, 5)),
        "drop_last": draw(st.booleans()),
        "world_size": draw(st.integers(1, 5)),
    }
    return drawn | fixed


def all_ranks(options: Options, epoch: int = 0) -> list[LengthBucketSampler]:
    samplers = [LengthBucketSampler(**options, rank=rank) for rank in range(options["world_size"])]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    return samplers


def reference_plan(options: Options) -> list[list[list[int]]]:
    """What every rank yields without shuffling: buckets, cuts and dealing as the docstring has it.

    Plain Python that tries sample by sample.
    """
    lengths, world_size = options["lengths"], options["world_size"]
    batch_size, max_tokens = options["batch_size"], options["max_tokens"]
    tokens = [max(length, 1) for length in lengths]

    order = list(range(len(lengths)))
    if options["bucket_batches"] > 1:
        typical = len(lengths) if batch_size is None else batch_size
        if max_tokens is not None:
            typical = min(typical, max_tokens * len(lengths) // sum(tokens))
        bucket = typical * options["bucket_batches"] * world_size
        buckets = [order[i : i + bucket] for i in range(0, len(order), bucket)]
        order = []
        for number, samples in enumerate(buckets):
            sign = 1 if number % 2 == 0 else -1
            order += sorted(samples, key=lambda sample, sign=sign: sign * lengths[sample])

    def fits(batch: list[int]) -> bool:
        if batch_size is not None and len(batch) > batch_size:
            return False
        return max_tokens is None or max(tokens[i] for i in batch) * len(batch) <= max_tokens

    batches: list[list[int]] = [[]]
    for sample in order:
        if fits([*batches[-1], sample]):
            batches[-1].append(sample)
        else:
            batches.append([sample])

    if options["drop_last"]:
        if fits([*batches[-1], batches[-1][0]]):  # there was room for another one
            del batches[-1]
        del batches[len(batches) - len(batches) % world_size :]
        groups = [batches[i : i + world_size] for i in range(0, len(batches), world_size)]
    else:
        groups = [batches[i : i + world_size] for i in range(0, len(batches), world_size)]
        last = batches[-world_size:]
        while len(last) < world_size:
            last = (batches + last)[-world_size:]
        groups[-1] = last
    return [[group[rank] for group in groups] for rank in range(world_size)]


@given(options(shuffle=False))
def test_plan_is_the_reference(options: Options) -> None:
    assert [list(sampler) for sampler in all_ranks(options)] == reference_plan(options)


@given(options(), st.integers(0, 2**40))
def test_invariants(options: Options, epoch: int) -> None:
    ranks = [list(sampler) for sampler in all_ranks(options, epoch)]
    assert {len(sampler) for sampler in all_ranks(options, epoch)} == {len(ranks[0])}
    assert {len(batches) for batches in ranks} == {len(ranks[0])}

    batches = [batch for batches in ranks for batch in batches]
    for batch in batches:
        assert type(batch) is list
        assert {type(sample) for sample in batch} == {int}
        assert 1 <= len(batch) <= (options["batch_size"] or len(batch))
        if options["max_tokens"] is not None:
            longest = max(options["lengths"][sample] for sample in batch)
            assert longest * len(batch) <= options["max_tokens"]

    different = set(map(tuple, batches))
    times = Counter(sample for batch in different for sample in batch)
    assert set(times.values()) <= {1}
    if options["drop_last"]:
        assert len(different) == len(batches)
    else:
        assert set(times) == set(range(len(options["lengths"])))
        assert len(ranks[0]) == -(-len(different) // options["world_size"])


@given(options(max_tokens=None, batch_size=3, drop_last=True))
def test_how_much_is_dropped(options: Options) -> None:
    batches = len(options["lengths"]) // 3
    for sampler in all_ranks(options):
        assert len(sampler) == batches // options["world_size"]
        assert all(len(batch) == 3 for batch in sampler)


@given(options(drop_last=False, world_size=1))
def test_shuffled_batches_are_full(options: Options) -> None:
    """Batches span buckets, so none of one size but the last is short."""
    options |= {"max_tokens": None, "batch_size": 4}
    sizes = Counter(map(len, LengthBucketSampler(**options, rank=0)))
    count = len(options["lengths"])
    assert sizes == Counter({4: count // 4}) + Counter([count % 4] if count % 4 else [])


@given(options(), st.integers(0, 3))
def test_same_again(options: Options, epoch: int) -> None:
    for sampler, other in zip(all_ranks(options, epoch), all_ranks(options, epoch), strict=True):
        batches = list(sampler)
        assert list(other) == batches
        assert list(sampler) == batches
        sampler.set_epoch(epoch + 1)
        len(sampler)
        sampler.set_epoch(epoch)
        assert list(sampler) == batches
        assert list(pickle.loads(pickle.dumps(sampler))) == batches


def test_the_plan_never_changes() -> None:
    """On no machine, with no NumPy; otherwise _PLANNING has to go up."""
    lengths = [7, 3, 9, 1, 4, 4, 8, 2, 6, 5, 0, 3, 5, 2, 6, 1, 8, 3]
    options = {"lengths": lengths, "batch_size": 4, "max_tokens": 20, "bucket_batches": 2}
    first, second = all_ranks(options | {"seed": 5, "world_size": 2}, epoch=3)
    assert list(first) == [[2, 5], [10, 15, 12], [9, 4, 3, 1], [11, 7, 13, 17]]
    assert list(second) == [[11, 7, 13, 17], [14, 16], [0, 6], [8]]
    assert first.state_dict()["lengths_crc32"] == 1543514994


LENGTHS = np.random.default_rng(0).lognormal(4, 0.8, 5000).astype(int).clip(1, 512)


def test_orders_differ_by_seed_and_epoch() -> None:
    orders = set()
    for seed in range(3):
        sampler = LengthBucketSampler(LENGTHS, 16, seed=seed)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            batches = list(sampler)
            orders.add(str(batches))
            # The batches' order is random too: lengths neither rise nor fall from one to the next.
            longest = [LENGTHS[batch].max() for batch in batches]
            assert 0.3 < np.mean(np.diff(longest) > 0) < 0.7
    assert len(orders) == 9
    unshuffled = LengthBucketSampler(LENGTHS, 16, shuffle=False)
    batches = list(unshuffled)
    unshuffled.set_epoch(1)
    assert list(unshuffled) == batches


def test_few_samples_make_other_batches_in_each_epoch() -> None:
    sampler = LengthBucketSampler(range(200), 4)
    seen: list[set[tuple[int, ...]]] = []
    for epoch in range(4):
        sampler.set_epoch(epoch)
        seen.append({tuple(sorted(batch)) for batch in sampler})
    assert len(set().union(*seen)) > 180  # of 200


def test_one_bucket_batch_is_random_order() -> None:
    sampler = LengthBucketSampler(LENGTHS, 16, shuffle=False, bucket_batches=1)
    assert [i for batch in sampler for i in batch] == list(range(len(LENGTHS)))
    sampler = LengthBucketSampler(LENGTHS, 16, bucket_batches=1)
    first = [batch[0] for batch in sampler if len(batch) == 16]
    longest = [batch[np.argmax(LENGTHS[batch])] for batch in sampler]
    assert np.corrcoef(first, range(len(first)))[0, 1] < 0.2
    assert len(set(first) & set(longest)) < len(first) / 4  # and nothing is sorted within


@given(options(), st.integers(0, 3))
def test_padding_fraction(options: Options, epoch: int) -> None:
    samplers = all_ranks(options, epoch)
    batches = [
        [options["lengths"][sample] for sample in batch]
        for sampler in samplers
        for batch in sampler
    ]
    tokens = sum(map(sum, batches))
    padded = sum(max(batch) * len(batch) for batch in batches)
    expected = 1 - tokens / padded if padded else 0.0
    for sampler in samplers:
        fraction = sampler.padding_fraction()
        assert type(fraction) is float
        assert fraction == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("world_size", [1, 8])
@pytest.mark.parametrize("limits", [{"batch_size": 16}, {"max_tokens": 4096}])
def test_buckets_leave_little_padding(limits: Options, world_size: int) -> None:
    ranks = {"rank": 0, "world_size": world_size}
    sampler = LengthBucketSampler(LENGTHS, **limits, **ranks)
    in_random_order = LengthBucketSampler(LENGTHS, **limits, **ranks, bucket_batches=1)
    assert in_random_order.padding_fraction() > 0.5
    assert sampler.padding_fraction() < in_random_order.padding_fraction() / 5


def test_ranks_have_similar_lengths_at_a_time() -> None:
    def spread(bucket_batches: int) -> float:
        options = {"lengths": LENGTHS, "max_tokens": 1024, "bucket_batches": bucket_batches}
        samplers = all_ranks(options | {"world_size": 8})
        longest = [[LENGTHS[batch].max() for batch in sampler] for sampler in samplers]
        return float(np.mean(np.ptp(longest, axis=0)))

    assert spread(100) < spread(1) / 4


# Epochs and resuming.


@given(options(), st.integers(0, 3), st.data())
def test_resume_at_every_batch(options: Options, epoch: int, data: st.DataObject) -> None:
    samplers = all_ranks(options, epoch)
    sampler = data.draw(st.sampled_from(samplers))
    batches = list(sampler)
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
        assert list(other) == batches
        assert next(iterator, None) == (batches[yielded] if yielded < len(batches) else None)
    state = sampler.state_dict()
    assert (state["epoch"], state["yielded"], state["finished"]) == (epoch, 0, True)
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert list(other) == batches


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


@pytest.fixture
def sampler() -> LengthBucketSampler:
    return LengthBucketSampler(LENGTHS[:50], max_tokens=512)


def batches_of(epoch: int) -> list[list[int]]:
    sampler = LengthBucketSampler(LENGTHS[:50], max_tokens=512)
    sampler.set_epoch(epoch)
    return list(sampler)


def position(sampler: LengthBucketSampler) -> tuple[int, int]:
    state = sampler.state_dict()
    return state["epoch"], state["yielded"]


def state_at(sampler: LengthBucketSampler, epoch: int, yielded: int) -> dict[str, Any]:
    return sampler.state_dict() | {"epoch": epoch, "yielded": yielded, "finished": False}


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
    assert list(sampler) == batches_of(0)
    assert position(sampler) == (0, 0)


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
    first, second = iter(sampler), iter(sampler)
    expected = batches_of(1)
    assert [next(first) for _ in range(3)] == expected[2:5]
    assert position(sampler) == (1, 2)  # of the one that was created last
    assert next(second) == expected[2]
    assert position(sampler) == (1, 3)
    assert list(first) == expected[5:]
    assert position(sampler) == (1, 3)
    assert list(second) == expected[3:]
    assert list(sampler) == expected


def test_load_while_iterating(sampler: LengthBucketSampler) -> None:
    iterator, not_begun = iter(sampler), iter(sampler)
    next(iterator)
    sampler.load_state_dict(state_at(sampler, 2, 4))
    assert list(iterator) == batches_of(0)[1:]
    assert list(not_begun) == batches_of(0)
    assert position(sampler) == (2, 4)
    assert list(sampler) == batches_of(2)[4:]


def test_going_back(sampler: LengthBucketSampler) -> None:
    last = len(batches_of(1))
    for yielded in (0, 4, last):
        sampler.set_epoch(5)
        next(iter(sampler))
        sampler.load_state_dict(state_at(sampler, 1, yielded))
        assert list(sampler) == batches_of(1)[yielded:]


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


# In loaders.


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


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # in torchdata 0.11
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
from pinfeed.length_bucket_sampler import LengthBucketSampler

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


# Arguments.


@pytest.mark.parametrize("dtype", ["uint8", "int16", ">i4", "int64", "uint64"])
def test_dtypes_of_lengths(dtype: str, sampler: LengthBucketSampler) -> None:
    lengths = LENGTHS[:50] % 200
    expected = list(LengthBucketSampler(lengths, max_tokens=512))
    assert list(LengthBucketSampler(lengths.astype(dtype), max_tokens=512)) == expected


def test_kinds_of_lengths() -> None:
    lengths = LENGTHS[:50]
    expected = list(LengthBucketSampler(lengths, max_tokens=512))
    wide = np.zeros((50, 3), int)
    wide[:, 1] = lengths
    for kind in (
        lengths.tolist(),
        tuple(lengths),
        wide[:, 1],
        lengths[::-1].copy()[::-1],
        torch.from_numpy(lengths),
        torch.from_numpy(wide)[:, 1],
        torch.from_numpy(lengths).to(torch.int16),
        SimpleNamespace(lengths=lengths),
        SimpleNamespace(lengths=torch.from_numpy(lengths)),
    ):
        assert list(LengthBucketSampler(kind, max_tokens=512)) == expected


def test_integers_of_numpy_and_torch() -> None:
    sampler = LengthBucketSampler([1, 2], np.int64(2), torch.tensor(9), seed=np.uint8(3))
    assert type(sampler.state_dict()["batch_size"]) is int
    assert type(sampler.state_dict()["max_tokens"]) is int
    assert type(sampler.state_dict()["seed"]) is int


def test_lengths_are_copied() -> None:
    lengths = LENGTHS[:50].copy()
    sampler = LengthBucketSampler(lengths, max_tokens=512)
    lengths[:] = 1
    assert list(sampler) == batches_of(0)


def test_empty_samples_count_as_one_token() -> None:
    sampler = LengthBucketSampler([0] * 10, max_tokens=4)
    assert sorted(map(len, sampler)) == [2, 4, 4]
    assert sampler.padding_fraction() == 0.0


def test_nothing_left_after_drop_last() -> None:
    sampler = LengthBucketSampler([1] * 3, 4, drop_last=True)
    assert len(sampler) == 0
    assert list(sampler) == []
    assert sampler.padding_fraction() == 0.0
    sampler.load_state_dict(sampler.state_dict())
    assert list(sampler) == []


def test_more_ranks_than_batches() -> None:
    batches = {
        tuple(batch)
        for s in all_ranks({"lengths": [1] * 5, "batch_size": 2, "world_size": 7})
        for batch in s
    }
    assert sorted(sample for batch in batches for sample in batch) == list(range(5))


GOOD = {"lengths": [3, 1, 2], "batch_size": 2}
NAME = "LengthBucketSampler: "


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"batch_size": None}, ValueError, "expected batch_size or max_tokens or both"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1, got 0"),
        ({"batch_size": -3}, ValueError, "batch_size must be at least 1, got -3"),
        ({"batch_size": 2.0}, TypeError, r"batch_size must be an integer, got 2\.0"),
        ({"batch_size": True}, TypeError, "batch_size must be an integer, got True"),
        ({"batch_size": np.True_}, TypeError, "batch_size must be an integer, got np.True_"),
        ({"batch_size": "2"}, TypeError, "batch_size must be an integer, got '2'"),
        ({"max_tokens": 0}, ValueError, "max_tokens must be at least 1, got 0"),
        ({"max_tokens": 9.5}, TypeError, r"max_tokens must be an integer, got 9\.5"),
        ({"max_tokens": True}, TypeError, "max_tokens must be an integer, got True"),
        (
            {"max_tokens": 2},
            ValueError,
            "sample 0 has 3 tokens, more than max_tokens=2; raise max_tokens, or shorten",
        ),
        ({"shuffle": 1}, TypeError, "shuffle must be True or False, got 1"),
        ({"drop_last": "no"}, TypeError, "drop_last must be True or False, got 'no'"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"seed": None}, TypeError, "seed must be an integer, got None"),
        ({"seed": 1.5}, TypeError, r"seed must be an integer, got 1\.5"),
        ({"bucket_batches": 0}, ValueError, "bucket_batches must be at least 1, got 0"),
        ({"bucket_batches": False}, TypeError, "bucket_batches must be an integer, got False"),
        ({"rank": 0}, ValueError, "both rank and world_size, or neither, got rank=0 and"),
        ({"world_size": 2}, ValueError, "both rank and world_size, or neither, got rank=None"),
        ({"rank": 2, "world_size": 2}, ValueError, "rank must be below world_size=2, got 2"),
        ({"rank": -1, "world_size": 2}, ValueError, "rank must be at least 0, got -1"),
        ({"rank": 0, "world_size": 0}, ValueError, "world_size must be at least 1, got 0"),
        ({"rank": True, "world_size": 2}, TypeError, "rank must be an integer, got True"),
        ({"rank": 0, "world_size": 2.0}, TypeError, "world_size must be an integer"),
        ({"lengths": []}, ValueError, "lengths must not be empty"),
        ({"lengths": np.empty(0, np.int32)}, ValueError, "lengths must not be empty"),
        ({"lengths": [3, 1, -2, -5]}, ValueError, r"from 0 to \d+, got -2 at index 2"),
        ({"lengths": np.array([1, 2**63], "u8")}, ValueError, rf"got {2**63} at index 1"),
        ({"lengths": [[1, 2]]}, ValueError, r"lengths must be 1-D, got shape \(1, 2\)"),
        ({"lengths": [[1, 2], [3]]}, ValueError, "lengths must be 1-D integers: .*inhomogeneous"),
        ({"lengths": 5}, ValueError, r"lengths must be 1-D, got shape \(\)"),
        ({"lengths": [1.0, 2.0]}, TypeError, "lengths must be integers, got dtype float64"),
        ({"lengths": [True, False]}, TypeError, "lengths must be integers, got dtype bool"),
        ({"lengths": ["a", "bc"]}, TypeError, "lengths must be integers, got dtype <U2"),
        ({"lengths": [1, 2**64]}, TypeError, "lengths must be integers, got dtype object"),
        ({"lengths": [1, None]}, TypeError, "lengths must be integers, got dtype object"),
        ({"lengths": torch.ones(2)}, TypeError, "lengths must be integers, got dtype float32"),
        ({"lengths": torch.ones(2, dtype=torch.bfloat16)}, TypeError, "1-D integers in CPU memory"),
        ({"lengths": torch.ones(2, requires_grad=True)}, TypeError, "1-D integers in CPU memory"),
        ({"lengths": torch.ones(2, device="meta")}, TypeError, "1-D integers in CPU memory"),
        ({"lengths": torch.ones(2).to_sparse()}, TypeError, "1-D integers in CPU memory"),
        ({"lengths": SimpleNamespace(lengths=[0.5])}, TypeError, "must be integers, got dtype fl"),
    ],
)
def test_bad_arguments(changed: Options, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=NAME + ".*" + message):
        LengthBucketSampler(**GOOD | changed)


@pytest.mark.parametrize(
    ("epoch", "error", "message"),
    [
        (-1, ValueError, "epoch must be at least 0, got -1"),
        (1.0, TypeError, r"epoch must be an integer, got 1\.0"),
        (True, TypeError, "epoch must be an integer, got True"),
    ],
)
def test_bad_epochs(epoch: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=NAME + message):
        LengthBucketSampler(**GOOD).set_epoch(epoch)


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


def test_repr() -> None:
    sampler = LengthBucketSampler([1, 2, 3], 2, seed=4)
    sampler.set_epoch(7)
    assert repr(sampler) == (
        "LengthBucketSampler(3 samples, batch_size=2, max_tokens=None, shuffle=True, seed=4, "
        "bucket_batches=100, drop_last=False, world_size=1, rank=0, epoch=7)"
    )


def all_batches(lengths: list[int], **options: Any) -> list[list[int]]:
    sampler = LengthBucketSampler(lengths, **options)
    assert len(sampler) == len(list(sampler))
    assert 0 <= sampler.padding_fraction() < 1
    return sorted(sorted(batch) for batch in sampler)


def test_lengths_whose_sum_is_beyond_64_bits() -> None:
    alone = [[0], [1], [2], [3]]
    assert all_batches([2**62] * 4, max_tokens=2**62) == alone
    assert all_batches([2**63 - 1] * 4, max_tokens=2**63 - 1) == alone
    assert all_batches([2**62] * 4, max_tokens=2**64) == [[0, 1, 2, 3]]
    # Wrapped, the sum would be 5, all samples one bucket, and their order that of their lengths.
    lengths = [2**62, 1, 2**62, 1, 2**62, 1, 2**62, 1, 1]
    options = {"max_tokens": 2**63, "shuffle": False, "bucket_batches": 2}
    assert list(LengthBucketSampler(lengths, **options)) == [[1, 3, 5, 7], [0, 2], [4, 6], [8]]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("max_tokens", [None, 2**80])
def test_limits_beyond_64_bits(shuffle: bool, max_tokens: int | None) -> None:
    options = {"batch_size": 2**70, "max_tokens": max_tokens, "shuffle": shuffle}
    assert all_batches([3, 1, 2], **options) == [[0, 1, 2]]
    assert all_batches([3, 1, 2], **options, bucket_batches=2**70) == [[0, 1, 2]]
    assert all_batches([3, 1, 2], **options, drop_last=True) == []


CUT_LENGTHS = """
import os, sys
import numpy as np
from pinfeed import LengthBucketSampler

np.save(sys.argv[1], np.arange(5000))
lengths = np.load(sys.argv[1], mmap_mode="r")
os.truncate(sys.argv[1], 0)
for cut in (lengths, lengths[10:20]):
    try:
        LengthBucketSampler(cut, 4)
    except OSError as error:
        assert f"{sys.argv[1]}: the file was cut short: it has 0 bytes" in str(error), error
        print("refused")
"""


def test_lengths_in_a_file_that_was_cut(tmp_path: Path) -> None:
    assert run_python(CUT_LENGTHS, str(tmp_path / "lengths.npy")).split() == ["refused"] * 2
