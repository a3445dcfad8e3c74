"""Packed documents give the same results as separate ones: masks, and a decoder with random weights.

The guide does the same with a transformers decoder.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import pinfeed
from pinfeed import ArrayDataset, Collate, Pack, RaggedArray
from pinfeed.samplers import PackSampler

SEQ_LENGTH = 32


@given(st.lists(st.lists(st.integers(-1, 3), min_size=6, max_size=6), min_size=1, max_size=3))
def test_both_masks_equal_the_definition(ids):
    document_ids = torch.tensor(ids, dtype=torch.int32)
    expected = [
        [[[row[q] == row[k] and q >= k for k in range(6)] for q in range(6)]] for row in ids
    ]
    assert pinfeed.packing.attention_mask(document_ids).tolist() == expected
    mask_mod = pinfeed.packing.mask_mod(document_ids)
    positions = torch.arange(6)
    flexible = [
        [mask_mod(row, 0, positions[:, None], positions[None]).tolist()] for row in range(len(ids))
    ]
    assert flexible == expected


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


def packed_batch(**options):
    """Returns a batch, and the offsets and tokens of the documents in each row."""
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, 50, n) for n in rng.integers(1, 20, 16)]
    tokens = RaggedArray.from_sequences(documents)
    fields = {
        "input_ids": Pack(seq_length=SEQ_LENGTH, position_ids=True, document_ids=True),
        "labels": Pack(seq_length=SEQ_LENGTH, pad_value=-100, first_token=-100),
    }
    sampler = PackSampler(tokens, batch_size=9, seq_length=SEQ_LENGTH, **options)
    (indices,) = sampler
    rows = ArrayDataset({"input_ids": tokens, "labels": tokens}).__getitems__(indices)
    packing = indices.packing
    positions = [divmod(int(offset), SEQ_LENGTH) for offset in packing.offsets]
    return Collate(fields)(rows), [
        (row, begin, torch.from_numpy(documents[i]))
        for (row, begin), i in zip(positions, indices, strict=True)
    ]


class Decoder(torch.nn.Module):
    """Two layers of causal attention with learned positions."""

    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(50, 32)
        self.positions = torch.nn.Embedding(SEQ_LENGTH, 32)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 96) for _ in range(2))
        self.out = torch.nn.Linear(32, 50)

    def forward(self, tokens, positions, attention):
        hidden = self.tokens(tokens) + self.positions(positions)
        for layer in self.layers:
            heads = [p.unflatten(-1, (2, 16)).transpose(1, 2) for p in layer(hidden).chunk(3, -1)]
            hidden = hidden + attention(*heads).transpose(1, 2).flatten(-2)
        return self.out(hidden)


def causal(query, key, value):
    return scaled_dot_product_attention(query, key, value, is_causal=True)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize("multiple", [1, 4])
@pytest.mark.parametrize("kind", ["sdpa", "flex"])
def test_a_plain_torch_decoder(kind, multiple):
    torch.manual_seed(0)
    model = Decoder()
    batch, documents = packed_batch(documents_multiple_of=multiple)
    ids = batch["document_ids"]
    if kind == "sdpa":
        mask = pinfeed.packing.attention_mask(ids)
        attention = lambda *heads: scaled_dot_product_attention(*heads, attn_mask=mask)
    else:
        blocks = create_block_mask(
            pinfeed.packing.mask_mod(ids), len(ids), None, SEQ_LENGTH, SEQ_LENGTH, device="cpu"
        )
        attention = lambda *heads: flex_attention(*heads, block_mask=blocks)
    with torch.no_grad():
        packed = model(batch["input_ids"], batch["position_ids"], attention)
        naive = model(batch["input_ids"], batch["position_ids"], causal)
        loss = cross_entropy(
            packed[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten(), reduction="sum"
        )
        total = torch.tensor(0.0)
        for row, begin, tokens in documents:
            alone = model(tokens[None], torch.arange(len(tokens)), causal)[0]
            here = slice(begin, begin + len(tokens))
            torch.testing.assert_close(packed[row, here], alone)
            if begin > 0:  # positions alone don't separate documents
                assert (naive[row, here] - alone).abs().max() > 1e-3
            total += cross_entropy(alone[:-1], tokens[1:], reduction="sum")
    assert packed.isfinite().all()
    torch.testing.assert_close(loss, total)
