"""Mask: class masks in every layout, transformed with an image."""

import itertools
import pickle
from typing import Any, NamedTuple

import numpy as np
import PIL.Image
import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed
from arrays import random_array
from messages import check
from pinfeed import Collate, Image, InstanceMasks, Mask, augment
from samples import assert_same

pytestmark = pytest.mark.kernels

CLASSES = random_array((12, 17)) % 5
PHOTOS = [random_array((12, 17, 3), seed=i) for i in range(4)]
MASKS = [photo[..., 0] for photo in PHOTOS]  # so that each mask equals its image
SAMPLES = [{"image": photo, "mask": mask} for photo, mask in zip(PHOTOS, MASKS, strict=True)]
FLIP = augment.RandomHorizontalFlip(p=1)
PALETTE = PIL.Image.fromarray(CLASSES).convert("P")
PALETTE.putpalette(random_array((768,)).tobytes())


def as_they_are(augment, **options):
    """Returns an image field without normalization; its first channel equals the masks of `SAMPLES`."""
    options = {"dtype": torch.uint8, "interpolation": "nearest-exact", "fill": None} | options
    return Image(output="HWC", augment=augment, **options)


LAYOUTS = {
    "an array": CLASSES,
    "a read-only view": np.broadcast_to(CLASSES[:1], CLASSES.shape),
    "every other column": np.repeat(CLASSES, 2, 1)[:, ::2],
    "an axis in front": CLASSES[None],
    "a channel": CLASSES[..., None],
    "bools": CLASSES > 2,
    "bools with an axis in front": (CLASSES > 2)[None],
    "int64": CLASSES.astype(np.int64),
    "int32": CLASSES.astype(np.int32) * 70_000,
    "uint16": CLASSES.astype(np.uint16) * 300,
    "a tensor": torch.from_numpy(CLASSES).long(),
    "a tensor of bools": torch.from_numpy(CLASSES)[None] > 2,
    "mode L": PIL.Image.fromarray(CLASSES),
    "a palette": PALETTE,
    "mode 1": PIL.Image.fromarray(CLASSES > 2),
    "mode I": PIL.Image.fromarray(CLASSES.astype(np.int32) * 70_000),
    "mode I;16": PIL.Image.fromarray(CLASSES.astype(np.uint16) * 300),
}


