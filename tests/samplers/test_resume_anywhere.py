"""States resume with other rank counts and batch sizes: each remaining sample comes once."""

import itertools
import json
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import pinfeed

WORLDS = st.integers(1, 5)
SIZES = st.integers(1, 9)


def ranks_of(make, world_size, epoch=None, state=None):
    """Returns the samplers of all ranks."""
    samplers = [make(rank=rank, world_size=world_size) for rank in range(world_size)]
    for sampler in samplers:
        if epoch is not None:
            sampler.set_epoch(epoch)
        if state is not None:
            sampler.load_state_dict(json.loads(json.dumps(state)))
    return samplers


def steps_of(samplers):
    """Returns the batches of all ranks by step; some ranks can end a step early, if allowed."""
    steps = [*itertools.zip_longest(*samplers)]
    are_uneven = getattr(samplers[0], "uneven", "repeat") == "keep"
    assert all(None not in step for step in steps[: -1 if are_uneven else None])
    return [[list(batch) for batch in step if batch is not None] for step in steps]


def first_steps(samplers, count, ahead=0):
    """Returns the batches of up to this number of steps, and the states of all ranks afterwards.

    Workers have fetched ``ahead`` batches more than the loop counts.
    """
    iterators = [iter(sampler) for sampler in samplers]
    steps, states = [], [sampler.state_dict() for sampler in samplers]
    while len(steps) < count + ahead:
        step = [next(one, None) for one in iterators]
        if step == [None] * len(step):
            break
        assert None not in step or samplers[0].uneven == "keep"
        steps.append([list(batch) for batch in step if batch is not None])
        states = [sampler.state_dict() for sampler in samplers]
    if ahead:
        steps = steps[:count]
        states = [sampler.state_after(len(steps)) for sampler in samplers]
    # A rank detects its end at the first request beyond it.
    assert len({str(state | {"finished": None}) for state in states}) == 1
    return steps, states


def moved(make_before, make_after, worlds, epoch, counts):
    """Returns the batches of an epoch that is resumed twice with other rank counts."""
    *counts, ahead = counts
    steps, state = first_steps(ranks_of(make_before, worlds[0], epoch), counts[0], ahead)
    more, state = first_steps(ranks_of(make_after, worlds[1], None, state), counts[1], ahead)
    samplers = ranks_of(make_after, worlds[2], None, state)
    steps += more + steps_of(samplers)
    assert steps_of(samplers) == steps_of(ranks_of(make_after, worlds[2], epoch + 1))
    return [batch for step in steps for batch in step]


# Steps before each move, and the number of prefetched batches.
POSITIONS = st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(0, 5))


@given(
    st.integers(1, 80),
    st.tuples(SIZES, SIZES),
    st.tuples(WORLDS, WORLDS, WORLDS),
    st.sampled_from(["repeat", "drop", "keep"]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 3),
    POSITIONS,
)
# One rank has received all of its batches, or has none, and a sample remains.
@example(5, (1, 1), (2, 2, 2), "keep", True, False, 0, (2, 0, 0))
@example(5, (1, 1), (2, 2, 2), "keep", True, False, 0, (3, 0, 0))
@example(3, (2, 1), (4, 4, 4), "keep", True, False, 0, (1, 0, 0))
@example(9, (4, 4), (2, 3, 4), "keep", True, False, 0, (1, 0, 0))
def test_shuffled_samples(count, sizes, worlds, uneven, shuffle, drop_last, epoch, positions):
    if count < max(worlds) * (max(sizes) if drop_last else 1) and uneven != "keep":
        return  # ranks have no batch

    def make(size):
        options = {"uneven": uneven, "shuffle": shuffle, "drop_last": drop_last, "seed": 3}
        return lambda **ranks: pinfeed.samplers.ShuffleSampler(count, size, **options, **ranks)

    batches = moved(make(sizes[0]), make(sizes[1]), worlds, epoch, positions)
    times = Counter(sample for batch in batches for sample in batch)
    again = sum(times.values()) - len(times)
    assert again < sum(worlds) if uneven == "repeat" else again == 0
    missing = count - len(times)
    most = max(worlds) - 1 if uneven == "drop" and not drop_last else 0
    if drop_last:
        most += max(worlds) * max(sizes)
    assert missing <= most


@given(
    st.integers(1, 60),
    st.tuples(SIZES, SIZES),
    st.tuples(WORLDS, WORLDS, WORLDS),
    st.booleans(),
    st.integers(0, 2),
    POSITIONS,
)
def test_draws_by_weight(count, sizes, worlds, replacement, epoch, positions):
    weights = np.arange(1, 61)

    def make(size):
        options = {"batch_size": size, "num_samples": count, "replacement": replacement}
        return lambda **ranks: pinfeed.samplers.WeightedSampler(weights, **options, **ranks)

    batches = moved(make(sizes[0]), make(sizes[1]), worlds, epoch, positions)
    times = Counter(sample for batch in batches for sample in batch)
    alone = make(count)(rank=0, world_size=1)
    alone.set_epoch(epoch)
    (drawn,) = alone
    assert not Counter(list(drawn)) - times  # each draw
    assert times.total() - count < sum(worlds)


LENGTHS = st.lists(st.integers(0, 20), min_size=10, max_size=60)


