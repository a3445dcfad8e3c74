"""np.memmap over raw binary files is all that such leaves need."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

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
