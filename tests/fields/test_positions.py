"""Boxes and points recognized by their values beside an augmented image, and numbers that are neither."""

import warnings

import numpy as np
import pytest
import torch

import pinfeed
from pinfeed import Image, Keep, Pad, Stack, augment

HEIGHT, WIDTH, COUNT = 96, 128, 24
IMAGE = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
SIZE = np.array([WIDTH, HEIGHT])
RANDOM = Image(augment=augment.RandomHorizontalFlip())


def points(rng, n=5):
    return rng.uniform(0.05, 0.95, (n, 2)) * SIZE


def corners(rng, n=3):
    first = rng.uniform(0, 0.8, (n, 2))
    return np.concatenate([first, first + rng.uniform(0.1, 1 - first)], 1) * [*SIZE, *SIZE]


def xywh(rng, n=3):
    boxes = corners(rng, n)
    return np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], 1)


def cxcywh(rng, n=3):
    boxes = corners(rng, n)
    return np.concatenate([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], 1)


def quads(rng, n=3):
    """Corners of rotated boxes, (n, 8)."""
    middles, angles = rng.uniform(0.3, 0.7, (n, 1, 2)) * SIZE, rng.uniform(0, 6, (n, 1))
    corners = np.add(angles, [0, 1, np.pi, np.pi + 1])
    return (middles + np.stack([np.cos(corners), np.sin(corners)], -1) * 20).reshape(n, 8)


def shares(make):
    return lambda rng: make(rng) / [*SIZE, *SIZE]


def whole(make):
    return lambda rng: make(rng).astype(np.int64)


