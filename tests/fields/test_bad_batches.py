"""Batches and fields that don't fit: which leaf of which sample, what came, and hints that make batches of them."""

import pickle
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, default_collate

import pinfeed
from hints import PHOTOS, check_hint, first, loaded
from pinfeed import (
    ArrayDataset,
    Collate,
    Image,
    IndexedDataset,
    Jagged,
    Keep,
    Pack,
    Pad,
    Stack,
    augment,
    from_numpy,
)
from samples import Bag, Couple, FrozenRecord, Point, Record, assert_same

LARGE = (200, 500)


@pytest.mark.parametrize("samples", [{"x": np.zeros(3)}, 5, None, "text"])
def test_what_is_no_batch(samples):
    with pytest.raises(TypeError, match="Collate: expected a sequence of samples, got"):
        Collate()(samples)


@pytest.mark.parametrize(
    ("leaves", "error", "message"),
    [
        ([np.zeros(2), np.zeros(2), np.zeros(3)], ValueError, "sample 2: expected shape (2,) as in sample 0, got (3,)"),
        ([np.zeros((2, 1)), np.zeros(2)], ValueError, "sample 1: expected shape (2, 1) as in sample 0, got (2,)"),
        ([torch.zeros(2), torch.zeros(3)], ValueError, "sample 1: expected shape (2,) as in sample 0, got (3,)"),
        ([torch.zeros(LARGE), torch.zeros(3)], ValueError, "sample 1: expected shape (200, 500) as in sample 0, got (3,)"),
        ([torch.zeros(LARGE), 5], TypeError, "sample 1: expected a NumPy array or a torch tensor, got int"),
        ([np.array(["a"])], TypeError, "sample 0: expected a numeric or bool dtype"),
        ([None, None], TypeError, "sample 0: expected arrays, numbers or strings, got None; "),
        ([1, None], TypeError, "sample 1: expected int as in sample 0, got None"),
    ],
)  # fmt: skip
def test_leaves_that_differ(leaves, error, message):
    with pytest.raises(error, match="^Collate: " + re.escape(message)):
        Collate()(leaves)
    with pytest.raises(error, match=r"^Collate: leaf \['a'\]\[1\] of " + re.escape(message)):
        Collate()([{"a": (0, leaf)} for leaf in leaves])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors(layout):
    """As a batch they are their parts; as a sample they are refused, in words that are no torch's."""
    parts = [torch.arange(3), torch.arange(2)]
    nested = torch.nested.nested_tensor(parts, layout=layout)
    expected = Collate(pinfeed.Pad())(parts)
    assert all(
        found is right is None or torch.equal(found, right)
        for found, right in zip(Collate(pinfeed.Pad())(nested), expected, strict=True)
    )
    for refuse in (
        lambda: Collate({"x": pinfeed.Pad()})([{"x": nested}] * 2),
        lambda: Collate({"x": pinfeed.Jagged()})([{"x": nested}] * 2),
        lambda: pinfeed.pad([nested, nested]),
        lambda: pinfeed.pad(nested),
        lambda: pinfeed.ArrayDataset(nested),
    ):
        with pytest.raises(TypeError, match=r"expected a dense tensor, got a nested one; .*unbind"):
            refuse()
    assert torch.equal(pinfeed.pad(list(nested.unbind())).values, expected.values)


class Columns(torch.utils.data.Dataset[Any]):
    """A dataset whose batches are columns."""

    def __init__(self, columns):
        self.columns = columns

    def __len__(self):
        return 4

    def __getitems__(self, indices):
        return self.columns


@pytest.mark.parametrize("columns", [{"x": torch.arange(4)}, (torch.arange(4), torch.arange(4))])
def test_columns_instead_of_samples(columns):
    dataset = Columns(columns)
    loader = torch.utils.data.DataLoader(dataset, 4, collate_fn=Collate())
    with pytest.raises(TypeError, match=r"__getitems__ (has to )?return a list of samples"):
        next(iter(loader))
    loader = torch.utils.data.DataLoader(pinfeed.IndexedDataset(dataset), 4, collate_fn=Collate())
    with pytest.raises(
        TypeError, match=r"expected 4 samples of Columns.__getitems__, got a .*, not col"
    ):
        next(iter(loader))


