"""Boxes, points and masks transformed with their images."""

import pickle

import numpy as np
import PIL.Image
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import pinfeed
from messages import check
from pinfeed import augment
from samples import assert_same

pytestmark = pytest.mark.kernels


def collated(sample, field=None, **fields):
    image = pinfeed.Image(pad_value=0, **(field or {}))
    fields = {"image": image, **fields}
    collate = pinfeed.Collate(fields)
    return collate(sample if isinstance(sample, list) else [sample])


def photo(height, width, **more):
    return {"image": np.zeros((height, width, 3), np.uint8), **more}


FORMATS = {"xyxy": [[1.0, 2, 5, 8]], "xywh": [[1.0, 2, 4, 6]], "cxcywh": [[3.0, 5, 4, 6]]}


@pytest.mark.parametrize("given_format", FORMATS)
@pytest.mark.parametrize("output", [None, *FORMATS])
@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, lambda x: np.array(x, np.int64)])
def test_formats(given_format, output, kind):
    sample = photo(10, 20, boxes=kind(FORMATS[given_format]), labels=[1])
    boxes = pinfeed.Boxes(format=given_format, output=output)
    values = collated(sample, boxes=boxes)["boxes"].values
    assert values.dtype == torch.float32
    assert values.tolist() == FORMATS[output or given_format]


def test_fractions():
    samples = [
        photo(10, 20, boxes=[[2, 1, 12, 9]], labels=[0]),
        photo(20, 10, boxes=[[1, 2, 9, 12]], labels=[0]),
    ]
    of_batch = collated(samples, boxes=pinfeed.Boxes(output="cxcywh", normalized=True))["boxes"]
    assert torch.allclose(
        of_batch.values, torch.tensor([[0.35, 0.25, 0.5, 0.4], [0.25, 0.35, 0.4, 0.5]])
    )
    of_image = collated(samples, boxes=pinfeed.Boxes(normalized="image"))["boxes"]
    assert torch.allclose(
        of_image.values, torch.tensor([[0.1, 0.1, 0.6, 0.9], [0.1, 0.1, 0.9, 0.6]])
    )


def test_one_rule_drops_all_entries_of_an_object():
    boxes = [[-5, -5, 3, 3], [0, 0, 0.5, 9], [8, 1, 8, 1], [2, 2, 50, 50], [4, 0, 4, 4], [12, 0, 15, 5]]  # fmt: skip
    numbers = np.arange(6)
    sample = photo(
        10,
        11,
        boxes=np.array(boxes),
        labels=numbers,
        area=numbers * 1.5,
        masks=np.ones((6, 10, 11), bool) & (numbers % 2 == 0)[:, None, None],
        points=np.stack([numbers, numbers, numbers * 0 + 2], 1)[:, None],
    )
    none = photo(4, 4, **{key: [] for key in ("boxes", "labels", "area", "masks", "points")})
    batch = collated(
        [none, sample],
        boxes=pinfeed.Boxes(labels=("labels", "area")),
        masks=pinfeed.InstanceMasks(dtype=torch.bool),
        points=pinfeed.Points(),
    )
    assert batch["boxes"].values.tolist() == [[0, 0, 3, 3], [2, 2, 11, 10]]
    assert batch["labels"].values.tolist() == [0, 3]
    assert batch["area"].values.tolist() == [0, 4.5]
    assert batch["points"].values.tolist() == [[[0, 0, 2]], [[3, 3, 2]]]
    assert batch["masks"].values.shape == (2, 10, 11)
    assert batch["masks"].values[0].all()
    assert not batch["masks"].values[1].any()
    for key in ("boxes", "labels", "area", "points", "masks"):
        assert batch[key].offsets.tolist() == [0, 0, 2]
    targets = pinfeed.functional.unbind({key: batch[key] for key in ("boxes", "labels", "masks")})
    assert [len(target["masks"]) for target in targets] == [0, 2]


NONE = {
    "a list": {"boxes": []},
    "an array": {"boxes": np.array([])},
    "a tensor": {"boxes": torch.tensor([])},
    "no rows": {"boxes": np.zeros((0, 4), np.int64)},
    "outside": {"boxes": [[9, 9, 12, 12]], "labels": [1], "masks": np.ones((1, 8, 8), np.uint8)},
}


@pytest.mark.parametrize("objects", NONE.values(), ids=NONE)
def test_batches_without_any_object(objects):
    sample = photo(8, 8, **{"labels": [], "masks": []} | objects)
    batch = collated([sample] * 2, boxes=pinfeed.Boxes(), masks=pinfeed.InstanceMasks())
    assert batch["boxes"].values.shape == (0, 4)
    assert batch["masks"].values.shape == (0, 8, 8)
    for key in ("boxes", "labels", "masks"):
        assert batch[key].offsets.tolist() == [0, 0, 0]