@pytest.mark.parametrize("mask", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("moves", [None, FLIP, augment.CenterCrop(20)], ids=str)
def test_every_layout(mask, moves, isa):
    values = torch.from_numpy(np.array(mask)).reshape(CLASSES.shape).long()
    expected = values
    if moves is FLIP:
        expected = values.flip(1)
    elif moves:
        expected = torch.full((20, 20), 255)
        expected[4:16, 1:18] = values
    batch = Collate(Mask(augment=moves))([mask, mask])
    assert batch.dtype == torch.int64
    assert torch.equal(batch, torch.stack([expected] * 2))
    batch = Collate((Image(augment=moves), Mask()))([(np.zeros((12, 17, 3), np.uint8), mask)])
    assert torch.equal(batch[1], expected[None])


@pytest.mark.parametrize("moves", [None, FLIP], ids=str)
def test_layouts_in_one_batch(moves):
    masks = [
        CLASSES,
        CLASSES[None],
        CLASSES[..., None],
        LAYOUTS["mode L"],
        torch.from_numpy(CLASSES)[None],
    ]
    for order in (masks, masks[::-1]):
        batch = Collate(Mask(augment=moves))(order)
        expected = torch.from_numpy(CLASSES).long()
        assert torch.equal(batch, torch.stack([expected.flip(1) if moves else expected] * 5))


@pytest.mark.parametrize(
    "name", [name for name, mask in LAYOUTS.items() if isinstance(mask, np.ndarray)]
)
def test_rows(name, tmp_path):
    rows = np.stack([LAYOUTS[name]] * 3)
    np.save(tmp_path / "masks.npy", rows)
    expected = Collate(Mask(augment=FLIP))(list(rows))
    for source in (
        rows,
        torch.from_numpy(rows),
        tmp_path / "masks.npy",
        pinfeed.ConcatArray([rows[:1], rows[1:]]),
    ):
        dataset = pinfeed.ArrayDataset(source)
        assert torch.equal(Collate(Mask(augment=FLIP))(dataset.__getitems__([0, 2, 1])), expected)


def test_dtypes():
    for dtype in (torch.uint8, torch.int16, torch.int32, "int64"):
        batch = Collate(Mask(dtype=dtype, augment=FLIP))([CLASSES, PALETTE])
        assert torch.equal(
            batch.long(), torch.from_numpy(CLASSES[None, :, ::-1].copy()).repeat(2, 1, 1)
        )
        assert str(batch.dtype).endswith(str(dtype).removeprefix("torch."))


# Transforms that pad or move the image; the mask follows all of them.
SHARED = augment.Compose([augment.RandomCrop((9, 11), padding=3), augment.RandomHorizontalFlip()])
VIEWS = {
    "nothing": {},
    "a crop": {"augment": SHARED},
    "another stream": {"augment": SHARED, "rng_stream": 3},
    "sizes": {"augment": augment.RandomShortestSize((8, 20)), "pad_value": 255, "multiple_of": 8},
    "a fill of three": {"augment": augment.RandomZoomOut(fill=(255, 1, 2), p=1), "pad_value": 255},
    "a resized crop": {"augment": augment.RandomResizedCrop(8)},
    "padding alone": {"pad_value": 255, "multiple_of": (16, 32)},
    "an edge": {"augment": augment.RandomCrop(15, padding=4, padding_mode="edge")},
}


class Pair(NamedTuple):
    image: Any
    mask: Any


STRUCTURES = {
    "dict": (lambda image, mask: {"image": image, "mask": mask}, lambda b: (b["image"], b["mask"])),
    "mask first": (lambda image, mask: {"mask": mask, "image": image}, lambda b: (b["image"], b["mask"])),
    "tuple": (lambda image, mask: (image, mask), tuple),
    "named tuple": (Pair, tuple),
    "further in": (lambda image, mask: {"x": image, "target": {"y": (mask,)}}, lambda b: (b["x"], b["target"]["y"][0])),
}  # fmt: skip


@pytest.mark.parametrize(("build", "parts"), STRUCTURES.values(), ids=STRUCTURES)
@pytest.mark.parametrize("options", VIEWS.values(), ids=VIEWS)
def test_a_mask_follows_its_image(options, build, parts):
    fields = build(as_they_are(**{"augment": None} | options), Mask())
    samples = [build(photo, mask) for photo, mask in zip(PHOTOS, MASKS, strict=True)]
    collate = Collate(fields, seed=1)
    for epoch in range(2):
        collate.set_epoch(epoch)
        image, mask = parts(collate(pinfeed.IndexedDataset(samples).__getitems__([3, 0, 1, 2])))
        if options.get("augment") is SHARED:  # whose fill is 0, and the mask's 255
            assert (mask == 255).any()
            shown = mask != 255
            assert torch.equal(image[..., 0][shown].long(), mask[shown])
        else:
            assert torch.equal(image[..., 0].long(), mask)
        collate = pickle.loads(pickle.dumps(collate))


def test_workers_and_epochs():
    dataset = pinfeed.ArrayDataset({"image": np.stack(PHOTOS), "mask": np.stack(MASKS)})
    collate = Collate({"image": as_they_are(augment.RandomCrop(7)), "mask": Mask()}, seed=0)
    sampler = lambda: pinfeed.samplers.ShuffleSampler(4, 2)
    loaders = [
        DataLoader(dataset, batch_sampler=sampler(), collate_fn=collate, num_workers=workers)
        for workers in (0, 2)
    ]
    epochs = [[list(loader) for _ in range(2)] for loader in loaders]
    assert_same(*epochs)
    for batch in itertools.chain(*epochs[0]):
        assert torch.equal(batch["image"][..., 0].long(), batch["mask"])
        for sample in pinfeed.functional.unbind(batch):
            assert sample["mask"].shape == (7, 7)


def test_from_numpy_and_another_loop():
    arrays = np.stack(PHOTOS), np.stack(MASKS)
    fields = as_they_are(augment.RandomCrop(7)), Mask()
    loader = pinfeed.from_numpy(arrays, 2, shuffle=True, fields=fields, device="cpu")
    for image, mask in [*loader, *loader]:
        assert torch.equal(image[..., 0].long(), mask)


@pytest.mark.parametrize("shape", [(12, 17), (1, 12, 17), (12, 17, 1)], ids=str)
@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int32])
def test_on_whole_batches(shape, dtype, monkeypatch):
    masks = (np.stack(MASKS) % 2).astype(dtype).reshape(4, *shape)
    fields = {"image": Image(0.5), "mask": Mask()}
    expected = torch.from_numpy(masks).long().reshape(4, 12, 17)
    for count in (4, 0):
        batch = {"image": torch.zeros((count, 5, 5, 3), dtype=torch.uint8)}
        batch |= {"mask": torch.from_numpy(masks[:count])}
        (actual,) = pinfeed.DeviceLoader([batch], "cpu", fields=fields)
        assert_same(actual["mask"], expected[:count])
    entry = pinfeed.FieldContext("entry")
    meta = Mask().apply(torch.from_numpy(masks).to("meta"), None, entry)  # as on any device
    assert meta.shape == (4, 12, 17)
    assert meta.dtype == torch.int64