def test_an_error_without_a_long_tail():
    """What torch appends to its own messages is for its developers."""
    with pytest.raises(TypeError) as caught:
        Collate()([np.zeros((200, 500)), torch.zeros(200, 500).double().to_sparse()])
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([{"x": 1}, {"y": 1}], "sample 1: expected keys ['x'] as in sample 0, got ['y']"),
        (
            [{"x": 1}, {"x": 1, "y": 2}],
            "sample 1: expected keys ['x'] as in sample 0, got ['x', 'y']",
        ),
        ([{"x": 1}, {"x": 2}, 5], "sample 2: expected a dict as in sample 0, got int"),
        ([{"x": 1}, [1]], "sample 1: expected a dict as in sample 0, got list"),
        ([(1, 2), (1,)], "sample 1: expected 2 items as in sample 0, got 1"),
        ([[1], [1], [1, 2]], "sample 2: expected 1 items as in sample 0, got 2"),
        ([(1, 2), 5], "sample 1: expected a tuple as in sample 0, got int"),
        ([(1, 2), "ab"], "sample 1: expected a tuple as in sample 0, got str"),
        ([[1, 2], np.zeros(2)], "sample 1: expected a list as in sample 0, got ndarray"),
        ([Point(1, 2), {"x": 1}], "sample 1: expected a Point as in sample 0, got dict"),
        (
            [Record(1, 2), FrozenRecord(1, 2)],
            "sample 1: expected a Record as in sample 0, got Froz",
        ),
        ([Bag({"x": 1}), Bag({})], "sample 1: expected keys ['x'] as in sample 0, got []"),
        ([Couple([1]), Couple([])], "sample 1: expected 1 items as in sample 0, got 0"),
    ],
)
def test_structures_that_differ(samples, message):
    with pytest.raises(ValueError, match="Collate: " + re.escape(message)):
        Collate()(samples)
    nested = [{"a": [0, sample]} for sample in samples]
    with pytest.raises(ValueError, match=re.escape("Collate: leaf ['a'][1] of " + message)):
        Collate()(nested)


@pytest.mark.parametrize(
    "fields",
    [5, "Image", Stack, Image, torch.float32, {"a": 5}, ["x"], lambda x: x, {"a": {"b": Keep}}],
)
def test_fields_that_hold_no_field(fields):
    with pytest.raises(TypeError, match=r"Collate: fields.* must be a Field such as"):
        Collate(fields)


def test_a_field_without_parentheses():
    with pytest.raises(TypeError, match=r"fields\['a'\].*create it with parentheses"):
        Collate({"a": Image})
    samples = {"collate_fn": Collate, "batch_size": 2}
    for dataset in (pinfeed.ArrayDataset(np.zeros((2, 3))), [{"x": np.zeros(3)}] * 2):
        loader = torch.utils.data.DataLoader(dataset, **samples)
        with pytest.raises(TypeError, match=r"got ndarray; .* with parentheses: collate_fn=Coll"):
            next(iter(loader))


@pytest.mark.parametrize("rows", [False, True], ids=["samples", "Rows"])
@pytest.mark.parametrize(
    ("fields", "sources"),
    [
        ({"z": Stack()}, {"x": 1, "y": 2}),
        ({"x": Stack(), "z": Stack()}, {"x": 1, "y": 2}),
        ((Stack(),), (1, 2)),
        ((Stack(), Stack(), Stack()), (1, 2)),
        ((Stack(),), {"x": 1}),
        ({"x": Stack()}, (1, 2)),
        ((Stack(), Stack()), 1),
        ({"x": Stack()}, 1),
        (Point(Stack(), Stack()), {"x": 1, "y": 2}),
        ({"x": {"z": Stack()}}, {"x": {"y": 1}}),
        ({"x": {"z": Stack()}}, {"x": 1}),
    ],
)
def test_fields_that_do_not_mirror_the_sample(fields, sources, rows):
    dataset = pinfeed.ArrayDataset(arrays_in(sources))
    samples = dataset.__getitems__([0, 1])
    with pytest.raises(
        ValueError, match=r"Collate: fields.*fields must mirror the structure of samples"
    ):
        Collate(fields)(samples if rows else list(samples))


