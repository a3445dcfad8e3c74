"""Arrays in memory that are gathered from as if they were one."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
from arrays import as_kind, assert_same_bits, random_array
from pinfeed import ConcatArray, _core

pytestmark = pytest.mark.kernels


def test_a_part_that_is_cut_while_in_use(tmp_path: Path) -> None:
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.zeros((10, 10_000), np.uint8))
    parts = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "ab"]
    dataset = pinfeed.ArrayDataset(ConcatArray(parts))
    os.truncate(tmp_path / "b.npy", 50_000)
    assert pinfeed.Collate()(dataset.__getitems__([0, 9])).shape == (2, 10_000)
    with pytest.raises(OSError, match=r"b\.npy: the file was cut short"):
        pinfeed.Collate()(dataset.__getitems__([0, 19]))


@given(
    st.data(),
    st.lists(st.lists(st.integers(0, 5), max_size=5), min_size=1, max_size=5).filter(any),
    st.sampled_from(["array", "tensor"]),
    st.lists(st.integers(0, 2), max_size=2).map(tuple),
)
def test_sequences(
    data: st.DataObject, lengths: list[list[int]], kind: str, item: tuple[int, ...]
) -> None:
    parts, sequences = [], []
    for number, counts in enumerate(lengths):
        ends = np.cumsum([number, *counts])  # a part begins anywhere in its values
        values = random_array((ends[-1] + 1, *item), "i2", number)
        if number % 2:
            values = np.repeat(values, 2, 0)[::2]  # other strides, and other offsets
            ends = ends.astype(np.int32)
        parts.append(pinfeed.RaggedArray(as_kind(kind, values), ends))
        sequences += [values[a:b] for a, b in itertools.pairwise(ends)]
    dataset = pinfeed.ArrayDataset(ConcatArray(parts))
    indices = st.integers(0, len(sequences) - 1)
    rows = data.draw(st.lists(indices, min_size=1, max_size=40))
    samples = dataset.__getitems__(rows)
    expected = [sequences[row] for row in rows]
    jagged = pinfeed.Collate(pinfeed.Jagged())(samples)
    assert_same_bits(jagged.values, np.concatenate(expected))
    assert jagged.offsets.tolist() == [0, *np.cumsum([len(part) for part in expected])]
    padded = pinfeed.Collate(pinfeed.Pad(7, side="left"))(samples)
    alone = pinfeed.pad(expected, 7, side="left", lengths=True)
    assert_same_bits(padded.values, alone.values)
    assert padded.lengths.tolist() == alone.lengths.tolist()
    same = [row for row in rows if len(sequences[row]) == len(expected[0])]
    stacked = pinfeed.Collate(pinfeed.Stack(torch.int32))(dataset.__getitems__(same))
    assert_same_bits(stacked, np.stack([sequences[row] for row in same]).astype(np.int32))


def test_sequences_whose_offsets_change_or_whose_file_is_cut(tmp_path: Path) -> None:
    pinfeed.RaggedArray(np.arange(9000), np.arange(9001)).save(tmp_path / "x")
    ends = np.array([0, 2, 5])
    parts = [pinfeed.RaggedArray(np.arange(5), ends), pinfeed.RaggedArray.open(tmp_path / "x")]
    dataset = pinfeed.ArrayDataset(ConcatArray(parts))
    collate = pinfeed.Collate(pinfeed.Jagged())
    assert collate(dataset.__getitems__([1, 9001])).values.tolist() == [2, 3, 4, 8999]
    ends[1] = 6
    with pytest.raises(ValueError, match="offsets must increase from 0 to at most 5, got 0 and 6"):
        collate(dataset.__getitems__([0]))
    for name in ("offsets", "values"):
        os.truncate(tmp_path / "x" / f"{name}.npy", 4096)
        with pytest.raises(OSError, match=r"\w+\.npy: the file was cut short"):
            collate(dataset.__getitems__([3]))


REFUSED: list[tuple[tuple[Any, ...], type[Exception], str]] = [
    ((), ValueError, "expected at least one part, got none"),
    ((np.array(1),), ValueError, "part 0: got a 0-d array"),
    ((np.zeros(1), 2), TypeError, "part"),
    (
        (np.zeros(1), np.zeros(1, "f4")),
        TypeError,
        "part 1: expected float64 like part 0, got float32",
    ),
    ((np.zeros((1, 2)), np.zeros((1, 3))), ValueError, r"part 1: .* of part 0, got \(1, 3\)"),
]


@pytest.mark.parametrize(("parts", "error", "message"), REFUSED)
def test_parts_that_are_not_alike(
    parts: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        _core.PartArrays(parts)


def test_offsets_of_parts_are_checked() -> None:
    with pytest.raises(ValueError, match="expected offsets for each part"):
        _core.PartArrays((np.zeros(2), np.zeros(3)), (np.array([0, 2]),))
    with pytest.raises(TypeError, match="part 0: offsets must be int64 or int32 with shape"):
        _core.PartArrays((np.zeros(2),), (np.array([0.0, 2.0]),))
    sequences = _core.PartArrays((np.zeros(2),), (np.array([0, 2]),))
    with pytest.raises(TypeError, match="leaf: expected rows, got sequences"):
        _core.gather(sequences, np.array([0]), None, None, False, "gather", "leaf", 1)


def test_indices_are_checked_again() -> None:
    parts = _core.PartArrays((np.zeros(2), np.zeros(3)))

    def gather(indices: Any) -> Any:
        return _core.gather(parts, indices, None, None, False, "gather", "leaf", 1)

    for index in (-1, 5):
        with pytest.raises(IndexError, match=f"leaf: index {index} is out of range for 5 samples"):
            gather(np.array([0, index]))
    with pytest.raises(TypeError, match="leaf: PartArrays need indices"):
        gather(None)