def test_minimum_box_size():
    boxes = [[0, 0, 3, 3], [0, 0, 4, 2], [0, 0, 9, 9]]
    keep = lambda **rule: collated(
        photo(9, 9, boxes=boxes, labels=[0, 1, 2]), boxes=pinfeed.Boxes(**rule)
    )["labels"].values.tolist()
    assert keep() == [0, 1, 2]
    assert keep(min_size=3) == [0, 2]
    assert keep(min_area=9) == [0, 2]
    assert keep(min_size=0, min_area=10) == [2]


@pytest.mark.parametrize("size", [(4, 4), (37, 12), (90, 144)], ids=str)
def test_masks_are_resized_like_pil(size):
    masks = np.random.default_rng(0).integers(0, 256, (2, 61, 80), dtype=np.uint8)
    view = {"augment": augment.Resize(size)}
    sample = photo(61, 80, masks=masks, scene=masks[0])
    batch = collated(sample, view, masks=pinfeed.InstanceMasks(), scene=pinfeed.Mask())
    pil = [
        PIL.Image.fromarray(mask).resize(size[::-1], PIL.Image.Resampling.NEAREST) for mask in masks
    ]
    expected = torch.from_numpy(np.stack([np.asarray(mask) for mask in pil]))
    assert torch.equal(batch["masks"].values, expected)
    assert torch.equal(batch["scene"], expected[:1].long())
    exact = torch.nn.functional.interpolate(
        torch.from_numpy(masks)[None], size, mode="nearest-exact"
    )
    assert torch.equal(batch["masks"].values, exact[0])


PAIR = [[0, 0, 4, 4], [6, 6, 14, 14]]  # the center crop drops the first box
PARTIAL = {
    "lists": ({}, lambda values: list(values)),
    "arrays": ({}, np.array),
    "jagged": ({"iscrowd": pinfeed.Jagged()}, np.array),
    "padded": ({"iscrowd": pinfeed.Pad(lengths=True)}, list),
}


@pytest.mark.parametrize(("fields", "kind"), PARTIAL.values(), ids=PARTIAL)
def test_values_of_dropped_boxes_are_dropped(fields, kind):
    samples = [photo(20, 20, boxes=PAIR, labels=[1, 2], iscrowd=kind([0, 1]))] * 2
    view = {"augment": augment.CenterCrop(10)}
    hint = "Boxes(labels=('labels', 'iscrowd'))"
    wrong = lambda: collated(samples, view, boxes=pinfeed.Boxes(), **fields)
    check(wrong, ValueError, "['iscrowd'] has a value for each box of ['boxes']", hint, "Keep()")
    labels = pinfeed.Boxes(labels=("labels", "iscrowd"))
    targets = pinfeed.functional.unbind(
        {key: collated(samples, view, boxes=labels)[key] for key in ("boxes", "labels", "iscrowd")}
    )
    assert [target["iscrowd"].tolist() for target in targets] == [[1], [1]]
    kept = collated(samples, view, boxes=pinfeed.Boxes(), iscrowd=pinfeed.Keep())
    assert [list(values) for values in kept["iscrowd"]] == [[0, 1], [0, 1]]
    whole = collated(samples, boxes=pinfeed.Boxes(), **fields)  # drops nothing
    assert len(whole["boxes"].values) == 4


@pytest.mark.parametrize(("key", "column"), [("size", [20, 20]), ("input_ids", [5, 6])])
def test_two_numbers_for_two_boxes(key, column):
    sample = photo(20, 20, boxes=PAIR, labels=[0, 0]) | {key: np.array(column)}
    batch = collated(sample, {"augment": augment.CenterCrop(10)}, boxes=pinfeed.Boxes())
    assert batch[key].tolist() == [column]


NO_OBJECTS = {
    "boxes": [],
    "labels": [],
    "points": np.zeros((0, 17, 3)),
    "masks": np.zeros((0, 0, 0), np.uint8),
}
FOLLOWERS = {"boxes": pinfeed.Boxes(), "points": pinfeed.Points(), "masks": pinfeed.InstanceMasks()}


