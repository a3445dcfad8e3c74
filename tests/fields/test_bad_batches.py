"""Batches and fields that don't fit: messages name entry, sample and value, and their hints work."""

import pickle
import re
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from torch.utils.data import DataLoader, default_collate

import pinfeed
from hints import LABELS, PHOTOS, Hints, by, check_hint, first, loaded, of
from pinfeed import (
    ArrayDataset,
    Collate,
    Image,
    IndexedDataset,
    Jagged,
    Keep,
    Mask,
    Pack,
    Pad,
    Stack,
    augment,
    from_numpy,
)
from samples import Bag, Couple, FrozenRecord, Point, Record, assert_same

LARGE = (200, 500)


@pytest.mark.parametrize("samples", [{"x": np.zeros(3)}, 5, None, "text"])
def test_inputs_that_are_not_batches(samples):
    with pytest.raises(TypeError, match="Collate: expected a sequence of samples, got"):
        Collate()(samples)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors(layout):
    """A nested tensor as the samples is split into its parts; as one sample it raises."""
    parts = [torch.arange(3), torch.arange(2)]
    nested = torch.nested.nested_tensor(parts, layout=layout)
    expected = Collate(pinfeed.Pad())(parts)
    assert all(
        actual is right is None or torch.equal(actual, right)
        for actual, right in zip(Collate(pinfeed.Pad())(nested), expected, strict=True)
    )
    for refuse in (
        lambda: Collate({"x": pinfeed.Pad()})([{"x": nested}] * 2),
        lambda: Collate({"x": pinfeed.Jagged()})([{"x": nested}] * 2),
        lambda: pinfeed.functional.pad([nested, nested]),
        lambda: pinfeed.functional.pad(nested),
        lambda: pinfeed.ArrayDataset(nested),
    ):
        with pytest.raises(
            TypeError,
            match=r"expected a dense tensor, got a nested one; .*unbind\(\).*\.from_sequences",
        ):
            refuse()
    assert torch.equal(pinfeed.functional.pad(list(nested.unbind())).values, expected.values)
    dataset = pinfeed.ArrayDataset(pinfeed.RaggedArray.from_sequences(nested.unbind()))
    assert [row.tolist() for row in dataset] == [[0, 1, 2], [0, 1]]


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
    with pytest.raises(TypeError, match="have a dataset's __getitems__ return a list of samples"):
        next(iter(loader))
    loader = torch.utils.data.DataLoader(pinfeed.IndexedDataset(dataset), 4, collate_fn=Collate())
    with pytest.raises(
        TypeError, match=r"expected 4 samples of Columns.__getitems__, got a .*, not col"
    ):
        next(iter(loader))


def test_torch_errors_lose_their_developer_text():
    """torch appends text for developers to its messages."""
    with pytest.raises(TypeError) as caught:
        Collate()([np.zeros((200, 500)), torch.zeros(200, 500).double().to_sparse()])
    assert len(str(caught.value).splitlines()) == 1


