"""Collate with a field per entry, from Rows and lists of samples."""

import collections
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

import pinfeed
from arrays import random_array
from pinfeed import Collate, Image, Keep, Stack, _core
from samples import DATASETS, Bag, FrozenRecord, Point, Record, assert_same

COUNT = 6


@pytest.fixture
def images():
    return random_array((COUNT, 8, 6, 3))


@pytest.fixture
def numbers():
    return np.arange(COUNT, dtype=np.int16) * 3


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize("shape", [(6,), (6, 3), (6, 4, 4, 3)])
def test_samples_in_one_array(convert, shape):
    """``__getitems__`` of some datasets returns one array."""
    array = random_array(shape)
    assert_same(Collate()(convert(array)), torch.from_numpy(array))
    collate = Collate(Image(scale=1)) if len(shape) == 4 else Collate(pinfeed.Keep())
    assert_same(collate(convert(array)), collate(list(convert(array))))
    with pytest.raises(ValueError, match="at least one sample"):
        Collate()(convert(array[:0]))
    with pytest.raises(TypeError, match="a sequence of samples"):
        Collate()(torch.tensor(1))


@pytest.mark.parametrize("rows", [False, True], ids=["samples", "Rows"])
@pytest.mark.parametrize("structure", DATASETS)
def test_fields_of_every_structure(structure, rows, images, numbers):
    build = DATASETS[structure]
    dataset = pinfeed.ArrayDataset(build(images, numbers))
    samples = dataset.__getitems__(range(COUNT))
    collate = Collate(build(Image(mean=0.5), Stack(torch.float64)))
    batch = collate(samples if rows else list(samples))
    converted = build(pinfeed.functional.normalize(images, mean=0.5), numbers.astype(np.float64))
    assert_same(batch, Collate()(list(pinfeed.ArrayDataset(converted).__getitems__(range(COUNT)))))


@pytest.mark.parametrize("rows", [False, True], ids=["samples", "Rows"])
@pytest.mark.parametrize(
    "fields",
    [
        {"y": Stack(torch.float32)},
        {"x": None, "y": Stack(torch.float32)},
        {"x": Stack(), "y": Stack(torch.float32)},
        collections.OrderedDict(y=Stack(torch.float32)),
        Bag({"y": Stack(torch.float32)}),
    ],
    ids=["left out", "None", "Stack", "OrderedDict", "Mapping"],
)
def test_entries_without_a_field_are_stacked(fields, rows, numbers):
    samples = pinfeed.ArrayDataset({"x": numbers, "y": numbers}).__getitems__(range(COUNT))
    batch = Collate(fields)(samples if rows else list(samples))
    stacked = torch.from_numpy(numbers)
    assert_same(batch, {"x": stacked, "y": stacked.float()})


@pytest.mark.parametrize("rows", [False, True], ids=["samples", "Rows"])
def test_partial_specs_nest(rows, images, numbers):
    records = FrozenRecord(numbers, Record(numbers, numbers))
    sources = {"a": (images, {"b": records, "c": Point(images, numbers)}), "d": [numbers]}
    samples = pinfeed.ArrayDataset(sources).__getitems__(range(COUNT))
    some = FrozenRecord(None, Record(Stack(torch.float32), None))
    fields = {"a": (None, {"b": some, "c": Point(Image(), None)})}
    batch = Collate(fields)(samples if rows else list(samples))
    stacked, normalized = (
        torch.from_numpy(numbers),
        torch.from_numpy(pinfeed.functional.normalize(images)),
    )
    records = FrozenRecord(stacked, Record(stacked.float(), stacked))
    inner = {"b": records, "c": Point(normalized, stacked)}
    assert_same(batch, {"a": [torch.from_numpy(images), inner], "d": [stacked]})


def test_keep_returns_the_objects():
    objects = [object(), None, np.zeros(2), np.zeros(3), "text", {"a": 1}]
    batch = Collate({"x": Keep()})([{"x": item} for item in objects])
    assert type(batch["x"]) is list
    assert all(one is other for one, other in zip(batch["x"], objects, strict=True))


def test_keep_of_rows_returns_views(images):
    rows = pinfeed.ArrayDataset((images, images)).__getitems__([3, 1])
    batch = Collate((Keep(), None))(rows)
    assert type(batch[0]) is list
    assert_same(batch[0], [images[3], images[1]])
    assert np.shares_memory(batch[0][0], images)