@pytest.mark.parametrize("missing", [{"image": None}, {}])
@pytest.mark.parametrize("is_optional", [False, True])
def test_batches_without_any_image(missing, is_optional):
    image = pinfeed.Image(augment=augment.CenterCrop(4)).allow_missing()
    fields = {
        key: field.allow_missing() if is_optional else field for key, field in FOLLOWERS.items()
    }
    collate = pinfeed.Collate({"image": image} | fields)
    batch = collate([missing | NO_OBJECTS] * 2)
    assert list(batch) == list(NO_OBJECTS)
    assert_same(batch["boxes"], collate([photo(4, 4, **NO_OBJECTS | {"masks": []})] * 2)["boxes"])
    assert batch["masks"].values.shape == (0, 0, 0)
    for key, objects in {
        "boxes": [[0, 0, 2, 2]],
        "points": [[1, 2]],
        "masks": np.ones((1, 2, 2), bool),
    }.items():
        samples = [missing | NO_OBJECTS, missing | NO_OBJECTS | {key: objects}]
        check(
            lambda s=samples: collate(s), ValueError, f"['{key}'] of sample 1: expected no objects"
        )


def test_labels_have_one_type_with_and_without_boxes():
    fields = {"image": pinfeed.Image(), "boxes": pinfeed.Boxes().allow_missing()}
    for more in ({}, {"boxes": None}, {"boxes": PAIR}):
        batch = pinfeed.Collate(fields)([photo(20, 20, labels=[1, 2], **more)] * 2)
        assert isinstance(batch["labels"], pinfeed.JaggedBatch)
        assert batch["labels"].offsets.tolist() == [0, 2, 4]


GEOMETRIES = [
    augment.RandomShortestSize((20, 33, 50), 70),
    augment.RandomZoomOut(7, (1, 2.5)),
    augment.RandomIoUCrop(0.1, 0.9, sampler_options=[0.3, 1.0], trials=5),
    augment.ScaleJitter((50, 40), (0.4, 2)),
]


@given(st.integers(0, 2**40), st.sampled_from(GEOMETRIES))
def test_a_mask_and_its_box_agree(seed, geometry):
    rng = np.random.default_rng(seed)
    box = np.array([20, 15, 70, 60]) + rng.integers(-10, 10, 4)
    mask = np.zeros((1, 80, 100), np.uint8)
    mask[0, box[1] : box[3], box[0] : box[2]] = 1
    sample = photo(80, 100, boxes=box[None], labels=[0], masks=mask)
    fields = {
        "image": pinfeed.Image(pad_value=0, augment=geometry),
        "boxes": pinfeed.Boxes(),
        "masks": pinfeed.InstanceMasks(),
    }
    batch = pinfeed.Collate(fields, seed=seed)(pinfeed.IndexedDataset([sample]).__getitems__([0]))
    if len(batch["boxes"].values) == 0:
        return
    rows, columns = np.nonzero(batch["masks"].values[0].numpy())
    around = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    assert np.abs(batch["boxes"].values[0].numpy() - around).max() <= 1


def test_objects_end_at_the_image_not_at_its_padding():
    zoom = augment.RandomZoomOut(side_range=(3, 3), p=1)
    view = augment.Compose([augment.CenterCrop(4), augment.Resize((8, 8)), zoom])
    points = [[[1, 5, 2], [5, 5, 2]]]
    sample = photo(
        10, 10, boxes=[[0, 0, 10, 10]], labels=[1], points=points, masks=np.ones((1, 10, 10), bool)
    )
    fields = {"points": pinfeed.Points(), "masks": pinfeed.InstanceMasks()}
    batch = collated(sample, {"augment": view}, boxes=pinfeed.Boxes(), **fields)
    rows, columns = np.nonzero(batch["masks"].values[0].numpy())
    left, top = columns.min(), rows.min()
    assert len(rows) == 8 * 8
    assert batch["boxes"].values.tolist() == [[left, top, left + 8, top + 8]]
    seen = [left + 4, top + 4, 2]
    assert batch["points"].values.tolist() == [[[left - 4, top + 4, 0], seen]]


VIEW = augment.Compose(
    [augment.RandomIoUCrop(), augment.RandomShortestSize((30, 40)), augment.RandomHorizontalFlip()]
)


class Photos:
    def __len__(self):
        return 12

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        height, width, count = rng.integers(30, 60, 3).tolist()
        count %= 4
        low = rng.uniform(0, 20, (count, 2))
        return {
            "image": rng.integers(0, 256, (height, width, 3), dtype=np.uint8),
            "boxes": np.concatenate([low, low + rng.uniform(2, 30, (count, 2))], 1),
            "labels": np.arange(count),
            "masks": rng.integers(0, 2, (count, height, width), dtype=np.uint8),
            "scene": rng.integers(0, 9, (height, width), dtype=np.uint8),
            "index": i,
        }


def recipe():
    return {
        "scene": pinfeed.Mask(pad_value=-100),
        "image": pinfeed.Image(0.5, 0.25, augment=VIEW, pad_value=0, multiple_of=16, mask="shown"),
        "boxes": pinfeed.Boxes(),
        "masks": pinfeed.InstanceMasks(),
    }