# Samples, and the message about one of them.
DIFFERENT = [
    ([np.zeros(2), np.zeros(2), np.zeros(3)], "sample 2: expected shape (2,) as in sample 0, got (3,)"),
    ([np.zeros((2, 1)), np.zeros(2)], "sample 1: expected shape (2, 1) as in sample 0, got (2,)"),
    ([torch.zeros(2), torch.zeros(3)], "sample 1: expected shape (2,) as in sample 0, got (3,)"),
    ([torch.zeros(LARGE), torch.zeros(3)], "sample 1: expected shape (200, 500) as in sample 0, got (3,)"),
    ([{"x": 1}, {"y": 1}], "sample 1: expected keys ['x'] as in sample 0, got ['y']"),
    ([{"x": 1}, {"x": 1, "y": 2}], "sample 1: expected keys ['x'] as in sample 0, got ['x', 'y']"),
    ([{"x": 1}, {"x": 2}, 5], "sample 2: expected a dict as in sample 0, got int"),
    ([{"x": 1}, [1]], "sample 1: expected a dict as in sample 0, got list"),
    ([(1, 2), (1,)], "sample 1: expected 2 items as in sample 0, got 1"),
    ([[1], [1], [1, 2]], "sample 2: expected 1 items as in sample 0, got 2"),
    ([(1, 2), 5], "sample 1: expected a tuple as in sample 0, got int"),
    ([(1, 2), "ab"], "sample 1: expected a tuple as in sample 0, got str"),
    ([[1, 2], np.zeros(2)], "sample 1: expected a list as in sample 0, got ndarray"),
    ([Point(1, 2), {"x": 1}], "sample 1: expected a Point as in sample 0, got dict"),
    ([Record(1, 2), FrozenRecord(1, 2)], "sample 1: expected a Record as in sample 0, got Froz"),
    ([Bag({"x": 1}), Bag({})], "sample 1: expected keys ['x'] as in sample 0, got []"),
    ([Couple([1]), Couple([])], "sample 1: expected 1 items as in sample 0, got 0"),
]  # fmt: skip
UNKNOWN = [
    ([torch.zeros(LARGE), 5], "sample 1: expected a NumPy array or a torch tensor, got int"),
    ([np.array(["a"])], "sample 0: expected a numeric or bool dtype"),
    ([None, None], "sample 0: expected an array, a tensor, a number or a string, got NoneType; "),
    ([1, None], "sample 1: expected int as in sample 0, got None"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("samples", "message", "error"),
    [(*row, ValueError) for row in DIFFERENT] + [(*row, TypeError) for row in UNKNOWN],
)
def test_samples_that_differ(samples, message, error):
    with pytest.raises(error, match="^Collate: " + re.escape(message)):
        Collate()(samples)
    nested = [{"a": [0, sample]} for sample in samples]
    with pytest.raises(error, match=re.escape("Collate: entry ['a'][1] of " + message)):
        Collate()(nested)


@pytest.mark.parametrize(
    "fields",
    [5, "Image", Stack, Image, torch.float32, {"a": 5}, ["x"], lambda x: x, {"a": {"b": Keep}}],
)
def test_specs_without_fields(fields):
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


@pytest.mark.parametrize("kind", ["array", "memmap", "path", "directory"])
def test_dtypes_that_torch_lacks(kind, tmp_path):
    """Keep accepts long doubles, also of files, which a batch can't contain."""
    values = np.arange(6, dtype=np.longdouble).reshape(3, 2)
    path = tmp_path / ("directory" if kind == "directory" else "x.npy")
    pinfeed.write_array(path, values)
    source = values if kind == "array" else path
    if kind == "memmap":
        source = np.load(path, mmap_mode="r")
    rows = pinfeed.ArrayDataset({"x": source}).__getitems__([0, 1])
    kept = Collate({"x": Keep()})(rows)["x"]
    assert (kept[1].dtype, kept[1].tolist()) == (np.longdouble, [2, 3])
    for samples in (rows, list(rows)):
        with pytest.raises(TypeError, match=r"Collate: entry \['x'\].*float128"):
            Collate()(samples)


DETECTIONS = [
    {"boxes": torch.zeros(count, 4), "scores": torch.full((count,), float(count))}
    for count in (2, 1)
]


def packed(fields):
    tokens = pinfeed.RaggedArray.from_sequences([[1, 2, 3], [4]])
    dataset = ArrayDataset({"input_ids": tokens, "labels": tokens})
    sampler = pinfeed.samplers.PackSampler(tokens, seq_length=4, shuffle=False)
    return next(iter(DataLoader(dataset, batch_sampler=sampler, collate_fn=Collate(fields))))


def labels(fields):
    return packed(fields)["labels"]


def seeded():
    return Collate(Image(augment=augment.RandomCrop(4)), seed=0)


def key_points(samples):
    collate = Collate({"image": Image(), "points": pinfeed.Points()})
    return collate([{"image": PHOTOS[0], "points": points} for points in samples])["points"].values


IMAGE = Collate(Image())([PHOTOS[0]])
SAMPLE, BATCH = {"image": PHOTOS[0], "label": 1}, {"image": IMAGE, "label": torch.tensor([1])}

HINTS: Hints = {
    "multiples without axes": (lambda axes: Collate(Pad(multiple_of=(4, 8), lengths=False, **axes))([np.ones((3, 5))]),
        {}, {"axes": (0, 1)}, torch.nn.functional.pad(torch.ones(1, 3, 5, dtype=torch.float64), (0, 3, 0, 1)),
        ValueError, r"name the axes of a sample: axes=\(0, 1\)"),
    "None": (of([{"x": 1, "y": None}] * 2), {"x": Stack(), "y": None}, {"x": Stack(), "y": Keep()},
        {"x": torch.tensor([1, 1]), "y": [None, None]},
        TypeError, r"entry \['y'\].*Keep\(\) leaves None"),
    "None under a field": (of([{"x": 1, "y": None}] * 2), {"y": Image()}, {"y": Image().allow_missing()},
        {"x": torch.tensor([1, 1])}, TypeError, r"entry \['y'\].*; Image\(...\).allow_missing\(\) leaves out"),
    "None among arrays": (of([{"x": np.zeros(2)}, {"x": None}]), None, {"x": Keep()}, {"x": [np.zeros(2), None]},
        TypeError, r"entry \['x'\] of sample 1: .*NoneType; Keep\(\) leaves None"),
    "a field for a dict": (of([SAMPLE]), Image(), {"image": Image()}, BATCH,
        TypeError, r"got dict; fields mirror the structure of samples, such as {'image': Image\(...\)}"),
    "a field for a tuple": (of(ArrayDataset((PHOTOS, LABELS)).__getitems__([0])), Image(), (Image(), None),
        [IMAGE, torch.from_numpy(LABELS[:1])],
        TypeError, r"got a tuple of 2 int64/ndarray; fields mirror the structure of samples, such as \(Image\(...\), None\)"),
    "a field for a dict of batches": (lambda fields: loaded(lambda samples: {"image": Collate()(samples)}, fields),
        Image(), {"image": Image()}, {"image": Collate(Image())(list(PHOTOS))},
        TypeError, r"got dict; fields mirror the structure of batches, such as {'image': Image\(...\)}"),
    "labels of packed tokens": (labels, {"input_ids": Pack(seq_length=4)}, {"input_ids": Pack(seq_length=4), "labels": Pack(seq_length=4)},
        torch.tensor([[1, 2, 3, 4]]),
        ValueError, r"entry \['labels'\] of sample 1 .*; documents are packed, so this entry needs Pack\(seq_length=4\) too"),
    "padded labels of packed tokens": (labels, {"input_ids": Pack(seq_length=4), "labels": Pad(pad_value=-100)},
        {"input_ids": Pack(seq_length=4), "labels": Pack(seq_length=4, pad_value=-100)},
        torch.tensor([[1, 2, 3, 4]]),
        ValueError, r"^Collate: fields\['labels'\]: Pad\(pad_value=-100\) makes a row of each document, but .*; give this entry a Pack with the same pad_value"),
    "lists of different lengths in lists": (by(Jagged()), [[[1, 2], [3]], [[4, 5]]],
        [np.concatenate([[1, 2], [3]]), np.concatenate([[4, 5]])],
        pinfeed.JaggedBatch(torch.tensor([1, 2, 3, 4, 5]), torch.tensor([0, 3, 5])),
        TypeError, r"sample 0: .* got list at position 0; np.asarray\(list\) converts nested lists of one length; np.concatenate\(list\) joins others"),
    "the lengths of joined lists": (by(Jagged()), [[[1, 2], [3]], [[4, 5]]], [[2, 1], [2]],
        pinfeed.JaggedBatch(torch.tensor([2, 1, 2]), torch.tensor([0, 2, 3])),
        TypeError, r"and \[len\(x\) for x in list\] in another entry keeps their lengths$"),
    "no boxes beside others": (by(Jagged()), [np.ones((1, 4), np.float32), np.asarray([])],
        [np.ones((1, 4), np.float32), np.zeros((0, 4), np.float32)],
        pinfeed.JaggedBatch(torch.ones(1, 4), torch.tensor([0, 1, 1])),
        ValueError, r"got shape \(0,\); np\.zeros\(\(0, 4\), dtype\) is an empty sample"),
    "boxes after none": (by(Jagged()), [np.asarray([]), np.ones((1, 4), np.float32)],
        [np.zeros((0, 4), np.float32), np.ones((1, 4), np.float32)],
        pinfeed.JaggedBatch(torch.ones(1, 4), torch.tensor([0, 0, 1])),
        ValueError, r"got shape \(1, 4\); np\.zeros\(\(0, 4\), dtype\) is an empty sample"),
    "lists of lists to stack": (lambda field: Collate({"x": field})([{"x": [[1, 2], [3]]}])["x"], Stack(torch.int64), Pad(), torch.tensor([[[1, 2], [3, 0]]]),
        ValueError, r"inhomogeneous part; Pad\(\) pads lists of different lengths$"),
    "photos of different sizes": (lambda fields: Collate(fields)([{"image": PHOTOS[0]}, {"image": PHOTOS[1, :4]}])["image"].shape, None, {"image": Image(pad_value=0)},
        torch.Size([2, 3, 8, 6]), ValueError, r"got \(4, 6, 3\); Image\(pad_value=0\) pads images of different sizes"),
    "None among images": (lambda second: Collate({"image": Image()})([{"image": PHOTOS[0]}, {"image": second}])["image"], None, np.zeros_like(PHOTOS[0]),
        torch.cat([Collate(Image())([PHOTOS[0]]), torch.zeros(1, 3, 8, 6)]), TypeError, r"NoneType; leave out samples without an image, or pass an image of zeros"),
    "a length in the place of a name": (lambda lengths: Collate(Pad(*lengths[0], **lengths[1]))([[1, 2], [3]]).values, ([1], {}), ([], {"max_length": 1}),
        torch.tensor([[1], [3]]), TypeError, r"got 1; write pad_value=1, or max_length=1 for a maximum length$"),
    "a token for its number": (lambda value: Collate(Pad(pad_value=value))([[1, 2], [3]]).values, "<pad>", 9,
        torch.tensor([[1, 2], [3, 9]]), TypeError, r"got '<pad>'; the number of a token is tokenizer\.pad_token_id$"),
    "a side for a number": (lambda options: Collate(Pad(**options))([[1, 2], [3]]).values, {"pad_value": "left"}, {"side": "left"},
        torch.tensor([[1, 2], [0, 3]]), TypeError, r"got 'left'; pass side='left'$"),
    "the name of a side": (lambda side: Collate(Pad(side=side))([[1, 2], [3]]).values, "Left", "left",
        torch.tensor([[1, 2], [0, 3]]), ValueError, r"got 'Left'; pass 'left'$"),
    "a key for a field": (of([{"label": 1}]), {"y": "label"}, {"y": Stack().from_key("label")}, {"y": torch.tensor([1])},
        TypeError, r"got str; Stack\(\)\.from_key\('label'\) reads the entry under the key 'label'$"),
    "a loader for fields": (lambda make: make(DataLoader([1, 2], 2)), Collate, lambda loader: first(DataLoader(loader.dataset, 2, collate_fn=Collate())),
        torch.tensor([1, 2]), TypeError, r"got DataLoader; pass the Collate to the loader: DataLoader\(dataset, collate_fn=Collate\(fields\)\)"),
    "a range to pad": (by(Pad(lengths=False)), [range(2), range(1)], [list(range(2)), list(range(1))], torch.tensor([[0, 1], [0, 0]]),
        TypeError, r"got range; list\(x\) converts it$"),
    "keys of a Jagged without a dict": (lambda offsets: Collate(Jagged(offsets=offsets))([[1]]).values, "n", None, torch.tensor([1]),
        ValueError, r"make the samples dicts, or leave the keys out$"),
    "a mask of packed tokens": (lambda options: Pack(seq_length=4, **options).extra_keys(), {"mask": True}, {"attention_mask": True}, ("attention_mask",),
        TypeError, r"unknown argument 'mask'; pass attention_mask$"),
    "lists of tokens": (of([{"ids": [0, 1]}, {"ids": [*np.arange(3)]}]), None, {"ids": Jagged()},
        {"ids": pinfeed.JaggedBatch(torch.tensor([0, 1, 0, 1, 2]), torch.tensor([0, 2, 5]))},
        ValueError, r"got 3; Pad\(\) and Jagged\(\) take samples of different sizes"),
    "lists of arrays of other counts": (of([{"x": [PHOTOS[0]]}, {"x": []}]), None, {"x": Keep()}, {"x": [[PHOTOS[0]], []]},
        ValueError, r"expected 1 items as in sample 0, got 0; Keep\(\) leaves lists"),
    "lists of words of other counts": (of([{"x": ["a", "b"]}, {"x": ["a"]}]), None, {"x": Keep()}, {"x": [["a", "b"], ["a"]]},
        ValueError, r"expected 2 items as in sample 0, got 1; Keep\(\) leaves lists"),
    "arrays of other lengths, kept": (of([{"x": LABELS[:1]}, {"x": LABELS[:2]}]), None, {"x": Keep()}, {"x": [LABELS[:1], LABELS[:2]]},
        ValueError, r"Keep\(\) leaves them as they are"),
    "a mask with an axis in front": (lambda axes: Collate(Image(dtype=torch.int64, **axes))([np.ones((1, 4, 5), np.uint8)]),
        {"input": "HW", "output": "HW"}, {"input": "CHW", "output": "CHW"}, torch.ones(1, 1, 4, 5, dtype=torch.int64),
        ValueError, r'got uint8 \(1, 4, 5\); pass input="CHW", output="CHW", or mask\[0\]'),
    "a mask with an axis behind": (lambda axes: Collate(Image(dtype=torch.int64, **axes))([np.ones((4, 5, 1), np.uint8)]),
        {"input": "HW", "output": "HW"}, {"input": "HWC", "output": "CHW"}, torch.ones(1, 1, 4, 5, dtype=torch.int64),
        ValueError, r'got uint8 \(4, 5, 1\); pass input="HWC", output="CHW", or mask\[..., 0\]'),
    "flat key points": (lambda points: key_points([points, points[:0]]), [1, 2, 2, 3, 4, 2],
        np.reshape([1.0, 2, 2, 3, 4, 2], (-1, 3)), torch.tensor([[1.0, 2, 2], [3, 4, 2]]),
        ValueError, r"got an array of shape \(6,\); np.reshape\(points, \(-1, 3\)\) converts COCO's x"),
    "flat key points of each object": (lambda points: key_points([points, points]), [[1, 2, 2, 3, 4, 2]],
        np.reshape([[1.0, 2, 2, 3, 4, 2]], (-1, 2, 3)), torch.tensor([[[1.0, 2, 2], [3, 4, 2]]] * 2),
        ValueError, r"got an array of shape \(1, 6\); np.reshape\(points, \(-1, 2, 3\)\) converts COCO's x"),
    "names of files": (lambda image: Collate(Image())([image]), "cat.jpg", PIL.Image.fromarray(PHOTOS[0]), IMAGE,
        TypeError, r"got str; open files in the dataset's __getitem__: PIL.Image.open\(path\)"),
    "bytes of files": (lambda image: Collate(Image())([image]), b"\xff\xd8", PIL.Image.fromarray(PHOTOS[0]), IMAGE,
        TypeError, r"got bytes; open files in the dataset's __getitem__: PIL.Image.open\(io.BytesIO\(data\)\)"),
    "keys without a dict": (lambda lengths: Collate(Pad(lengths=lengths))([[1, 2], [3]]).lengths, "n", True,
        torch.tensor([2, 1]),
        ValueError, r"^Collate: fields: Pad adds the keys \['n'\], which needs a dict; .* pass True instead of a key"),
    "keys of a mask without a dict": (lambda sizes: Collate(Mask(pad_value=0, sizes=sizes))([PHOTOS[0][..., 0]]).lengths,
        "s", True, torch.tensor([PHOTOS[0].shape[:2]]),
        ValueError, r"^Collate: fields: Mask adds the keys \['s'\], which needs a dict; .* pass True instead of a key"),
    "a number too large": (of([np.array([300])]), Stack(torch.uint8), Stack(torch.int64), torch.tensor([[300]]),
        ValueError, "got 300; pass a wider dtype"),
    "a field as the collate function": (lambda collate: first(DataLoader(list(PHOTOS), 3, collate_fn=collate)),
        Image(), Collate(Image()), Collate(Image())(list(PHOTOS)),
        TypeError, r"^Image: a field .* is not a collate_fn by itself; .* collate_fn=Collate\(Image\(...\)\)"),
    "a Collate for fields": (lambda fields: first(from_numpy(PHOTOS, 3, fields=fields, device="cpu")),
        Collate(Image()), Image(), Collate(Image())(list(PHOTOS)),
        TypeError, r"got Collate; pass the fields as they are, without Collate\(...\)"),
    "a dtype for a field": (of([{"x": 1}]), {"x": torch.float32}, {"x": Stack(torch.float32)},
        {"x": torch.tensor([1.0])},
        TypeError, r"fields\['x'\] must be .*, got dtype; Stack\(torch.float32\)"),
    "a key with a slip": (of([SAMPLE]), {"imge": Image()}, {"image": Image()}, BATCH,
        ValueError, r"keys of samples, \['image', 'label'\], got 'imge'; did you mean 'image'\?"),
    "the key of another entry with a slip": (of([{"label": 1}]), {"y": Stack().from_key("lable")}, {"y": Stack().from_key("label")},
        {"y": torch.tensor([1])},
        ValueError, r"is read from 'lable', but samples have \['label'\]; did you mean 'label'\?"),
    "a tuple for dicts": (of([SAMPLE]), (Image(), None), {"image": Image()}, BATCH,
        ValueError, r"expected a dict as in samples, got a tuple; fields must mirror the structure of samples"),
    "a field too few": (of([(PHOTOS[0], 1)]), (Image(),), (Image(), None), [IMAGE, torch.tensor([1])],
        ValueError, r"expected 2 entries, as in samples, got 1; .*; None means no field"),
    "None for a sample": (by(None), [{"x": 1}, None], [{"x": 1}], {"x": torch.tensor([1])},
        ValueError, r"^Collate: sample 1: .*, got NoneType; leave out samples that are None: collate_fn=lambda samples: collate\(\["),
    "None for an image": (by(None), [PHOTOS[0], None], [PHOTOS[0]], torch.from_numpy(PHOTOS[:1]),
        TypeError, r"^Collate: sample 1: .*None.*; leave out samples that are None"),
    "a missing key": (by(None), [{"x": 1, "y": 2}, {"x": 1}], [{"x": 1, "y": 2}, {"x": 1, "y": 3}],
        {"x": torch.tensor([1, 1]), "y": torch.tensor([2, 3])},
        ValueError, r"^Collate: sample 1: expected keys \['x', 'y'\] as in sample 0, got \['x'\]; it has no 'y'"),
    "a seed without indices": (lambda dataset: first(DataLoader(dataset, 3, collate_fn=seeded())),
        list(PHOTOS), IndexedDataset(list(PHOTOS)), seeded()(ArrayDataset(PHOTOS).__getitems__([0, 1, 2])),
        ValueError, r"index of each sample, got a plain list of samples; wrap the loader's dataset: DataLoader\(pinfeed.IndexedDataset"),
    "a seed and a list of samples": (seeded(), [IndexedDataset(PHOTOS)[i] for i in range(3)],
        IndexedDataset(PHOTOS).__getitems__([0, 1, 2]), seeded()(ArrayDataset(PHOTOS).__getitems__([0, 1, 2])),
        ValueError, r"got a plain list of samples; wrap the .* to call the Collate yourself, pass dataset.__getitems__\(\[0, 1, ...\]\) of an IndexedDataset"),
    "what a detector returns": (lambda outputs: list(pinfeed.to_numpy([outputs])["scores"]),
        DETECTIONS, Collate({"boxes": Jagged(), "scores": Jagged()})(DETECTIONS),
        [np.full(2, 2, np.float32), np.full(1, 1, np.float32)],
        ValueError, r"for a list with a dict for each sample, yield Collate\({'boxes': Jagged\(\), 'scores': Jagged\(\)}\)\(outputs\)"),
    "numbers to pad": (of([{"x": 1}, {"x": 2}]), {"x": Pad()}, {}, {"x": torch.tensor([1, 2])},
        TypeError, "got int; single numbers need no field: leave it out"),
}  # fmt: skip


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS)
def test_hints(hint):
    check_hint(*hint)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16])
