"""to_numpy of batches whose samples differ in shape: RaggedArrays, padding, Padded, JaggedBatch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
from arrays import NUMPY_DTYPES, random_array
from pinfeed.exports.to_numpy import to_numpy
from samples import assert_same

SIDES = st.sampled_from(["right", "left"])


def padded(samples: list[np.ndarray], value: Any, side: str) -> np.ndarray:
    """All samples in one box, by definition."""
    target = tuple(map(max, zip(*(sample.shape for sample in samples), strict=True)))
    result = np.full((len(samples), *target), value, samples[0].dtype)
    for row, sample in zip(result, samples, strict=True):
        left = side == "left"
        box = tuple(
            slice(t - s, t) if left else slice(s) for s, t in zip(sample.shape, target, strict=True)
        )
        row[box] = sample
    return result


@st.composite
def batches_of_shapes(draw: st.DrawFn, axes: int) -> list[np.ndarray]:
    """Batches that may differ in every axis, zero included; one sample at least."""
    dtype = draw(st.sampled_from(NUMPY_DTYPES))
    shapes = draw(
        st.lists(
            st.tuples(st.integers(0, 4), *[st.integers(0, 4)] * axes), min_size=1, max_size=6
        ).filter(lambda shapes: any(shape[0] for shape in shapes))
    )
    return [random_array(shape, dtype, seed) for seed, shape in enumerate(shapes)]


@given(st.integers(1, 3).flatmap(batches_of_shapes), st.sampled_from([0, 1]), SIDES, st.booleans())
def test_padding(batches: list[np.ndarray], value: int, side: Any, known: bool) -> None:
    samples = [sample for batch in batches for sample in batch]
    result = to_numpy(batches if known else iter(batches), pad=value, side=side)
    assert_same(result, padded(samples, value, side))


@given(batches_of_shapes(1), st.booleans())
def test_rows_of_batches_of_different_widths(batches: list[np.ndarray], known: bool) -> None:
    samples = [sample for batch in batches for sample in batch]
    result = to_numpy(batches if known else iter(batches))
    if len({sample.shape for sample in samples}) == 1:
        assert_same(result, np.stack(samples))
    else:
        assert isinstance(result, pinfeed.RaggedArray)
        assert_same(list(result), samples)


@given(st.data(), SIDES)
def test_padding_into_out(data: st.DataObject, side: Any) -> None:
    batches = data.draw(batches_of_shapes(2))
    samples = [sample for batch in batches for sample in batch]
    expected = padded([*samples, np.empty((6, 5), samples[0].dtype)], 1, side)[:-1]
    out = random_array((len(samples) + data.draw(st.integers(0, 2)), 6, 5), samples[0].dtype)
    rest = out[len(samples) :].copy()
    result = to_numpy(iter(batches), out, pad=1, side=side)
    assert_same(result, expected)
    assert np.shares_memory(result, out)
    assert_same(out[len(samples) :].copy(), rest)


def test_samples_larger_than_what_is_moved_in_one_go() -> None:
    batches = [random_array((3, width, 1000), "f4", width) for width in (100, 7, 300, 300, 1)]
    samples = [sample for batch in batches for sample in batch]
    assert_same(to_numpy(batches, pad=-1), padded(samples, -1, "right"))
    many = [random_array((5000, width), "i8", width) for width in (10, 3, 17)]
    assert_same(to_numpy(many, pad=9), padded([row for batch in many for row in batch], 9, "right"))


def test_pad_by_leaf() -> None:
    def batch(width: int) -> dict[str, Any]:
        return {
            "ids": torch.full((2, width), 7),
            "mask": torch.ones(2, width, dtype=torch.bool),
            "labels": [torch.full((2, width), 7)],
            "kept": torch.full((2, width), 7),
            "class": torch.tensor([1, 2]),
        }

    pads = {"ids": 0, "mask": False, "labels": [np.int64(-100)], "kept": None}
    result = to_numpy([batch(1), batch(3)], pad=pads)
    assert result["ids"].tolist() == [[7, 0, 0]] * 2 + [[7, 7, 7]] * 2
    assert result["mask"].tolist() == [[True, False, False]] * 2 + [[True] * 3] * 2
    assert result["labels"][0].tolist() == [[7, -100, -100]] * 2 + [[7, 7, 7]] * 2
    assert result["kept"].lengths.tolist() == [1, 1, 3, 3]
    assert result["class"].tolist() == [1, 2, 1, 2]


SEQUENCES = [np.arange(n, dtype=np.float32) + 1 for n in (3, 1, 0, 2, 5, 5, 4, 0, 1)]


def fields() -> dict[str, pinfeed.Field]:
    return {
        "jagged": pinfeed.Jagged(),
        "right": pinfeed.Pad(),
        "right, masked": pinfeed.Pad(mask=True),
        "left": pinfeed.Pad(side="left"),
        "left, masked": pinfeed.Pad(side="left", mask=True),
    }


def loader_of(field: pinfeed.Field, as_ndarrays: bool = False) -> list[Any]:
    collate = pinfeed.Collate(field)
    batches = [collate(SEQUENCES[start : start + 4]) for start in range(0, len(SEQUENCES), 4)]
    if as_ndarrays:
        batches = [type(batch)(*(part.numpy() for part in batch)) for batch in batches]
    return batches


@pytest.mark.parametrize("as_ndarrays", [False, True])
@pytest.mark.parametrize("kind", fields())
def test_the_data_of_padded_and_jagged_batches(kind: str, as_ndarrays: bool) -> None:
    for most in (None, 1, 6):
        batches = loader_of(fields()[kind], as_ndarrays)
        result = to_numpy(batches, max_samples=most)
        assert isinstance(result, pinfeed.RaggedArray)
        assert_same(list(result), SEQUENCES[:most])


@pytest.mark.parametrize("kind", [kind for kind in fields() if kind != "jagged"])
def test_padded_batches_stay_padded_with_pad(kind: str) -> None:
    side: Any = "left" if kind.startswith("left") else "right"
    result = to_numpy(loader_of(fields()[kind]), pad=-7, side=side)
    assert isinstance(result, pinfeed.Padded)
    assert result._fields == loader_of(fields()[kind])[0]._fields
    lengths = np.array([len(sequence) for sequence in SEQUENCES])
    assert_same(result.lengths, lengths)
    data = np.arange(5) < lengths[:, np.newaxis]
    data = data[:, ::-1] if side == "left" else data
    assert_same(result.values[data], np.concatenate(SEQUENCES))
    if "masked" in kind:
        assert_same(result.mask, np.ascontiguousarray(data))
    # The first and the second batch are as wide as the result, the third has one sample.
    assert_same(np.sort(result.values[8]), np.array([-7, -7, -7, -7, 1], np.float32))


def test_the_side_of_padding_is_found_or_asked_for() -> None:
    left = [pinfeed.Padded(*batch) for batch in loader_of(fields()["left"])]
    with pytest.raises(ValueError, match=r"batch 0: what follows the data isn't one value.*side="):
        to_numpy(left)
    values = torch.tensor([[1.0, torch.nan, torch.nan], [2.0, 3.0, torch.nan]])
    assert to_numpy([pinfeed.Padded(values, torch.tensor([1, 2]))]).values.tolist() == [1, 2, 3]
    # What a model makes of padding is anything, and said to be on the right.
    noise = pinfeed.Padded(torch.arange(6).reshape(2, 3), torch.tensor([1, 2]))
    assert to_numpy([noise], side="right").values.tolist() == [0, 3, 4]
    holes = pinfeed.Padded(noise.values, noise.lengths, torch.tensor([[1, 0, 0], [1, 0, 1]]).bool())
    with pytest.raises(ValueError, match="lengths and mask don't agree"):
        to_numpy([holes])
    # Full batches, and rows that look alike from both sides, tell nothing.
    full = pinfeed.Padded(torch.ones(2, 3), torch.tensor([3, 3]))
    either = pinfeed.Padded(torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([2]))
    with pytest.raises(ValueError, match="batch 2: what follows the data"):
        to_numpy([full, either, *left])


def test_frames() -> None:
    """Padded and jagged batches whose items are more than numbers."""
    frames = [random_array((n, 2, 3), "i4", n) for n in (2, 4, 1)]
    for field in (pinfeed.Pad(axes=0), pinfeed.Jagged()):
        batches = [pinfeed.Collate(field)(frames[:2]), pinfeed.Collate(field)(frames[2:])]
        assert_same(list(to_numpy(batches)), frames)


def test_lengths_of_two_axes_stay_beside_the_values() -> None:
    boxes = [random_array((n, 5 - n), "i4", n) for n in (2, 4, 1)]
    batches = [pinfeed.Collate(pinfeed.Pad(axes=(0, 1)))(part) for part in (boxes[:2], boxes[2:])]
    result = to_numpy(batches, pad=0)
    assert_same(result.values, padded(boxes, 0, "right"))
    assert_same(result.lengths, np.array([[2, 3], [4, 1], [1, 4]]))
    with pytest.raises(ValueError, match=r"\.values of batch 1.*pad=a number"):
        to_numpy(batches)


def test_ragged_arrays_are_batches_too() -> None:
    ragged = pinfeed.RaggedArray(torch.arange(9.0), torch.tensor([1, 3, 3, 8], dtype=torch.int32))
    assert_same(list(to_numpy([ragged[:1], ragged[1:]])), [part.numpy() for part in ragged])
    jagged = pinfeed.JaggedBatch(np.arange(9), np.array([2, 5, 7]))  # not all values are used
    assert_same(list(to_numpy([jagged])), [np.arange(2, 5), np.arange(5, 7)])