def loader_of(**options):
    collate = pinfeed.Collate(recipe(), seed=3)
    sampler = pinfeed.samplers.ShuffleSampler(12, 4, seed=1)
    dataset = pinfeed.IndexedDataset(Photos())
    return DataLoader(dataset, batch_sampler=sampler, collate_fn=collate, **options)


@pytest.mark.parametrize(
    ("context", "persistent"), [("fork", False), ("fork", True), ("spawn", True)]
)
def test_workers_give_equal_batches(context, persistent):
    options = {"multiprocessing_context": context, "persistent_workers": persistent}
    loaders = loader_of(), loader_of(num_workers=2, **options)
    here, there = ([*loader, *loader] for loader in loaders)  # two epochs
    assert not torch.equal(here[0]["boxes"].values, here[3]["boxes"].values)
    assert_same(there, here)
    for batch in here:
        assert batch["scene"].shape == batch["shown"].shape
        assert batch["masks"].values.shape[1:] == batch["shown"].shape[1:]


def test_rows_of_a_dataset():
    rng = np.random.default_rng(0)
    low = [rng.uniform(0, 15, (n, 2)) for n in (2, 0, 1, 3)]
    columns = {
        "image": list(rng.integers(0, 256, (4, 20, 30, 3), dtype=np.uint8)),
        "boxes": [np.concatenate([some, some + 9], 1) for some in low],
        "labels": [np.arange(len(some)) for some in low],
        "points": [some[:, None] for some in low],
    }
    ragged = {key: pinfeed.RaggedArray.from_sequences(column) for key, column in columns.items()}
    dataset = pinfeed.ArrayDataset(ragged | {"image": np.stack(columns["image"])})
    samples = [{key: column[i] for key, column in columns.items()} for i in range(4)]
    view = augment.Compose([augment.RandomCrop(12), augment.RandomHorizontalFlip()])
    fields = {
        "image": pinfeed.Image(augment=view),
        "boxes": pinfeed.Boxes(),
        "points": pinfeed.Points(),
    }
    batch, other = (
        pinfeed.Collate(fields, seed=0)(some.__getitems__([3, 0, 1, 2]))
        for some in (dataset, pinfeed.IndexedDataset(samples))
    )
    assert_same(batch, other)


def test_fields_pickle_and_have_a_repr():
    fields = pickle.loads(pickle.dumps(recipe()))
    assert repr(fields["boxes"]) == "Boxes()"
    field = pinfeed.Boxes("pixels", format="xywh", labels=("a", "b"))
    assert repr(field) == "Boxes(image='pixels', format='xywh', labels=('a', 'b'))"
    assert repr(pinfeed.InstanceMasks(dtype=torch.bool)) == "InstanceMasks(dtype=torch.bool)"


def test_another_image_key_and_optional_boxes():
    fields = {
        "pixel_values": pinfeed.Image().from_key("image"),
        "boxes": pinfeed.Boxes("pixel_values", labels=()).allow_missing(),
    }
    collate = pinfeed.Collate(fields)
    batch = collate([photo(4, 4, boxes=[[0, 0, 2, 2]])])
    assert batch["boxes"].values.tolist() == [[0, 0, 2, 2]]
    assert list(collate([photo(4, 4)])) == ["pixel_values"]
    assert list(collate([photo(4, 4, boxes=None)])) == ["pixel_values"]


def test_bool_masks_of_any_bytes_become_0_and_1():
    masks = np.array([[[0, 255], [7, 0]]], np.uint8)
    sample = photo(2, 2, masks=masks)
    values = collated(sample, masks=pinfeed.InstanceMasks(dtype=torch.bool))["masks"].values
    assert values.dtype == torch.bool
    assert values.view(torch.uint8).tolist() == [[[0, 1], [1, 0]]]


BOX, BOXES, MASKS = [[0, 0, 4, 4]], pinfeed.Boxes(), pinfeed.InstanceMasks()
ONE = {"boxes": BOX, "labels": [1]}
MASK = np.tri(8, dtype=np.uint8)[None].repeat(2, 0)

