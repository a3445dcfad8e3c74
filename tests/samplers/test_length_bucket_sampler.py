"""LengthBucketSampler: plans compared with plain Python, and valid and invalid arguments."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pinfeed import ArrayDataset, Collate, Pad, RaggedArray
from pinfeed.samplers.length_buckets import LengthBucketSampler


@st.composite
def options(draw, **fixed):
    """Draws the arguments of a sampler, except its rank."""
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


def all_ranks(options, epoch=0):
    samplers = [LengthBucketSampler(**options, rank=rank) for rank in range(options["world_size"])]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    return samplers


LENGTHS = np.random.default_rng(0).lognormal(4, 0.8, 5000).astype(int).clip(1, 512)


def reference_plan(options):
    """Returns the batches of every rank without shuffling, by the rule in the docstring.

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
        bucket = typical * options["bucket_batches"]
        buckets = [order[i : i + bucket] for i in range(0, len(order), bucket)]
        order = []
        for number, samples in enumerate(buckets):
            sign = 1 if number % 2 == 0 else -1
            order += sorted(samples, key=lambda sample, sign=sign: sign * lengths[sample])

    def fits(batch):
        if batch_size is not None and len(batch) > batch_size:
            return False
        return max_tokens is None or max(tokens[i] for i in batch) * len(batch) <= max_tokens

    batches = [[]]
    for sample in order:
        if fits([*batches[-1], sample]):
            batches[-1].append(sample)
        else:
            batches.append([sample])

    if options["drop_last"]:
        if fits([*batches[-1], batches[-1][0]]):  # another sample fitted
            del batches[-1]
        del batches[len(batches) - len(batches) % world_size :]
        groups = [batches[i : i + world_size] for i in range(0, len(batches), world_size)]
    else:
        groups = [batches[i : i + world_size] for i in range(0, len(batches), world_size)]
        last = range(max(0, len(batches) - world_size), max(world_size, len(batches)))
        groups[-1] = [batches[i % len(batches)] for i in last]
    return [[group[rank] for group in groups] for rank in range(world_size)]


FEWER_BATCHES_THAN_RANKS = {
    "lengths": [0, 0],
    "batch_size": 1,
    "max_tokens": None,
    "shuffle": False,
    "bucket_batches": 1,
    "drop_last": False,
    "world_size": 3,
}


@given(options(shuffle=False), st.integers(0, 3))
@example(FEWER_BATCHES_THAN_RANKS, 0)
def test_plans_equal_the_reference(options, epoch):
    assert [list(sampler) for sampler in all_ranks(options, epoch)] == reference_plan(options)


@given(options(), st.integers(0, 2**40))
def test_invariants(options, epoch):
    ranks = [list(sampler) for sampler in all_ranks(options, epoch)]
    for other in (*range(6), epoch):  # every epoch has equally many batches
        assert {len(sampler) for sampler in all_ranks(options, other)} == {len(ranks[0])}
    assert {len(batches) for batches in ranks} == {len(ranks[0])}

    batches = [batch for batches in ranks for batch in batches]
    for batch in batches:
        assert batch.epoch == epoch
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


@pytest.mark.parametrize("world_size", [1, 4])
@pytest.mark.parametrize(("max_tokens", "bucket_batches"), [(1024, 100), (4096, 100), (1024, 1)])
def test_batch_counts_are_close_to_the_minimum(max_tokens, bucket_batches, world_size):
    """Sorting all samples by decreasing length gives the fewest batches."""
    options = {"max_tokens": max_tokens, "bucket_batches": bucket_batches}
    sampler = LengthBucketSampler(LENGTHS, **options, rank=0, world_size=world_size)
    if bucket_batches > 1:
        needed, position = 0, 0
        longest_first = np.sort(LENGTHS)[::-1]
        while position < len(LENGTHS):
            position += max_tokens // longest_first[position]
            needed += 1
    else:
        plain = LengthBucketSampler(LENGTHS, **options, shuffle=False, rank=0, world_size=1)
        needed = len(plain)
    assert needed / 1.06 - 1 <= len(sampler) * world_size <= 1.06 * needed + world_size


@pytest.mark.parametrize("bucket_batches", [10, 100])
@pytest.mark.parametrize("kind", ["similar", "mixed"])
def test_a_fixed_batch_count_costs_at_most_one_in_a_thousand(kind, bucket_batches):
    lengths = np.resize(LENGTHS, 40_000)
    if kind == "mixed":
        lengths = np.where(np.arange(40_000) % 2, 37, lengths + 400)
    options = {"max_tokens": 2048, "bucket_batches": bucket_batches}
    rng = np.random.default_rng(1)
    plain = [
        len(LengthBucketSampler(rng.permutation(lengths), **options, shuffle=False))
        for _ in range(4)
    ]
    sampler = LengthBucketSampler(lengths, **options)
    assert 0.995 < len(sampler) / np.mean(plain) < 1.001
    assert {len(list(sampler)) for _ in range(4)} == {len(sampler)}


