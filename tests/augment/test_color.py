"""Colors: torchvision's formulas for uint8, after the geometry and before the normalization."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
import reference
from messages import check
from pinfeed import augment

pytestmark = pytest.mark.kernels

EVERY_BYTE = torch.arange(256, dtype=torch.uint8)

factors = st.one_of(
    st.floats(0, 3),
    st.tuples(*[st.floats(0, 300)] * 2).map(sorted),
    st.tuples(*[st.floats(0, 1e30)] * 2).map(sorted),
    st.sampled_from([0, (0, 0), (0.5, 0.5)]),
)
probabilities = st.sampled_from([0, 0.3, 1])
steps = st.one_of(
    st.builds(augment.ColorJitter, factors, factors, factors, p=probabilities),
    st.builds(augment.ColorJitter, saturation=factors),
    st.builds(augment.RandomGrayscale, probabilities),
)
ORDERS = [*itertools.permutations(["brightness", "contrast", "saturation"])]


def changed(values, steps, seed, index):
    """Returns (C, H, W) after all steps, by torchvision's functions for uint8."""
    for number, step in enumerate(steps):
        values = changed_once(values, step, (seed, 0, index, 2**62 + 4 * number))
    return values


def changed_once(values, step, where):
    *start, first = where
    contrast, brightness = reference.uniform(*where)
    saturation = reference.uniform(*start, first + 1)[0]
    order = ORDERS[int(reference.random_bits(*start, first + 1)[1]) * 6 >> 64]
    if reference.uniform(*start, first + 2)[0] >= step.p:
        return values
    if isinstance(step, augment.RandomGrayscale):
        return adjusted(values, "saturation", 0)
    draws = {"brightness": brightness, "contrast": contrast, "saturation": saturation}
    for name in order:
        low, high = getattr(step, name)
        if (low, high) != (1, 1):
            values = adjusted(values, name, low + draws[name] * (high - low))
    return values


def adjusted(values, name, factor):
    if name == "brightness":
        return values.mul(factor).clamp_(0, 255).to(torch.uint8)
    change = reference.with_contrast if name == "contrast" else reference.with_saturation
    return torch.from_numpy(change(values.numpy(), factor))


@given(st.lists(steps, min_size=1, max_size=3), st.integers(0, 2**40))
def test_every_byte(steps, seed):
    rows = pinfeed.ArrayDataset(EVERY_BYTE.expand(4, 1, 256)).__getitems__(range(4))
    field = pinfeed.Image(input="HW", dtype=torch.uint8, augment=steps)
    batch = pinfeed.Collate(field, seed=seed)(rows)
    for index, result in enumerate(batch):
        assert torch.equal(result, changed(EVERY_BYTE.view(1, 1, 256), steps, seed, index))