# The message about the second sample of a batch, and that sample's entries for its (8, 8) image.
BAD_SAMPLES = {
    "['labels'] of sample 1: expected 1 item, one for each box, got 2": {"boxes": BOX, "labels": [1, 2]},
    "['masks'] of sample 1: expected 1 item, one for each box, got 2": ONE | {"masks": np.ones((2, 8, 8), np.uint8)},
    "['masks'] of sample 1: expected masks of (8, 8), the size of their image in entry ['image'], got (8, 9)": {"masks": np.ones((1, 8, 9), np.uint8)},
    "['image'], got (9, 9)": {"boxes": [], "labels": [], "masks": torch.zeros(0, 9, 9, dtype=torch.bool)},
    "['image'], got (9, 8)": {"boxes": [[9, 9, 9, 9]], "labels": [0], "masks": np.ones((1, 9, 8), np.uint8)},  # all boxes are dropped
    "['boxes'] of sample 1: expected finite numbers, got [0.0, 0.0, 4.0, nan] of box 0": {"boxes": [[0, 0, 4, np.nan]]},
    "of sample 1: expected finite numbers, got [-inf, 0.0, 4.0, 4.0] of box 1": {"boxes": [[0, 0, 4, 4], [-np.inf, 0, 4, 4]]},
    "of sample 1: expected uint8 or bool masks of shape (n, H, W), got float32 (8, 8)": {"masks": np.ones((8, 8), np.float32)},
    "of sample 1: expected boxes of shape (n, 4), got an array of shape (1, 3)": {"boxes": [[1, 2, 3]]},
    "of sample 1: expected boxes of shape (n, 4), got an array of shape (4,)": {"boxes": [1, 2, 3, 4]},
    "of sample 1: expected numbers of shape (n, 4), got a ragged or non-numeric list": {"boxes": [[1, 2], [3]]},
}  # fmt: skip


@pytest.mark.parametrize("message", BAD_SAMPLES)
def test_bad_samples(message):
    sample = BAD_SAMPLES[message]
    if "boxes" in sample:
        sample = {"labels": np.zeros(len(sample["boxes"]))} | sample
    none = {"boxes": [], "labels": [], "masks": np.zeros((0, 8, 8), np.uint8)}
    fields = {key: field for key, field in (("boxes", BOXES), ("masks", MASKS)) if key in sample}
    samples = [photo(8, 8, **some) for some in ({key: none[key] for key in sample}, sample)]
    check(lambda: collated(samples, **fields), ValueError, message)


# A wrong entry, the right one, and the hint.
HINTS = {
    "one box": ("boxes", [1, 2, 5, 6], [[1, 2, 5, 6]], "[box] is a list of one box"),
    "boxes with scores": ("boxes", [[1, 2, 5, 6, 0.5]], [[1, 2, 5, 6]], "pass boxes[:, :4], and classes or scores under"),
    "one mask": ("masks", MASK[0], MASK[0][None], "masks[None] is the mask of one object"),
    "masks behind": ("masks", np.moveaxis(MASK, 0, -1), MASK, "(8, 8, 2) with the objects last; np.moveaxis(masks, -1, 0)"),
    "polygons": ("masks", [[1, 2, 3, 4, 5, 6]], MASK, "annToMask() of pycocotools converts polygons"),
    "integers": ("masks", MASK.astype(np.int64), MASK.astype(bool), "masks.astype(bool) converts"),
    "integers of torch": ("masks", torch.from_numpy(MASK).long(), torch.from_numpy(MASK).bool(), "masks.bool() converts"),
    "a list": ("masks", [*MASK], np.stack(MASK), "np.stack(masks) converts a list"),
}  # fmt: skip


@pytest.mark.parametrize(("key", "wrong", "right", "message"), HINTS.values(), ids=HINTS)
def test_hints(key, wrong, right, message):
    fields = {"boxes": pinfeed.Boxes(labels=()), "masks": MASKS}
    call = lambda value: collated([photo(8, 8, **{key: value})], **{key: fields[key]})[key].values
    check(lambda: call(wrong), ValueError, message)
    assert np.array_equal(call(right), right)


def collating(fields, **sample):
    return lambda: pinfeed.Collate(fields)([sample])


def followed(more=None, /, **fields):
    """Returns the batch of an image without objects, with these additional fields."""
    sample = photo(2, 2, boxes=[], **{"labels": []} if more is None else more)
    return lambda: collated(sample, **fields)