@pytest.mark.parametrize("rows", [False, True], ids=["samples", "Rows"])
def test_keep_of_a_branch(rows, numbers):
    samples = pinfeed.ArrayDataset({"a": (numbers, numbers), "b": numbers}).__getitems__([2, 4])
    batch = Collate({"a": Keep()})(samples if rows else list(samples))
    assert_same(
        batch, {"a": [(numbers[i],) * 2 for i in (2, 4)], "b": torch.tensor([6, 12]).short()}
    )


@pytest.mark.parametrize(
    "samples", [[1, 2, 3], [1.5, 2.5], [True, False], [np.int8(3), np.int8(4)]]
)
def test_stack_converts_numbers(samples):
    assert_same(Collate(Stack(torch.float16))(samples), default_collate(samples).half())


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (["a", "b"], "a tensor or a number, got str; Keep"),
        ([{"x": 1}, {"x": 2}], "expected arrays or numbers for .*, got dict; Keep"),
        ([[1, "a"], [2, "b"]], "sample 0: .* numbers, and lists of them, got str"),
        ([[[1.5, np.ma.masked]]], "sample 0: .* numbers, and lists of them, got MaskedConstant"),
        ([None, None], "a tensor or a number, got NoneType; leave out samples"),
    ],
    ids=repr,
)
def test_stack_with_a_dtype_accepts_numbers(samples, words):
    with pytest.raises(TypeError, match=words):
        Collate(Stack(torch.float32))(samples)
    assert Collate(Keep())(samples) == samples


def test_stack_with_a_dtype_keeps_gradients():
    sample = torch.ones(200, 200, requires_grad=True)
    Collate(Stack(torch.float64))([sample, sample]).sum().backward()
    assert torch.equal(sample.grad, torch.full((200, 200), 2.0))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
def test_entries_of_size_zero(shape):
    array = np.zeros((COUNT, *shape), np.float32)
    rows = pinfeed.ArrayDataset(array).__getitems__([1, 2, 3])
    assert_same(Collate()(rows), torch.zeros(3, *shape))
    assert_same(Collate()(list(rows)), torch.zeros(3, *shape))
    for samples in (rows, list(rows)):
        assert_same(Collate(Stack(torch.float64))(samples), torch.zeros(3, *shape).double())


def test_a_tuple_of_samples(numbers):
    assert_same(Collate()(tuple(numbers)), torch.from_numpy(numbers))


CROP = _core.GeometryStep(kind="random_crop", height=4, width=5, pad_if_needed=True)
OPTIONS = {
    "mask=True": _core.ImagePaddingOptions(value=-1, multiple_of=(2, 4), sizes=False, mask=True),
    "random_crop": CROP,
    "width=5": _core.AugmentOptions(
        steps=[CROP], interpolation="bicubic", in_floats=False, colors=[]
    ),
}


@pytest.mark.parametrize("text", OPTIONS)
def test_options_of_native_calls(text):
    options = OPTIONS[text]
    assert text in repr(options)
    assert repr(pickle.loads(pickle.dumps(options))) == repr(options)


def test_options_of_native_calls_are_named():
    with pytest.raises(TypeError):
        _core.GeometryStep(kind="random_cut")


def test_repr_shows_the_constructor_call():
    assert repr(Collate()) == "Collate()"
    assert repr(Collate({"x": Stack(), "y": Keep()})) == "Collate({'x': Stack(), 'y': Keep()})"
    assert (
        repr(Collate(pin_memory=False, seed=3, id_key="id"))
        == "Collate(pin_memory=False, seed=3, id_key='id')"
    )


def test_custom_fields():
    class Longest(pinfeed.Field):
        def collate(self, samples, context):
            return max(samples, key=len)

    assert Collate({"text": Longest()})([{"text": "a"}, {"text": "bcd"}]) == {"text": "bcd"}


def test_batches_as_samples_raise():
    batch = pinfeed.JaggedBatch(torch.arange(3), torch.tensor([0, 1, 3]))
    with pytest.raises(
        TypeError, match=r"entry \['x'\]: expected samples, got a JaggedBatch; .*unbind"
    ):
        pinfeed.Collate()([{"x": batch}] * 2)
