"""What mypy --strict says of a user's variables: `make lint` checks it, and nothing here is Any."""

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
    offsets = np.array([0, 2, 3])
    arrays = RaggedArray(np.arange(3), offsets)
    assert_type(arrays[0], Array)
    assert_type(arrays[:1][0], Array)
    assert_type(arrays[[1]][0], Array)
    assert_type(RaggedArray(torch.arange(3), offsets)[0], torch.Tensor)
    assert_type(RaggedArray(np.arange(65, 68, dtype=np.uint8), offsets, str)[0], str)
    assert_type(RaggedArray(np.arange(3, dtype=np.uint8), offsets, bytes)[0], bytes)
    assert_type(RaggedArray.from_sequences([[1, 2], [3]])[0], Array)
    assert_type(RaggedArray.from_sequences([np.ones(2)])[0], Array)
    assert_type(RaggedArray.from_sequences([torch.ones(2)])[0], torch.Tensor)
    assert_type(RaggedArray.from_strings(["a"])[0], str)
    assert_type(RaggedArray.from_strings([b"a"])[0], bytes)


def batches() -> Iterator[dict[str, torch.Tensor]]:
    yield {"x": torch.ones(2)}


def test_results_of_to_numpy() -> None:
    assert_type(pinfeed.to_numpy([torch.ones(2)]), Array)
    assert_type(pinfeed.to_numpy([np.ones(2)], max_samples=1), Array)
    assert_type(pinfeed.to_numpy(batches()), dict[str, Array])
    assert_type(pinfeed.to_numpy([(torch.ones(2), torch.ones(2))]), tuple[Array, Array])
    ragged = RaggedArray.from_sequences([torch.ones(2)])
    assert_type(pinfeed.to_numpy([ragged])[0], Array)


class Untyped:
    """Yields what a type checker doesn't know, as a DataLoader does."""

    def __iter__(self) -> Iterator[Any]:
        yield {"x": torch.ones(2)}


def test_what_nobody_can_know() -> None:
    arrays: dict[str, Array] = pinfeed.to_numpy(Untyped())
    assert_type(pinfeed.to_numpy(Untyped()), Any)
    assert_type(pinfeed.to_numpy(DataLoader(pinfeed.ArrayDataset(arrays))), Any)