ERRORS = [
    (lambda: collated(photo(20, 20, boxes=[[0.5, 0.5, 0.2, 0.2]], labels=[1]), boxes=pinfeed.Boxes(format="cxcywh", normalized=True)),
        ValueError, "boxes in pixels of their image", "multiply them by width and height"),
    (lambda: pinfeed.Boxes(format="coco"), ValueError, "got 'coco'; COCO's format is 'xywh'"),
    (lambda: pinfeed.Boxes("xywh"), ValueError, "image must be the key of the images, got 'xywh'; pass format='xywh'"),
    (lambda: pinfeed.Boxes(labels=None), TypeError, "got None; pass labels=() if boxes have no labels"),
    (lambda: pinfeed.Boxes(min_size=-1), ValueError, "Boxes: min_size must be at least 0, got -1"),
    (lambda: pinfeed.InstanceMasks(labels="x"), TypeError, "InstanceMasks: got an unknown argument 'labels'; Boxes(labels=...)"),
    (lambda: pinfeed.Points(labels="x"), TypeError, "Points: got an unknown argument 'labels'; Boxes(labels=...)"),
    (lambda: pinfeed.Boxes(format="xxyy"), ValueError, "Boxes: format", "'xxyy'"),
    (lambda: pinfeed.Boxes(normalized="b"), ValueError, "True, False or \"image\", got 'b'"),
    (lambda: pinfeed.Boxes(3), TypeError, "image must be the key of a dict, got 3"),
    (lambda: pinfeed.Boxes(labels=3), TypeError, "labels must be a key or several"),
    (lambda: pinfeed.InstanceMasks(dtype=torch.int64), TypeError, "dtype must be one of"),
    (collating(BOXES), ValueError, "depends on the key 'image' of the same dict", "make the samples dicts"),
    (collating((None, BOXES)), ValueError, "but is not in a dict"),
    (collating({"boxes": BOXES}, boxes=[], photo=1, labels=[]), ValueError, "['boxes']: Boxes needs an Image() under 'image' in the same dict", "pass the key of the images, Boxes(image=...), one of ['boxes', 'photo', 'labels']"),
    (followed(boxes=BOXES, image=pinfeed.Pad()), ValueError, "Boxes needs an Image() under", "use Image() for these images"),
    (followed({"labels": [], "more": []}, boxes=BOXES, more=BOXES), ValueError, "must have one Boxes() for the images under 'image'"),
    (followed({}, boxes=BOXES), ValueError, "labels='labels'", "labels=()"),
    (lambda: collated([photo(n, n, boxes=[], labels=[], masks=np.zeros((0, n, n), bool)) for n in (2, 3)], boxes=BOXES),
        ValueError, "['masks'] of sample 1: expected shape (0, 2, 2)", "; use InstanceMasks() for masks of objects"),
    (lambda: collated(photo(2, 2), {"augment": augment.RandomIoUCrop()}),
        ValueError, "RandomIoUCrop needs the boxes", 'Boxes(image="...")'),
    (lambda: collated([photo(8, 8, boxes=BOX * n, labels=np.ones(n)) for n in (1, 2)], boxes=BOXES, labels=pinfeed.Stack()),
        ValueError, "['labels'] of sample 1", "; Pad() and Jagged() take samples of different sizes"),
    (followed(boxes=BOXES, labels=pinfeed.Pad()), TypeError, "['labels']: labels of boxes need Jagged()", "pass Boxes(labels=())"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "words"), [(c, e, w) for c, e, *w in ERRORS])
def test_bad_fields(call, error, words):
    check(call, error, *words)


def test_fields_that_accept_pil_masks():
    masks = [PIL.Image.fromarray(np.full((2, n), n, np.uint8)).convert("P") for n in (2, 3)]
    pad = pinfeed.Pad(pad_value=255, axes=(0, 1), dtype=torch.int64)
    check(lambda: pinfeed.Collate(pad)(masks), TypeError, "Mask() if their pixels are classes")
    batch = pinfeed.Collate(pinfeed.Mask(pad_value=255))(masks)
    assert batch.tolist() == [[[2, 2, 255]] * 2, [[3, 3, 3]] * 2]


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_a_single_mask_of_classes_is_no_object(kind):
    def batch(*masks, **options):
        collate = pinfeed.Collate({"image": pinfeed.Image(), "m": pinfeed.InstanceMasks(**options)})
        image = np.zeros((2, 3, 3), np.uint8)
        samples = [{"image": image, "m": kind(np.array(mask, np.uint8))} for mask in masks]
        return [collate(samples)["m"] for _ in range(2)]

    classes, ignored = [[[0, 1, 2], [2, 2, 0]]], [[[0, 1, 255], [1, 1, 0]]]
    text = r"\['m'\] of sample 1 is one mask with values up to .* use Mask\(\) if they are classes"
    for mask in (classes, ignored, [[[0, 0, 7]] * 2]):
        with pytest.warns(UserWarning, match=text) as seen:
            batch([[[0, 1, 1]] * 2], mask)
        assert len(seen) == 1
    assert batch(classes, dtype=torch.bool)[0].values.tolist() == [
        [[False, True, True], [True, True, False]]
    ]
    soft = [[[0, 254, 255], [1, 3, 253]]]  # of one object, as JPEG
    batch([[[0, 0, 255]] * 2], [[[1, 1, 1]] * 2], [[[0] * 3] * 2], soft, classes * 2)


