"""Boxes, points and masks that are not transformed with their image: errors, warnings, hints."""

import pickle
import re
from collections import OrderedDict

import numpy as np
import PIL.Image
import PIL.ImageDraw
import pytest
import torch

import pinfeed
from messages import check
from pinfeed import Boxes, Image, InstanceMasks, Jagged, Keep, Mask, Pad, Points, Stack, augment
from pinfeed.collation import untransformed
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


# Samples, the wrong fields, the entry in the error, and the suggested fields with their result.
HINTS = {
    "boxes": ([photo(boxes=CORNERS), photo(boxes=CORNERS[:1])], {}, "boxes", "Boxes()",
        {"boxes": Boxes(labels=())}, torch.cat([MIRRORED, MIRRORED[:1]])),
    "equally many boxes in each image": ([photo(bbox=CORNERS)] * 2, {}, "bbox", "Boxes()",
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
    "a mask of classes": ([photo(label=SCENE)] * 2, {}, "label", "use Mask() to transform it",
        {"label": MASK}, torch.from_numpy(SCENE[None, :, ::-1].copy()).long().repeat(2, 1, 1)),
    "a mask of classes with an axis more": ([photo(label=SCENE[None])] * 2, {}, "label", "augment= transforms; use Mask() to transform it too",
        {"label": Mask()}, torch.from_numpy(SCENE[None, :, ::-1].copy()).long().repeat(2, 1, 1)),
    "a mask of classes with a channel": ([photo(label=SCENE[..., None])] * 2, {}, "label", "use Mask() to transform it",
        {"label": Mask()}, torch.from_numpy(SCENE[None, :, ::-1].copy()).long().repeat(2, 1, 1)),
    "a second image": ([photo(right=PHOTO)], {}, "right", "Image(augment=...)",
        {"right": Image(augment=FLIP, scale=1)}, torch.from_numpy(PHOTO[None, :, ::-1].copy()).permute(0, 3, 1, 2).float()),
    "channels first": ([photo(heat=np.stack([SCENE / np.float32(8)] * 5))], {}, "heat", 'Image(input="CHW", augment=...)',
        {"heat": Image(input="CHW", augment=FLIP)}, torch.from_numpy(np.stack([SCENE[:, ::-1] / np.float32(8)] * 5))[None]),
    "a map": ([photo(depth=SCENE / np.float32(8))], {}, "depth", 'Image(input="HW", output="HW", interpolation="bilinear", augment=...)',
        {"depth": Image(input="HW", output="HW", interpolation="bilinear", augment=FLIP)}, torch.from_numpy(SCENE[None, :, ::-1] / np.float32(8))),
    "polygons": ([photo(polygon=KEYPOINTS[0, :, :2] + 1)], {}, "polygon", "Points()",
        {"polygon": Points()}, torch.tensor([[29.0, 5], [31, 1]])),
    "key points among labels": ([photo(boxes=CORNERS[:1], keypoints=KEYPOINTS)], {"boxes": Boxes(labels="keypoints")},
        "keypoints", "Points()", {"boxes": Boxes(labels=()), "keypoints": Points()},
        torch.tensor([[[30.0, 4, 2], [0, 0, 0]]])),
}  # fmt: skip


@pytest.mark.parametrize(("samples", "fields", "key", "hint", "right", "expected"), HINTS.values(), ids=HINTS)  # fmt: skip
def test_hints(samples, fields, key, hint, right, expected):
    wrong = pinfeed.Collate({"image": MOVED} | fields)
    for _ in range(2):
        check(lambda: wrong(samples), ValueError, f"entry ['{key}'] looks like", hint, "Keep()")
    actual = pinfeed.Collate({"image": MOVED} | right)(samples)[key]
    assert_same(actual if isinstance(actual, torch.Tensor) else actual.values, expected)
    unmoved = pinfeed.Collate({"image": MOVED, key: Keep()})(
        [{"image": sample["image"], key: sample[key]} for sample in samples]
    )
    assert unmoved[key][-1] is samples[-1][key]


VECTORS = {
    "flow": np.ones((2, 24, 32), np.float32),
    "forward_flow": np.ones((24, 32, 2), np.float32),
    "gtFlow": np.ones((24, 32, 2), np.float32),
    "normals": np.ones((24, 32, 3), np.float32),
    "disparity": np.ones((24, 32), np.float32),
    "leftDisparity": SCENE / np.float32(8),
    "disp": np.ones((24, 32), np.uint16),
}
NOTHING = np.zeros((0, 4))
FIXED_SIZE = {"image": Image(augment=augment.Resize((24, 32)))}
CROPPED = {"image": RANDOM}
OF_PATCHES = {"image": pinfeed.Patches(8, augment=augment.RandomCrop(16))}
LARGE = np.zeros((48, 64, 3), np.uint8)
FIVE = np.array([[2, 4, 8, 10, 1], [0, 0, 32, 24, 0]])
SHARES = np.array([[3, 0.25, 0.5, 0.125, 0.25], [0, 0.5, 0.5, 0.75, 1]])
ROW = np.c_[np.arange(34).reshape(17, 2) % 7, np.ones(17)]
PAIRED = '{"image": image, **target}'
CLASS_IDS = Image(input="HW", output="HW", dtype=torch.int64)
ROTATED = "use Points() for the corners (n, 4, 2) of rotated boxes to transform them too"
SAME = "the same geometry as its own augment="


def rows(order, **columns):
    """Returns rows of a dataset of images and these columns."""
    arrays = {"image": np.stack([PHOTO] * len(next(iter(columns.values()))))} | columns
    return pinfeed.ArrayDataset(arrays).__getitems__(order)


LATE_BOXES = pinfeed.RaggedArray.from_sequences([NOTHING] * 4 + [CORNERS.astype(float)] * 2)
# Samples, their fields except for the images', and words of the error.
WRONG = {
    **{
        f"{key} after none, {kind} and {field}": ([[photo(**{key: none})] * 2] * 2 + [[photo(**{key: CORNERS})] * 2], CROPPED | {key: field}, f"['{key}'] looks like boxes")
        for key in ("ann", "target", "foo", "boxes")
        for field in (None, Jagged())
        for kind, none in (("array", NOTHING), ("list", []), ("tensor", torch.zeros(0, 4)))
    },
    "images of the final size first": ([[photo(boxes=CORNERS)] * 2, [{"image": LARGE, "boxes": CORNERS}] * 2], FIXED_SIZE, "['boxes'] looks like boxes"),
    "another size": ([[photo(boxes=CORNERS[:1])]], {"image": Image(augment=augment.Resize((24, 16)))}, "['boxes'] looks like boxes"),
    "rows without objects first": ([rows([0, 1], ann=LATE_BOXES), rows([4, 5], ann=LATE_BOXES)], CROPPED | {"ann": Jagged()}, "['ann'] looks like boxes"),
    "rows of one box": ([rows([2, 0], boxes=np.stack([CORNERS[0]] * 3))], {"image": MOVED}, "['boxes']", "(n, 4)"),
    "late samples": ([[photo(y=NOTHING)] * 40 + [photo(y=CORNERS)]], CROPPED | {"y": Jagged()}, "['y'] looks like boxes", "Boxes()"),
    "pairs of image and boxes": ([[(PHOTO, CORNERS)] * 2], (MOVED, None), PAIRED),
    "pairs of image and target": ([[(PHOTO, {"boxes": CORNERS})] * 2], (MOVED, None), PAIRED),
    "another key": ([[photo(boxes=CORNERS)]], {"pixel_values": MOVED.from_key("image")}, "Boxes('pixel_values')"),
    "joined boxes": ([[photo(boxes=CORNERS)] * 2], CROPPED | {"boxes": Jagged()}, "['boxes'] looks like", "Boxes()"),
    "padded boxes": ([[photo(boxes=CORNERS)] * 2], CROPPED | {"boxes": Pad()}, "['boxes'] looks like", "Boxes()"),
    "gray images": ([[{"image": SCENE, "boxes": CORNERS}]], CROPPED, "looks like boxes"),
    "a few boxes that increase": ([[photo(y=CORNERS[:1])] * 4], CROPPED, "use Boxes()"),
    "a square depth": ([[{"image": PHOTO[:, :24], "depth": np.ones((24, 24), np.float32)}]], CROPPED, "['depth'] looks like a mask"),
    "patches": ([[photo(boxes=CORNERS)]], OF_PATCHES, "['boxes'] looks like", "Patches() does not transform"),
    "patches of lists": ([[{"image": [PHOTO], "boxes": CORNERS}]], OF_PATCHES, "['boxes'] looks like", "Patches() does not transform"),
    "points of three numbers in a row": ([[photo(keypoints=ROW.reshape(-1))] * 2], CROPPED, "Points() to transform np.reshape(keypoints, (-1, 3)) too"),
    "points in a row": ([[photo(keypoints=ROW[:5, :2].reshape(-1))] * 2], CROPPED, "Points() to transform np.reshape(keypoints, (-1, 2)) too"),
    "gtBoxes": ([[photo(gtBoxes=CORNERS[:1])] * 2], CROPPED, "Boxes() to transform boxes too"),
    "bbs": ([[photo(bbs=CORNERS / 40)] * 2], CROPPED, "Boxes() to transform boxes too"),
    "detections": ([[photo(detections=FIVE / 40)] * 2], CROPPED, "Boxes() to transform boxes of shape (n, 4) too"),
    "dets": ([[photo(dets=np.hstack([FIVE, FIVE[:, :1]]))] * 2], CROPPED, "Boxes() to transform boxes of shape (n, 4) too, with [:, 4:] as their labels"),
    "obb": ([[photo(obb=FIVE)] * 2], CROPPED, "looks like rotated boxes", ROTATED),
    "rboxes": ([[photo(rboxes=FIVE[:1])] * 2], CROPPED, ROTATED),
    "rotated_boxes": ([[photo(rotated_boxes=FIVE[:1])] * 2], CROPPED, ROTATED),
    "handKeypoints": ([[photo(handKeypoints=KEYPOINTS[0])] * 2], CROPPED, "Points() to transform points too"),
    "pts": ([[photo(pts=KEYPOINTS[0, :, :2])] * 2], CROPPED, "Points() to transform points too"),
    "lmks": ([[photo(lmks=KEYPOINTS[0, :, :2])] * 2], CROPPED, "Points() to transform points too"),
    "a class behind": ([[photo(target=FIVE)] * 2], CROPPED, "Boxes() to transform target[:, :4] too, with [:, 4] as their labels"),
    "a class first": ([[photo(y=np.roll(FIVE, 1, axis=1))] * 2], CROPPED, "Boxes() to transform y[:, 1:] too, with [:, 0] as their labels"),
    "a mask as an image": ([[photo(label=SCENE)] * 2], CROPPED | {"label": CLASS_IDS}, "['label'] looks like", "does not; use Mask() to transform it too; Stack() or Keep()"),
    "a mask by name": ([[photo(mask=SCENE)] * 2], CROPPED | {"mask": Image(input="HW", output="HW", dtype=torch.uint8)}, "does not; use Mask() to transform it too"),
    "a mask of floats": ([[photo(mask=SCENE)] * 2], CROPPED | {"mask": Image(input="HW")}, f"does not; pass {SAME} to transform it, or use Mask() for classes"),
    "a mask of any layout": ([[photo(mask=SCENE)] * 2], CROPPED | {"mask": Image()}, SAME),
    "a mask with an axis": ([[photo(label=SCENE)] * 2], CROPPED | {"label": Image(input="HW", dtype=torch.int64)}, "use Mask() to transform it too"),
    "a mask of PIL": ([[photo(label=PIL.Image.fromarray(SCENE))] * 2], CROPPED | {"label": CLASS_IDS}, "use Mask() to transform it too"),
    "a padded mask": ([[photo(label=SCENE)] * 2], CROPPED | {"label": Pad(pad_value=255, axes=(0, 1))}, "use Mask() to transform it too"),
    "one mask of classes": ([[photo(m=SCENE[None])] * 2], CROPPED | {"m": Jagged()}, "does not; use Mask() to transform it too"),
    "one mask of 0 and 255": ([[photo(m=np.uint8(255) * (SCENE[None] > 3))] * 2], CROPPED | {"m": Jagged()}, "InstanceMasks() to transform masks too, or Mask() for a mask of classes"),
    "masks of objects": ([[photo(m=SCENE[None] > 3)] * 2], CROPPED | {"m": Jagged()}, "InstanceMasks() to transform masks too"),
    "as YOLO has them": ([[photo(labels=SHARES)] * 2], CROPPED | {"labels": Jagged()}, "Boxes(format='cxcywh') to transform labels[:, 1:] * [width, height, width, height] too, with [:, 0] as their labels"),
    **{
        f"{key} changes with the geometry": ([[photo(**{key: values})] * 2], {"image": MOVED}, "transform both in the dataset; Stack")
        for key, values in VECTORS.items()
    },
    "normals by another name": ([[photo(overflow=VECTORS["normals"])] * 2], {"image": MOVED}, "with the same geometry to transform it too"),
}  # fmt: skip


@pytest.mark.parametrize(("batches", "fields", "words"), [(b, f, w) for b, f, *w in WRONG.values()], ids=WRONG)  # fmt: skip
def test_wrong_fields(batches, fields, words):
    wrong = pinfeed.Collate(fields)
    with pytest.raises(ValueError, match=r"looks like .*Keep\(\)") as error:
        [*map(wrong, batches)]
    text = str(error.value)
    assert [word for word in words if word not in text] == []
    assert "to transform it too" not in text or "transform both" not in text
    if isinstance(fields, dict):
        (key,) = re.match(r"Collate: entry \['(\w+)'\]", text).groups()
        kept = pinfeed.Collate(fields | {key: Keep()})(batches[-1])[key]
        assert len(kept) == len(batches[-1])


def test_the_check_ends(monkeypatch):
    """Entries that stay empty cost time only in the first batches, others only in the first one."""
    calls = []
    check_batch = untransformed.require_transformed
    watched = lambda *arguments: calls.append(0) or check_batch(*arguments)
    monkeypatch.setattr(untransformed, "require_transformed", watched)
    for values, most in ((NOTHING, 4), (np.ones((1, 7)), 1)):
        collate = pinfeed.Collate({"image": MOVED, "foo": Jagged()})
        for _ in range(6):
            collate([photo(foo=values)] * 64)
        assert len(calls) == most
        calls.clear()


def boxes_of(fields, batch):
    return pinfeed.Collate(fields)(batch)["boxes"].values


def test_hints_for_boxes_work():
    fields = {"image": MOVED, "boxes": Boxes(labels=())}
    batch = rows([2, 0], boxes=np.stack([CORNERS[:1]] * 3))
    assert_same(boxes_of(fields, batch), MIRRORED[:1].repeat(2, 1))
    assert_same(boxes_of(fields, [photo(boxes=CORNERS)]), MIRRORED)
    fields = {"pixels": MOVED.from_key("image"), "boxes": Boxes("pixels", labels=())}
    assert_same(boxes_of(fields, [photo(boxes=CORNERS)]), MIRRORED)


@pytest.mark.parametrize("field", [Jagged(), Pad()])
def test_boxes_left_beside_a_fixed_geometry(field):
    """Deliberate in an evaluation in pixels of the dataset."""
    samples = [photo(boxes=CORNERS)] * 2
    with pytest.warns(UserWarning, match=r"\['boxes'\] looks like .* Keep\(\) leaves the") as seen:
        pinfeed.Collate({"image": MOVED, "boxes": field})(samples)
    assert len(seen) == 1


def test_values_unrelated_to_the_image():
    rng = np.random.default_rng(0)
    samples = [
        photo(
            image_id=i,
            camera=np.eye(3),
            numBoxes=np.arange(4),
            maxBox=np.arange(5),
            points=rng.normal(size=(9, 3)) * 50,
            waypoints=rng.uniform(0, 20, (9, 2)),  # of a car, in meters
            corners=np.array([[8.5, 2.25], [9.5, 3.5]]),  # of a satellite image, in degrees
            mailbox=np.array([1, 2, 3, 4]),
            joint_pos=np.array([3.0, 5.0]),
            joints=np.array([0.5, 1.5, 3.0, 0.0, 1.0, 2.5]),
            keypoints=np.array([1, 1, 0, 1, 1, 1]),
            setpoint=np.array([3.0, 5.0]),
            endpoint=np.array([3, 5]),
            num_keypoints=[3, 2],
            landmark_ids=np.array([1, 2, 0]),
            box_class=np.array([0, 1, 0, 0]),
            box_areas=np.array([3.0, 4.0, 5.0, 6.0]),
            text_box_ids=np.array([1, 2, 3, 4, 5]),
            roi_feats=np.ones((2, 4)),
            size=np.array([24, 32]),
            name="a",
        )
        for i in range(2)
    ]
    batch = pinfeed.Collate({"image": RANDOM})(samples)
    assert batch["points"].shape == (2, 9, 3)
    pinfeed.Collate({"image": pinfeed.Patches(8)})([{"image": [PHOTO], "boxes": CORNERS}])
    square = {"image": PHOTO[:, :24], "weights": np.ones((24, 24), np.float32)}
    pinfeed.Collate({"image": RANDOM})([square])
    still = {"image": PHOTO, "boxes": CORNERS, "scene": SCENE}
    assert pinfeed.Collate({"image": Image()})([still])["scene"].shape == (1, 24, 32)
    views = {
        "a": RANDOM.from_key("image"),
        "b": Image(augment=FLIP).from_key("image"),
        "image": Stack(),
    }
    assert pinfeed.Collate(views)([photo()])["image"].shape == (1, 24, 32, 3)


AS_IMAGE = Image(input="HW", output="HW", scale=1)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, PIL.Image.fromarray, np.float32])
def test_a_mask_read_as_an_image_beside_a_flip(kind):
    random = Image(augment=augment.RandomHorizontalFlip())
    fields = lambda image, is_pair: (image, AS_IMAGE) if is_pair else {"image": image, "mask": AS_IMAGE}  # fmt: skip
    for is_pair in (False, True):
        samples = [(PHOTO, kind(SCENE)) if is_pair else photo(mask=kind(SCENE))] * 2
        with pytest.raises(ValueError, match=r"looks like a mask .* Mask\(\) to transform it too"):
            pinfeed.Collate(fields(random, is_pair))(samples)
        with pytest.warns(UserWarning, match=r"looks like a mask .* Mask\(\) to transform it too"):
            pinfeed.Collate(fields(MOVED, is_pair))(samples)
    gray = kind(PHOTO[..., 0].copy())
    pinfeed.Collate((random, AS_IMAGE))([(PHOTO, gray)] * 2)


