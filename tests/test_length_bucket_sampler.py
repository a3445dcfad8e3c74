"""LengthBucketSampler: the plan against plain Python."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from length_buckets import (
    LENGTHS,
    Options,
    all_ranks,
    options,
)
from pinfeed.samplers.length_buckets import LengthBucketSampler


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
