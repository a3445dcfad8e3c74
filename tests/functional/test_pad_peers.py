"""Padding compared with torch's, and code that unpacks Padded and JaggedBatch."""

import copy
import pickle
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import (
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    unpad_sequence,
)
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from torch.utils.data._utils.pin_memory import pin_memory

import pinfeed
from samples import assert_same

SEQUENCES = [torch.arange(4.0 * k).reshape(k, 4) for k in (3, 1, 7, 5, 7)]


def test_unpad_sequence():
    padded = pinfeed.functional.pad(SEQUENCES)
    views = pinfeed.functional.unpad(padded)
    assert_same(views, SEQUENCES)
    assert_same(unpad_sequence(*padded[:2], batch_first=True), views)


def test_packed_sequences():
    padded, lengths, _ = pinfeed.functional.pad(SEQUENCES)
    packed = pack_padded_sequence(padded.transpose(0, 1), lengths, enforce_sorted=False)
    assert_same(packed, pack_sequence(SEQUENCES, enforce_sorted=False))
    assert_same([*pad_packed_sequence(packed, batch_first=True)], [padded, lengths])


# Padded and JaggedBatch in other code.


SAMPLES = [torch.tensor([1, 2, 3]), torch.tensor([4])]
BATCHES = {
    "lengths": pinfeed.functional.pad(SAMPLES),
    "mask": pinfeed.functional.pad(SAMPLES, lengths=False, mask=True),
    "both": pinfeed.functional.pad(SAMPLES, mask=True, side="left"),
    "neither": pinfeed.Padded(torch.ones(2, 3)),
    "images": pinfeed.Collate(pinfeed.Image(pad_value=0, sizes=True))([np.zeros((2, 2, 3), "u1")]),
    "jagged": pinfeed.Collate(pinfeed.Jagged())(SAMPLES),
}


class Pinned(NamedTuple):
    """A stand-in for pinned memory without an accelerator."""

    tensor: torch.Tensor

    def pin_memory(self, device=None):
        return self.tensor.clone()


@pytest.fixture(params=BATCHES)
def batch(request):
    return BATCHES[request.param]


def test_fields(batch):
    is_jagged = isinstance(batch, pinfeed.JaggedBatch)
    names = ("values", "offsets") if is_jagged else ("values", "lengths", "mask")
    assert is_jagged or isinstance(batch, pinfeed.Padded)
    assert batch._fields == names
    assert [*batch] == [getattr(batch, field) for field in names]
    assert all(f"{field}=" in repr(batch) for field in names)


def test_unrequested_outputs_are_none():
    assert BATCHES["lengths"].mask is BATCHES["mask"].lengths is None
    assert BATCHES["neither"][1:] == (None, None)


def test_pickles_and_copies(batch):
    for again in (
        pickle.loads(pickle.dumps(batch)),
        copy.deepcopy(batch),
        copy.copy(batch),
        batch._replace(values=batch.values.clone()),
        type(batch)(*batch),
        type(batch)._make(batch),
    ):
        assert_same(again, batch)


def test_other_libraries_keep_the_type(batch):
    """torch's trees and pinning, and accelerate."""
    entries, spec = tree_flatten({"a": [batch]})
    assert len(entries) == len(batch)
    assert_same(tree_unflatten(entries, spec), {"a": [batch]})
    assert_same(tree_map(lambda entry: entry, batch), batch)
    wrapped = [None if part is None else Pinned(part) for part in batch]
    assert_same(pin_memory(type(batch)(*wrapped)), batch)
    sent = pytest.importorskip("accelerate").utils.send_to_device({"a": batch}, torch.device("cpu"))
    assert_same(sent, {"a": batch})