def test_hints_of_errors_work():
    soft = Image(input="HW", augment=FLIP)
    batch = pinfeed.Collate({"image": MOVED, "mask": soft})([photo(mask=SCENE)])
    assert np.array_equal((batch["mask"][0, 0] * 255).round(), SCENE[:, ::-1])
    for scene in (SCENE, PIL.Image.fromarray(SCENE)):
        batch = pinfeed.Collate({"image": MOVED, "label": Mask()})([photo(label=scene)])
        assert np.array_equal(batch["label"][0], SCENE[:, ::-1])
    (height, width), labels = SCENE.shape, SHARES
    sample = photo(boxes=labels[:, 1:] * [width, height, width, height], labels=labels[:, 0])
    batch = pinfeed.Collate({"image": MOVED, "boxes": Boxes(format="cxcywh")})([sample])
    assert batch["boxes"].values.tolist() == [[24, 12, 4, 6], [16, 12, 24, 24]]
    assert batch["labels"].values.tolist() == [3, 0]


def test_images_and_masks_that_need_not_move():
    """An entry of an augmented image's size, with its own field, need not belong to the image."""
    fields = {
        "image": RANDOM,
        "reference": Image(),  # another image, unmoved
        "gray": Image(input="HW", output="HW"),
        "edges": Image(input="HW"),
        "masked": Image(),
        "clean": Image(dtype=torch.uint8).from_key("image"),
        "table": Stack(),
        "rows": Jagged(),
    }
    samples = [
        photo(
            reference=PHOTO,
            gray=SCENE,
            edges=SCENE,
            masked=PHOTO,
            table=SHARES,
            rows=np.ones((2, 5)) * i,
        )
        for i in (1, 2)
    ]
    assert len(pinfeed.Collate(fields)(samples)["rows"].values) == 4
    still = {"image": Image(), "label": Image(input="HW", output="HW", dtype=torch.int64)}
    pinfeed.Collate(still)([photo(label=SCENE)])
    smaller = Image(augment=augment.Resize((12, 16)))  # predictions can be resized instead
    pinfeed.Collate(still | {"image": smaller})([photo(label=SCENE)])


