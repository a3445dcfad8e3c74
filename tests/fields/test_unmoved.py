"""Boxes, points and masks that stay where they are while their image is moved: hints that are right."""

import numpy as np
import pytest
import torch

import pinfeed
from messages import check
from pinfeed import Boxes, Image, InstanceMasks, Jagged, Keep, Mask, Pad, Points, Stack, augment
from samples import assert_same

FLIP = augment.RandomHorizontalFlip(p=1)
MOVED = Image(augment=FLIP)
RANDOM = Image(augment=augment.RandomCrop(20))
MASK = Mask(augment=FLIP)
PHOTO = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
SCENE = PHOTO[..., 0] // 32
CORNERS = np.array([[2, 4, 8, 10], [0, 0, 32, 24]])
MIRRORED = torch.tensor([[24.0, 4, 30, 10], [0, 0, 32, 24]])
KEYPOINTS = np.array([[[2, 4, 2], [0, 0, 0]]])


def photo(**more):
    return {"image": PHOTO, **more}


# Samples, the fields that something is wrong with, what the error names, and fields that do what it says,
# with what they make of the entry.
HINTS = {
    "boxes": ([photo(boxes=CORNERS), photo(boxes=CORNERS[:1])], {}, "boxes", "Boxes()",
        {"boxes": Boxes(labels=())}, torch.cat([MIRRORED, MIRRORED[:1]])),
    "as many boxes in each image": ([photo(bbox=CORNERS)] * 2, {}, "bbox", "Boxes()",
        {"bbox": Boxes(labels=())}, MIRRORED.repeat(2, 1)),
    "boxes without a name": ([photo(target=CORNERS.astype(np.float32))], {}, "target", "Boxes()",
        {"target": Boxes(labels=())}, MIRRORED),
    "an image without objects first": ([photo(y=np.zeros((0, 4))), photo(y=CORNERS)], {}, "y", "Boxes()",
        {"y": Boxes(labels=())}, MIRRORED),
    "lists": ([photo(gt_boxes=CORNERS.tolist()), photo(gt_boxes=[])], {}, "gt_boxes", "Boxes()",
        {"gt_boxes": Boxes(labels=())}, MIRRORED),
    "tensors": ([photo(boxes=torch.from_numpy(CORNERS))], {}, "boxes", "Boxes()",
        {"boxes": Boxes(labels=())}, MIRRORED),
    "key points": ([photo(keypoints=KEYPOINTS)], {}, "keypoints", "Points()",
        {"keypoints": Points()}, torch.tensor([[[30.0, 4, 2], [0, 0, 0]]])),
    "masks of objects": ([photo(m=SCENE[None] > 3)], {}, "m", "InstanceMasks()",
        {"m": InstanceMasks(dtype=torch.bool)}, torch.from_numpy(SCENE[None, :, ::-1] > 3)),
    "a mask of classes": ([photo(label=SCENE)] * 2, {}, "label", "the field Mask() moves it",
        {"label": MASK}, torch.from_numpy(SCENE[None, :, ::-1].copy()).long().repeat(2, 1, 1)),
    "a mask of classes with an axis more": ([photo(label=SCENE[None])] * 2, {}, "label", "Mask() a mask of classes",
        {"label": Mask()}, torch.from_numpy(SCENE[None, :, ::-1].copy()).long().repeat(2, 1, 1)),
    "a mask of classes with a channel": ([photo(label=SCENE[..., None])] * 2, {}, "label", "the field Mask() moves it",
        {"label": Mask()}, torch.from_numpy(SCENE[None, :, ::-1].copy()).long().repeat(2, 1, 1)),
    "a second image": ([photo(right=PHOTO)], {}, "right", "Image(augment=...)",
        {"right": Image(augment=FLIP, scale=1)}, torch.from_numpy(PHOTO[None, :, ::-1].copy()).permute(0, 3, 1, 2).float()),
    "key points among labels": ([photo(boxes=CORNERS[:1], keypoints=KEYPOINTS)], {"boxes": Boxes(labels="keypoints")},
        "keypoints", "Points()", {"boxes": Boxes(labels=()), "keypoints": Points()},
        torch.tensor([[[30.0, 4, 2], [0, 0, 0]]])),
}  # fmt: skip


