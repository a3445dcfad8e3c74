"""Images and their targets, as torchvision moves them when it draws the same numbers."""

import contextlib
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision import tv_tensors
from torchvision.transforms import v2

import pinfeed
import reference
from pinfeed import augment

pytestmark = pytest.mark.kernels


# What stands for each of our steps there, and how many numbers it draws in which order.
STEPS = {
    "hflip": lambda: (augment.RandomHorizontalFlip(), "RandomHorizontalFlip", {}),
    "vflip": lambda: (augment.RandomVerticalFlip(0.7), "RandomVerticalFlip", {"p": 0.7}),
    "zoom": lambda: (
        augment.RandomZoomOut(7, (1, 2.5)),
        "RandomZoomOut",
        {"fill": {tv_tensors.Image: 7, "others": 0}, "side_range": (1, 2.5)},
    ),
    "iou": lambda: (augment.RandomIoUCrop(), "RandomIoUCrop", {}),
    "iou_often": lambda: (
        augment.RandomIoUCrop(0.2, 0.9, sampler_options=[0.3, 1.0], trials=5),
        "RandomIoUCrop",
        {"min_scale": 0.2, "max_scale": 0.9, "sampler_options": [0.3, 1.0], "trials": 5},
    ),
    "shortest": lambda: (
        augment.RandomShortestSize((20, 33, 50), 70),
        "RandomShortestSize",
        {"min_size": [20, 33, 50], "max_size": 70},
    ),
    "resize_at_random": lambda: (
        augment.RandomResize(15, 60),
        "RandomResize",
        {"min_size": 15, "max_size": 60},
    ),
    "jitter": lambda: (
        augment.ScaleJitter((50, 40), (0.4, 2)),
        "ScaleJitter",
        {"target_size": (50, 40), "scale_range": (0.4, 2)},
    ),
    "resize": lambda: (augment.Resize(24, max_size=64), "Resize", {"size": 24, "max_size": 64}),
    "square": lambda: (augment.Resize((31, 17)), "Resize", {"size": (31, 17)}),
}
RESIZES = {"shortest", "resize_at_random", "jitter", "resize", "square"}


@st.composite
def chains(draw):
    """Up to three steps in an order that Compose takes."""
    names = draw(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=3, unique=True))
    resizes = [name for name in names if name in RESIZES]
    names = [name for name in names if name not in resizes[1:]]
    order = {"zoom": 0, "iou": 1, "iou_often": 1} | dict.fromkeys(RESIZES, 3)
    return sorted(names, key=lambda name: order.get(name, draw(st.sampled_from([-1, 2, 4]))))


@contextlib.contextmanager
def our_draws(name, arguments, size, uniform):
    """torch draws what we draw for a step: `uniform(draw)` are two numbers from 0 to below 1."""
    if name.startswith("RandomIoU"):
        numbers = iter(iou_draws(arguments, size, uniform))
    elif name == "RandomZoomOut":
        (chance, factor), place = uniform(0), uniform(1)
        numbers = iter([chance, factor, *place])
    else:
        numbers = iter([uniform(0)[0]])

    def rand(*shape):
        (count,) = shape
        return torch.tensor([next(numbers) for _ in range(count)], dtype=torch.float64)

    def randint(*bounds, **keywords):
        low, high = keywords.get("low", 0), keywords.get("high")
        if high is None:
            low, high = (0, bounds[0]) if len(bounds) == 2 else bounds[:2]
        return torch.tensor(low + int(next(numbers) * (high - low)))

    with mock.patch("torch.rand", rand), mock.patch("torch.randint", randint):
        yield


def iou_draws(arguments, size, uniform):
    """The numbers that a crop around boxes asks for: where a size does not do, no place is drawn."""
    trials = arguments.get("trials", 40)
    low, high = arguments.get("min_scale", 0.3), arguments.get("max_scale", 1.0)
    first = 0
    while True:
        yield uniform(first)[0]
        for trial in range(trials):
            across, down = uniform(first + 1 + 2 * trial)
            yield across
            yield down
            width, height = (
                int(side * (low + (high - low) * share))
                for side, share in zip(size[::-1], (across, down), strict=True)
            )
            if 0.5 <= width / height <= 2:
                yield from uniform(first + 2 + 2 * trial)
        first += 1 + 2 * trials


