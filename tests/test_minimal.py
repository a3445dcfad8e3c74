"""The first test file that every wheel runs; it needs only NumPy, torch and pytest, and no other file."""

import importlib.metadata

import numpy as np
import pytest
import torch

import pinfeed

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


@pytest.fixture
def images():
    """Returns two images of 5 × 7 pixels and 3 channels: sizes that no vector width divides."""
    return np.random.default_rng(0).integers(0, 256, size=(2, 5, 7, 3), dtype=np.uint8)


def normalized(images):
    """Returns NHWC uint8 → NCHW float32, with the single rounding of a fused multiply-add.

    The product of a byte and a float32 is exact in float64, and so is its sum with a bias of similar size; the
    final conversion rounds once.
    """
    scale = (np.float64(1 / 255) / np.array(STD)).astype(np.float32)
    bias = (-np.array(MEAN) / np.array(STD)).astype(np.float32)
    exact = images.astype(np.float64) * scale.astype(np.float64) + bias.astype(np.float64)
    return exact.astype(np.float32).transpose(0, 3, 1, 2)


def test_the_version_equals_the_distribution():
    assert pinfeed.__version__ == importlib.metadata.version("pinfeed")


def test_normalize(images):
    result = pinfeed.functional.normalize(images, MEAN, STD)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, normalized(images))


def test_collate(images):
    samples = [{"image": image, "label": label} for label, image in enumerate(images)]
    batch = pinfeed.Collate({"image": pinfeed.Image(MEAN, STD)})(samples)
    torch.testing.assert_close(
        batch["image"], torch.tensor(normalized(images)), rtol=0, atol=0, check_stride=False
    )
    torch.testing.assert_close(batch["label"], torch.tensor([0, 1]))


def test_torch_ops(images):
    result = torch.ops.pinfeed.normalize_images(torch.from_numpy(images), list(MEAN), list(STD))
    np.testing.assert_array_equal(result.numpy(), normalized(images))
    values, offsets = torch.arange(5), torch.tensor([0, 2, 5])
    padded = torch.ops.pinfeed.pad_jagged(values, offsets, 3, pad_value=-1.0)
    assert padded.tolist() == [[0, 1, -1], [2, 3, 4]]
    assert torch.equal(torch.ops.pinfeed.unpad_to_jagged(padded, offsets, 5), values)