# Every red with every green, each with a different blue, and reversed.
ALL_PIXELS = np.stack(
    [np.arange(65536) % 256, np.arange(65536) // 256, np.arange(65536) * 37 % 251]
)
ALL_PIXELS = np.concatenate([ALL_PIXELS, ALL_PIXELS[::-1]], 1).astype(np.uint8).reshape(3, 512, 256)


@pytest.mark.parametrize("factor", [0.0, 1e-9, 0.3, 0.999, 1.37, 4.0, 1e30])
def test_torchvision(isa, factor):
    """Compares single factors with torchvision's functions, for the pixel table and for a part of it."""
    functional = pytest.importorskip("torchvision.transforms.v2").functional
    pixels = torch.from_numpy(ALL_PIXELS)
    for image in pixels, pixels[:, 100:103, :37], pixels[:1]:
        for name in "brightness", "contrast", "saturation":
            # torchvision sums float32 for the mean, which is exact up to 2^24.
            part = image[:, :128].contiguous() if name == "contrast" else image
            field = pinfeed.Image(
                input="CHW",
                dtype=torch.uint8,
                augment=augment.ColorJitter(**{name: (factor, factor)}),
            )
            change = getattr(functional, f"adjust_{name}")
            assert torch.equal(pinfeed.Collate(field)([part])[0], change(part, factor)), name
        field = pinfeed.Image(input="CHW", dtype=torch.uint8, augment=augment.RandomGrayscale(1))
        result = pinfeed.Collate(field)([image])[0]
        assert torch.equal(
            result, functional.rgb_to_grayscale(image, num_output_channels=len(image))
        )


@st.composite
def geometries(draw):
    size = draw(st.tuples(*[st.integers(1, 40)] * 2))
    crop = augment.RandomCrop(size, padding=draw(st.integers(0, 9)), pad_if_needed=True)
    resized = augment.RandomResizedCrop(size)
    view = [draw(st.sampled_from([crop, resized])), augment.RandomHorizontalFlip()]
    return draw(st.sampled_from([None, augment.Compose(view)]))


@given(
    st.tuples(*[st.integers(1, 3)] * 2, *[st.integers(1, 60)] * 2, st.integers(1, 4)),
    geometries(),
    st.sampled_from(["CHW", "HWC"]),
    st.sampled_from([torch.float32, torch.bfloat16, torch.uint8]),
    st.sampled_from([0, 0.5]),
    st.sampled_from([0, 0.5]),
    st.integers(0, 2**40),
)
def test_colors_are_applied_between_geometry_and_normalization(
    isa, shape, view, output, dtype, contrast, saturation, seed
):
    images = np.random.default_rng(seed).integers(0, 256, shape[1:], dtype=np.uint8)
    rows = pinfeed.ArrayDataset(images).__getitems__(range(len(images)))
    color = [augment.ColorJitter(0.9, p=0.7), augment.ColorJitter(0.4, contrast, saturation)]
    color.append(augment.RandomGrayscale(saturation))
    if images.shape[-1] not in (1, 3):
        color = [augment.ColorJitter(0.4, contrast)]
    options = {"input": "HWC", "output": output}
    constants = {} if dtype == torch.uint8 else {"mean": 0.4, "std": 0.25}
    seen = pinfeed.Image(**options, dtype=torch.uint8, augment=view, interpolation="bilinear")
    pixels = pinfeed.Collate(seen, seed=seed)(rows)
    for index, image in enumerate(pixels):
        planes = image if output == "CHW" else image.permute(2, 0, 1)
        planes[:] = changed(planes.contiguous(), color, seed, index)
    expected = pinfeed.Image(**constants, input=output, output=output, dtype=dtype)
    field = pinfeed.Image(
        **constants, **options, dtype=dtype, augment=[*([] if view is None else [view]), *color]
    )
    batch = pinfeed.Collate(field, seed=seed)(rows)
    assert torch.equal(batch, pinfeed.Collate(expected)(list(pixels)))


def test_each_frame_has_its_own_mean():
    clip = np.random.default_rng(0).integers(0, 100, (4, 9, 7, 3), dtype=np.uint8)
    clip[2:] += 150
    contrast = augment.ColorJitter(contrast=(0.5, 0.5))
    field = pinfeed.Image(input="THWC", output="TCHW", dtype=torch.uint8, augment=contrast)
    frames = clip.transpose(0, 3, 1, 2)
    expected = np.stack([reference.with_contrast(frame, 0.5) for frame in frames])
    assert np.array_equal(pinfeed.Collate(field)([clip])[0].numpy(), expected)


def test_a_huge_brightness_keeps_black():
    color = augment.ColorJitter((1e308, 1e308))
    image = pinfeed.Image(input="HW", dtype=torch.uint8, augment=color)
    assert pinfeed.Collate(image)([np.array([[0, 1, 255]], np.uint8)]).tolist() == [
        [[[0, 255, 255]]]
    ]


# The layout, a sample, and the slice that the message recommends.
CHANNELS = {
    "RGBA": ("HWC", np.zeros((4, 5, 4), np.uint8), "image[..., :3]"),
    "RGBA first": ("CHW", np.zeros((4, 5, 6), np.uint8), "image[:3]"),
    "a clip": ("TCHW", np.zeros((2, 4, 5, 6), np.uint8), "image[:, :3]"),
    "two": ("HWC", np.zeros((4, 5, 2), np.uint8), None),
}


@pytest.mark.parametrize("case", CHANNELS)
@pytest.mark.parametrize("color", [augment.ColorJitter(0, 0, 1), augment.RandomGrayscale(0)])
def test_channels_without_gray(case, color):
    layout, sample, cut = CHANNELS[case]
    output = layout.replace("HWC", "CHW")
    collate = pinfeed.Collate(pinfeed.Image(input=layout, output=output, augment=color))
    words = [
        "RGB images for saturation and RandomGrayscale, or gray ones",
        f"got {sample.shape[layout.index('C')]} channels",
        cut + " leaves alpha out" if cut else "leave them out",
    ]
    check(lambda: collate([sample]), ValueError, *words)
    if cut:
        collate([eval(cut, {"image": sample})])
    plain = pinfeed.Image(input=layout, output=output, augment=augment.ColorJitter(0.5, 0.5))
    pinfeed.Collate(plain)([sample])
