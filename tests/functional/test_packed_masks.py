"""Masks of packed documents; docs/packed-attention.md compares a decoder's results with separate documents."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_mask

import pinfeed


@given(st.lists(st.lists(st.integers(-1, 3), min_size=6, max_size=6), min_size=1, max_size=3))
def test_both_masks_equal_the_definition(ids):
    document_ids = torch.tensor(ids, dtype=torch.int32)
    expected = [
        [[[row[q] == row[k] and q >= k for k in range(6)] for q in range(6)]] for row in ids
    ]
    assert pinfeed.packing.attention_mask(document_ids).tolist() == expected
    mask_mod = pinfeed.packing.mask_mod(document_ids)  # as torch's flex_attention calls it
    assert create_mask(mask_mod, len(ids), 1, 6, 6, device="cpu").tolist() == expected


@pytest.mark.parametrize("function", [pinfeed.packing.attention_mask, pinfeed.packing.mask_mod])
@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        ([[0]], TypeError, "document_ids must be a tensor of integers, got list"),
        (torch.zeros(1, 2), TypeError, "must be a tensor of integers, got torch.float32"),
        (torch.zeros(1, 2).int().numpy(), TypeError, "a tensor of integers, got ndarray"),
        (torch.arange(3), ValueError, r"must have shape \(rows, seq_length\), got \(3,\)"),
    ],
)
def test_bad_ids(function, ids, error, message):
    with pytest.raises(error, match=f"^{function.__name__}: .*{message}"):
        function(ids)