@given(
    LENGTHS,
    st.sampled_from(
        [{"batch_size": 3}, {"max_tokens": 40}, {"max_tokens": 40, "bucket_batches": 1}]
    ),
    st.tuples(WORLDS, WORLDS, WORLDS),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2),
    POSITIONS,
)
def test_batches_of_similar_lengths(lengths, limits, worlds, shuffle, drop_last, epoch, positions):
    def make(**ranks):
        options = limits | {"shuffle": shuffle, "drop_last": drop_last}
        return pinfeed.samplers.LengthBucketSampler(lengths, **options, **ranks)

    batches = moved(make, make, worlds, epoch, positions)
    different = {tuple(batch) for batch in batches}
    times = Counter(sample for batch in different for sample in batch)
    assert set(times.values()) <= {1}
    if drop_last:
        assert len(different) == len(batches)
    else:
        assert set(times) == set(range(len(lengths)))


@given(
    LENGTHS.filter(any),
    st.sampled_from(["best_fit", "first_fit", "wrapped"]),
    st.tuples(SIZES, SIZES),
    st.tuples(*[st.integers(1, 3)] * 3),
    st.booleans(),
    st.integers(0, 2),
    POSITIONS,
)
def test_rows_of_documents(lengths, strategy, sizes, worlds, shuffle, epoch, positions):
    def make(size):
        options = {"seq_length": 20, "strategy": strategy, "shuffle": shuffle}
        return lambda **ranks: pinfeed.samplers.PackSampler(
            lengths, batch_size=size, **options, **ranks
        )

    if len(make(1)(rank=0, world_size=1)) < max(worlds):
        return
    batches = moved(make(sizes[0]), make(sizes[1]), worlds, epoch, positions)
    result = {document for batch in batches for document in batch}
    assert result == {i for i, length in enumerate(lengths) if length}
    if strategy != "wrapped":
        times = Counter(document for batch in batches for document in batch)
        assert sum(times.values()) - len(times) <= 20 * sum(worlds)


# States that can't move.


@pytest.mark.parametrize(
    ("here", "message"),
    [({"batch_size": 3}, "batch_size is 2 in the state and 3 here"),
     ({"rank": 0, "world_size": 2}, "world_size is 1 in the state and 2 here")],
)  # fmt: skip
@pytest.mark.parametrize("balance", ["tokens", "attention"])
def test_balanced_rows_resume_on_equal_rank_counts_only(balance, here, message):
    options = {"seq_length": 8, "batch_size": 2, "balance": balance}
    sampler = pinfeed.samplers.PackSampler([3, 5, 8, 2, 6, 7, 1], **options)
    next(iter(sampler))
    other = pinfeed.samplers.PackSampler([3, 5, 8, 2, 6, 7, 1], **options | here)
    with pytest.raises(ValueError, match=f"the state is from another sampler: {message}"):
        other.load_state_dict(sampler.state_dict())


def test_ranks_at_different_steps():
    samplers = [
        pinfeed.samplers.ShuffleSampler(40, 4, rank=rank, world_size=3) for rank in range(3)
    ]
    states = []
    for taken, sampler in zip((2, 2, 1), samplers, strict=True):
        states.append(first_steps([sampler], taken)[1])
    other = pinfeed.samplers.ShuffleSampler(40, 4)
    message = (
        "states of all ranks must be at the same step, but rank 0 has consumed 24 of epoch 0, rank 1 has "
        "consumed 24 of epoch 0, rank 2 has consumed 12 of epoch 0; load states"
    )
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(states)
    other.load_state_dict(states[:2])
    assert sum(len(batch) for batch in other) == 16
    loader = loader_of(0, 1, 4, 0)
    with pytest.raises(ValueError, match="states of all ranks must be at the same step"):
        loader.load_state_dict(states)
    with pytest.raises(ValueError, match="at least one rank's state, got none"):
        other.load_state_dict([])


# Loaders.


def loader_of(rank, world_size, size, workers):
    return pinfeed.from_numpy(
        np.arange(101), size, shuffle=True, seed=2, device="cpu", rank=rank, world_size=world_size,
        num_workers=workers,
    )  # fmt: skip


@pytest.mark.parametrize(("world_size", "size"), [(1, 4), (3, 4), (2, 2), (2, 8), (3, 8)])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_on_two_ranks_resumes_on_other_ranks(world_size, size, workers):
    if workers and (world_size, size) != (3, 8):
        return  # starting workers is slow
    seen, states = [], []
    for rank in range(2):
        loader = loader_of(rank, 2, 4, workers)
        batches = iter(loader)
        seen += [next(batches) for _ in range(5)]
        states.append(loader.state_dict())
    assert states[0] == states[1]
    after = [loader_of(rank, world_size, size, workers) for rank in range(world_size)]
    for loader in after:
        loader.load_state_dict(states[0])
        seen += list(loader)
    times = Counter(torch.cat(seen).tolist())
    assert set(times) == set(range(101))
    assert times.total() - 101 < world_size
    for rank, loader in enumerate(after):
        fresh = loader_of(rank, world_size, size, 0)
        fresh.batch_sampler.set_epoch(1)
        assert [batch.tolist() for batch in loader] == [batch.tolist() for batch in fresh]
