"""Detection: images resized to one of several sizes and padded, with the targets of their objects."""

import numpy as np
import torch

import pinfeed
from bench import peers
from bench.data import MEAN, ROUNDED, STD, entry_is, smooth_images, zero_if
from bench.harness import built, compare, other, ours, reference, workload
from bench.targets import DISTURBED, at_least, at_most
from pinfeed import augment
from pinfeed.augment.random_state import BatchRandomState
from pinfeed.fields.field import Shared

SIZES, MOST = tuple(range(480, 801, 32)), 1333
MORE = "masks write 139 MB in addition to the images' 167, and are resized one by one"
BUSY = "55 µs on an AMD EPYC, 130 to 310 on a busy Cascade Lake"
VIEW = augment.Compose([augment.RandomShortestSize(SIZES, MOST), augment.RandomHorizontalFlip()])


def some_boxes(random: np.random.Generator, objects: int) -> np.ndarray:
    """Returns boxes in an image of 480×640."""
    low = random.uniform(0, 300, (objects, 2))
    return np.concatenate([low, low + random.uniform(20, 150, (objects, 2))], 1)


def photographs(count: int, objects: int) -> list[dict]:
    """Images of 480×640 with boxes, labels and masks."""
    random, samples = np.random.default_rng(0), []
    for image in smooth_images(count, 480, 640):
        boxes = some_boxes(random, objects)
        masks = np.zeros((objects, 480, 640), np.uint8)
        for mask, (x1, y1, x2, y2) in zip(masks, boxes.astype(int), strict=True):
            mask[y1:y2, x1:x2] = 1
        targets = {"boxes": boxes.astype(np.float32), "labels": np.arange(objects), "masks": masks}
        samples.append({"image": image} | targets)
    return samples


def collated(samples, field, **fields):
    """Returns a function that collates the keys of its fields."""
    keys = {"image", *fields} | ({"labels"} if "boxes" in fields else set())
    rows = pinfeed.IndexedDataset([{key: sample[key] for key in keys} for sample in samples])
    collate = pinfeed.Collate({"image": field, **fields}, seed=0)
    batch = rows.__getitems__(range(len(samples)))
    return lambda: collate(batch)


@workload(
    at_most(1.15, "images and boxes", "each image alone, and the fill"),
    at_most(1.05, "images and boxes", "images, padded", why=(1.2, DISTURBED)),
    at_least(5, "torchvision v2 with boxes"),
    at_least(5, "torchvision v2 with masks", "images, boxes and masks"),
    at_most(3.5, "images, boxes and masks", "images, padded", why=(5.1, MORE)),
)
def detection():
    """16 images of 480×640, shortest side 480–800, flipped, normalized, padded; 10 objects each."""
    samples = photographs(16, 10)
    field = pinfeed.Image(MEAN, STD, augment=VIEW, pad_value=0, multiple_of=32, sizes="sizes")
    masks = {"masks": pinfeed.InstanceMasks()}
    with_boxes = collated(samples, field, boxes=pinfeed.Boxes())
    with_masks = collated(samples, field, boxes=pinfeed.Boxes(), **masks)
    marked = [{**sample, "corner": [[0, 0]]} for sample in samples]
    drawn = collated(marked, field, corner=pinfeed.Points())()
    sizes, flips = drawn["sizes"].tolist(), (drawn["corner"].values[:, 0] > 0).tolist()
    expected = collated(samples, field)()["image"].clone()
    singles = [
        collated([sample], pinfeed.Image(MEAN, STD, augment=augment.Resize(size)))
        for sample, size in zip(samples, sizes, strict=True)
    ]

    def torchvision(with_masks):
        """Transforms each sample with pinfeed's draws; a collate function pads."""
        v2 = peers.v2()
        from torchvision import tv_tensors

        finish = peers.finishing(v2.ClampBoundingBoxes(), v2.SanitizeBoundingBoxes())

        def one(sample, size, is_flipped):
            boxes = torch.from_numpy(sample["boxes"])
            image = torch.from_numpy(sample["image"]).permute(2, 0, 1)
            target = {
                "image": tv_tensors.Image(image),
                "boxes": tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(480, 640)),
                "labels": torch.from_numpy(sample["labels"]),
            }
            if with_masks:
                target["masks"] = tv_tensors.Mask(torch.from_numpy(sample["masks"]))
            return finish(v2.RandomHorizontalFlip(float(is_flipped))(v2.Resize(size)(target)))

        def batch():
            done = [*map(one, samples, sizes, flips)]
            return peers.padded_images([target["image"] for target in done], expected.shape), done

        return batch

    out = torch.empty_like(expected)
    first, of_dict = ({"expected": entry_is(key, expected)} for key in (0, "image"))
    alone = {"expected": lambda batches: zero_if(len(batches) == 17)}

    def each_alone():
        return [*(single() for single in singles), out.fill_(0.5)]

    return compare(
        reference("fill the images' batch (`out.fill_`)", lambda: out.fill_(0.5)),
        ours("images and boxes", with_boxes, **of_dict),
        ours("images, padded", collated(samples, field), **of_dict),
        ours("each image alone, and the fill", each_alone, **alone),
        ours("images, boxes and masks", with_masks, **of_dict),
        other("torchvision v2 with boxes", built(torchvision, False), **first),
        other("torchvision v2 with masks", built(torchvision, True), **first),
        tolerance=2 * ROUNDED,
    )


@workload(at_most(60, unit="µs", why=(340, BUSY)))
def boxes():
    """Boxes of 64 images, 50 each: cropped, flipped, clipped, dropped; without the images."""
    random = np.random.default_rng(0)
    samples = [some_boxes(random, 50).astype(np.float32) for _ in range(64)]
    view = augment.Compose([augment.RandomCrop(400), augment.RandomHorizontalFlip()])
    image = pinfeed.Image(dtype=torch.uint8, augment=view)
    random_state, shared = BatchRandomState(np.arange(64), key=0), Shared()
    context = pinfeed.FieldContext("images", random_state=random_state, shared=shared)
    image.collate([np.zeros((480, 640, 3), np.uint8)] * 64, context)  # draws the crops
    entry = pinfeed.FieldContext("boxes")

    def moved_by(field, items):
        return field.transformed(field.collate(items, entry), shared, entry)

    field, joined = pinfeed.Boxes(labels=()), torch.from_numpy(np.concatenate(samples))
    ends = moved_by(pinfeed.Points(), [[[0, 0], [640, 480]]] * 64).values.numpy()
    first, last = ends.reshape(64, 2, 1, 1, 2).swapaxes(0, 1)
    moved = first + np.sign(last - first) * np.reshape(samples, (64, 50, 2, 2))
    clipped = np.concatenate([moved.min(2), moved.max(2)], axis=2).clip(0, 400)
    sides = clipped[..., 2:] - clipped[..., :2]
    remain = (sides >= 1).all(2) & (sides.prod(2) >= 1)
    offsets = torch.from_numpy(np.append(0, remain.sum(1).cumsum()))
    expected = pinfeed.JaggedBatch(torch.from_numpy(clipped[remain]), offsets)
    return compare(
        reference("copy the boxes (`torch.clone`)", lambda: joined.clone()),
        ours("`Boxes`", lambda: moved_by(field, samples)),
        expected=expected,
    )
