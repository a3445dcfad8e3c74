"""Batches with empty samples, which must not change how other samples are read."""

import functools
import itertools

import numpy as np
import pytest
import torch

import pinfeed

pytestmark = pytest.mark.kernels

DTYPES = [
    *(np.dtype(f"{kind}{bytes}") for kind in "iu" for bytes in (1, 2, 4, 8)),
    *(np.dtype(f"f{bytes}") for bytes in (2, 4, 8)),
    np.dtype(bool),
]


def outcome(call, samples):
    """Returns the result of `call` as an array, or the type of its error."""
    try:
        return np.asarray(call(samples))
    except (TypeError, ValueError) as error:
        return type(error)


def collated(make, samples, dtype, as_tensors=False):
    """Returns the values of a batch by a field of this dtype."""
    if as_tensors:
        samples = [torch.from_numpy(s) if isinstance(s, np.ndarray) else s for s in samples]
    return pinfeed.Collate(make(dtype=getattr(torch, dtype.name)))(samples)[0]


Pad, Jagged, Pack = pinfeed.Pad, pinfeed.Jagged, functools.partial(pinfeed.Pack, seq_length=None)
WAYS = {
    "pad": lambda samples, dtype: pinfeed.functional.pad(samples, dtype=dtype).values,
    "pad, on the left": lambda samples, dtype: pinfeed.functional.pad(
        samples, side="left", dtype=dtype
    )[0],
    "Pad": functools.partial(collated, Pad),
    "Pad, of tensors": functools.partial(collated, Pad, as_tensors=True),
    "Jagged": functools.partial(collated, Jagged),
    "Jagged, of tensors": functools.partial(collated, Jagged, as_tensors=True),
    "Pack": functools.partial(collated, Pack),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_an_empty_sample_at_any_position_leaves_the_others_unchanged(way, source):
    empties = [np.zeros(0), np.zeros(0, source), []]
    for dtype, empty in itertools.product(DTYPES, empties):
        full = [np.array([1, 0, 1], source), np.array([1], source)]
        call = lambda samples, dtype=dtype: WAYS[way](samples, dtype)
        without = outcome(call, full)
        for positions in ([0], [1], [2], [0, 0], [0, 1], [0, 3]):
            samples = list(full)
            for position in positions:
                samples.insert(position, empty)
            got = outcome(call, samples)
            case = f"{source} to {dtype}, {empty!r} at {positions}"
            if isinstance(without, type):
                assert got is without, case
            elif way.startswith(("Jagged", "Pack")):
                np.testing.assert_array_equal(got, np.concatenate(full).astype(dtype), case)
            else:
                expected = np.zeros((len(samples), 3), dtype)
                for row, sample in zip(expected, samples, strict=True):
                    begin = 3 - len(sample) if way == "pad, on the left" else 0
                    row[begin : begin + len(sample)] = np.asarray(sample).astype(dtype)
                np.testing.assert_array_equal(got, expected, case)


def test_a_large_batch_that_begins_with_an_empty_sample():
    values = np.ones(6_000_000, np.float16)
    batch = pinfeed.functional.pad([np.zeros(0, np.float16), values], dtype=np.float64)
    assert batch.values[1].sum() == len(values)
    assert batch.values[0].sum() == 0


def test_tables_without_rows_before_others():
    tables = [np.zeros((0, 4)), np.full((2, 4), 1.5)]
    batch = pinfeed.functional.pad(tables, dtype=np.float32)
    assert batch.values.tolist() == [np.zeros((2, 4)).tolist(), tables[1].tolist()]
    with pytest.raises(TypeError, match="expected numbers that can be cast to int64, got float64"):
        pinfeed.functional.pad(tables, dtype=np.int64)


@pytest.mark.parametrize("dtype", ["int64", "bool", "float16", "complex64"])
@pytest.mark.parametrize("empty", [np.zeros(0), torch.zeros(0), [], ()], ids=repr)
def test_the_dtype_comes_from_samples_with_values(empty, dtype):
    full = [np.ones(1, dtype), np.ones(2, dtype)]
    for position in range(3):
        samples = [*full[:position], empty, *full[position:]]
        for field in (pinfeed.Pad(lengths=True), pinfeed.Jagged()):
            batch = pinfeed.Collate(field)(samples)
            assert batch.values.dtype == getattr(torch, dtype)
            assert batch.lengths.tolist() == [len(sample) for sample in samples]
            assert batch.values.sum() == 3
    only = pinfeed.Collate(pinfeed.Pad())([np.zeros(0, dtype)] * 2)
    assert only.values.dtype == getattr(torch, dtype)