def arrays_in(node):
    if isinstance(node, dict):
        return {key: arrays_in(child) for key, child in node.items()}
    if isinstance(node, tuple):
        return tuple(arrays_in(child) for child in node)
    return np.zeros((3, 2))


def test_dtypes_that_torch_lacks():
    """A dataset may hold long doubles (Keep takes them), a batch can't."""
    rows = pinfeed.ArrayDataset({"x": np.zeros((3, 2), np.longdouble)}).__getitems__([0, 1])
    assert Collate({"x": Keep()})(rows)["x"][0].dtype == np.longdouble
    for samples in (rows, list(rows)):
        with pytest.raises(TypeError, match=r"Collate: leaf \['x'\].*float128"):
            Collate()(samples)


DETECTIONS = [
    {"boxes": torch.zeros(count, 4), "scores": torch.full((count,), float(count))}
    for count in (2, 1)
]


def packed(fields):
    tokens = pinfeed.RaggedArray.from_sequences([[1, 2, 3], [4]])
    dataset = ArrayDataset({"input_ids": tokens, "labels": tokens})
    sampler = pinfeed.PackSampler(tokens, seq_length=4, shuffle=False)
    return next(iter(DataLoader(dataset, batch_sampler=sampler, collate_fn=Collate(fields))))


HINTS = {
    "multiples without axes": (
        lambda: Collate(Pad(multiple_of=(4, 8), lengths=False))([np.ones((3, 5))]),
        ValueError,
        r"name the axes of a sample: axes=\(0, 1\)",
        lambda: Collate(Pad(axes=(0, 1), multiple_of=(4, 8), lengths=False))([np.ones((3, 5))]),
        torch.nn.functional.pad(torch.ones(1, 3, 5, dtype=torch.float64), (0, 3, 0, 1)),
    ),
    "None": (
        lambda: Collate({"x": Stack(), "y": None})([{"x": 1, "y": None}] * 2),
        TypeError,
        r"leaf \['y'\].*Keep\(\) leaves None",
        lambda: Collate({"x": Stack(), "y": Keep()})([{"x": 1, "y": None}] * 2),
        {"x": torch.tensor([1, 1]), "y": [None, None]},
    ),
    "None among arrays": (
        lambda: Collate()([{"x": np.zeros(2)}, {"x": None}]),
        TypeError,
        r"leaf \['x'\] of sample 1: .*NoneType; Keep\(\) leaves None",
        lambda: Collate({"x": Keep()})([{"x": "a"}, {"x": None}])["x"],
        ["a", None],
    ),
    "a field for a dict": (
        lambda: Collate(Image())([{"image": PHOTOS[0]}]),
        TypeError,
        r"got dict; fields mirror the structure of samples, such as {'image': Image\(...\)}",
        lambda: Collate({"image": Image()})([{"image": PHOTOS[0]}])["image"],
        Collate(Image())([PHOTOS[0]]),
    ),
    "a field for a tuple": (
        lambda: Collate(Image())(ArrayDataset((PHOTOS, PHOTOS)).__getitems__([0])),
        TypeError,
        r"got tuple; fields mirror the structure of samples, such as \(Image\(...\), None\)",
        lambda: Collate((Image(), None))([(PHOTOS[0], 0)])[0],
        Collate(Image())([PHOTOS[0]]),
    ),
    "a field for a dict of batches": (
        lambda: loaded(lambda samples: {"image": Collate()(samples)}, Image()),
        TypeError,
        r"got dict; fields mirror the structure of batches, such as {'image': Image\(...\)}",
        lambda: loaded(lambda samples: {"image": Collate()(samples)}, {"image": Image()})["image"],
        Collate(Image())(list(PHOTOS)),
    ),
    "labels of packed tokens": (
        lambda: packed({"input_ids": Pack(4)}),
        ValueError,
        r"leaf \['labels'\] of sample 1 .*; where documents are packed, this leaf too needs Pack\(4\)",
        lambda: packed({"input_ids": Pack(4), "labels": Pack(4)})["labels"],
        torch.tensor([[1, 2, 3, 4]]),
    ),
    "padded labels of packed tokens": (
        lambda: packed({"input_ids": Pack(4), "labels": Pad(-100)}),
        ValueError,
        (
            r"^Collate: fields\['labels'\]: Pad\(pad_value=-100\) makes a row of each document, and "
            r"Collate: fields\['input_ids'\] packs several into one; give this leaf a Pack too"
        ),
        lambda: packed({"input_ids": Pack(4), "labels": Pack(4, pad_value=-100)})["labels"],
        torch.tensor([[1, 2, 3, 4]]),
    ),
    "lists of tokens": (
        lambda: Collate()([{"ids": [0, 1]}, {"ids": [*np.arange(3)]}]),
        ValueError,
        r"got 3; Pad\(\) and Jagged\(\) take samples of different sizes",
        lambda: Collate({"ids": Jagged()})([{"ids": [0, 1]}, {"ids": [0, 1, 2]}])["ids"].values,
        torch.tensor([0, 1, 0, 1, 2]),
    ),
    "keys without a dict": (
        lambda: Collate(Pad(lengths="n")),
        ValueError,
        r"^Collate: fields: Pad names keys \['n'\], but is in no dict; .* \(Pad, Image: say True\)",
        lambda: Collate(Pad(lengths=True))([[1, 2], [3]]).lengths,
        torch.tensor([2, 1]),
    ),
    "a number too large": (
        lambda: Collate(Stack(torch.uint8))([np.array([300])]),
        ValueError,
        "got 300; pass a wider dtype",
        lambda: Collate(Stack(torch.int64))([np.array([300])]),
        torch.tensor([[300]]),
    ),
    "a field as the collate function": (
        lambda: first(DataLoader(list(PHOTOS), 3, collate_fn=Image())),
        TypeError,
        r"^Image: a field .* is no collate_fn by itself; .* collate_fn=Collate\(Image\(...\)\)",
        lambda: first(DataLoader(list(PHOTOS), 3, collate_fn=Collate(Image()))),
        Collate(Image())(list(PHOTOS)),
    ),
    "a Collate for fields": (
        lambda: from_numpy(PHOTOS, 3, fields=Collate(Image())),
        TypeError,
        r"got Collate; pass the fields as they are, without Collate\(...\)",
        lambda: first(from_numpy(PHOTOS, 3, fields=Image(), device="cpu")),
        Collate(Image())(list(PHOTOS)),
    ),
    "a dtype for a field": (
        lambda: Collate({"x": torch.float32}),
        TypeError,
        r"fields\['x'\] must be .*, got dtype; Stack\(torch.float32\)",
        lambda: Collate({"x": Stack(torch.float32)})([{"x": 1}])["x"],
        torch.tensor([1.0]),
    ),
    "a key with a slip": (
        lambda: Collate({"imge": Image()})([{"image": PHOTOS[0], "label": 1}]),
        ValueError,
        r"keys that samples have there, \['image', 'label'\], got 'imge'; did you mean 'image'\?",
        lambda: Collate({"image": Image()})([{"image": PHOTOS[0], "label": 1}])["image"],
        Collate(Image())([PHOTOS[0]]),
    ),
    "the key of another leaf with a slip": (
        lambda: Collate({"y": Stack().of("lable")})([{"label": 1}]),
        ValueError,
        r"is made of 'lable', but samples have \['label'\]; did you mean 'label'\?",
        lambda: Collate({"y": Stack().of("label")})([{"label": 1}])["y"],
        torch.tensor([1]),
    ),
    "a tuple for dicts": (
        lambda: Collate((Image(), None))([{"image": PHOTOS[0], "label": 1}]),
        ValueError,
        r"expected a dict as samples have there, got a tuple; fields must mirror the structure of samples",
        lambda: Collate({"image": Image()})([{"image": PHOTOS[0], "label": 1}])["label"],
        torch.tensor([1]),
    ),
    "a field too few": (
        lambda: Collate((Image(),))([(PHOTOS[0], 1)]),
        ValueError,
        r"expected 2 entries, as samples have there, got 1; .*; None is for what needs no field",
        lambda: Collate((Image(), None))([(PHOTOS[0], 1)])[1],
        torch.tensor([1]),
    ),
    "None for a sample": (
        lambda: Collate()([{"x": 1}, None]),
        ValueError,
        (
            "^Collate: sample 1: expected a dict as in sample 0, got NoneType; leave out samples that are "
            r"None: collate_fn=lambda samples: collate\(\["
        ),
        lambda: Collate()([sample for sample in ({"x": 1}, None) if sample is not None])["x"],
        torch.tensor([1]),
    ),
    "None for an image": (
        lambda: Collate()([PHOTOS[0], None]),
        TypeError,
        r"^Collate: sample 1: .*None.*; leave out samples that are None",
        lambda: Collate()([sample for sample in (PHOTOS[0], None) if sample is not None]),
        torch.from_numpy(PHOTOS[:1]),
    ),
    "a missing key": (
        lambda: Collate()([{"x": 1, "y": 2}, {"x": 1}]),
        ValueError,
        r"^Collate: sample 1: expected keys \['x', 'y'\] as in sample 0, got \['x'\]; it has no 'y'",
        lambda: Collate()([{"x": 1, "y": 2}, {"x": 1, "y": 3}])["y"],
        torch.tensor([2, 3]),
    ),
    "a seed without indices": (
        lambda: Collate(Image(augment=augment.RandomCrop(4)), seed=0)(list(PHOTOS)),
        ValueError,
        r"seed=0 needs the index of each sample; wrap the dataset: DataLoader\(pinfeed.IndexedDataset",
        lambda: first(
            DataLoader(
                IndexedDataset(list(PHOTOS)),
                3,
                collate_fn=Collate(Image(augment=augment.RandomCrop(4)), seed=0),
            )
        ),
        Collate(Image(augment=augment.RandomCrop(4)), seed=0)(
            ArrayDataset(PHOTOS).__getitems__([0, 1, 2])
        ),
    ),
    "what a detector returns": (
        lambda: pinfeed.to_numpy([DETECTIONS]),
        ValueError,
        (
            r"for a list with a dict for each sample, yield Collate\({'boxes': Jagged\(\), 'scores': Jagged"
            r"\(\)}\)\(outputs\)"
        ),
        lambda: [
            torch.from_numpy(scores)
            for scores in pinfeed.to_numpy(
                [Collate({"boxes": Jagged(), "scores": Jagged()})(DETECTIONS)]
            )["scores"]
        ],
        [torch.full((2,), 2.0), torch.full((1,), 1.0)],
    ),
    "numbers to pad": (
        lambda: Collate({"x": Pad()})([{"x": 1}, {"x": 2}]),
        TypeError,
        "got int; single numbers need no field: leave it out",
        lambda: Collate({})([{"x": 1}, {"x": 2}])["x"],
        torch.tensor([1, 2]),
    ),
}


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS)
def test_hints(hint):
    check_hint(*hint)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16])
