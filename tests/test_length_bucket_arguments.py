"""LengthBucketSampler: what it takes and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
from length_buckets import (
    GOOD,
    LENGTHS,
    NAME,
    Options,
    all_ranks,
    batches_of,
    new_sampler,
    options,
)
from pinfeed.samplers.length_buckets import LengthBucketSampler


@pytest.fixture
def sampler() -> LengthBucketSampler:
    return new_sampler()


@given(options(max_tokens=None), st.integers(1, 9), st.integers(1, 25), st.integers(1, 60))
def test_the_budget_holds_for_what_pad_makes(
    options: Options, multiple_of: int, max_length: int, budget: int
) -> None:
    lengths = options["lengths"]
    longest = min(max(lengths), max_length)
    max_tokens = max(1, -(-longest // multiple_of) * multiple_of) + budget
    sizes = {"multiple_of": multiple_of, "max_length": max_length}
    dataset = pinfeed.ArrayDataset(
        pinfeed.RaggedArray.from_sequences([[1] * n for n in lengths], dtype="i4")
    )
    collate = pinfeed.Collate(pinfeed.Pad(**sizes))
    elements = tokens = 0
    for sampler in all_ranks(options | {"max_tokens": max_tokens, "drop_last": False} | sizes):
        for batch in sampler:
            padded = collate(dataset.__getitems__(batch))
            assert max(padded.values.shape[1], 1) * len(batch) <= max_tokens
            elements += padded.values.numel()
            tokens += int(padded.lengths.sum())
    fraction = 1 - tokens / elements if elements else 0.0
    assert sampler.padding_fraction() == pytest.approx(fraction, abs=1e-12)


def test_samples_that_are_too_long_are_cut() -> None:
    assert sorted(map(sorted, LengthBucketSampler([3, 1, 2], max_tokens=2, max_length=2))) == [
        [0],
        [1],
        [2],
    ]


def test_sizes_of_pad_are_part_of_the_state() -> None:
    state = LengthBucketSampler([3, 9, 17], 2, multiple_of=8).state_dict()
    LengthBucketSampler([3, 9, 17], 2, multiple_of=8).load_state_dict(state)
    for other in ({}, {"multiple_of": 4}, {"multiple_of": 8, "max_length": 9}):
        with pytest.raises(ValueError, match="the state is of another sampler: lengths_crc32 is"):
            LengthBucketSampler([3, 9, 17], 2, **other).load_state_dict(state)


def test_a_dataset_in_the_place_of_lengths() -> None:
    ragged = pinfeed.RaggedArray.from_sequences([[1] * n for n in (3, 1, 2, 1)])
    dataset = pinfeed.ArrayDataset({"tokens": ragged})
    hint = r"got the ArrayDataset itself; pass ragged\.lengths .* \[len\(sample\) for sample in dataset\]"
    with pytest.raises(TypeError, match=hint):
        LengthBucketSampler(dataset, max_tokens=4)
    expected = list(LengthBucketSampler([3, 1, 2, 1], max_tokens=4))
    assert list(LengthBucketSampler(ragged.lengths, max_tokens=4)) == expected
    counted = [len(sample["tokens"]) for sample in dataset]
    assert list(LengthBucketSampler(counted, max_tokens=4)) == expected


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
            "sample 0 takes 3 tokens, more than max_tokens=2; raise max_tokens, cut samples with max_",
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


def test_repr() -> None:
    sampler = LengthBucketSampler([1, 2, 3], 2, seed=4)
    sampler.set_epoch(7)
    assert repr(sampler) == (
        "LengthBucketSampler(3 samples, multiple_of=None, max_length=None, batch_size=2, "
        "max_tokens=None, shuffle=True, seed=4, bucket_batches=100, drop_last=False, world_size=1, rank=0, epoch=7)"
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