@pytest.mark.parametrize(("samples", "fields", "key", "hint", "right", "expected"), HINTS.values(), ids=HINTS)  # fmt: skip
def test_hints(samples, fields, key, hint, right, expected):
    wrong = pinfeed.Collate({"image": MOVED} | fields)
    for _ in range(2):
        check(lambda: wrong(samples), ValueError, f"entry ['{key}'] looks like", hint, "Keep()")
    found = pinfeed.Collate({"image": MOVED} | right)(samples)[key]
    assert_same(found if isinstance(found, torch.Tensor) else found.values, expected)
    kept = pinfeed.Collate({"image": MOVED, key: Keep()})(
        [{"image": sample["image"], key: sample[key]} for sample in samples]
    )
    assert kept[key][-1] is samples[-1][key]


def test_rows_of_a_dataset():
    arrays = {"image": np.stack([PHOTO] * 3), "boxes": np.stack([CORNERS[0]] * 3)}
    rows = pinfeed.ArrayDataset(arrays).__getitems__([2, 0])
    check(lambda: pinfeed.Collate({"image": MOVED})(rows), ValueError, "['boxes']", "(n, 4)")
    right = pinfeed.ArrayDataset(arrays | {"boxes": arrays["boxes"][:, None]})
    fields = {"image": MOVED, "boxes": Boxes(labels=())}
    batch = pinfeed.Collate(fields)(right.__getitems__([2, 0]))
    assert_same(batch["boxes"].values, MIRRORED[:1].repeat(2, 1))


@pytest.mark.parametrize("target", [CORNERS, {"boxes": CORNERS}])
def test_a_pair_of_image_and_target(target):
    samples = [(PHOTO, target)] * 2
    check(lambda: pinfeed.Collate((MOVED, None))(samples), ValueError, '{"image": image, **target}')
    samples = [photo(boxes=CORNERS)]
    batch = pinfeed.Collate({"image": MOVED, "boxes": Boxes(labels=())})(samples)
    assert_same(batch["boxes"].values, MIRRORED)


@pytest.mark.parametrize("field", [Jagged(), Pad(), Stack()])
def test_a_field_that_leaves_boxes_where_they_are(field):
    samples = [photo(boxes=CORNERS)] * 2
    random, fixed = ({"image": image, "boxes": field} for image in (RANDOM, MOVED))
    check(lambda: pinfeed.Collate(random)(samples), ValueError, "['boxes'] looks like", "Boxes()")
    pinfeed.Collate(fixed)(samples)  # who evaluates in pixels of the dataset


def test_another_key_of_the_images():
    fields = {"pixel_values": MOVED.of("image")}
    collate = pinfeed.Collate(fields)
    check(lambda: collate([photo(boxes=CORNERS)]), ValueError, "Boxes('pixel_values')")
    batch = pinfeed.Collate(fields | {"boxes": Boxes("pixel_values", labels=())})(
        [photo(boxes=CORNERS)]
    )
    assert_same(batch["boxes"].values, MIRRORED)


def test_what_has_nothing_to_do_with_the_image():
    rng = np.random.default_rng(0)
    samples = [
        photo(
            image_id=i,
            camera=np.eye(3),
            quaternions=rng.normal(size=(5, 4)),
            probabilities=rng.uniform(size=(2, 4)),
            points=rng.normal(size=(9, 3)) * 50,
            mailbox=7,
            size=np.array([24, 32]),
            embedding=rng.normal(size=16),
            name="a",
        )
        for i in range(2)
    ]
    batch = pinfeed.Collate({"image": RANDOM})(samples)
    assert batch["points"].shape == (2, 9, 3)
    still = {"image": PHOTO, "boxes": CORNERS, "scene": SCENE}
    assert pinfeed.Collate({"image": Image()})([still])["scene"].shape == (1, 24, 32)
    views = {"a": RANDOM.of("image"), "b": Image(augment=FLIP).of("image"), "image": Stack()}
    assert pinfeed.Collate(views)([photo()])["image"].shape == (1, 24, 32, 3)


def test_arrays_that_only_look_like_boxes_are_stacked_if_asked():
    image = np.zeros((32, 48, 3), np.uint8)
    sample = {"image": image, "tabular": np.array([[1.5, 2.5, 40.0, 30.0]])}
    fields = {"image": pinfeed.Image(augment=augment.RandomHorizontalFlip())}
    with pytest.raises(ValueError, match=r"looks like boxes .*, Stack\(\) or Keep\(\)"):
        pinfeed.Collate(fields)([sample] * 2)
    batch = pinfeed.Collate(fields | {"tabular": pinfeed.Stack()})([sample] * 2)
    assert batch["tabular"].tolist() == [[[1.5, 2.5, 40, 30]]] * 2
