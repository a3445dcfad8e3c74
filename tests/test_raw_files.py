"""np.memmap over raw binary files is all that such leaves need."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import pinfeed
from arrays import NUMPY_DTYPES, assert_same_bits, random_array


@given(
    st.sampled_from(NUMPY_DTYPES),
    st.tuples(st.integers(1, 40), st.integers(1, 5)),
    st.integers(0, 10_000),
    st.sampled_from("CF"),
    st.data(),
)
def test_rows(
    tmp_path: Path, dtype: str, shape: Any, offset: int, order: Any, data: st.DataObject
) -> None:
    array = random_array(shape, dtype)
    path = tmp_path / "raw.bin"
    path.write_bytes(bytes(offset) + array.tobytes(order))
    raw = np.memmap(path, dtype, "r", offset, shape, order)
    dataset = pinfeed.ArrayDataset(raw)
    rows = data.draw(st.lists(st.integers(0, len(array) - 1), min_size=1))
    for own in (dataset, pickle.loads(pickle.dumps(dataset))):
        assert_same_bits(pinfeed.Collate()(own.__getitems__(rows)), array[rows])
    assert len(pickle.dumps(dataset)) < 1000


def test_a_spawned_worker(tmp_path: Path) -> None:
    path = tmp_path / "raw.bin"
    path.write_bytes(b"header" + np.arange(100, dtype="f4").tobytes())
    dataset = pinfeed.ArrayDataset(np.memmap(path, "f4", "r", 6, (50, 2)))
    context = multiprocessing.get_context("spawn")
    (batch,) = DataLoader(dataset, 50, num_workers=1, multiprocessing_context=context)
    assert batch.flatten().tolist() == list(range(100))


def test_a_file_that_is_cut_while_in_use(tmp_path: Path) -> None:
    path = tmp_path / "raw.bin"
    path.write_bytes(bytes(100_000))
    dataset = pinfeed.ArrayDataset(np.memmap(path, "u1", "r", 1000, (99, 1000)))
    os.truncate(path, 50_000)
    with pytest.raises(OSError, match="was cut short"):
        pinfeed.Collate()(dataset.__getitems__([0, 98]))
