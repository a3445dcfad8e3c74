"""Strided, mirrored or channel-swapped pixels equal a contiguous copy."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
from arrays import assert_same_bits, random_array
from pinfeed import augment

pytestmark = pytest.mark.kernels

VIEWS = {
    "RGBA": lambda a: a[..., :3],
    "ARGB": lambda a: a[..., 1:],
    "BGRA": lambda a: a[..., 2::-1],
    "ABGR": lambda a: a[..., :0:-1],
    "BGR": lambda a: np.ascontiguousarray(a[..., :3])[..., ::-1],
    "RGBA, mirrored": lambda a: a[:, ::-1, :3],
    "BGRA, mirrored and flipped": lambda a: a[::-1, ::-1, 2::-1],
    "RGBA, cropped": lambda a: a[1:, 2:-1, :3],
    "reversed": lambda a: a[..., ::-1],
    "first and last": lambda a: a[..., ::3],
    "alpha": lambda a: a[..., 3:],
}
GEOMETRIES = {
    "whole": None,
    "cropped": augment.Compose([augment.CenterCrop(7), augment.RandomHorizontalFlip(1)]),
    "padded": augment.RandomCrop((60, 9), padding=30, padding_mode="reflect"),
    "filled": augment.RandomCrop((9, 60), padding=(30, 2), fill=9),
    "resized": augment.Resize((11, 14)),
    "resized, part": augment.Compose([augment.RandomResizedCrop(8), augment.RandomVerticalFlip()]),
}
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.uint8]


def batches(images, dtype, channels_last, geometry, **options):
    """Returns the batches of the images and of contiguous copies."""
    constants = {} if dtype == torch.uint8 else {"mean": 0.3, "std": 0.7}
    field = pinfeed.Image(
        **constants,
        dtype=dtype,
        channels_last=channels_last,
        augment=GEOMETRIES[geometry],
        interpolation="bilinear",
        **options,
    )
    collate = pinfeed.Collate({"x": field, "i": pinfeed.Stack()}, seed=1, id_key="i")
    return [
        collate([{"x": image, "i": i} for i, image in enumerate(samples)])["x"]
        for samples in (images, [image.copy(order="C") for image in images])
    ]


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_bytes(geometry, isa):
    for view, dtype in itertools.product(VIEWS.values(), DTYPES):
        images = [view(random_array((33, 45, 4), seed=seed)) for seed in range(2)]
        for channels_last in (False, True):
            actual, expected = batches(images, dtype, channels_last, geometry)
            assert_same_bits(actual, expected)


@pytest.mark.parametrize("geometry", ["whole", "cropped", "resized"])
@pytest.mark.parametrize("source", [np.uint16, np.int16, np.float16, np.float32])
def test_other_numbers(source, geometry, isa):
    rng = np.random.default_rng(3)
    most = 20_000 if np.issubdtype(source, np.integer) else 1
    four = (rng.random((33, 45, 4)) * most).astype(source)
    for view in VIEWS.values():
        for channels_last in (False, True):
            actual, expected = batches([view(four)] * 2, torch.float32, channels_last, geometry)
            assert_same_bits(actual, expected)


@given(
    height=st.integers(1, 40),
    width=st.integers(1, 130),
    view=st.sampled_from(["RGBA", "ARGB", "BGRA", "ABGR", "BGR", "RGBA, mirrored"]),
    dtype=st.sampled_from(DTYPES),
    channels_last=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_size(height, width, view, dtype, channels_last, seed):
    images = [VIEWS[view](random_array((height, width, 4), seed=seed))] * 2
    actual, expected = batches(images, dtype, channels_last, "whole")
    assert_same_bits(actual, expected)
