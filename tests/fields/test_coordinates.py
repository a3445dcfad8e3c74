"""Boxes and points in a different format or unit than their field expects."""

import itertools

import numpy as np
import pytest
import torch
from torchvision import tv_tensors

import pinfeed
from messages import check
from pinfeed import augment

FORMATS = ("xyxy", "xywh", "cxcywh")
HEIGHT, WIDTH = 480, 640
FLIP = augment.RandomHorizontalFlip(p=1)
HALF = pinfeed.Image(augment=augment.Resize((HEIGHT // 2, WIDTH // 2)))


def corners(rng, count):
    """Returns boxes inside an image, as x1, y1, x2, y2."""
    ends = np.sort(rng.uniform(0, 1, (count, 2, 2)), axis=1) * [WIDTH, HEIGHT]
    return ends.reshape(count, 4)


def written(boxes, format):
    boxes = boxes.copy()
    if format != "xyxy":
        boxes[:, 2:] -= boxes[:, :2]
    if format == "cxcywh":
        boxes[:, :2] += boxes[:, 2:] / 2
    return boxes


def photo(boxes, **more):
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    return {"image": image, "boxes": boxes, "labels": np.arange(len(boxes)), **more}


def batch_of(samples, **options):
    options = {"min_size": 0, "min_area": 0} | options
    return pinfeed.Collate({"image": HALF, "boxes": pinfeed.Boxes(**options)})(samples)


@pytest.mark.parametrize(("declared", "true"), [*itertools.permutations(FORMATS, 2)])
@pytest.mark.parametrize("kind", [np.array, torch.tensor, list])
def test_another_format_raises_and_names_the_right_one(declared, true, kind):
    rng = np.random.default_rng(0)
    all_boxes = [corners(rng, count) for count in (0, 6, 9)]
    samples = [photo(kind(written(boxes, true))) for boxes in all_boxes]
    before = [np.array(sample["boxes"]) for sample in samples]
    check(lambda: batch_of(samples, format=declared), ValueError, f'"{true}"')
    batch = batch_of(samples, format=true, output="xyxy")
    np.testing.assert_allclose(batch["boxes"].values, np.concatenate(all_boxes) / 2, atol=1e-3)
    assert all(np.array_equal(old, new["boxes"]) for old, new in zip(before, samples, strict=True))


@pytest.mark.parametrize("format", FORMATS)
def test_fractions_raise_for_any_batch_size(format):
    boxes = corners(np.random.default_rng(2), 3) / ([WIDTH, HEIGHT] * 2)
    samples = [photo([]), photo(written(boxes, format))]
    check(lambda: batch_of(samples, format=format), ValueError, "pixels", "width and height")
    pixel = photo([written(np.array([[0.0, 0, 1, 1]]), format)[0].tolist()])
    assert batch_of([pixel], format=format, output="xyxy")["boxes"].values.tolist() == [
        [0, 0, 0.5, 0.5]
    ]


def test_swapped_columns_and_another_image_size():
    rng = np.random.default_rng(3)
    boxes = corners(rng, 30)
    check(lambda: batch_of([photo(boxes[:, [1, 0, 3, 2]])]), ValueError, "[1, 0, 3, 2]")
    check(lambda: batch_of([photo(boxes * 3)]), ValueError, "an image of another size")


HINTS = {
    "two fit": ("cxcywh", [[10, 30, 300, 420], [5, 5, 100, 100]], '; pass format="xywh" or format="xyxy": all boxes so far are then inside; draw a few to see which'),
    "two fit corners": ("xywh", [[300, 200, 600, 400]], 'pass format="cxcywh" or format="xyxy": all boxes so far are then inside; draw a few'),
    "one fits": ("xywh", [[600, 400, 70, 70], [500, 450, 20, 60]], 'pass format="cxcywh": all boxes so far are then inside'),
    "thousandths": ("xyxy", [[100, 200, 900, 990]], "the unit may differ: scale boxes to pixels of their image if they are in thousandths"),
    "thousandths of some": ("xyxy", [[100, 200, 900, 990], [400, 100, 600, 300], [50, 50, 200, 950]], "the unit may differ"),
}  # fmt: skip


@pytest.mark.parametrize(("format", "boxes", "hint"), HINTS.values(), ids=HINTS)
def test_hints_name_every_format_that_fits(format, boxes, hint):
    with pytest.raises(ValueError, match="coordinates inside the image") as error:
        batch_of([photo(boxes)] * 40, format=format)
    text = str(error.value)
    assert hint in text
    assert ("format=" in text) == ("format=" in hint)
    assert text.count("format=") == hint.count("format=")


BAD = {
    "negative width": ("xywh", [3, 3, -1, 2], "width and height of at least 0, got [3.0, 3.0, -1.0, 2.0] of box 1"),
    "negative height": ("cxcywh", [9, 9, 2, -1], "got [9.0, 9.0, 2.0, -1.0] of box 1"),
    "x2 < x1": ("xyxy", [9, 1, 8, 2], 'x1 <= x2 and y1 <= y2, got [9.0, 1.0, 8.0, 2.0] of box 1; for boxes with width and height, such as COCO\'s, pass format="xywh"'),
    "y2 < y1": ("xyxy", [1, 9, 2, 8], "got [1.0, 9.0, 2.0, 8.0] of box 1"),
}  # fmt: skip


@pytest.mark.parametrize(("format", "box", "message"), BAD.values(), ids=BAD)
def test_rotated_boxes(format, box, message):
    samples = [photo([]), photo([[2, 2, 4, 4], box])]
    check(lambda: batch_of(samples, format=format), ValueError, "sample 1", message)
    rows = pinfeed.ArrayDataset(
        {key: pinfeed.RaggedArray.from_sequences([np.array(s[key], float).reshape(-1, *shape) for s in samples])
         for key, shape in (("boxes", (4,)), ("labels", ()))}
        | {"image": np.stack([s["image"] for s in samples])}
    )  # fmt: skip
    check(lambda: batch_of(rows.__getitems__([0, 1]), format=format), ValueError, message)


@pytest.mark.parametrize("format", FORMATS)
def test_empty_boxes_are_dropped(format):
    boxes = written(np.array([[5.0, 5, 5, 9], [6, 6, 6, 6], [2, 2, 20, 20]]), format)
    batch = batch_of([photo(boxes)], format=format, min_size=1)
    assert batch["labels"].values.tolist() == [2]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("declared", FORMATS)
def test_tensors_with_a_format(format, declared):
    boxes = corners(np.random.default_rng(4), 3)
    tv_boxes = tv_tensors.BoundingBoxes(
        torch.from_numpy(written(boxes, format)), format=format.upper(), canvas_size=(HEIGHT, WIDTH)
    )
    samples = [photo([]), photo(tv_boxes)]
    if declared == format:
        result = batch_of(samples, format=declared, output="xyxy")["boxes"].values
        np.testing.assert_allclose(result, boxes / 2, atol=1e-3)
    else:
        words = f"of sample 1: expected boxes of format '{declared}', got a BoundingBoxes of format"
        call = lambda: batch_of(samples, format=declared)
        check(call, ValueError, words, f'pass format="{format}"')


def test_tensors_with_another_image_size():
    data = torch.tensor([[3.0, 3, 9, 9]])
    boxes = tv_tensors.BoundingBoxes(data, format="XYXY", canvas_size=(WIDTH, HEIGHT))
    check(lambda: batch_of([photo(boxes)]), ValueError, "(480, 640)", "canvas_size=(640, 480)")
    turned = tv_tensors.BoundingBoxes(torch.zeros(1, 5), format="XYWHR", canvas_size=(480, 640))
    check(lambda: batch_of([photo(turned)]), ValueError, "of format 'xywhr'")
    points = tv_tensors.KeyPoints(data[:, :2], canvas_size=(WIDTH, HEIGHT))
    fields = {"image": HALF, "points": pinfeed.Points()}
    samples = [{"image": np.zeros((HEIGHT, WIDTH, 3), np.uint8), "points": points}]
    check(lambda: pinfeed.Collate(fields)(samples), ValueError, "canvas_size=(640, 480)")
    samples[0]["points"] = tv_tensors.KeyPoints(data[:, :2], canvas_size=(HEIGHT, WIDTH))
    assert pinfeed.Collate(fields)(samples)["points"].values.tolist() == [[1.5, 1.5]]


@pytest.mark.parametrize("numbers", [2, 3])
@pytest.mark.parametrize("shape", [(6,), (2, 3)])
def test_points_in_another_unit_or_order(numbers, shape):
    rng = np.random.default_rng(5)
    points = rng.uniform(0, 1, (*shape, 2)) * [WIDTH, HEIGHT]
    points[0] = WIDTH - 9, 30  # beyond the height
    points[..., 1, :] = WIDTH - 19, 20
    points[..., 2, :] = WIDTH - 29, 10

    def batch(points):
        if numbers == 3:
            points = np.concatenate([points, np.full((*shape, 1), 2)], -1)
        fields = {"image": HALF, "points": pinfeed.Points()}
        image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        samples = [{"image": image, "points": some} for some in (points[:0], points)]
        return pinfeed.Collate(fields)(samples)["points"].values

    np.testing.assert_allclose(batch(points)[..., :2], points / 2, atol=1e-3)
    check(lambda: batch(points / [WIDTH, HEIGHT]), ValueError, "points in pixels", "got fractions")
    beyond = points / [WIDTH, HEIGHT] / (points / [WIDTH, HEIGHT]).max() * 1.03
    check(lambda: batch(beyond), ValueError, "points in pixels", "got fractions, at most 1.03")
    check(lambda: batch(points[..., ::-1]), ValueError, "swap x and y: all points")
    check(lambda: batch(points * 4), ValueError, "an image of another size")


def test_invisible_points_can_be_anywhere():
    unknown = [[[-1, -1, 0], [9000, 9000, 0], [3, 5, 2], [0.5, 0.5, 0], [5000, 2, 0]]]
    fields = {"image": HALF, "points": pinfeed.Points()}
    samples = [{"image": np.zeros((HEIGHT, WIDTH, 3), np.uint8), "points": unknown}]
    result = pinfeed.Collate(fields)(samples)["points"].values
    assert result[0, 2].tolist() == [1.5, 2.5, 2]


# The declared format, the true one, and the fraction of the image's size that differs.
SMALL = {
    "xywh": ("xywh", "cxcywh", 1, '"cxcywh"'),
    "cxcywh": ("cxcywh", "xywh", 1, '"xywh"'),
    "thousandths": ("xyxy", "xyxy", 1000 / HEIGHT, "an image of another size"),
    "before a resize": ("xywh", "xywh", 3, "an image of another size"),
}


@pytest.mark.parametrize(("declared", "true", "factor", "message"), SMALL.values(), ids=SMALL)
def test_batches_of_one_box_accumulate_evidence(declared, true, factor, message):
    rng = np.random.default_rng(6)
    fields = {"image": HALF, "boxes": pinfeed.Boxes(format=declared, min_size=0, min_area=0)}
    samples = [photo(written(corners(rng, 1) * factor, true)) for _ in range(40)]

    def epoch():
        collate = pinfeed.Collate(fields)
        for sample in samples:
            collate([sample])

    check(epoch, ValueError, message)


@pytest.mark.parametrize("format", FORMATS)
def test_small_batches_of_rough_boxes(format):
    rng = np.random.default_rng(7)
    for _ in range(4):
        fields = {"boxes": pinfeed.Boxes(format=format), "points": pinfeed.Points()}
        collate = pinfeed.Collate({"image": HALF} | fields)
        for i in range(40):
            boxes = corners(rng, 1 + i % 2)
            if rng.random() < 0.3:
                boxes[0, 2:] += 0.4 * (boxes[0, 2:] - boxes[0, :2])
            if rng.random() < 0.05:
                boxes[0] += WIDTH  # an object outside the image
            center = (boxes[:, :2] + boxes[:, 2:]) / 2
            collate([photo(written(boxes, format), points=center)])


def test_batches_of_one_point():
    rng = np.random.default_rng(8)
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    points = rng.uniform(0, 1, (40, 1, 2)) * [WIDTH, HEIGHT]

    def epoch(points):
        collate = pinfeed.Collate({"image": HALF, "points": pinfeed.Points()})
        return [collate([{"image": image, "points": p}])["points"].values for p in points]

    np.testing.assert_allclose(torch.stack(epoch(points)), points / 2, atol=1e-3)
    check(lambda: epoch(points[..., ::-1]), ValueError, "swap x and y: all points")
    check(lambda: epoch(points * 3), ValueError, "an image of another size")


def test_tiles_of_a_larger_image():
    """Boxes on all sides of a tile are dropped."""
    tile = [[100, 10, 120, 30], [200, 20, 230, 40], [-90, 5, -60, 20], [10, 10, 30, 30]]

    def batch(boxes):
        fields = {"image": pinfeed.Image(augment=FLIP), "boxes": pinfeed.Boxes(labels=())}
        fields["points"] = pinfeed.Points()
        sample = {"image": np.zeros((64, 96, 3), np.uint8), "boxes": boxes}
        sample["points"] = np.array(boxes).reshape(-1, 2, 2)
        return pinfeed.Collate(fields)([sample] * 2)

    assert batch(tile)["boxes"].values.tolist() == [[66, 10, 86, 30]] * 2
    assert batch(tile)["points"].values.tolist() == [[[86, 10], [66, 30]]] * 2
    corner = [box for box in tile if box[0] > 0]
    check(lambda: batch(corner), ValueError, "cut from a larger one, leave out the ones outside")
    assert batch(corner[2:])["boxes"].values.tolist() == [[66, 10, 86, 30]] * 2


def test_missing_points_at_negative_coordinates():
    points = np.full((6, 2), -100.0)
    points[:2] = [[3, 5], [90, 60]]
    fields = {"image": pinfeed.Image(augment=FLIP), "points": pinfeed.Points()}
    sample = {"image": np.zeros((64, 96, 3), np.uint8), "points": points}
    batch = pinfeed.Collate(fields)([sample] * 4)
    assert batch["points"].values[:2].tolist() == [[93, 5], [6, 60]]


def test_a_width_that_rounding_made_negative():
    boxes = np.array([[10, 20, 10 - 1e-6, 40], [10.0, 20, 30, 40]])
    before = boxes.copy()
    batch = batch_of([photo(boxes)])
    assert batch["boxes"].values.tolist() == [[5, 10, 5, 20], [5, 10, 15, 20]]
    assert np.array_equal(boxes, before)


BYTES = pinfeed.Image(dtype=torch.uint8, augment=augment.CenterCrop(8))


def scenes(rng, count, *, clipped=True):
    """Returns corners of objects of many sizes anywhere in ``count`` images, as in COCO."""
    for _ in range(count):
        boxes = rng.uniform(0, 1, (rng.poisson(7), 1, 2)).repeat(2, 1)
        half = np.exp(rng.normal(-2.7, 1, (len(boxes), 2)))
        boxes[:, 0] -= half
        boxes[:, 1] += half
        boxes = boxes.clip(0, 1) if clipped else boxes
        yield (boxes * [WIDTH, HEIGHT]).reshape(-1, 4)


def persons(rng, count):
    """Returns one person in the middle of each image; every third one has feet below the image."""
    for _ in range(count):
        x, foot, height = WIDTH * rng.normal(0.5, 0.05), rng.normal(450, 60), rng.uniform(200, 400)
        yield np.array([[x - height / 6, foot - height, x + height / 6, foot]])


def full_boxes(rng, count):
    """Returns boxes around all of an object, also outside the image, as in CrowdHuman."""
    for number in rng.integers(0, 4, count):
        centers = rng.uniform(0, 1, (number, 2)) * [WIDTH, HEIGHT]
        halves = rng.uniform(5, 150, (number, 2))
        yield np.concatenate([centers - halves, centers + halves], 1)


def few_beyond(rng, count):
    """Returns boxes inside the image, but for two in five."""
    for _ in range(count):
        boxes = corners(rng, 5)
        boxes[0, 2:] += 0.9 * (boxes[0, 2:] - boxes[0, :2])
        boxes[1, :2] -= 5
        yield boxes


# Corners with nothing, anything, small objects or feet outside the image.
TRUE = {
    "clipped": lambda rng: scenes(rng, 80),
    "not clipped": lambda rng: scenes(rng, 80, clipped=False),
    "small": lambda rng: (boxes / 16 + np.tile(rng.uniform(0, 440, 2), 2) for boxes in scenes(rng, 80)),
    "feet": lambda rng: persons(rng, 80),
    "full": lambda rng: full_boxes(rng, 120),
    "few": lambda rng: few_beyond(rng, 80),
}  # fmt: skip


@pytest.mark.parametrize("true", FORMATS)
@pytest.mark.parametrize("kind", TRUE)
def test_the_right_format_of_a_dataset(kind, true):
    for seed in range(4):
        collate = pinfeed.Collate({"image": BYTES, "boxes": pinfeed.Boxes(format=true)})
        for boxes in TRUE[kind](np.random.default_rng([9, seed])):
            collate([photo(written(boxes, true))])


@pytest.mark.parametrize(("declared", "true"), [*itertools.permutations(FORMATS, 2)])
@pytest.mark.parametrize("kind", ["clipped", "not clipped"])
def test_batches_together_show_a_wrong_format(kind, declared, true):
    for seed in range(4):
        samples = [photo(written(b, true)) for b in TRUE[kind](np.random.default_rng([10, seed]))]
        collate = pinfeed.Collate({"image": BYTES, "boxes": pinfeed.Boxes(format=declared)})
        call = lambda collate=collate, samples=samples: [collate([s]) for s in samples]
        check(call, ValueError, f'"{true}"')


@pytest.mark.parametrize("declared", FORMATS)
@pytest.mark.parametrize("kind", ["clipped", "not clipped"])
def test_batches_together_show_that_y_comes_first(kind, declared):
    """TensorFlow's boxes are y1, x1, y2, x2. At first, a few of them can fit x1, y1, x2, y2."""
    hint = "columns in the order boxes[:, [1, 0, 3, 2]]"
    if declared != "xyxy":
        hint = f'format="xyxy" and {hint}'
    hints = []
    for seed in range(4):
        scene = TRUE[kind](np.random.default_rng([11, seed]))
        samples = [photo(boxes[:, [1, 0, 3, 2]]) for boxes in scene]
        collate = pinfeed.Collate({"image": BYTES, "boxes": pinfeed.Boxes(format=declared)})
        with pytest.raises(ValueError, match="boxes so far are then inside") as error:
            [collate([sample]) for sample in samples]
        hints.append(str(error.value).partition("; pass ")[2].rpartition(": ")[0])
    assert {*hints} <= {hint, 'format="xyxy"'}
    assert hints.count(hint) >= 3
