"""ShuffleSampler: a permutation in batches, shared by ranks, without bias, in loaders."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfeed.samplers import ShuffleSampler


def order(count, seed, epoch=0):
    """Returns all samples in order."""
    sampler = ShuffleSampler(count, count, seed=seed)
    sampler.set_epoch(epoch)
    (batch,) = sampler
    return batch.tolist()


def lists(sampler):
    return [batch.tolist() for batch in sampler]


@st.composite
def options(draw):
    world_size = draw(st.integers(1, 5))
    return {
        "dataset": draw(st.integers(world_size, 300)),
        "batch_size": draw(st.integers(1, 40)),
        "seed": draw(st.integers(0, 2**70)),
        "shuffle": draw(st.booleans()),
        "drop_last": draw(st.booleans()),
        "world_size": world_size,
    }


def all_ranks(options, uneven, epoch):
    """Returns the batches of each rank; none if a sampler would raise for having none."""
    ranks = []
    for rank in range(options["world_size"]):
        try:
            sampler = ShuffleSampler(**options, uneven=uneven, rank=rank)
        except ValueError:
            ranks.append([])
            continue
        sampler.set_epoch(epoch)
        ranks.append(lists(sampler))
        assert len(sampler) == len(ranks[-1])
    return ranks


@given(options(), st.integers(0, 5))
def test_ranks_share_the_order(options, epoch):
    count, size, world_size = (options[k] for k in ("dataset", "batch_size", "world_size"))
    samples = order(count, options["seed"], epoch) if options["shuffle"] else list(range(count))
    assert sorted(samples) == list(range(count))
    for uneven in ("repeat", "drop", "keep"):
        # In each step, one rank's batch after the other.
        taken = samples
        if uneven == "repeat":
            taken = (samples * world_size)[: -(-count // world_size) * world_size]
        elif uneven == "drop":
            taken = samples[: count // world_size * world_size]
        expected = [[] for _ in range(world_size)]
        for step in range(0, len(taken), size * world_size):
            stretch = taken[step : step + size * world_size]
            if uneven == "keep" and options["drop_last"] and len(stretch) < size * world_size:
                continue  # some rank has no full batch
            for rank, part in enumerate(np.array_split(stretch, world_size)):
                if len(part) == size or (len(part) and not options["drop_last"]):
                    expected[rank].append(part.tolist())
        assert all_ranks(options, uneven, epoch) == expected
        if uneven != "keep":
            assert len({tuple(map(len, batches)) for batches in expected}) == 1


def test_orders_are_the_same_in_every_version():
    assert lists(ShuffleSampler(10, 4, seed=3)) == [[9, 3, 7, 6], [1, 0, 5, 2], [4, 8]]
    first = next(iter(ShuffleSampler(1_000_000_007, 4, seed=3))).tolist()
    assert first == [680973208, 179166124, 762363030, 813945027]
    first = next(iter(ShuffleSampler(2**40, 2, seed=3))).tolist()
    assert first == [1078088286589, 461125658413]


# The probability of a failure is below one in a billion, and seeds are fixed.
def assert_likely(counts, weights=None):
    counts = np.asarray(counts, float).ravel()
    weights = np.ones(counts.size) if weights is None else np.asarray(weights).ravel()
    expected = counts.sum() * weights / weights.sum()
    free = counts.size - 1
    statistic = float(((counts - expected) ** 2 / expected).sum())
    # Wilson and Hilferty's approximation of chi-squared by a normal distribution (1931).
    deviation = ((statistic / free) ** (1 / 3) - (1 - 2 / (9 * free))) / math.sqrt(2 / (9 * free))
    assert deviation < 6


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_all_permutations_of_few_samples_are_equally_likely(count):
    counts = dict.fromkeys(itertools.permutations(range(count)), 0)
    for seed in range(max(600, 20 * len(counts))):
        counts[tuple(order(count, seed))] += 1
    assert_likely(list(counts.values()))


@pytest.mark.parametrize("count", [64, 1000, 4099])
def test_positions_and_pairs_are_uniform(count):
    orders = np.array([order(count, seed)[:4] for seed in range(800)])
    bins = orders * 8 // count  # nearly equal ones
    weights = np.bincount(np.arange(count) * 8 // count, minlength=8) / count
    for position in range(4):
        assert_likely(np.bincount(bins[:, position], minlength=8), weights)
    for first, second in itertools.combinations(range(4), 2):
        pairs = np.histogram2d(bins[:, first], bins[:, second], bins=8)[0]
        assert_likely(pairs, np.outer(weights, weights))


@pytest.mark.parametrize("seed", range(3))
def test_neighbors_are_independent(seed):
    count = 200_003
    samples = np.array(order(count, seed))
    ascents = np.count_nonzero(np.diff(samples) > 0)
    assert abs(ascents - (count - 1) / 2) < 6 * math.sqrt((count + 1) / 12)
    for lag in (1, 2, 447, 448, 449, 1000):  # the network's halves have about 447 values
        correlation = np.corrcoef(samples[:-lag], samples[lag:])[0, 1]
        assert abs(correlation) < 6 / math.sqrt(count)
        assert_likely(np.bincount((samples[lag:] - samples[:-lag]) % count * 64 // count))


def test_a_billion_samples():
    sampler = ShuffleSampler(10**9, 256, seed=1)
    assert len(sampler) == 3_906_250
    first = np.asarray(next(iter(sampler)))
    assert first.dtype == np.int64
    assert first.shape == (256,)
    assert len(set(first.tolist())) == 256
    assert 0 <= first.min() < 10**8 < 9 * 10**8 < first.max() < 10**9
    sampler.load_state_dict(sampler.state_dict() | {"consumed": 256 * 3_906_249})
    assert [len(batch) for batch in sampler] == [256]


@pytest.mark.parametrize(
    ("changed", "kind", "message"),
    [
        ({"dataset": 0}, ValueError, "the number of samples must be at least 1, got 0"),
        ({"dataset": []}, ValueError, "the number of samples must be at least 1, got 0"),
        ({"dataset": 2**62 + 1}, ValueError, "the number of samples must be at most"),
        ({"dataset": 1.5}, TypeError, "dataset must be a number of samples or have a length"),
        ({"batch_size": 11, "drop_last": True},
            ValueError, "10 samples are too few for a batch of 11; use a batch_size of at most 10, or"),
        ({"rank": 0, "world_size": 11, "uneven": "drop"},
            ValueError, "10 samples are too few for a batch of 4 on each of 11 ranks; use fewer ranks, or uneven='repeat'"),
    ],
)  # fmt: skip
def test_bad_arguments(changed, kind, message):
    with pytest.raises(kind, match=f"^ShuffleSampler: {message}"):
        ShuffleSampler(**{"dataset": 10, "batch_size": 4} | changed)


def test_hints_of_errors_work():
    for hint in ({"batch_size": 10}, {"drop_last": False}):
        (batch,) = ShuffleSampler(10, **{"batch_size": 11, "drop_last": True} | hint)
        assert len(batch) == 10
    for world_size, uneven in ((10, "drop"), (11, "repeat")):
        (batch,) = ShuffleSampler(10, 4, rank=0, world_size=world_size, uneven=uneven)
        assert len(batch) == 1