def test_class_masks_with_instance_masks_and_boxes():
    shown = np.zeros((1, 12, 17), np.uint8)
    shown[0, 2:9, 3:11] = 1
    sample = SAMPLES[0] | {"mask": shown[0], "objects": shown, "boxes": np.array([[3, 2, 11, 9]])}
    fields = {"mask": Mask(), "image": Image(augment=augment.RandomIoUCrop(), pad_value=0)}
    fields |= {"objects": InstanceMasks(), "boxes": pinfeed.Boxes(labels=())}
    for seed in range(5):
        batch = Collate(fields, seed=seed)(pinfeed.IndexedDataset([sample]).__getitems__([0]))
        assert torch.equal(batch["mask"], batch["objects"].values.long())


def test_several_images():
    view, other = augment.RandomCrop(7), augment.Resize((5, 5))
    fields = {"image": as_they_are(view), "small": as_they_are(other).from_key("image")}
    words = "Mask beside images ['image', 'small']", "Mask('image')"
    check(lambda: Collate(fields | {"mask": Mask()}), ValueError, *words)
    fields |= {"mask": Mask("image"), "small_mask": Mask("small").from_key("mask").allow_missing()}
    for batch in (Collate(fields)(SAMPLES), Collate(pickle.loads(pickle.dumps(fields)))(SAMPLES)):
        assert torch.equal(batch["image"][..., 0].long(), batch["mask"])
        assert torch.equal(batch["small"][..., 0].long(), batch["small_mask"])
    same = {"image": as_they_are(view), "twin": as_they_are(view).from_key("image"), "mask": Mask()}
    batch = Collate(same)(SAMPLES)
    assert torch.equal(batch["twin"][..., 0].long(), batch["mask"])
    inner = {"image": Image(), "mask": Mask()}  # not cropped, even inside a cropped field
    batch = Collate({"image": Image(augment=other), "x": inner})(
        [{"image": PHOTOS[0], "x": SAMPLES[0]}]
    )
    assert batch["x"]["mask"].shape == (1, 12, 17)


@pytest.mark.parametrize(
    "step", [augment.Resize((6, 9)), FLIP, augment.RandomCrop(4), augment.RandomResizedCrop(4)]
)
def test_samples_need_not_contain_an_unused_fill(step):
    classes = np.full((12, 17), -1, np.int8)
    fields = {"image": Image(augment=step), "mask": Mask()}
    batch = Collate(fields)([{"image": random_array((12, 17, 3)), "mask": classes}])
    assert (batch["mask"] == -1).all()
    assert (Collate(Mask(augment=step))([classes]) == -1).all()


