"""Images whose sizes differ after augmentation: each equals its own batch, padded."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import pinfeed
import reference
from arrays import assert_same_bits
from messages import check
from pinfeed import augment

pytestmark = pytest.mark.kernels

sides = st.one_of(st.integers(4, 12), st.integers(13, 90))  # no resize returns 0

GEOMETRIES = [
    augment.RandomHorizontalFlip(),
    augment.CenterCrop(0.6),
    augment.RandomCrop((0.5, 0.9)),
    augment.RandomCrop(30),
    augment.Resize(24, max_size=60),
    augment.RandomShortestSize((9, 17, 40), max_size=70),
    augment.RandomResize(8, 40),
    augment.ScaleJitter((40, 30), (0.5, 2)),
    augment.ResizeKeepRatio((40, 30), 0.5, random_scale_prob=0.5, random_aspect_prob=0.5),
    augment.RandomZoomOut(fill=114, side_range=(1, 3)),
    augment.Compose(
        [
            augment.RandomZoomOut([1, 2, 3]),
            augment.RandomVerticalFlip(),
            augment.RandomCrop(0.7),
            augment.RandomShortestSize((20, 30)),
            augment.RandomHorizontalFlip(),
        ]
    ),
    augment.Compose([augment.ScaleJitter((32, 32), (0.3, 2)), augment.RandomCrop(32), augment.RandomHorizontalFlip()]),
    augment.Compose([augment.Resize((20, 30)), augment.RandomCrop(25, padding=4, padding_mode="edge")]),
    augment.Compose([augment.Resize(20), augment.RandomZoomOut(7), augment.CenterCrop(0.8)]),
]  # fmt: skip


@given(
    st.sampled_from(GEOMETRIES),
    st.lists(st.tuples(sides, sides), min_size=1, max_size=4),
    st.sampled_from(["float32", "bfloat16", "uint8"]),
    st.sampled_from(["CHW", "HWC"]),
    st.sampled_from([1, 8, (4, 16)]),
    st.sampled_from(
        [
            None,
            augment.ColorJitter(0.4, 0.4, 0.4),
            augment.ColorJitter(0.4),
            augment.RandomGrayscale(0.5),
        ]
    ),
    st.integers(0, 2**40),
)
def test_padding_leaves_pixels_unchanged(
    isa, geometry, sizes, dtype, output, multiple, color, seed
):
    rng = np.random.default_rng(seed)
    images = [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]
    constants = {} if dtype == "uint8" else {"mean": 0.4, "std": 0.25}
    shared = constants | {
        "dtype": getattr(torch, dtype),
        "output": output,
        "augment": [one for one in (geometry, color) if one is not None],
        "pad_value": 3,
    }
    rows = pinfeed.IndexedDataset(images)
    field = pinfeed.Image(**shared, multiple_of=multiple, sizes="sizes", mask="mask")
    collate = pinfeed.Collate({"image": field}, seed=seed)
    wrapped = pinfeed.IndexedDataset([{"image": image} for image in images])
    batch = collate(wrapped.__getitems__(range(len(images))))
    single = pinfeed.Collate(pinfeed.Image(**shared, sizes=True), seed=seed)
    alone = [single(rows.__getitems__([i])) for i in range(len(images))]
    assert batch["sizes"].tolist() == [one.lengths[0].tolist() for one in alone]
    down, right = multiple if isinstance(multiple, tuple) else (multiple, multiple)
    largest = batch["sizes"].amax(0).tolist()
    padded_size = (largest[0] + -largest[0] % down, largest[1] + -largest[1] % right)
    assert batch["mask"].shape == (len(images), *padded_size)
    for i, one in enumerate(alone):
        height, width = batch["sizes"][i].tolist()
        image = batch["image"][i] if output == "HWC" else batch["image"][i].permute(1, 2, 0)
        expected = one.values[0] if output == "HWC" else one.values[0].permute(1, 2, 0)
        assert_same_bits(image[:height, :width].clone(), expected.clone())
        outside = torch.ones(padded_size, dtype=torch.bool)
        outside[:height, :width] = False
        assert (image[outside] == 3).all()
        assert torch.equal(batch["mask"][i], ~outside)


def test_clips_are_padded_too():
    rng = np.random.default_rng(0)
    clips = [rng.integers(0, 256, (2, h, w, 3), dtype=np.uint8) for h, w in [(9, 20), (16, 7)]]
    options = {"dtype": torch.uint8, "pad_value": 9, "augment": augment.Resize(8)}
    for output in ("CTHW", "TCHW", "THWC"):
        field = pinfeed.Image(input="THWC", output=output, sizes=True, mask=True, **options)
        batch, sizes, mask = pinfeed.Collate(field)(clips)
        assert sizes.tolist() == [[8, 17], [18, 8]]
        assert mask.shape == (2, 18, 17)
        for clip, of_clip, (height, width) in zip(clips, batch, sizes.tolist(), strict=True):
            order = [output.index(axis) for axis in "THWC"]
            frames = of_clip.permute(order)
            single = pinfeed.Image(output="HWC", **options)
            expected = pinfeed.Collate(single)(list(clip))
            assert torch.equal(frames[:, :height, :width], expected)
            assert (frames[:, height:] == 9).all()
            assert (frames[:, :, width:] == 9).all()


probabilities, lengths = st.sampled_from([0, 0.5, 1]), st.integers(1, 300)
factors = st.sampled_from([(0.85, 1.05), (0.5, 2.0), (1.3, 1.3)])


@given(
    st.tuples(lengths, lengths),
    st.tuples(lengths, lengths),
    st.sampled_from([0, 0.3, 1]),
    st.tuples(probabilities, factors, st.booleans(), probabilities, factors),
    st.integers(0, 2**40),
)
def test_proportional_sizes(image, size, longest, options, seed):
    """timm's sizes, computed from pinfeed's draws."""
    scale_prob, scales, by_area, aspect_prob, aspects = options
    view = augment.ResizeKeepRatio(
        size,
        longest,
        random_scale_prob=scale_prob,
        random_scale_range=scales,
        random_scale_area=by_area,
        random_aspect_prob=aspect_prob,
        random_aspect_range=aspects,
    )
    ratios = image[0] / size[0], image[1] / size[1]
    ratio = max(ratios) * longest + min(ratios) * (1 - longest)
    taller = wider = 1
    is_scaled, scale = reference.uniform(seed, 0, 0, 0)
    if is_scaled < scale_prob:
        taller = scales[0] + scale * (scales[1] - scales[0])
        taller = wider = 1 / math.sqrt(taller) if by_area else taller
    is_stretched, stretch = reference.uniform(seed, 0, 0, 1 << 16)
    if is_stretched < aspect_prob:
        low, high = map(math.log, aspects)
        aspect = math.sqrt(math.exp(low + stretch * (high - low)))
        taller, wider = taller / aspect, wider * aspect
    expected = round(image[0] * taller / ratio), round(image[1] * wider / ratio)
    assume(min(expected) >= 1 and expected[0] * expected[1] < 2**20)
    collate = pinfeed.Collate(pinfeed.Image(augment=view, pad_value=0), seed=seed)
    batch = collate(pinfeed.ArrayDataset(np.zeros((1, *image, 3), np.uint8)).__getitems__([0]))
    assert batch.shape == (1, 3, *expected)


def test_a_separate_fill():
    view = augment.RandomZoomOut(fill=9, side_range=(2, 2), p=1)
    fields = {
        "image": pinfeed.Image(output="HWC", dtype=torch.uint8, augment=view),
        "mask": pinfeed.Mask(),
    }
    sample = {"image": np.ones((2, 2, 3), np.uint8), "mask": np.ones((2, 2), np.uint8)}
    batch = pinfeed.Collate(fields)([sample])
    is_image = batch["image"][0, :, :, 0] == 1
    assert is_image.sum() == 4
    assert torch.equal(is_image, batch["mask"][0] == 1)
    assert (batch["image"][0][~is_image] == 9).all()
    assert (batch["mask"][0][~is_image] == 255).all()


CANVAS = augment.CenterCrop(20_000)


def padded(sizes, geometry=None):
    images = [np.zeros((*size, 1), np.uint8) for size in sizes]
    options = {"dtype": torch.uint8, "interpolation": "bilinear", "pad_value": 0}
    return pinfeed.Collate(pinfeed.Image(augment=geometry, **options))(images)


def test_images_without_padding_can_be_larger():
    assert padded([(9000, 9000), (1, 1)]).shape == (2, 1, 9000, 9000)
    assert padded([(4000, 9000)], augment.CenterCrop((9000, 9000))).shape == (1, 1, 9000, 9000)
    assert padded([(8, 8)], augment.Resize((9000, 9000))).shape == (1, 1, 9000, 9000)
    assert padded([(2**13, 1), (1, 2**13)]).shape == (2, 1, 2**13, 2**13)


# The call, by its message.
TOO_LARGE = {
    "Collate: sample 1: an image of (1, 20000) would be padded to (20000, 20000), more than 2**26 pixels; leave the sample out": (
        lambda: padded([(20_000, 1), (1, 20_000)])
    ),
    "sample 0: an image of (1, 20000) would be padded to (20000, 20000)": lambda: padded(
        [(1, 20_000), (9, 9), (20_000, 1)], augment.RandomVerticalFlip()
    ),
    "sample 1: an image of (6000, 1) would be padded to (6000, 20000)": lambda: padded([(90, 90), (6000, 1), (2, 20_000)]),
    "sample 0: a crop to (20000, 20000) would pad an image of (9, 9) to more than 2**26 pixels; crop to a smaller size, or resize first": (
        lambda: padded([(9, 9), (5, 7)], CANVAS)
    ),
    "sample 0: a crop to (89100, 89100) would pad an image of (900, 900)": lambda: padded(
        [(900, 900)], augment.RandomZoomOut(side_range=(99, 99), p=1)
    ),
    "sample 0: a crop to (20000, 20000) would pad an image of (9, 9) to": lambda: padded([(9, 9)], augment.RandomCrop(20_000, pad_if_needed=True)),
    "a crop to (20000, 20000) would pad an image of (9, 9) to": lambda: padded([(9, 9)], augment.Compose([CANVAS, augment.Resize((8, 8))])),
    "a crop to (20000, 20000) would pad an image of (9, 9), resized to (8, 8), to more than": (
        lambda: padded([(9, 9)], augment.Compose([augment.Resize((8, 8)), CANVAS]))
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", TOO_LARGE)
def test_sizes_that_are_too_large(message):
    check(TOO_LARGE[message], ValueError, message)