def test_names_of_boxes_that_are_dropped():
    boxes = [[30, 20, 60, 40], [1, 1, 5, 5]]
    sample = photo(64, 96, boxes=boxes, labels=[1, 2], names=["a", "b"])
    crop = {"augment": augment.CenterCrop(16)}
    hint = "Keep() leaves them as they are, and with it Boxes(labels=('labels', 'names')) drops"
    check(lambda: collated(sample, crop, boxes=pinfeed.Boxes()), ValueError, "['names']", hint)
    kept = collated(sample, crop, boxes=pinfeed.Boxes(), names=pinfeed.Keep())
    assert kept["names"] == [["a", "b"]]
    stacked = {"boxes": pinfeed.Boxes(), "names": pinfeed.Stack()}
    check(lambda: collated(sample, crop, **stacked), ValueError, "['names']", hint)
    named = pinfeed.Boxes(labels=("labels", "names"))
    assert collated(sample, crop, boxes=named, names=pinfeed.Keep())["names"] == [["a"]]
    check(lambda: collated(sample, crop, boxes=named), TypeError, "['names']", "Keep()", "strings")
    batch = collated(sample | {"names": [7, 8]}, crop, boxes=named)
    assert batch["names"].values.tolist() == [7]
    whole = collated(sample, boxes=pinfeed.Boxes())
    assert whole["names"] == [("a",), ("b",)]


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_values_under_keep_lose_dropped_boxes(kind):
    none = photo(20, 20, boxes=[], labels=[], outlines=kind([]))
    samples = [none, photo(20, 20, boxes=PAIR, labels=[0, 1], outlines=kind([[1], [2]])), none]
    fields = {"boxes": pinfeed.Boxes(labels=("labels", "outlines")), "outlines": pinfeed.Keep()}
    kept = collated(samples, {"augment": augment.CenterCrop(10)}, **fields)["outlines"]
    assert [type(values) for values in kept] == [type(kind([]))] * 3
    assert [np.array(values).tolist() for values in kept] == [[], [[2]], []]
    samples[0] = none | {"outlines": None}
    check(lambda: collated(samples, **fields), TypeError, "['outlines'] of sample 0", "each box")
    samples[0] = none | {"outlines": [3]}
    check(lambda: collated(samples, **fields), ValueError, "['outlines'] of sample 0", "0 items")


def objects(counts, **columns):
    """Returns images with this number of boxes; a center crop drops the first box."""
    columns = {"boxes": lambda n: (PAIR + PAIR)[:n], "labels": lambda n: [0] * n} | columns
    return [photo(20, 20, **{key: of(n) for key, of in columns.items()}) for n in counts]


# Batches, the fields besides images and boxes, and the error.
OF_BOXES = {
    "rows": ([objects((2, 1), feature=lambda n: np.ones((n, 8)))], {"feature": pinfeed.Jagged()}, "['feature'] has a value for each box"),
    "numbers in small batches": ([objects((n,), depth=np.ones) for n in (2, 1, 1, 2)], {"depth": pinfeed.Jagged()}, "['depth'] has a value for each box"),
    "numbers": ([objects((2, 1, 1, 2), weight=np.ones)], {"weight": pinfeed.Jagged()}, "Boxes(labels=('labels', 'weight'))"),
    "numbers of a few images": ([objects((3, 1, 1), weight=np.ones), objects((2,), weight=np.ones)], {"weight": pinfeed.Jagged()}, "['weight'] has a value for each box"),
    "numbers after equally many": ([objects((2, 2), conf=np.ones)] * 3 + [objects((1, 3), conf=np.ones)], {"conf": pinfeed.Jagged()}, "['conf'] has a value for each box"),
    "padded numbers": ([objects((3, 1, 2, 1), conf=np.ones)], {"conf": pinfeed.Pad()}, "('labels', 'conf')"),
    "padded rows": ([objects((3, 1), attr=lambda n: np.ones((n, 8)))], {"attr": pinfeed.Pad(axes=0)}, "('labels', 'attr')"),
    "numbers with offsets": ([objects((3, 1, 2, 1), conf=np.ones)], {"conf": pinfeed.Jagged(offsets="o")}, "('labels', 'conf')"),
    "padded rows with a mask": ([objects((3, 1), attr=lambda n: np.ones((n, 8)))], {"attr": pinfeed.Pad(axes=0, mask="m")}, "('labels', 'attr')"),
    "stacked": ([objects((2, 1), area=np.ones)], {}, "['area'] of sample 1: "),
    "stacked, the hint": ([objects((2, 1), area=np.ones)], {}, "Boxes(labels=('labels', 'area'))"),
    "padded": ([objects((2, 1), area=np.ones)], {"area": pinfeed.Pad()}, "('labels', 'area')"),
    "nested": ([objects((2, 1), more=lambda n: {"iscrowd": np.ones(n)})], {"more": {"iscrowd": pinfeed.Jagged()}}, "['more']['iscrowd'] has a value for each box of ['boxes'], and some boxes were dropped; move it into the dict of the boxes"),
}  # fmt: skip