def test_lists_of_numbers_are_arrays_to_stack(dtype):
    samples = [[1, 2, 3], [4, 5, 6]]
    assert_same(Collate(Stack(dtype))(samples), torch.tensor(samples, dtype=dtype))
    assert_same(Collate()(samples), default_collate(samples))
    with pytest.raises(ValueError, match=r"sample 1: expected shape \(3,\)"):
        Collate(Stack(dtype))([[1, 2, 3], [4]])


def test_a_sample_of_rows_is_told_with_its_index():
    tokens = pinfeed.RaggedArray.from_sequences([[1], [2], [3, 4], [5]])
    rows = ArrayDataset({"x": tokens}).__getitems__([3, 0, 2])
    with pytest.raises(ValueError, match=r"leaf \['x'\] of sample 2 of the batch \(index 2\): "):
        Collate()(rows)
    rows = ArrayDataset({"x": np.array([1, 5, 300, 7])}).__getitems__([1, 2])
    with pytest.raises(
        ValueError, match=r"of sample 1 of the batch \(index 2\): .*got 300"
    ) as caught:
        Collate({"x": Stack(torch.uint8)})(rows)
    (problem,) = caught.value.args
    assert vars(problem) == {
        "subject": "Collate: leaf ['x']",
        "sample": 1,
        "part": None,
        "index": 2,
        "expected": "integers that uint8 can hold",
        "got": "300",
        "hint": "pass a wider dtype",
    }
    again = pickle.loads(pickle.dumps(caught.value))
    assert repr(again) == repr(caught.value) == f"ValueError({str(caught.value)!r})"