# The key (None: in a tuple), a function that makes an array, the words of the message, and whether it raises.
FOUND = {
    "eyes": ("eyes", lambda rng: points(rng, 2), "Points() to transform points too", True),
    "left eyes": ("leftEyes", lambda rng: points(rng, 2), "Points()", True),
    "corners": ("corners", lambda rng: points(rng, 4), "Points()", True),
    "corners of whole pixels": ("corners", whole(points), "Points()", True),
    "coords": ("coords", points, "Points()", True),
    "coordinates": ("gt_coordinates", points, "Points()", True),
    "xy": ("xy", points, "Points()", True),
    "pose": ("pose", lambda rng: points(rng, 17), "Points()", True),
    "poses of people": ("poses", lambda rng: points(rng, 34).reshape(2, 17, 2), "Points()", True),
    "centers": ("centers", points, "Points()", True),
    "centroids": ("centroids", lambda rng: points(rng).tolist(), "Points()", True),
    "tensors": ("coords", lambda rng: torch.from_numpy(points(rng)), "Points()", True),
    "shares of a pose": ("pose", lambda rng: points(rng) / SIZE, "transform pose * [width, height] too", False),
    "points as a target": ("target", points, "Points()", False),
    "points as y": ("y", points, "Points()", False),
    "points as labels": ("labels", whole(points), "Points()", False),
    "points of float32": ("gt", lambda rng: points(rng).astype(np.float32), "Points()", False),
    "landmarks": ("lm", lambda rng: points(rng, 68).astype(np.float32), "Points()", True),
    "tracks": ("tracks", lambda rng: points(rng, 40).reshape(8, 5, 2), "Points()", True),
    "points as x": ("x", points, "Points()", False),
    "quadrilaterals": ("targets", quads, "use Points() to transform np.reshape(targets, (-1, 4, 2)) too", True),
    "quadrilaterals of whole pixels": ("z", whole(quads), "np.reshape(z, (-1, 4, 2))", True),
    "boxes of four corners": ("boxes", quads, "np.reshape(boxes, (-1, 4, 2))", True),
    "corners of boxes": ("gt_boxes", lambda rng: quads(rng).reshape(-1, 4, 2), "Points()", True),
    "one quadrilateral": ("text", lambda rng: quads(rng, 1), "np.reshape(text, (-1, 4, 2))", None),
    "points in a tuple": (None, points, 'put both in one dict, such as {"image": image', False),
    "boxes": ("anything", corners, "Boxes() to transform boxes too", True),
    "boxes in a tuple": (None, corners, "put both in one dict", True),
    "xywh as y": ("y", xywh, "Boxes(format='xywh') to transform boxes too", None),
    "xywh of whole pixels": ("gt", whole(xywh), "Boxes(format='xywh')", None),
    "xywh in a tuple": (None, xywh, "Boxes(format='xywh')", None),
    "centers and sizes": ("target", cxcywh, "Boxes(format=", None),
    "shares": ("y", shares(corners), "Boxes() to transform y * [width, height, width, height] too", None),
    "shares in a tuple": (None, shares(corners), "Boxes() to transform boxes * [width", None),
    "YOLO's without a class": ("gt", shares(cxcywh), "Boxes(format='cxcywh') to transform gt * [width", None),
    "one box": ("target", lambda rng: corners(rng, 1)[0], "Boxes() to transform boxes of shape (n, 4) too", None),
    "one box that is the same in all images": ("y", lambda rng: np.array([10, 20, 60, 80]), "Boxes()", False),
    "one box, xywh": ("y", lambda rng: xywh(rng, 1)[0], "Boxes(format='xywh') to transform boxes of shape (n, 4)", None),
    "one box in a tuple": (None, lambda rng: corners(rng, 1)[0], "of shape (n, 4)", None),
    "one box in shares": ("y", lambda rng: shares(lambda rng: corners(rng, 1))(rng)[0], "y * [width, height, width, height] of shape (n, 4)", None),
    "rows of key points": ("keypoints", lambda rng: np.c_[points(rng, 34), np.full(34, 2)].reshape(2, 51), "np.reshape(keypoints, (-1, 17, 3))", True),
    "one center": ("center", lambda rng: points(rng, 1)[0], "Points() to transform points of shape (n, 2) too", True),
    "key points with scores": ("keypoints", lambda rng: np.c_[points(rng), rng.uniform(size=5)], "Points()", True),
    "a box by sides": ("bbox", lambda rng: dict(zip(("xmin", "ymin", "xmax", "ymax"), corners(rng, 1)[0].tolist(), strict=True)), "Boxes() to transform [[xmin, ymin, xmax, ymax]] under a key", True),
    "a box by its size": ("roi", lambda rng: dict(zip(("x", "y", "width", "height"), whole(xywh)(rng)[0], strict=True)), "Boxes(format='xywh') to transform [[x, y, width, height]]", True),
    "a box by its center": ("z", lambda rng: dict(zip(("cx", "cy", "w", "h"), cxcywh(rng, 1)[0] / [*SIZE, *SIZE], strict=True)), "Boxes(format='cxcywh') to transform [[cx, cy, w, h]]", True),
    "a point by its numbers": ("landmark", lambda rng: dict(zip("xy", points(rng, 1)[0], strict=True)), "Points() to transform [[x, y]] under a key", True),
    "a smaller map": ("heatmap", lambda rng: rng.uniform(size=(17, HEIGHT // 4, WIDTH // 4)), "to transform maps of the image's own size", False),
    "with a class": ("target", lambda rng: np.c_[corners(rng), rng.integers(0, 9, 3)], "target[:, :4]", True),
    "with a score and a class": ("targets", lambda rng: np.c_[corners(rng), rng.uniform(size=3), rng.integers(0, 9, 3)], "Boxes() to transform targets[:, :4] too, with [:, 4:] as their labels", True),
    "a class and a flag first": ("z", lambda rng: np.c_[rng.integers(0, 9, 3), rng.integers(0, 2, 3), corners(rng)], "Boxes() to transform z[:, 2:] too, with [:, :2] as their labels", True),
    "YOLO's with the image's number": ("labels", lambda rng: np.c_[np.zeros(3), rng.integers(0, 9, 3), shares(cxcywh)(rng)], "Boxes(format='cxcywh') to transform labels[:, 2:] * [width, height, width, height] too, with [:, :2]", True),
}  # fmt: skip


def one_hot(rng):
    return np.eye(4, dtype=np.float32)[rng.integers(0, 4, 3)]


def softmax(rng, *shape):
    values = np.exp(rng.normal(size=shape))
    return values / values.sum(-1, keepdims=True)


# Keys and functions that make arrays that stay where they are.
SILENT = {
    "a class": ("y", lambda rng: int(rng.integers(0, 10))),
    "a class in a tuple": (None, lambda rng: int(rng.integers(0, 1000))),
    "classes of four attributes": ("labels", lambda rng: rng.integers(0, 10, 4)),
    "classes of two attributes": ("labels", lambda rng: rng.integers(0, 10, (5, 2))),
    "pairs of classes in a tuple": (None, lambda rng: rng.integers(0, 20, (5, 2))),
    "one-hot": ("y", one_hot),
    "one-hot rows of two": ("target", lambda rng: np.eye(2)[rng.integers(0, 2, 6)]),
    "one-hot in a tuple": (None, lambda rng: one_hot(rng)[0]),
    "classes of four objects": ("labels", lambda rng: np.array([0, 1, 2, 90])),
    "four numbers": (None, lambda rng: np.array([0, 1, 2, 3])),
    "flags": ("labels", lambda rng: rng.integers(0, 2, 4)),
    "rows of flags": ("labels", lambda rng: rng.integers(0, 2, (3, 4))),
    "soft labels": ("y", lambda rng: softmax(rng, 4)),
    "rows of soft labels": (None, lambda rng: softmax(rng, 3, 4)),
    "rows of two probabilities": ("target", lambda rng: softmax(rng, 6, 2)),
    "regression": ("y", lambda rng: rng.normal(size=4)),
    "regression in a tuple": (None, lambda rng: rng.normal(size=4) * 20),
    "regression of shares": ("target", lambda rng: rng.uniform(size=4)),
    "regression of small numbers": ("y", lambda rng: rng.uniform(0, 8, 4)),
    "a row of two": (None, lambda rng: rng.uniform(0, 90, 2)),
    "series of two": ("target", lambda rng: rng.normal(size=(24, 2))),
    "series of shares": ("y", lambda rng: rng.uniform(size=(24, 2))),
    "embeddings": ("y", lambda rng: rng.normal(size=(6, 4)) * 30),
    "positive embeddings": (None, lambda rng: np.maximum(rng.normal(size=(6, 4)), 0) * 30),
    "embeddings of another name": ("embedding", lambda rng: rng.uniform(0, 90, (6, 2))),
    "embeddings of six": ("target", lambda rng: rng.normal(size=(6, 6)) * 30),
    "rows of a table": ("target", lambda rng: rng.integers(0, 90, (3, 6))),
    "affine maps": ("target", lambda rng: np.c_[np.ones((3, 2)), rng.uniform(0, 90, (3, 4))]),
    "flags and shares": ("features", lambda rng: np.c_[rng.integers(0, 2, (3, 2)), rng.uniform(size=(3, 4))]),
    "embeddings of eight": ("x", lambda rng: rng.uniform(0, 90, (6, 8))),
    "a table of eight": ("features", lambda rng: np.array([10, 10, 50, 12, 60, 70, 5, 40]) + rng.normal(size=(3, 8))),
    "boxes of eight numbers": ("gt_boxes", lambda rng: rng.normal(size=(3, 8)) * 20),
    "spans as rois": ("rois", lambda rng: np.sort(rng.uniform(0, 90, (4, 2)), 1)),
    "pairs of ids": ("x", lambda rng: rng.integers(0, 90, (5, 2))),
    "small numbers as x": ("x", lambda rng: rng.uniform(0, 9, (5, 2))),
    "a few tokens": ("lm", lambda rng: rng.integers(0, 900, 3)),
    "offsets": ("target", lambda rng: rng.uniform(-20, 20, (5, 2))),
    "offsets of centers": ("center_offsets", lambda rng: rng.uniform(0, 90, (5, 2))),
    "velocities": ("velocity", lambda rng: rng.uniform(0, 90, (5, 2))),
    "spans": ("labels", lambda rng: np.sort(rng.uniform(0, 90, (6, 2)), 1)),
    "increasing rows": ("quantiles", lambda rng: np.sort(rng.uniform(0, 90, (3, 4)), 1)),
    "increasing rows of five": ("quantiles", lambda rng: np.sort(rng.uniform(0, 90, (3, 5)), 1)),
    "quantiles": ("y", lambda rng: np.sort(rng.uniform(0, 90, 4))),
    "quaternions": ("pose", lambda rng: rng.normal(size=4)),
    "a matrix": ("pose", lambda rng: np.eye(4) + rng.normal(size=(4, 4))),
    "degrees of a map": ("coords", lambda rng: rng.uniform(47, 48, (2, 2))),
    "negative degrees": ("coordinates", lambda rng: rng.uniform(-90, 90, (5, 2))),
    "colors": ("target", lambda rng: rng.integers(0, 256, (3, 4))),
    "numbers of corners": ("num_corners", lambda rng: rng.integers(0, 90, (3, 2))),
    "beyond the image": ("target", lambda rng: rng.uniform(0, 2000, (5, 4))),
    "nothing": ("y", lambda rng: np.zeros((0, 4))),
    "words": ("target", lambda rng: "cat"),
    "numbers of a circle": ("target", lambda rng: {"x": rng.normal(), "y": rng.normal()}),
    "a size": ("target", lambda rng: {"width": 90, "height": 60}),
    "changes of a box": ("target", lambda rng: dict(zip("xywh", rng.normal(size=4), strict=True))),
    "patches that are masked": ("mask", lambda rng: rng.uniform(size=(HEIGHT // 4, WIDTH // 4)) < 0.75),
    "masked patches of 16": ("mask", lambda rng: rng.integers(0, 2, (HEIGHT // 16, WIDTH // 16))),
    "rotations": ("angles", lambda rng: {"left": rng.uniform(0, 3, 2), "right": rng.uniform(0, 3, 2)}),
    "spans as segments": ("segments", lambda rng: np.sort(rng.uniform(0, 90, (9, 2)), 1)),
    "an attention mask": ("attention_mask", lambda rng: rng.integers(0, 2, 14).tolist()),
    "masks of sequences": ("loss_mask", lambda rng: [rng.integers(0, 2, n).tolist() for n in (8, 12)]),
    "ids of segments": ("segment_ids", lambda rng: np.sort(rng.integers(0, 4, 14))),
    "masks of shares": ("masks", lambda rng: rng.uniform(size=(14, 14))),
    "classes in a row": ("segmentation", lambda rng: rng.integers(0, 20, 400)),
    "shares of lanes": ("lanes", lambda rng: [0.25, 0.5, 0.125, 0.125]),
    "labels of points": ("point_labels", lambda rng: [3.0, 4.0, 1.0, 9.0, 12.0, 5.0]),
    "counts and a size": ("counts", lambda rng: {"counts": [1, 2], "size": [7, 7]}),
    "missing": ("coords", lambda rng: np.full((3, 2), np.nan)),
}  # fmt: skip


def batch_of(key, make, seed=0, count=COUNT):
    rng = np.random.default_rng(seed)
    if key is None:
        return [(IMAGE, make(rng)) for _ in range(count)]
    return [{"image": IMAGE, key: make(rng)} for _ in range(count)]


def message_of(fields, samples):
    """Returns the message of the error or of the only warning, and whether it is an error."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            pinfeed.Collate(fields)(samples)
        except ValueError as error:
            return str(error), True
    (one,) = seen
    return str(one.message), False


@pytest.mark.parametrize(("key", "make", "words", "raises"), FOUND.values(), ids=FOUND)
def test_what_is_found(key, make, words, raises):
    for seed in range(5):
        samples = batch_of(key, make, seed)
        text, is_error = message_of((RANDOM, None) if key is None else {"image": RANDOM}, samples)
        assert words in text
        assert raises in (is_error, None)
        entry = "[1]" if key is None else f"['{key}']"
        assert text.startswith(f"Collate: entry {entry} looks like ")
        for field in (Stack(), Keep())["key of its own" in text or "under a key" in text :]:
            still = (RANDOM, field) if key is None else {"image": RANDOM, key: field}
            pinfeed.Collate(still)(samples)


def test_numbers_beside_the_image():
    """The numbers of a box can be entries of the sample; the suggested field takes them as rows."""
    rng, flip = np.random.default_rng(0), augment.RandomHorizontalFlip(p=1)
    boxes = corners(rng, 4)
    names = "x1", "y1", "x2", "y2"
    samples = [{"image": IMAGE, **dict(zip(names, box, strict=True))} for box in boxes]
    text, is_error = message_of({"image": RANDOM}, samples)
    assert is_error
    assert "entry ['x1', 'y1', 'x2', 'y2'] looks like boxes" in text
    rows = [{"image": IMAGE, "box": [[one[name] for name in names]]} for one in samples]
    fields = {"image": Image(augment=flip), "box": pinfeed.Boxes(labels=())}
    moved = boxes.copy()
    moved[:, [2, 0]] = WIDTH - boxes[:, [0, 2]]
    np.testing.assert_allclose(pinfeed.Collate(fields)(rows)["box"].values, moved, rtol=1e-6)
    fields = {"image": RANDOM} | dict.fromkeys(names, Stack())
    assert len(pinfeed.Collate(fields)(samples)) == 5


@pytest.mark.parametrize(("key", "make"), SILENT.values(), ids=SILENT)
def test_what_is_not(key, make):
    for seed in range(20):
        for count in (2, 8, COUNT):
            samples = batch_of(key, make, seed, count)
            pinfeed.Collate((RANDOM, None) if key is None else {"image": RANDOM})(samples)


def test_boxes_with_a_class_beside_a_fixed_geometry():
    flip, resize = augment.RandomHorizontalFlip(p=1), augment.Resize((48, 64))
    rows = np.array([[10, 20, 60, 80, 3], [30, 5, 90, 70, 1]])
    yolo = np.array([[0, 0.3, 0.5, 0.1, 0.1], [2, 0.6, 0.4, 0.3, 0.2]])
    for key, of in (("labels", rows), ("target", yolo)):
        samples = [{"image": IMAGE, key: of[:n]} for n in (1, 2)]
        for field in (pinfeed.Jagged(), Pad()):
            text, is_error = message_of({"image": Image(augment=flip), key: field}, samples)
            assert "looks like boxes" in text
            assert not is_error
    fields = {"image": Image(augment=resize), "target": pinfeed.Jagged()}
    assert len(pinfeed.Collate(fields)(samples)) == 2  # a resize keeps fractions


def test_coordinates_from_minus_one_to_one():
    samples = [{"image": IMAGE, "boxes": [[-0.5, -0.75, 0.5, 0.3]]}] * 2
    fields = {"image": RANDOM, "boxes": pinfeed.Boxes(labels=())}
    with pytest.raises(
        ValueError, match=r"got numbers from -0.75 to 0.5; .*\(x \+ 1\) / 2 \* width"
    ):
        pinfeed.Collate(fields)(samples)


def test_images_that_stay():
    """Without a geometry that changes the image, nothing has to follow it."""
    for key, make, *_ in FOUND.values():
        samples = batch_of(key, make)
        pinfeed.Collate((Image(), None) if key is None else {"image": Image()})(samples)


def test_points_of_different_numbers():
    rng = np.random.default_rng(0)
    samples = [{"image": IMAGE, "target": points(rng, n)} for n in (3, 5, 0, 9)]
    with pytest.warns(UserWarning, match=r"\['target'\] looks like points .* and Pad"):
        pinfeed.Collate({"image": RANDOM, "target": Pad()})(samples)
    with (
        pytest.warns(UserWarning, match="looks like points"),
        pytest.raises(ValueError, match="expected shape"),
    ):
        pinfeed.Collate({"image": RANDOM})(samples)
