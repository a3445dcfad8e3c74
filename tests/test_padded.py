"""Padded and JaggedBatch: what other code takes them apart and puts them together as."""

import copy
import pickle
from typing import NamedTuple

import accelerate.utils
import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from torch.utils.data._utils.pin_memory import pin_memory

import pinfeed
from samples import assert_same

SAMPLES = [torch.tensor([1, 2, 3]), torch.tensor([4])]
BATCHES = {
    "lengths": pinfeed.pad(SAMPLES),
    "mask": pinfeed.pad(SAMPLES, lengths=False, mask=True),
    "both": pinfeed.pad(SAMPLES, mask=True),
    "neither": pinfeed.Padded(torch.ones(2, 3)),
    "jagged": pinfeed.Collate(pinfeed.Jagged())(SAMPLES),
}
FIELDS = {
    "lengths": ("values", "lengths"),
    "mask": ("values", "mask"),
    "both": ("values", "lengths", "mask"),
    "neither": ("values",),
    "jagged": ("values", "offsets"),
}


class Pinned(NamedTuple):
    """What can be pinned without an accelerator."""

    tensor: torch.Tensor

    def pin_memory(self, device=None):
        return self.tensor.clone()


@pytest.fixture(params=BATCHES)
def batch(request):
    return BATCHES[request.param]


@pytest.mark.parametrize("name", BATCHES)
def test_fields(name):
    batch, names = BATCHES[name], FIELDS[name]
    assert batch._fields == names
    assert isinstance(batch, pinfeed.JaggedBatch if name == "jagged" else pinfeed.Padded)
    assert isinstance(batch, tuple)
    assert [*batch] == [getattr(batch, field) for field in names]
    assert all(f"{field}=" in repr(batch) for field in names)
    absent = {"lengths", "mask"} - {*names, *(["lengths"] if name == "jagged" else [])}
    assert [field for field in absent if hasattr(batch, field)] == []


@pytest.mark.parametrize("lengths", [None, np.array([2])])
@pytest.mark.parametrize("mask", [None, np.array([[True, True]])])
def test_padded_has_the_fields_that_are_given(lengths, mask):
    values = np.zeros((1, 2))
    padded = pinfeed.Padded(values, lengths, mask)
    assert isinstance(padded, pinfeed.Padded)
    given = {"values": values, "lengths": lengths, "mask": mask}
    assert padded._asdict() == {k: v for k, v in given.items() if v is not None}
    again = pinfeed.Padded(**padded._asdict())
    assert type(again) is type(padded)


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


def test_trees_keep_their_types(batch):
    leaves, spec = tree_flatten({"a": [batch]})
    assert len(leaves) == len(batch)
    assert_same(tree_unflatten(leaves, spec), {"a": [batch]})
    assert_same(tree_map(torch.clone, batch), batch)


def test_pinning_keeps_types(batch):
    wrapped = type(batch)(*(Pinned(tensor) for tensor in batch))
    assert_same(pin_memory(wrapped), batch)


def test_accelerate_keeps_types(batch):
    sent = accelerate.utils.send_to_device({"a": batch}, torch.device("cpu"))
    assert_same(sent, {"a": batch})
    assert type(accelerate.utils.concatenate([batch, batch])) is type(batch)


def test_batches_can_be_collated_again():
    batch = BATCHES["both"]
    again = pinfeed.Collate()([batch, batch])
    assert type(again) is type(batch)
    assert again.values.shape == (2, 2, 3)
    assert again.lengths.tolist() == [[3, 1], [3, 1]]