def test_lists_of_numbers_suggest_arrays(dtype):
    samples = [[1, 2, 3], [4, 5, 6]]
    assert_same(Collate(Stack(dtype))(samples), torch.tensor(samples, dtype=dtype))
    assert_same(Collate()(samples), default_collate(samples))
    with pytest.raises(ValueError, match=r"sample 1: expected shape \(3,\)"):
        Collate(Stack(dtype))([[1, 2, 3], [4]])


def test_a_row_as_a_sample_is_reported_with_its_index():
    tokens = pinfeed.RaggedArray.from_sequences([[1], [2], [3, 4], [5]])
    rows = ArrayDataset({"x": tokens}).__getitems__([3, 0, 2])
    with pytest.raises(ValueError, match=r"entry \['x'\] of sample 2 of the batch \(index 2\): "):
        Collate()(rows)
    rows = ArrayDataset({"x": np.array([1, 5, 300, 7])}).__getitems__([1, 2])
    with pytest.raises(
        ValueError, match=r"of sample 1 of the batch \(index 2\): .*got 300"
    ) as caught:
        Collate({"x": Stack(torch.uint8)})(rows)
    (problem,) = caught.value.args
    assert vars(problem) == {
        "subject": "Collate: entry ['x']",
        "sample": 1,
        "part": None,
        "index": 2,
        "expected": "integers that uint8 can hold",
        "got": "300",
        "hint": "pass a wider dtype",
        "differs": False,
    }
    again = pickle.loads(pickle.dumps(caught.value))
    assert repr(again) == repr(caught.value) == f"ValueError({str(caught.value)!r})"
