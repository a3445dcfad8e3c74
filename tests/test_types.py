"""The types of a user's variables under mypy --strict, which `make lint` checks.

The output types of a loader are known only at run time, so samples and results are Any, and annotations
declare them.
"""

from collections.abc import Iterator
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader

import pinfeed
from pinfeed import RaggedArray

Array = npt.NDArray[Any]


def test_sequences_of_a_ragged_array() -> None:
    assert_type(RaggedArray.from_sequences([[1, 2], [3]]), RaggedArray)
    assert_type(RaggedArray.from_strings(["a"]), RaggedArray)
    sequence: torch.Tensor = RaggedArray.from_sequences([torch.ones(2)])[0]
    assert_type(sequence, torch.Tensor)


def batches() -> Iterator[dict[str, torch.Tensor]]:
    yield {"x": torch.ones(2)}


def test_results_of_to_numpy() -> None:
    arrays: dict[str, Array] = pinfeed.to_numpy(batches())
    assert_type(arrays["x"], Array)
    assert_type(pinfeed.to_numpy([np.ones(2)], max_samples=1), Any)
    assert_type(pinfeed.to_numpy(DataLoader(pinfeed.ArrayDataset(arrays))), Any)
