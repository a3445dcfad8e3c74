"""WeightedSampler: proportions, draws without replacement, ranks, states."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfeed import ArrayDataset, RaggedArray, _core
from pinfeed.samplers import WeightedSampler

NAME = "WeightedSampler: "

weight_lists = st.lists(
    st.one_of(st.just(0.0), st.floats(1e-300, 1e300)), min_size=1, max_size=50
).filter(any)


def drawn(sampler):
    return np.concatenate(list(sampler)).tolist()


@given(weight_lists, st.integers(0, 2**70), st.integers(0, 5))
def test_zero_weights_are_never_drawn(weights, seed, epoch):
    sampler = WeightedSampler(weights, num_samples=300, batch_size=64, seed=seed)
    sampler.set_epoch(epoch)
    indices = drawn(sampler)
    assert len(indices) == 300
    assert all(weights[index] > 0 for index in indices)
    positive = np.count_nonzero(weights)
    all_once = WeightedSampler(
        weights, num_samples=positive, batch_size=7, seed=seed, replacement=False
    )
    assert sorted(drawn(all_once)) == np.flatnonzero(weights).tolist()


@given(weight_lists)
def test_the_table_has_the_right_proportions(weights):
    table = _core.alias_table(np.array(weights))
    own = table[:, 0] / 2.0**64
    shares = (own + np.bincount(table[:, 1].astype(np.int64), 1 - own, len(table))) / len(table)
    largest = max(weights)  # so that the sum doesn't overflow
    expected = np.array(weights) / largest
    np.testing.assert_allclose(shares, expected / expected.sum(), rtol=0, atol=1e-13)


def assert_likely(counts, shares):
    """Asserts that each count is within six standard deviations. Seeds are fixed, so it isn't flaky."""
    counts, shares = np.asarray(counts), np.asarray(shares)
    total = counts.sum()
    deviations = np.sqrt(total * shares * (1 - shares))
    assert (np.abs(counts - total * shares) <= 6 * deviations + 1e-9).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8])
def test_draws_are_in_proportion(dtype):
    weights = np.array([3, 0, 1, 40, 6, 100, 0], dtype)
    sampler = WeightedSampler(weights, num_samples=400_000, batch_size=1000, seed=1)
    counts = np.bincount(drawn(sampler), minlength=len(weights))
    assert_likely(counts, weights / weights.sum())


def test_draws_without_replacement_have_the_right_probabilities():
    """For two draws out of three: P(i) = w_i / W, then P(j | i) = w_j / (W - w_i)."""
    weights = np.array([1.0, 2.0, 5.0])
    total = weights.sum()
    counts = np.zeros((3, 3))
    for seed in range(5_000):
        first, second = WeightedSampler(
            weights, num_samples=2, batch_size=2, replacement=False, seed=seed
        ).order(0, 0, 2)
        counts[first, second] += 1
    shares = np.outer(weights / total, weights) / (total - weights)[:, None]
    np.fill_diagonal(shares, 0)
    assert_likely(counts, shares)


@pytest.mark.parametrize("missing", [None, float("nan")], ids=repr)
@pytest.mark.parametrize("labels", [["a", "b", "a"], [0, 1, 0], np.array([0.0, 1, 0])], ids=repr)
def test_missing_labels(labels, missing):
    column = np.array([*labels, missing]) if isinstance(labels, np.ndarray) else [*labels, missing]
    message = "^WeightedSampler.balanced: labels must be of one sortable type, got (None|nan) at index 3; give"
    with pytest.raises(TypeError, match=message):
        WeightedSampler.balanced(column, batch_size=1)
    other = 2 if labels[0] == 0 else "none"
    drawn(WeightedSampler.balanced([*labels, other], batch_size=1))
    drawn(WeightedSampler.balanced(labels, batch_size=1))


@pytest.mark.parametrize("labels", [["1", 1], [b"a", "a"], ("True", True)], ids=repr)
def test_labels_of_several_types_are_not_made_strings(labels):
    with pytest.raises(TypeError, match=r"labels must be of one sortable type, .* but '<' not"):
        WeightedSampler.balanced(labels, batch_size=1)


def test_balanced_classes_are_equally_frequent():
    labels = np.repeat(["cat", "dog", "emu"], [9000, 900, 100])
    sampler = WeightedSampler.balanced(labels, num_samples=90_000, batch_size=1000, seed=2)
    names, counts = np.unique(labels[drawn(sampler)], return_counts=True)
    assert names.tolist() == ["cat", "dog", "emu"]
    assert_likely(counts, np.full(3, 1 / 3))
    assert len(WeightedSampler.balanced([0, 1, 1], batch_size=1)) == 3


def test_labels_of_any_type():
    """Labels can be a column of strings of an ArrayDataset, or a part of one."""
    pyarrow = pytest.importorskip("pyarrow")
    texts = ["cat", "dog", "", "cat", "ämu", "cat"]
    expected = drawn(WeightedSampler.balanced([1, 2, 0, 1, 3, 1], batch_size=2))
    dataset = ArrayDataset({"label": RaggedArray.from_strings([*texts, "more"]), "x": np.arange(7)})
    for labels in (
        texts,
        np.array(texts),
        np.array(texts, object),
        RaggedArray.from_strings(texts),
        RaggedArray.from_strings([text.encode() for text in texts]),
        dataset[:6]["label"],
        dataset.select([*range(6)])["label"],
        ArrayDataset.from_arrow(pyarrow.table({"label": texts}))["label"],
        pyarrow.array(texts),
        pyarrow.chunked_array([texts[:2], texts[2:]]),
    ):
        assert drawn(WeightedSampler.balanced(labels, batch_size=2)) == expected


GOOD = {"weights": [1.0, 2.0, 3.0], "num_samples": 2, "batch_size": 1}
BAD = [
    ({"weights": [[1.0], [1, 2]]}, ValueError, "weights must be 1-D numbers: .*inhomogeneous"),
    ({"weights": ["a"]}, TypeError, "weights must be numbers, got dtype"),
    ({"weights": np.ma.array([1, 2], mask=[True, False])}, TypeError, r"weights: expected an array without a mask, .*; pass .filled\(value\)"),
    ({"weights": [1, -2]}, ValueError, "finite and not negative, got -2.0 at index 1"),
    ({"weights": [1, math.nan]}, ValueError, "finite and not negative, got nan at index 1"),
    ({"weights": [math.inf]}, ValueError, "finite and not negative, got inf at index 0"),
    ({"weights": [0, 0]}, ValueError, "weights must not all be 0"),
    ({"num_samples": 0}, ValueError, "num_samples must be at least 1, got 0"),
    ({"num_samples": 2**62 + 1}, ValueError, "num_samples must be at most 4611686018427387904"),
    ({"weights": [0, 1, 1], "num_samples": 3, "replacement": False},
        ValueError, "num_samples must be at most 2, the number of weights above 0, got 3"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "kind", "message"), BAD)
def test_bad_arguments(changed, kind, message):
    with pytest.raises(kind, match=f"{NAME}.*{message}"):
        WeightedSampler(**GOOD | changed)