def test_a_dense_map_is_resized_with_its_image():
    half = augment.Resize((12, 16))
    ramp = np.tile(np.arange(32, dtype=np.float32), (24, 1))
    depth = Image(input="HW", output="HW", interpolation="bilinear", augment=half)
    batch = pinfeed.Collate({"image": Image(augment=half), "depth": depth})([photo(depth=ramp)])
    np.testing.assert_allclose(batch["depth"][0, 0, 1:-1], np.arange(2.5, 29, 2), rtol=1e-6)


def test_numbers_that_resemble_boxes_in_some_samples():
    rng = np.random.default_rng(0)
    samples = [photo(history=rng.integers(0, 20, (2, 4))) for _ in range(32)]
    samples[3]["history"] = np.array([[1, 2, 3, 4], [2, 3, 7, 9]])
    pinfeed.Collate({"image": RANDOM})(samples)


HALF = augment.Resize((12, 16))
CLASSES = SCENE % 5
COLORS = np.array([[0, 0, 0], [128, 0, 0], [0, 128, 0], [0, 0, 128], [192, 64, 0]], np.uint8)
# Masks, the fields that blend their classes, and those classes.
BLENDED = {
    "bytes": (CLASSES, Image(augment=HALF), "[0, 1, 2, 3]"),
    "many classes": (CLASSES * 37, Image(augment=HALF), "[0, 37, 74, 111]"),
    "a hidden axis": (CLASSES[..., None], Image(augment=HALF), "[0, 1, 2, 3]"),
    "a channel first": (CLASSES[None], Image(input="CHW", augment=HALF), "[0, 1, 2, 3]"),
    "PIL": (PIL.Image.fromarray(CLASSES), Image(augment=HALF), "[0, 1, 2, 3]"),
    "one class and none": (np.where(SCENE > 3, 255, SCENE > 1).astype(np.uint8), Image(augment=HALF), "[0, 1, 255]"),
    "floats": (CLASSES.astype(np.float32), Image(augment=HALF), "[0, 1, 2, 3]"),
    "floats to be blended": (CLASSES.astype(np.float32), Image(scale=1, augment=HALF, interpolation="bilinear"), "[0, 1, 2, 3]"),
    "flat floats": (np.kron(CLASSES[:8, :8], np.ones((3, 4), np.float32)) * 9, Image(augment=HALF, interpolation="bilinear"), "[0, 9, 18, 27]"),
    "bfloat16": (torch.from_numpy(CLASSES).bfloat16(), Image(augment=HALF), "[0, 1, 2, 3]"),
    "int16": (CLASSES.astype(np.int16), Image(scale=1, augment=HALF), "[0, 1, 2, 3]"),
    "bytes that stay": (CLASSES, Image(dtype=torch.uint8, augment=HALF, interpolation="bilinear"), "[0, 1, 2, 3]"),
    "by random crops": (CLASSES, Image(augment=augment.RandomResizedCrop(12)), "[0, 1, 2, 3]"),
    "150 classes": (PHOTO[..., 0] % 150, Image(augment=HALF), "[0, 1, 2, 3]"),
    "numbers of objects": (np.kron(np.arange(96).reshape(8, 12) * 37 % 96 * 9, np.ones((3, 3)))[:, :32].astype(np.uint16), Image(scale=1, augment=HALF), "[0, 9, 18, 27]"),
    "colors": (COLORS[CLASSES], Image(augment=HALF), "(mask[:, :, None] == colors).all(-1).argmax(-1)"),
    "colors, channels first": (COLORS[CLASSES].transpose(2, 0, 1), Image(input="CHW", augment=HALF), "[(0, 0, 0), (0, 0, 128), (0, 128, 0), (128, 0, 0)]"),
    "colors of PIL": (PIL.Image.fromarray(COLORS[CLASSES]), Image(dtype=torch.uint8, augment=HALF), "(mask[:, :, None] == colors).all(-1).argmax(-1)"),
}  # fmt: skip


