"""Boxes and points that move along with the images they are about."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
from messages import check
from pinfeed import augment

ANY = np.array([[0.0, 0, 4, 4, 0, 0], [0, 0, 4, 4, 0, 0]])


@st.composite
def scenes(draw):
    """Images with a plane for each box, which is 1 within the box, and a geometry."""
    size, padding = draw(st.tuples(*[st.integers(1, 12)] * 2)), draw(st.integers(0, 5))
    view = augment.Compose(
        [
            augment.RandomVerticalFlip(draw(st.sampled_from([0, 0.5]))),
            augment.RandomCrop(size, padding=padding, pad_if_needed=True),
            augment.RandomHorizontalFlip(draw(st.sampled_from([0, 0.5]))),
        ]
    )
    images, boxes = [], []
    count = draw(st.integers(1, 3))
    for _ in range(draw(st.integers(1, 3))):
        height, width = draw(st.tuples(*[st.integers(1, 12)] * 2))
        image, corners = np.zeros((count, height, width), np.uint8), []
        for plane in image:
            y1, y2 = sorted(draw(st.tuples(*[st.integers(0, height)] * 2)))
            x1, x2 = sorted(draw(st.tuples(*[st.integers(0, width)] * 2)))
            plane[y1:y2, x1:x2] = 1
            corners.append((x1, y1, x2, y2))
        images.append(image)
        boxes.append(corners)
    return images, np.array(boxes, np.int64).reshape(len(boxes), count, 4), view, size


@given(scenes())
def test_boxes_stay_around_what_they_were_around(scene):
    images, boxes, view, size = scene
    field = pinfeed.Image(input="CHW", dtype=torch.uint8, augment=view, windows=True)
    batch, windows = pinfeed.Collate(field)(images)
    moved, remains = augment.boxes(torch.from_numpy(boxes), windows, size)
    assert moved.dtype == torch.float32
    for plane, box, is_seen in zip(
        batch.flatten(0, 1), moved.flatten(0, 1), remains.flatten(), strict=True
    ):
        y, x = plane.nonzero(as_tuple=True)
        assert bool(is_seen) == (len(y) > 0)
        if is_seen:
            assert box.tolist() == [x.min(), y.min(), x.max() + 1, y.max() + 1]


def moved_point(x, y, window, size):
    """Where a point of the whole image is in what was seen of it."""
    top, left, height, width, mirrored_rows, mirrored_columns = window
    x = (x - left) * (size[1] / width)
    y = (y - top) * (size[0] / height)
    return size[1] - x if mirrored_columns else x, size[0] - y if mirrored_rows else y


def moved_box(box, window, size, min_size, min_area):
    ends = moved_point(*box[:2], window, size), moved_point(*box[2:], window, size)
    (x1, x2), (y1, y2) = (
        np.clip(sorted(pair, reverse=bool(box[axis] > box[axis + 2])), 0, size[1 - axis])
        for axis, pair in enumerate(zip(*ends, strict=True))
    )
    width, height = x2 - x1, y2 - y1
    remains = width >= min_size and height >= min_size and width * height >= min_area
    return (x1, y1, x2, y2), remains


@st.composite
def moves(draw):
    """Lengths of a jagged batch, points, windows of any size, and the size they have become."""
    lengths = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = rng.uniform(-5, 50, (sum(lengths), 4)).astype(draw(st.sampled_from(["f4", "f8"])))
    windows = np.concatenate(
        [
            rng.uniform(-9, 20, (len(lengths), 2)),
            rng.uniform(0.5, 40, (len(lengths), 2)),
            rng.integers(0, 2, (len(lengths), 2)),
        ],
        axis=1,
    )
    return lengths, values, windows, draw(st.tuples(*[st.integers(1, 30)] * 2))


def as_jagged(lengths, values, is_tensor):
    offsets = np.append(0, np.cumsum(lengths))
    parts = (values, offsets)
    return pinfeed.JaggedBatch(*(map(torch.from_numpy, parts) if is_tensor else parts))


@given(moves(), st.booleans(), st.sampled_from([0.0, 1.0, 3.0]), st.sampled_from([0.0, 1.0, 20.0]))
def test_jagged_boxes(move, is_tensor, min_size, min_area):
    lengths, values, windows, size = move
    boxes = as_jagged(lengths, values, is_tensor)
    moved, remains = augment.boxes(boxes, windows, size, min_size=min_size, min_area=min_area)
    assert moved.offsets is boxes.offsets
    assert isinstance(remains, torch.Tensor if is_tensor else np.ndarray)
    expected = [
        moved_box(box.astype(np.float64), window, size, min_size, min_area)
        for box, window in zip(values, np.repeat(windows, lengths, axis=0), strict=True)
    ]
    corners = np.array([box for box, _ in expected]).reshape(-1, 4).astype(values.dtype)
    assert np.array_equal(np.asarray(moved.values), corners)
    assert np.asarray(remains).tolist() == [is_seen for _, is_seen in expected]


@given(moves(), st.booleans())
def test_jagged_points(move, is_tensor):
    lengths, values, windows, size = move
    pairs = as_jagged(lengths, values.reshape(-1, 2, 2), is_tensor)
    moved, remains = augment.points(pairs, windows, size)
    expected = [
        [moved_point(x, y, window, size) for x, y in pair]
        for pair, window in zip(
            values.astype(np.float64).reshape(-1, 2, 2),
            np.repeat(windows, lengths, axis=0),
            strict=True,
        )
    ]
    coordinates = np.array(expected).reshape(-1, 2, 2)
    assert np.array_equal(np.asarray(moved.values), coordinates.astype(values.dtype))
    x, y = coordinates[..., 0], coordinates[..., 1]
    inside = (x >= 0) & (x <= size[1]) & (y >= 0) & (y <= size[0])
    assert np.array_equal(np.asarray(remains), inside)


def test_points_on_the_border_remain():
    windows = np.array([[0.0, 0, 4, 6, 0, 0]])
    on_it = [[0.0, 0.0], [6, 0], [0, 4], [6, 4]]
    beyond = [[-0.5, 0.0], [6.5, 0], [0, -0.5], [6, 4.5]]
    _, remains = augment.points(np.array([on_it + beyond]), windows, (4, 6))
    assert remains.tolist() == [[True] * 4 + [False] * 4]


def test_padded_boxes_are_moved_alike():
    boxes = np.array([[[1, 1, 3, 3], [0, 0, 2, 2]], [[0, 0, 4, 4], [0, 0, 0, 0]]], np.int32)
    boxes.flags.writeable = False
    windows = np.array([[1.0, 1, 2, 2, 0, 1], [0, 0, 4, 4, 1, 0]])
    moved, remains = augment.boxes(boxes[:, ::-1], windows, (4, 4))
    assert moved.dtype == np.float32
    assert moved.tolist() == [[[2, 0, 4, 2], [0, 0, 4, 4]], [[0, 4, 0, 4], [0, 0, 4, 4]]]
    assert remains.tolist() == [[True, True], [False, True]]  # the padding doesn't


def test_values_that_are_no_numbers_do_not_remain():
    nowhere = np.full((2, 1, 4), np.nan, np.float32)
    moved, remains = augment.boxes(nowhere, ANY, (4, 4))
    assert np.isnan(moved).all()
    assert not remains.any()


SOME, JAGGED = np.zeros((2, 3, 4)), pinfeed.JaggedBatch(np.zeros((5, 4)), np.array([0, 2, 5]))

ERRORS = [
    (lambda: augment.boxes([[0, 0, 1, 1]], ANY, (4, 4)), TypeError, "boxes must be", "got list"),
    (lambda: augment.boxes(SOME[..., :3], ANY, (4, 4)), ValueError, "(B, N, 4)", "got (2, 3, 3)"),
    (lambda: augment.points(SOME, ANY, (4, 4)), ValueError, "(B, N, 2)", "got (2, 3, 4)"),
    (lambda: augment.boxes(SOME, ANY[:1], (4, 4)), ValueError, "here (2, 6)", "got (1, 6)"),
    (lambda: augment.boxes(JAGGED, ANY[:1], (4, 4)), ValueError, "here (2, 6)", "got (1, 6)"),
    (lambda: augment.boxes(SOME, None, (4, 4)), TypeError, "windows must be", "got NoneType"),
    (lambda: augment.boxes(SOME, ANY, 4), ValueError, "size must be the batch's height", "got 4"),
    (lambda: augment.points(SOME, ANY, (4, 0)), ValueError, "points: size must be at least 1"),
]


@pytest.mark.parametrize(("call", "error", "words"), [(c, e, w) for c, e, *w in ERRORS])
def test_errors(call, error, words):
    check(call, error, *words)
