"""to_tensorflow: shapes in the signature, from the first batch, a spec or the user."""

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


TOKENS = [{"tokens": [1] * n, "labels": [2] * n} for n in (3, 2, 7, 1)]
UNEVEN = [np.zeros((size, size + 1, 3), np.uint8) for size in range(4, 10)]
FRAMES = [np.zeros((3, 4))] * 6
PADDED = {"pad_value": 0, "sizes": True, "mask": True}
NAMED = {
    "tokens": pinfeed.Pad(pad_value=0, lengths="n", mask="mask"),
    "labels": pinfeed.Pad(pad_value=-100),
}
ONE, TWO = (None,), (None, None)
SIZES = [(None, 2), (None, *TWO)]
# Samples, the fields of their Collate, the fields of a DeviceLoader, and the shapes of an element.
SHAPES = {
    "Pad": (FRAMES, pinfeed.Pad(), None, [(*TWO, 4), ONE]),
    "Pad, mask": (FRAMES, pinfeed.Pad(mask=True), None, [(*TWO, 4), ONE, TWO]),
    "Pad, values": (FRAMES, pinfeed.Pad(lengths=False), None, (*TWO, 4)),
    "Stack": (FRAMES, pinfeed.Stack(), None, (None, 3, 4)),
    "CHW": (UNEVEN, pinfeed.Image(**PADDED), None, [(None, 3, *TWO), *SIZES]),
    "HWC": (UNEVEN, pinfeed.Image(output="HWC", **PADDED), None, [(None, *TWO, 3), *SIZES]),
    "named": (TOKENS, NAMED, None, {"tokens": TWO, "n": ONE, "mask": TWO, "labels": TWO}),
    "on the device": (TOKENS, {"tokens": pinfeed.Jagged(), "labels": pinfeed.Jagged()},
        {"tokens": pinfeed.Pad(lengths=False), "labels": pinfeed.Pad(lengths=False)}, {"tokens": TWO, "labels": TWO}),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_fields(name):
    """Widths differ between batches, which the first batch doesn't show."""
    samples, fields, on_device, expected = SHAPES[name]
    loader = DataLoader(samples, batch_size=2, collate_fn=pinfeed.Collate(fields))
    if isinstance(fields, dict):
        loader = pinfeed.DeviceLoader(loader, device="cpu", fields=on_device)
    dataset = pinfeed.to_tensorflow(loader)
    assert shapes(dataset) == expected
    elements = list(dataset)
    assert len(elements) == len(samples) // 2
    if isinstance(fields, dict):
        assert [batch["tokens"].shape[1] for batch in elements] == [3, 7]


def widening():
    for width in (3, 5):
        yield {"x": torch.zeros(2, width), "y": torch.zeros(2)}


@pytest.mark.parametrize("way", WAYS)
def test_a_signature_overrides_the_first_batch(way, tf):
    hint = r"signature= with tf\.TensorSpec\(\(None, None\), tf\.fl"
    with pytest.raises(tf.errors.OpError, match=hint):
        WAYS["loop"](pinfeed.to_tensorflow(widening()))
    signature = {"x": tf.TensorSpec((None, None)), "y": tf.TensorSpec((None,))}
    dataset = pinfeed.to_tensorflow(widening(), signature=signature)
    assert dataset.element_spec == signature
    assert [element["x"].shape[1] for element in WAYS[way](dataset)] == [3, 5]


def test_signatures_of_every_kind(tf):
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
@pytest.mark.parametrize("signed", [False, True], ids=["first batch", "signature"])
def test_a_generator_loses_no_batch(signed, way, tf):
    batches = (torch.full((2,), number) for number in range(5))
    signature = tf.TensorSpec((None,), tf.int64) if signed else None
    dataset = pinfeed.to_tensorflow(batches, signature=signature)
    assert inspect.getgeneratorstate(batches) == ("GEN_CREATED" if signed else "GEN_SUSPENDED")
    assert [int(batch[0]) for batch in WAYS[way](dataset)] == [0, 1, 2, 3, 4]