@pytest.mark.parametrize(("mask", "field", "classes"), BLENDED.values(), ids=BLENDED)
def test_blended_classes(mask, field, classes):
    sample = photo(mask=mask)
    wrong = pinfeed.Collate({"image": Image(augment=field.augment), "mask": field})
    with pytest.warns(UserWarning, match="looks like a mask of classes") as seen:
        wrong([sample] * 2)
    assert len(seen) == 1
    assert classes in str(seen[0].message)
    wrong([sample] * 2)  # one warning
    if np.asarray(CLASSES).dtype == getattr(mask, "dtype", None) and 3 not in mask.shape:
        right = pinfeed.Collate({"image": Image(augment=field.augment), "mask": Mask()})
        assert {*right([sample])["mask"].unique().tolist()} <= {*np.asarray(mask).ravel().tolist()}


FLAT = np.kron(CLASSES[:8, :8], np.ones((3, 4), np.uint8))


@pytest.mark.parametrize("mask", [CLASSES, FLAT, COLORS[FLAT], PIL.Image.fromarray(COLORS[FLAT])])
def test_classes_that_are_blended_without_an_image(mask):
    field = Image(augment=HALF)
    for key in ("mask", "segLabel", "annotation"):
        with pytest.warns(UserWarning, match="looks like a mask of classes"):
            pinfeed.Collate({key: field})([{key: mask}] * 2)
    for key in ("frame", "x"):  # as of a game
        pinfeed.Collate({key: field})([{key: mask}] * 2)
    pinfeed.Collate({"mask": field})([{"mask": SCENE // 4 * np.uint8(255)}] * 2)


RAMP = np.tile(np.arange(32, dtype=np.uint8), (24, 1))
DARK = PHOTO[..., 1] // 6
# Resized entries that are not class masks, or whose field says what they are.
PIXELS = {
    "a gray photo": (PHOTO[..., 0], Image(augment=HALF)),
    "a soft mask": (PHOTO[..., 0] / np.float32(255), Image(augment=HALF)),
    "a mask of one class": (SCENE // 4 * np.uint8(255), Image(augment=HALF)),
    "one class, to become soft": (SCENE // 4, Image(input="HW", scale=1, augment=HALF, interpolation="bilinear")),
    "dark": (DARK, Image(augment=HALF)),
    "dark, with a mean": (RAMP, Image(mean=0.1, std=0.1, augment=HALF)),
    "few levels, with a scale": (RAMP // 2, Image(scale=1 / 16, augment=HALF)),
    "dark, with mean=0": (RAMP, Image(mean=0, augment=HALF)),
    "a depth": (RAMP.astype(np.float32), Image(input="HW", augment=HALF, interpolation="bilinear")),
    "heights": (np.add.outer(np.arange(24), np.arange(32)).astype(np.float32), Image(augment=HALF, interpolation="bilinear")),
    "a soft mask of bytes": (np.clip(np.hypot(*np.mgrid[-12:12, -16:16]) * 30 - 150, 0, 255).astype(np.uint8), Image(augment=HALF)),
    "one class as JPEG has it": (np.where(SCENE > 3, 250 + SCENE % 5, SCENE % 5).astype(np.uint8), Image(augment=HALF)),
    "a heat map": ((np.hypot(*np.mgrid[-12:12, -16:16]) * 12).astype(np.uint8), Image(augment=HALF)),
    "another photo": (PHOTO[::-1], Image(augment=HALF)),
    "colors that may be blended": (COLORS[CLASSES], Image(augment=HALF, interpolation="bilinear")),
    "colors with a mean": (COLORS[CLASSES], Image(mean=0.5, std=0.5, augment=HALF)),
    "nothing": (np.zeros_like(RAMP), Image(augment=HALF)),
    "by nearest": (RAMP, Image(augment=HALF, interpolation="nearest-exact")),
    "integers": (RAMP, Image(input="HW", output="HW", dtype=torch.int64, augment=HALF)),
    "not resized": (RAMP, Image(augment=FLIP)),
    "of another size": (RAMP[:9], Image(augment=augment.Resize((6, 8)))),
}  # fmt: skip


@pytest.mark.parametrize(("gray", "field"), PIXELS.values(), ids=PIXELS)
def test_resized_pixels_are_not_blended_classes(gray, field):
    for key in ("gray", "mask") if gray is not DARK else ("gray",):  # values of 43 classes
        pinfeed.Collate({"image": Image(augment=HALF), key: field})([photo(**{key: gray})] * 2)
    drawing = {"image": RAMP // 8, "other": RAMP // 9}  # neither is declared as the other's mask
    gray = Image(augment=HALF)
    pinfeed.Collate({"image": gray, "other": gray})([drawing] * 2)


def test_a_resize_to_the_same_size():
    boxes = {"boxes": CORNERS[:1]}
    for size in ((24, 32), [24, 32], 24):
        same = pinfeed.Collate({"image": Image(augment=augment.Resize(size))})
        assert same([photo(**boxes)] * 2)["boxes"].shape == (2, 1, 4)


def test_word_boxes():
    """Layout models use a row per token, in thousandths of the page."""
    page = augment.Resize((12, 12))
    boxes = [[0, 0, 20, 9]] * 3
    tokens = photo(input_ids=[1, 2, 3], bbox=np.array(boxes), labels=[0, 1, 2])
    pad = Pad(pad_value=0)
    for bbox in (Pad(pad_value=0), Pad(pad_value=0, like="input_ids")):
        fields = {"image": Image(augment=page), "input_ids": pad, "bbox": bbox, "labels": pad}
        assert pinfeed.Collate(fields)([tokens] * 2)["bbox"].shape == (2, 3, 4)
    check(
        lambda: pinfeed.Collate(fields)([tokens | {"bbox": boxes}]),
        ValueError,
        "np.asarray(sample)",
    )
    padded = {key: np.array(value) for key, value in tokens.items()}
    assert pinfeed.Collate({"image": Image(augment=page)})([padded])["bbox"].shape == (1, 3, 4)


def corners_of(rotated):
    """Returns the corners of boxes of center, width, height and angle in degrees."""
    x, y, w, h, angle = rotated.T[..., None]
    across, down = w / 2 * [-1, 1, 1, -1], h / 2 * [-1, -1, 1, 1]
    cosine, sine = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
    return np.stack([x + across * cosine - down * sine, y + across * sine + down * cosine], -1)


def test_rotated_boxes():
    rotated = np.array([[16, 12, 10, 4, 30], [8, 8, 6, 5, -45]], np.float32)
    flip = {"image": Image(augment=augment.RandomHorizontalFlip(1))}
    followed = pinfeed.Collate(flip | {"corners": pinfeed.Points()})
    corners = followed([photo(corners=corners_of(rotated))])["corners"].values
    flipped = rotated * [1, 1, 1, 1, -1] + [0, 0, 0, 0, 180]
    flipped[:, 0] = 32 - flipped[:, 0]
    # The order of corners is another one after a flip.
    found, expected = (
        np.sort(np.round(some, 3).view(np.complex128)[..., 0], axis=1)
        for some in (np.ascontiguousarray(corners, np.float64), corners_of(flipped))
    )
    assert np.allclose(found, expected, atol=1e-2)


@pytest.mark.parametrize(
    ("field", "objects"),
    [
        (pinfeed.Boxes(labels=()), CORNERS),
        (pinfeed.Points(), CORNERS[:, :2]),
        (pinfeed.Mask(), SCENE),
    ],
)
def test_none_for_an_image_without_objects(field, objects):
    """Keep() would leave the objects of other samples unmoved."""
    collate = pinfeed.Collate({"image": RANDOM, "objects": field})
    message = "pass (an empty list|a mask of the ignored value)"
    with pytest.raises(TypeError, match=message) as error:
        collate([photo(objects=None), photo(objects=objects)])
    assert "Keep()" not in str(error.value)


SQUARE = [4.0, 4.0, 12.0, 4.0, 12.0, 12.0, 4.0, 12.0]
BENT = [*SQUARE[:6], 8.0, 16.0, 4.0, 12.0]
ROUND = (16 + np.stack([f(np.arange(9) * 0.7) for f in (np.cos, np.sin)], 1) * 7.5).ravel()
CODES = {"counts": [9, 4, 755], "size": [24, 32]}
# Polygons and encoded masks, with their keys.
OUTLINES = {
    "COCO's": ("segmentation", [SQUARE]),
    "of several parts": ("segmentation", [SQUARE, BENT]),
    "of each object": ("segmentation", [[SQUARE], [BENT, SQUARE]]),
    "in one row": ("segmentation", BENT),
    "of whole pixels": ("segmentation", [[int(x) for x in BENT]]),
    "of points": ("polygons", [np.reshape(SQUARE, (-1, 2)), np.reshape(BENT, (-1, 2))]),
    "labelme's": ("polys", [np.reshape(one, (-1, 2)).tolist() for one in (SQUARE, BENT)]),
    "OpenCV's": ("contours", [np.reshape(one, (-1, 1, 2)).astype(int) for one in (SQUARE, BENT)]),
    "Ultralytics'": ("segments", [ROUND.reshape(-1, 2) / [32, 24]]),
    "rows of YOLO": ("segments", [[3, *ROUND / 32], [0, *ROUND[:14] / 32]]),
    "a table": ("segmentation", np.array([SQUARE, SQUARE])),
    "tensors": ("masks", [torch.from_numpy(ROUND), torch.tensor(SQUARE)]),
    "encoded": ("segmentation", CODES),
    "of one encoded object": ("annotation", {"segmentation": CODES, "iscrowd": 1}),
    "in annotations": ("annotations", [{"segmentation": [SQUARE]}, {"segmentation": [BENT]}]),
}  # fmt: skip


@pytest.mark.parametrize(("key", "value"), OUTLINES.values(), ids=OUTLINES)
def test_polygons(key, value):
    samples = [photo(**{key: value})] * 2
    call = lambda **fields: pinfeed.Collate({"image": RANDOM, **fields})(samples)
    check(call, ValueError, f"['{key}']", "InstanceMasks()")
    assert call(**{key: Keep()})[key] == [value] * 2
    if isinstance(value, list) and not isinstance(value[0], dict):
        check(
            lambda: call(**{key: Jagged()}), ValueError, f"['{key}'] looks like polygons", "Keep()"
        )
    boxes = [photo(boxes=CORNERS[:1], **{key: value})] * 2
    labelled = pinfeed.Collate({"image": RANDOM, "boxes": Boxes(labels=key)})
    check(lambda: labelled(boxes), ValueError, f"['{key}']", "InstanceMasks()")
    still = pinfeed.Collate({"image": Image(), key: Keep()})
    assert still(samples)[key] == [value] * 2


def test_the_polygon_hint_works():
    from pycocotools import mask as coding

    codes = coding.merge(coding.frPyObjects([SQUARE, BENT], 24, 32))
    drawn = PIL.Image.new("L", (32, 24))
    for polygon in (SQUARE, BENT):
        PIL.ImageDraw.Draw(drawn).polygon(polygon, fill=1)
    fields = {"image": MOVED, "masks": InstanceMasks(), "polygon": Points()}
    for mask in (coding.decode(codes), np.asarray(drawn)):
        sample = photo(masks=mask[None], polygon=np.reshape(BENT, (-1, 2)))
        batch = pinfeed.Collate(fields)([sample])
        assert np.array_equal(batch["masks"].values[0], mask[:, ::-1])
        assert batch["polygon"].values.tolist() == [[32 - x, y] for x, y in sample["polygon"]]


def test_numbers_beside_tensors():
    for label in (3, np.int64(3)):
        sample = label, torch.zeros(2, dtype=torch.bfloat16), PHOTO
        batch = pinfeed.Collate((None, None, RANDOM))([sample, sample])
        assert batch[0].tolist() == [3, 3]
        assert batch[1].dtype == torch.bfloat16


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, PIL.Image.fromarray])
def test_lists_of_masks(kind):
    scenes = [SCENE // 4, 1 - SCENE // 4]
    samples = [photo(m=[kind(scene) for scene in scenes[:n]]) for n in (2, 1)]
    for field in (None, Jagged()):
        wrong = pinfeed.Collate({"image": RANDOM, "m": field})
        check(lambda wrong=wrong: wrong(samples), ValueError, "['m'] looks like masks", "use InstanceMasks() to transform np.stack(m) too")  # fmt: skip
    stacked = [sample | {"m": np.stack(sample["m"])} for sample in samples]
    batch = pinfeed.Collate({"image": MOVED, "m": InstanceMasks()})(stacked)["m"]
    assert np.array_equal(batch.values, np.stack([*scenes, scenes[0]])[..., ::-1])
    unmoved = pinfeed.Collate({"image": RANDOM, "m": Keep()})(samples)["m"]
    assert [len(masks) for masks in unmoved] == [2, 1]


@pytest.mark.filterwarnings("ignore:.*interpolates between classes")
def test_class_masks_and_color_masks_in_one_batch():
    fields = {"image": Image(augment=HALF), "label": Image(augment=HALF)}
    samples = [photo(label=one) for one in (CLASSES, COLORS[CLASSES])]
    message = "sample 1: expected 2 axes as in sample 0"
    check(lambda: pinfeed.Collate(fields)(samples), ValueError, message)


FAR = np.random.default_rng(0).integers([12, 10, 24, 18], [21, 15, 33, 25], (48, 4))
# Samples that are wrong in the first batch, or in the first batches together; fields, and the message.
FIRST = {
    "boxes": ([photo(boxes=CORNERS)] * 48, {"image": RANDOM}, "['boxes'] looks like boxes"),
    "a format": ([photo(boxes=box[None]) for box in FAR], {"image": MOVED, "boxes": Boxes(format="xywh", labels=())}, 'format="xyxy"'),
    "None": ([photo(boxes=None)] * 48, {"image": RANDOM, "boxes": Boxes(labels=())}, "Boxes(...).allow_missing() leaves out an entry that all samples lack"),
    "lengths": ([{"input_ids": np.arange(5), "labels": np.arange(3)}] * 48, {"input_ids": Pad(pad_value=0), "labels": Pad(pad_value=-100)}, "expected length 5 as in ['input_ids']"),
    "a unit": ([{"image": PHOTO / np.float32(255)}] * 48, {"image": Image(scale=1 / 255)}, "scale=0.00392 is for values of 0..255, got floats of 0..1"),
}  # fmt: skip


@pytest.mark.parametrize("place", ["ranks", "fork", "spawn"])
@pytest.mark.parametrize(("samples", "fields", "message"), FIRST.values(), ids=FIRST)
def test_every_process_checks_its_first_batches(samples, fields, message, place, capfd):
    for rank in (0, 1):
        # An error would end a second spawned worker while it starts, which torch reports as a failure.
        options = {"num_workers": 1 + (place == "fork"), "multiprocessing_context": place}
        collate = pickle.loads(pickle.dumps(pinfeed.Collate(fields)))
        sampler = pinfeed.samplers.ShuffleSampler(48, 1, rank=rank, world_size=2)
        loader = torch.utils.data.DataLoader(samples, batch_sampler=sampler, collate_fn=collate, **options if place != "ranks" else {})  # fmt: skip
        text = ""
        try:
            assert len(list(loader)) == 24
        except (ValueError, TypeError, UserWarning) as error:
            text = str(error)
        # Spawned workers print warnings, because they are without pytest's filters.
        assert message in text + (capfd.readouterr().err if place == "spawn" else "")


def test_an_empty_entry_does_not_have_others_judged_again():
    """Single rows of four or six numbers often fit as boxes; many batches would end a loop by chance."""
    rng = np.random.default_rng(0)
    fields = {"image": pinfeed.Image(augment=pinfeed.augment.RandomHorizontalFlip())}
    image, collate = np.zeros((64, 64, 3), np.uint8), pinfeed.Collate(fields)
    empty = np.zeros(0, np.float32)
    for _ in range(64):
        collate([{"image": image, "x": rng.random((1, 4)) * 60, "rare": empty} for _ in range(2)])
    pinfeed.Collate(fields)([{"image": image, "stats": np.array([[3, 5, 40, 50, 2, 1.0]])}])


def test_an_empty_entry_stays_to_be_checked_between_other_samples():
    collate = pinfeed.Collate({"image": RANDOM})
    collate([photo(y=np.zeros((0, 4)))])
    collate([OrderedDict(photo())])
    check(lambda: collate([photo(y=CORNERS.astype(float))]), ValueError, "['y'] looks like boxes")