@pytest.mark.parametrize(("batches", "fields", "message"), OF_BOXES.values(), ids=OF_BOXES)
def test_columns_whose_counts_match_the_boxes_raise(batches, fields, message):
    image = pinfeed.Image(augment=augment.CenterCrop(10))
    collate = pinfeed.Collate({"image": image, "boxes": pinfeed.Boxes()} | fields)
    check(lambda: [collate(samples) for samples in batches], ValueError, message)


def test_rows_of_boxes_in_images_with_equally_many():
    fields = {"image": pinfeed.Image(augment=augment.CenterCrop(10)), "boxes": pinfeed.Boxes()}
    samples = objects((2,) * 4, speed=lambda n: np.ones((n, 3)), eye=np.eye, size=np.ones)
    collate = pinfeed.Collate(fields)
    text = r"\['speed'\] seems to have a value for each box of \['boxes'\], .* Boxes\(labels="
    with pytest.warns(UserWarning, match=text) as seen:
        collate(samples)
    assert len(seen) == 1
    collate(samples)  # once
    named = fields | {"boxes": pinfeed.Boxes(labels=("labels", "speed"))}
    assert pinfeed.Collate(named)(samples)["speed"].values.shape == (4, 3)
    for field in (pinfeed.Stack(), pinfeed.Keep()):
        pinfeed.Collate(fields | {"speed": field})(samples)
    pinfeed.Collate(fields)(objects((2,) * 3, speed=lambda n: np.ones((n, 3))))  # by chance


LISTS = {
    "dicts with a name": (lambda n: [{"crowd": 0}] * n, True),
    "dicts": (lambda n: [{"c": 0}] * n, False),
    "lists": (lambda n: [[1, 2, 3]] * n, False),
    "tuples of dicts": (lambda n: ({"c": [1, 2]},) * n, False),
    "lists of dicts": (lambda n: [[{"c": 1}]] * n, False),
    "arrays": (lambda n: [np.ones(3)] * n, False),
}


@pytest.mark.parametrize(("column", "is_named"), LISTS.values(), ids=LISTS)
def test_lists_of_containers_for_each_box(column, is_named):
    fields = {"image": pinfeed.Image(augment=augment.CenterCrop(10)), "boxes": pinfeed.Boxes()}
    equal = objects((2,) * 4, rest=column)
    differing = [objects((n,), rest=column) for n in (2, 1, 1, 2)]
    hint = "Keep() leaves them as they are, and with it Boxes(labels=('labels', 'rest')) drops"
    collate = pinfeed.Collate(fields)
    check(lambda: [collate(samples) for samples in differing], ValueError, "['rest'] has", hint)
    if is_named:
        check(lambda: pinfeed.Collate(fields)(equal[:1]), ValueError, "['rest'] has a value", hint)
    else:
        text = r"\['rest'\] seems to have a value for each box .* with their boxes$"
        with pytest.warns(UserWarning, match=text) as seen:
            pinfeed.Collate(fields)(equal)
        assert len(seen) == 1
    pinfeed.Collate(fields | {"rest": pinfeed.Keep()})(equal)
    fields |= {"boxes": pinfeed.Boxes(labels=("labels", "rest")), "rest": pinfeed.Keep()}
    kept = pinfeed.Collate(fields)(equal)["rest"]
    assert [len(values) for values in kept] == [1] * 4


def test_columns_that_match_the_boxes_by_chance():
    image = pinfeed.Image(augment=augment.CenterCrop(10))
    fields = {"image": image, "boxes": pinfeed.Boxes(), "tags": pinfeed.Jagged()}
    fields |= {"captions": pinfeed.Pad(), "more": {"size": pinfeed.Stack()}}
    collate = pinfeed.Collate(fields)
    more = {"more": lambda n: {"size": np.ones(2)}, "captions": lambda n: np.ones(n + 1)}
    collate(objects((2, 1), tags=lambda n: np.ones(3 - n), **more))
    lists = {"matrix": lambda n: [[1, 0], [0, 1]], "size": lambda n: [20, 20]}
    lists["views"] = lambda n: [{"x": 1}] * 3
    plain = pinfeed.Collate({"image": image, "boxes": pinfeed.Boxes()})
    for _ in range(4):
        plain(objects((2,) * 4, **lists))
    for _ in range(9):  # the column turned out to be unrelated
        batch = collate(objects((2, 1, 1, 2), tags=np.ones, **more))
        assert len(batch["tags"].values) == 6
        assert len(batch["boxes"].values) == 2
