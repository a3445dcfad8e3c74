"""Integers that a field's dtype can't hold are told, not wrapped around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pinfeed
from pinfeed import ArrayDataset, Collate, Jagged, Pad, Stack
from samples import assert_same

# A number that fits and one that doesn't: dtypes of samples and of the batch.
MISFITS = [
    (np.int64, torch.uint8, 255, 256),
    (np.int64, torch.uint8, 0, -1),
    (np.int64, torch.int32, -(2**31), 2**40),
    (np.int64, torch.int16, -(2**15), 70000),
    (np.int8, torch.uint8, 127, -1),
    (np.int8, torch.uint64, 127, -1),
    (np.uint8, torch.int8, 127, 200),
    (np.uint16, torch.int8, 127, 65480),
    (np.uint64, torch.int64, 2**63 - 1, 2**63),
    (np.int32, torch.uint16, 65535, 65536),
]
WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "Stack": lambda samples, dtype: Collate(Stack(dtype))(list(samples)),
    "Stack of rows": lambda samples, dtype: Collate(Stack(dtype))(
        ArrayDataset(samples).__getitems__(range(len(samples)))
    ),
    "Stack of strided rows": lambda samples, dtype: Collate(Stack(dtype))(
        ArrayDataset(np.repeat(samples, 2, -1)[..., ::2]).__getitems__(range(len(samples)))
    ),
    "Pad": lambda samples, dtype: Collate(Pad(dtype=dtype, lengths=False))(list(samples)),
    "Jagged": lambda samples, dtype: Collate(Jagged(dtype))(list(samples)).values,
    "pad": lambda samples, dtype: pinfeed.pad(
        [torch.from_numpy(sample) for sample in samples], dtype=dtype, lengths=False
    ),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize(("own", "dtype", "fits", "wrong"), MISFITS)
def test_integers_that_do_not_fit(own: Any, dtype: Any, fits: int, wrong: int, way: Any) -> None:
    message = f"sample 2.*integers that {str(dtype)[6:]} can hold, got {wrong}"
    for place in (0, 37, 99):
        samples = np.ones((3, 100), own)
        samples[:, place] = fits
        assert_same(way(samples, dtype).reshape(3, 100), torch.from_numpy(samples).to(dtype))
        samples[2, place] = wrong
        with pytest.raises(ValueError, match=message):
            way(samples, dtype)


def test_integers_of_a_subclass_that_do_not_fit() -> None:
    class Mask(torch.Tensor):
        pass

    fits = [torch.tensor([number]).as_subclass(Mask) for number in (3, 255)]
    assert type(Collate(Stack(torch.uint8))(fits)) is Mask
    with pytest.raises(ValueError, match="sample 1: expected integers that uint8 can hold"):
        Collate(Stack(torch.uint8))([fits[0], fits[1] + 45])


def test_numbers_that_do_not_fit() -> None:
    with pytest.raises(
        ValueError, match="sample 1: expected integers that uint8 can hold, got 300"
    ):
        Collate(Stack(torch.uint8))([3, 300])
    with pytest.raises(ValueError, match="sample 1: expected integers that int16 can hold"):
        Collate(Stack(torch.int16))([[3, 4], [3, 70000]])
    assert_same(
        Stack(torch.uint8).apply(torch.tensor(255), None, pinfeed.Leaf("x")),
        torch.tensor(255).byte(),
    )
    with pytest.raises(ValueError, match=r"x.*: expected integers that uint8 can hold, got 300"):
        Stack(torch.uint8).apply(torch.tensor(300), None, pinfeed.Leaf("x"))