def by_torchvision(names, sample, uniform):
    """The sample after the steps, its boxes clamped, and the numbers of those that remain."""
    height, width = sample["image"].shape[:2]
    target = {
        "image": tv_tensors.Image(torch.from_numpy(sample["image"]).permute(2, 0, 1)),
        "boxes": tv_tensors.BoundingBoxes(
            torch.from_numpy(sample["boxes"]), format="XYXY", canvas_size=(height, width)
        ),
        "masks": tv_tensors.Mask(torch.from_numpy(sample["masks"])),
        "labels": torch.arange(len(sample["boxes"])),
    }
    for number, name in enumerate(names):
        _, theirs, arguments = STEPS[name]()
        size = target["image"].shape[-2:]
        with our_draws(theirs, arguments, size, lambda draw, n=number: uniform(draw << 16 | n)):
            target = getattr(v2, theirs)(**arguments)(target)
    boxes = v2.ClampBoundingBoxes()(target["boxes"])
    target |= {"boxes": boxes}
    return target | {"kept": v2.SanitizeBoundingBoxes()(target)["labels"].tolist()}


@st.composite
def samples(draw):
    side = st.one_of(st.integers(8, 90), st.integers(91, 700))
    height, width = draw(side), draw(side)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(1, 6))
    corners = rng.uniform(-0.2, 1.2, (count, 2, 2)) * [width, height]
    boxes = np.concatenate([corners.min(1), corners.max(1)], 1)
    boxes[rng.random(count) < 0.1] = corners.reshape(count, 4)[:1]  # maybe with x2 < x1
    boxes = np.round(boxes * 8) / 8  # so that float32 has what a crop around boxes compares
    return {
        "image": rng.integers(0, 256, (height, width, 3), dtype=np.uint8),
        "boxes": boxes.astype(np.float32),
        "masks": rng.integers(0, 2, (count, height, width), dtype=np.uint8),
        "labels": np.arange(count),
    }


@given(chains(), st.lists(samples(), min_size=1, max_size=3), st.integers(0, 2**40))
def test_torchvision_with_the_same_draws(names, samples, seed):
    steps = [STEPS[name]()[0] for name in names]
    spec = {
        "image": pinfeed.Image(
            output="HWC",
            dtype=torch.uint8,
            pad_value=0,
            sizes="sizes",
            augment=augment.Compose(steps),
        ),
        "boxes": pinfeed.Boxes(),
        "masks": pinfeed.InstanceMasks(),
    }
    expected = [
        by_torchvision(names, sample, lambda draw, i=i: reference.uniform(seed, 0, i, draw))
        for i, sample in enumerate(samples)
    ]
    if any(0 in target["image"].shape for target in expected):
        return  # a side vanishes, which is an error here
    rows = pinfeed.IndexedDataset(samples).__getitems__(range(len(samples)))
    batch = pinfeed.Collate(spec, seed=seed)(rows)
    kept = batch["labels"].unbind()
    boxes, masks = batch["boxes"].unbind(), batch["masks"].unbind()
    for i, target in enumerate(expected):
        height, width = batch["sizes"][i].tolist()
        assert target["image"].shape[1:] == (height, width)
        image = target["image"].permute(1, 2, 0)
        assert torch.equal(batch["image"][i, :height, :width], image)
        sides = target["boxes"][:, 2:] - target["boxes"][:, :2]
        clear = ((sides - 1).abs() > 1e-3).all(1) & ((sides.prod(1) - 1).abs() > 1e-3)
        ours, theirs = set(kept[i].tolist()), set(target["kept"])
        assert all(not clear[number] for number in ours ^ theirs)
        for number, box, mask in zip(kept[i].tolist(), boxes[i], masks[i], strict=True):
            assert torch.allclose(box, target["boxes"][number], atol=1e-3)
            assert torch.equal(mask[:height, :width], target["masks"][number])
            assert not mask[height:].any()
            assert not mask[:, width:].any()