@pytest.mark.parametrize("fill", [-100, 70_000, -(2**40)])
@pytest.mark.parametrize("mask", LAYOUTS.values(), ids=LAYOUTS)
def test_bytes_need_not_hold_the_fill(mask, fill):
    values = np.array(mask).reshape(CLASSES.shape)
    if values.dtype.itemsize > 1:
        values = values.astype(np.int64)
        mask = torch.from_numpy(values)
    expected = torch.full((20, 20), fill)
    expected[4:16, 1:18] = torch.from_numpy(values.astype(np.int64))
    fields = Mask(augment=augment.CenterCrop(20), fill=fill)
    assert torch.equal(Collate(fields)([mask, mask]), torch.stack([expected] * 2))
    rows = pinfeed.ArrayDataset(np.stack([values] * 3)).__getitems__([0, 2])
    assert torch.equal(Collate(fields)(rows), torch.stack([expected] * 2))


COLORS = np.array([[0, 0, 0], [128, 0, 0], [0, 64, 0], [7, 7, 7], [9, 9, 9]], np.uint8)
ERRORS = [
    (lambda: Collate(Mask())([COLORS[CLASSES]]), ValueError, "shape (H, W), got uint8 (12, 17, 3)", "(mask[:, :, None] == colors).all(-1).argmax(-1)"),
    (lambda: Collate({"m": Mask()})([{"m": CLASSES}, {"m": COLORS[CLASSES]}]), ValueError, "['m'] of sample 1"),
    (lambda: Collate(Mask())([random_array((12, 17, 4))]), ValueError, "mask[..., 0] if channels are equal"),
    (lambda: Collate(Mask())([random_array((2, 12, 17))]), ValueError, "(H, W), got uint8 (2, 12, 17)"),
    (lambda: Collate(Mask())([PIL.Image.new("RGB", (4, 4))]), TypeError, "got 'RGB'", "before .convert('RGB')", ".getchannel(0)"),
    (lambda: Collate({"m": Mask()})([{"m": CLASSES}, {"m": CLASSES[None]}, {"m": COLORS[CLASSES]}]), ValueError, "['m'] of sample 2: expected a mask of shape (H, W), got (12, 17, 3); pass mask[..., 0]"),
    (lambda: Collate(Mask())([CLASSES, random_array((2, 12, 17))]), ValueError, "sample 1: expected a mask of shape (H, W), got (2, 12, 17)", "InstanceMasks() takes a mask per object"),
    (lambda: Collate(Mask())([CLASSES, "mask.png"]), TypeError, "sample 1", "str"),
    (lambda: Collate(Mask())([CLASSES[..., None], CLASSES[0]]), ValueError, "sample 1: expected a mask of shape (H, W), got (17,)"),
    (lambda: Collate({"m": Mask()})([{"m": CLASSES[0]}, {"m": CLASSES}]), ValueError, "['m'] of sample 0: expected a mask of shape (H, W), got (17,)"),
    (lambda: Collate(Mask())([CLASSES / 2]), TypeError, "integers that int64 can hold", "float64"),
    (lambda: Collate(Mask(dtype="uint8"))([CLASSES.astype(int)]), TypeError, "integers that uint8 can hold", "dtype=torch.int64"),
    (lambda: Collate(Mask(augment=augment.CenterCrop(99)))([CLASSES.astype(np.int8)]), ValueError, "fill must be a value that the samples' int8 can hold, got 255", "wider dtype"),
    (lambda: Collate(Mask(fill=-100, augment=augment.CenterCrop(99)))([CLASSES, PIL.Image.new("RGB", (4, 4))]), TypeError, "sample 1", "got 'RGB'"),
    (lambda: Collate(Mask(fill=-100, augment=augment.CenterCrop(99)))([CLASSES, "mask.png"]), TypeError, "sample 1", "str"),
    (lambda: Collate(Mask())([CLASSES, CLASSES[1:]]), ValueError, "sample 1", "pad_value"),
    (lambda: Mask(FLIP), TypeError, "Mask: image must be the key", "pass a geometry as augment="),
    (lambda: Mask(dtype=torch.float32), TypeError, "Mask: dtype must be one of (torch.uint8"),
    (lambda: Mask(interpolation="bilinear"), ValueError, "Mask: interpolation must be one of"),
    (lambda: Mask(augment=0.5), TypeError, "Mask: augment must be a crop, flip or resize of pinfeed.augment"),
    (lambda: Mask(multiple_of=4), ValueError, "Mask: multiple_of, sizes and mask need pad_value"),
    (lambda: Mask(dtype="uint8", pad_value=256), ValueError, "Mask: pad_value must be at most 255, got 256"),
    (lambda: Mask(pad_value=True), TypeError, "Mask: pad_value must be an integer, got True"),
    (lambda: Mask(fill=None), TypeError, "Mask: fill must be an integer, got None"),
    (lambda: Mask(fill=1.5, augment=augment.CenterCrop(99)), TypeError, "Mask: fill must be an integer, got 1.5"),
    (lambda: Mask(fill="x"), TypeError, "Mask: fill must be an integer, got 'x'"),
    (lambda: Mask(fill=-1, dtype="uint8"), ValueError, "Mask: fill must be at least 0, got -1"),
    (lambda: Mask(fill=70_000, dtype=torch.uint16), ValueError, "Mask: fill must be at most 65535, got 70000"),
    (lambda: Mask(mean=0.5), TypeError, "Mask: got an unknown argument 'mean'", "Image(mean, std)"),
    (lambda: Mask(like="image"), TypeError, "Mask(image=...)"),
    (lambda: Collate({"mask": Mask("photo"), "image": Image()})(SAMPLES), ValueError, "['mask']", "Mask('photo') needs an Image() of that key"),
    (lambda: list(pinfeed.DeviceLoader(["x"], "cpu", fields=Mask())), TypeError, "expected a tensor for Mask(), got str"),
    (lambda: list(pinfeed.DeviceLoader([torch.zeros(2, 3, 3, dtype=torch.uint8)], "cpu", fields=Mask(augment=FLIP))), TypeError, "pass this Mask to the Collate"),
    (lambda: Mask().apply(torch.zeros(2, 3, 3, device="meta"), None, pinfeed.FieldContext("entry")), TypeError, "entry: expected integers that int64 can hold", "float32 (2, 3, 3)"),
    (lambda: Mask(dtype="uint8").apply(torch.zeros(2, 3, 3, device="meta", dtype=torch.int16), None, pinfeed.FieldContext("entry")), TypeError, "uint8 can hold"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "words"), [(c, e, w) for c, e, *w in ERRORS])
def test_bad_masks(call, error, words):
    check(call, error, *words)


def test_hints_of_errors_work():
    colored = COLORS[CLASSES]
    classes = (colored[:, :, None] == COLORS).all(-1).argmax(-1)
    gray = np.repeat(CLASSES[..., None], 3, -1)
    for mask in (classes, gray[..., 0], PIL.Image.fromarray(gray).getchannel(0)):
        assert np.array_equal(Collate(Mask())([mask])[0], CLASSES)
    batch = Collate(Mask(fill=-100, augment=augment.CenterCrop(18)))([CLASSES.astype(np.int16)])
    assert batch.unique().tolist() == [-100, 0, 1, 2, 3, 4]


@pytest.mark.parametrize(("fill", "dtype"), [(300, torch.int16), (70_000, torch.int32)])
def test_a_fill_that_signed_batches_hold(fill, dtype):
    mask = Mask(fill=fill, dtype=dtype, augment=augment.CenterCrop(99))
    batch = Collate(mask)([np.ones((5, 5), np.uint8)])
    assert batch.dtype is dtype
    assert batch.unique().tolist() == [1, fill]