@given(options(drop_last=False, world_size=1))
def test_shuffled_batches_are_full(options):
    """Batches span buckets, so only the last batch of a size is short."""
    options |= {"max_tokens": None, "batch_size": 4}
    sizes = Counter(map(len, LengthBucketSampler(**options, rank=0)))
    count = len(options["lengths"])
    assert sizes == Counter({4: count // 4}) + Counter([count % 4] if count % 4 else [])


def test_the_plan_never_changes():
    """Plans are equal on every machine and NumPy version; a changed plan needs a higher PLANNING."""
    lengths = [7, 3, 9, 1, 4, 4, 8, 2, 6, 5, 0, 3, 5, 2, 6, 1, 8, 3]
    options = {"lengths": lengths, "batch_size": 4, "max_tokens": 20, "bucket_batches": 2}
    first, second = all_ranks(options | {"seed": 5, "world_size": 2}, epoch=3)
    assert list(first) == [[7, 12, 9], [8, 4, 17], [0, 14], [11, 13, 1]]
    assert list(second) == [[6, 2], [10, 3, 15, 5], [11, 13, 1], [16]]
    assert first.state_dict()["lengths_crc32"] == 1543514994


def test_the_order_of_the_batches_is_random_too():
    for seed in range(3):
        batches = list(LengthBucketSampler(LENGTHS, 16, seed=seed))
        longest = [LENGTHS[batch].max() for batch in batches]
        assert 0.3 < np.mean(np.diff(longest) > 0) < 0.7  # neither increasing nor decreasing


def test_few_samples_still_give_different_batches_per_epoch():
    sampler = LengthBucketSampler(range(200), 4)
    seen = []
    for epoch in range(4):
        sampler.set_epoch(epoch)
        seen.append({tuple(sorted(batch)) for batch in sampler})
    assert len(set().union(*seen)) > 180  # of 200


def test_one_bucket_batch_is_random_order():
    sampler = LengthBucketSampler(LENGTHS, 16, bucket_batches=1)
    first = [batch[0] for batch in sampler if len(batch) == 16]
    longest = [batch[np.argmax(LENGTHS[batch])] for batch in sampler]
    assert np.corrcoef(first, range(len(first)))[0, 1] < 0.2
    assert len(set(first) & set(longest)) < len(first) / 4  # without sorting inside


@given(options(), st.integers(0, 3))
def test_padding_fraction(options, epoch):
    samplers = all_ranks(options, epoch)
    fractions = [sampler.padding_fraction for sampler in samplers]  # before a pass ends the epoch
    batches = [batch for sampler in samplers for batch in sampler]
    lengths = [[options["lengths"][sample] for sample in batch] for batch in batches]
    padded = sum(max(batch) * len(batch) for batch in lengths)
    expected = 1 - sum(map(sum, lengths)) / padded if padded else 0.0
    for fraction in fractions:
        assert type(fraction) is float
        assert fraction == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("world_size", [1, 8])
@pytest.mark.parametrize("limits", [{"batch_size": 16}, {"max_tokens": 4096}])
def test_buckets_leave_little_padding(limits, world_size):
    ranks = {"rank": 0, "world_size": world_size}
    sampler = LengthBucketSampler(LENGTHS, **limits, **ranks)
    in_random_order = LengthBucketSampler(LENGTHS, **limits, **ranks, bucket_batches=1)
    assert in_random_order.padding_fraction > 0.5
    assert sampler.padding_fraction < in_random_order.padding_fraction / 5


def test_ranks_have_similar_lengths_at_a_time():
    """In each step, for groups of 8, 24 or 48 batches."""

    def spread(world_size, repeats, **bucket):
        lengths = np.repeat(LENGTHS, repeats)
        options = {"lengths": lengths, "max_tokens": 1024, "world_size": world_size} | bucket
        longest = [[lengths[batch].max() for batch in sampler] for sampler in all_ranks(options)]
        return float(np.mean(np.ptp(longest, axis=0)))

    assert spread(8, 1, bucket_batches=100) < spread(8, 1, bucket_batches=1) / 4
    for world_size, repeats, most in [(8, 1, 40), (3, 2, 10), (16, 4, 20), (6, 4, 8), (5, 4, 30)]:
        assert spread(world_size, repeats) < most


# Arguments.


@given(options(max_tokens=None), st.integers(1, 9), st.integers(1, 25), st.integers(1, 60))
@example({"lengths": [0, 0], "batch_size": 2, "world_size": 1}, 3, 1, 1)  # empty, and padded
def test_the_budget_holds_for_padded_batches(options, multiple_of, max_length, budget):
    lengths = options["lengths"]
    longest = max(1, min(max(lengths), max_length))
    max_tokens = -(-longest // multiple_of) * multiple_of + budget
    sizes = {"multiple_of": multiple_of, "max_length": max_length}
    dataset = ArrayDataset(RaggedArray.from_sequences([[1] * n for n in lengths], dtype="i4"))
    collate = Collate(Pad(**sizes))
    elements = tokens = 0
    for sampler in all_ranks(options | {"max_tokens": max_tokens, "drop_last": False} | sizes):
        for batch in sampler:
            padded = collate(dataset.__getitems__(batch))
            assert max(padded.values.shape[1], 1) * len(batch) <= max_tokens
            elements += padded.values.numel()
            tokens += int(padded.lengths.sum())
    fraction = 1 - tokens / elements if elements else 0.0
    sampler.set_epoch(0)
    assert sampler.padding_fraction == pytest.approx(fraction, abs=1e-12)


def test_a_dataset_instead_of_lengths():
    ragged = RaggedArray.from_sequences([[1] * n for n in (3, 1, 2, 1)])
    dataset = ArrayDataset({"tokens": ragged})
    hint = r"got the ArrayDataset itself; pass .* dataset\['tokens'\], .* \[len\(sample\) for sample in"
    with pytest.raises(TypeError, match=hint):
        LengthBucketSampler(dataset, max_tokens=4)
    expected = list(LengthBucketSampler([3, 1, 2, 1], max_tokens=4))
    assert list(LengthBucketSampler(dataset["tokens"], max_tokens=4)) == expected
    counted = [len(sample["tokens"]) for sample in dataset]
    assert list(LengthBucketSampler(counted, max_tokens=4)) == expected


def test_drop_last_that_leaves_nothing():
    sampler = LengthBucketSampler([1] * 3, 4, drop_last=True)
    assert (len(sampler), list(sampler), sampler.padding_fraction) == (0, [], 0.0)
    sampler.load_state_dict(sampler.state_dict())
    assert list(sampler) == []


def all_batches(lengths, **options):
    sampler = LengthBucketSampler(lengths, **options)
    assert len(sampler) == len(list(sampler))
    assert 0 <= sampler.padding_fraction < 1
    return sorted(sorted(batch) for batch in sampler)


def test_lengths_with_a_sum_beyond_64_bits():
    alone = [[0], [1], [2], [3]]
    assert all_batches([2**62] * 4, max_tokens=2**62) == alone
    assert all_batches([2**63 - 1] * 4, max_tokens=2**63 - 1) == alone
    assert all_batches([2**62] * 4, max_tokens=2**64) == [[0, 1, 2, 3]]
    # With overflow, the sum would be 5, all samples in one bucket, and sorted by length.
    lengths = [2**62, 1, 2**62, 1, 2**62, 1, 2**62, 1, 1]
    options = {"max_tokens": 2**63, "shuffle": False, "bucket_batches": 2}
    assert list(LengthBucketSampler(lengths, **options)) == [[1, 3, 5, 7], [0, 2], [4, 6], [8]]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("max_tokens", [None, 2**80])
def test_limits_beyond_64_bits(shuffle, max_tokens):
    options = {"batch_size": 2**70, "max_tokens": max_tokens, "shuffle": shuffle}
    assert all_batches([3, 1, 2], **options) == [[0, 1, 2]]
    assert all_batches([3, 1, 2], **options, bucket_batches=2**70) == [[0, 1, 2]]
    assert all_batches([3, 1, 2], **options, drop_last=True) == []


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"batch_size": None}, ValueError, "batch_size, max_tokens or both must be given"),
        ({"max_tokens": 0}, ValueError, "max_tokens must be at least 1, got 0"),
        ({"max_tokens": 9.5}, TypeError, r"max_tokens must be an integer, got 9\.5"),
        ({"max_tokens": 2}, ValueError, "sample 0: expected at most max_tokens=2 tokens, got 3; raise max_tokens, cut samples with max_"),
        ({"bucket_batches": 0}, ValueError, "bucket_batches must be at least 1, got 0"),
        ({"lengths": [3, 1, -2, -5]}, ValueError, r"from 0 to \d+, got -2 at index 2"),
        ({"lengths": np.array([1, 2**63], "u8")}, ValueError, rf"got {2**63} at index 1"),
        ({"lengths": [[1], [3]]}, ValueError, r"got samples in a list; pass \[len\(d\) for d in samples\]"),
        ({"lengths": [1.0, 2.0]}, TypeError, "lengths must be integers, got dtype float64"),
        ({"lengths": [True, False]}, TypeError, "lengths must be integers, got dtype bool"),
        ({"lengths": ["a", "bc"]}, TypeError, "lengths must be integers, got dtype <U2"),
        ({"lengths": [1, 2**64]}, TypeError, "lengths must be integers, got dtype object"),
        ({"lengths": SimpleNamespace(lengths=[0.5])}, TypeError, "must be integers, got dtype fl"),
    ],
)  # fmt: skip
def test_bad_arguments(changed, error, message):
    with pytest.raises(error, match=f"^LengthBucketSampler: .*{message}"):
        LengthBucketSampler(**{"lengths": [3, 1, 2], "batch_size": 2} | changed)
