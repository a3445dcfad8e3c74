"""Colours: torchvision's formulas for uint8, after the geometry and before the normalization."""

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

steps = st.one_of(
    st.builds(augment.ColorJitter, st.floats(0, 3), st.floats(0, 3)),
    st.builds(augment.ColorJitter, contrast=st.tuples(*[st.floats(0, 1e4)] * 2).map(sorted)),
    st.builds(augment.ColorJitter, st.tuples(*[st.floats(0, 1e30)] * 2).map(sorted)),
    st.builds(augment.ColorJitter, st.tuples(*[st.floats(0, 300)] * 2).map(sorted)),
)


def changed(values, steps, seed, index):
    """(C, H, W) after all steps, as torchvision's functions for uint8 change it."""
    for number, step in enumerate(steps):
        where = seed, 0, index, 2**62 + number
        draws, bits = reference.uniform(*where), reference.random_bits(*where)
        values = changed_once(values, step, draws, is_brightness_last=bits[0] % 2 == 1)
    return values


def changed_once(values, step, draws, is_brightness_last):
    brightness, contrast = (
        low + draw * (high - low)
        for (low, high), draw in zip((step.brightness, step.contrast), draws[::-1], strict=True)
    )
    changes = [lambda image: image.mul(brightness).clamp_(0, 255).to(torch.uint8)]
    if step.contrast != (1, 1):
        changes.append(
            lambda image: torch.from_numpy(reference.with_contrast(image.numpy(), contrast))
        )
    for change in reversed(changes) if is_brightness_last else changes:
        values = change(values)
    return values


@given(st.lists(steps, min_size=1, max_size=3), st.integers(0, 2**40))
def test_every_byte(steps, seed):
    rows = pinfeed.ArrayDataset(EVERY_BYTE.expand(4, 1, 256)).__getitems__(range(4))
    field = pinfeed.Image(input="HW", dtype=torch.uint8, color=steps)
    batch = pinfeed.Collate(field, seed=seed)(rows)
    for index, found in enumerate(batch):
        assert torch.equal(found, changed(EVERY_BYTE.view(1, 1, 256), steps, seed, index))


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
    st.integers(0, 2**40),
)
def test_colors_come_between_geometry_and_normalization(
    isa, shape, view, output, dtype, contrast, seed
):
    images = np.random.default_rng(seed).integers(0, 256, shape[1:], dtype=np.uint8)
    rows = pinfeed.ArrayDataset(images).__getitems__(range(len(images)))
    color = [augment.ColorJitter(0.9), augment.ColorJitter(0.4, contrast)]
    options = {"input": "HWC", "output": output}
    constants = {} if dtype == torch.uint8 else {"mean": 0.4, "std": 0.25}
    seen = pinfeed.Image(**options, dtype=torch.uint8, augment=view, interpolation="bilinear")
    pixels = pinfeed.Collate(seen, seed=seed)(rows)
    for index, image in enumerate(pixels):
        planes = image if output == "CHW" else image.permute(2, 0, 1)
        planes[:] = changed(planes.contiguous(), color, seed, index)
    expected = pinfeed.Image(**constants, input=output, output=output, dtype=dtype)
    field = pinfeed.Image(**constants, **options, dtype=dtype, augment=view, color=color)
    batch = pinfeed.Collate(field, seed=seed)(rows)
    assert torch.equal(batch, pinfeed.Collate(expected)(list(pixels)))


def test_each_frame_has_a_mean_of_its_own():
    clip = np.random.default_rng(0).integers(0, 100, (4, 9, 7, 3), dtype=np.uint8)
    clip[2:] += 150
    contrast = augment.ColorJitter(contrast=(0.5, 0.5))
    field = pinfeed.Image(input="THWC", output="TCHW", dtype=torch.uint8, color=contrast)
    frames = clip.transpose(0, 3, 1, 2)
    expected = np.stack([reference.with_contrast(frame, 0.5) for frame in frames])
    assert np.array_equal(pinfeed.Collate(field)([clip])[0].numpy(), expected)


def test_a_huge_brightness_leaves_black():
    color = augment.ColorJitter((1e308, 1e308))
    image = pinfeed.Image(input="HW", dtype=torch.uint8, color=color)
    assert pinfeed.Collate(image)([np.array([[0, 1, 255]], np.uint8)]).tolist() == [
        [[[0, 255, 255]]]
    ]


ERRORS = [
    (lambda: augment.ColorJitter(-1), ValueError, "not negative, got -1"),
    (lambda: augment.ColorJitter((2, 1)), ValueError, "pair (from, to)"),
    (lambda: augment.ColorJitter("x"), TypeError, "brightness must be a number"),
    (lambda: augment.ColorJitter(0, (1, 2, 3)), ValueError, "contrast must be a number or a pair"),
    (
        lambda: pinfeed.Image(color=[len]),
        TypeError,
        "color must be a pinfeed.augment.ColorJitter",
        "builtin",
    ),
]


@pytest.mark.parametrize(("call", "error", "words"), [(c, e, w) for c, e, *w in ERRORS])
def test_errors(call, error, words):
    check(call, error, *words)
