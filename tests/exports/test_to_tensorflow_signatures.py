"""to_tensorflow: what TensorFlow is told of shapes, by the first batch, by a spec or by the user."""

import inspect

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed
from tensorflow_elements import WAYS, mapped


def shapes(dataset):
    spec = dataset.element_spec
    if isinstance(spec, dict):
        return {key: tuple(one.shape) for key, one in spec.items()}
    if isinstance(spec, tuple):
        return [tuple(one.shape) for one in spec if hasattr(one, "shape")]  # not of None
    return tuple(spec.shape)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (pinfeed.Pad(), [(None, None, 4), (None,)]),
        (pinfeed.Pad(mask=True), [(None, None, 4), (None,), (None, None)]),
        (pinfeed.Pad(lengths=False), (None, None, 4)),
        (pinfeed.Stack(), (None, 3, 4)),
    ],
    ids=repr,
)
def test_shapes_of_pad(field, expected):
    samples = [np.zeros((3, 4))] * 6
    loader = DataLoader(samples, batch_size=2, collate_fn=pinfeed.Collate(field))
    assert shapes(pinfeed.to_tensorflow(loader)) == expected


@pytest.mark.parametrize(("output", "sizes"), [("CHW", (3, None, None)), ("HWC", (None, None, 3))])
def test_shapes_of_padded_images(output, sizes):
    samples = [np.zeros((size, size + 1, 3), np.uint8) for size in range(4, 10)]
    field = pinfeed.Image(pad_value=0, output=output, sizes=True, mask=True)
    loader = DataLoader(samples, batch_size=2, collate_fn=pinfeed.Collate(field))
    dataset = pinfeed.to_tensorflow(loader)
    assert shapes(dataset) == [(None, *sizes), (None, 2), (None, None, None)]
    assert [values.shape[0] for values, _, _ in dataset] == [2, 2, 2]


def test_shapes_of_named_leaves():
    """What a language model takes: widths differ, and nothing in the first batch says so."""
    samples = [{"input_ids": [1] * n, "labels": [2] * n} for n in (3, 2, 7, 1)]
    fields = {
        "input_ids": pinfeed.Pad(pad_value=0, lengths="n", mask="attention_mask"),
        "labels": pinfeed.Pad(pad_value=-100),
    }
    loader = DataLoader(samples, batch_size=2, collate_fn=pinfeed.Collate(fields))
    dataset = pinfeed.to_tensorflow(pinfeed.DeviceLoader(loader, device="cpu"))
    two = (None, None)
    assert shapes(dataset) == {"input_ids": two, "n": (None,), "attention_mask": two, "labels": two}
    assert [batch["labels"].shape[1] for batch in dataset] == [3, 7]


def test_shapes_of_fields_on_the_device():
    samples = [{"tokens": [1] * n} for n in (3, 2, 7, 1)]
    collate = pinfeed.Collate({"tokens": pinfeed.Jagged()})
    loader = DataLoader(samples, batch_size=2, collate_fn=collate)
    fields = {"tokens": pinfeed.Pad(lengths=False)}
    dataset = pinfeed.to_tensorflow(pinfeed.DeviceLoader(loader, device="cpu", fields=fields))
    assert shapes(dataset) == {"tokens": (None, None)}
    assert [batch["tokens"].shape[1] for batch in dataset] == [3, 7]


def widening():
    for width in (3, 5):
        yield {"x": torch.zeros(2, width), "y": torch.zeros(2)}


@pytest.mark.parametrize("way", WAYS)
def test_a_signature_says_what_the_first_batch_does_not(way, tf):
    hint = r"signature= with tf\.TensorSpec\(\(None, None\), tf\.fl"
    with pytest.raises(tf.errors.OpError, match=hint):
        WAYS["loop"](pinfeed.to_tensorflow(widening()))
    signature = {"x": tf.TensorSpec((None, None)), "y": tf.TensorSpec((None,))}
    dataset = pinfeed.to_tensorflow(widening(), signature=signature)
    assert dataset.element_spec == signature
    assert [element["x"].shape[1] for element in WAYS[way](dataset)] == [3, 5]


def test_a_signature_of_every_kind(tf):
    batch = {
        "jagged": pinfeed.JaggedBatch(torch.ones(3, 2), torch.tensor([0, 1, 3])),
        "names": ["a", "b"],
        "none": None,
        "padded": pinfeed.Padded(torch.zeros(2, 3), torch.tensor([3, 1])),
        "pair": [torch.zeros(2, 1), 5],
    }
    spec = pinfeed.to_tensorflow(iter([batch])).element_spec
    again = pinfeed.to_tensorflow([batch, batch], signature=spec)
    assert again.element_spec == spec
    assert len(mapped(again)) == 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "signed", [pytest.param(False, id="first batch"), pytest.param(True, id="signature")]
)
def test_nothing_of_a_generator_is_lost(signed, way, tf):
    batches = (torch.full((2,), number) for number in range(5))
    signature = tf.TensorSpec((None,), tf.int64) if signed else None
    dataset = pinfeed.to_tensorflow(batches, signature=signature)
    assert inspect.getgeneratorstate(batches) == ("GEN_CREATED" if signed else "GEN_SUSPENDED")
    assert [int(batch[0]) for batch in WAYS[way](dataset)] == [0, 1, 2, 3, 4]
