"""Tables of mistakes, and a check that the hints in their errors work."""

from collections.abc import Callable
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from torch.utils.data import DataLoader

from pinfeed import ArrayDataset, Collate, DeviceLoader, Image
from samples import assert_same

# A call, a wrong argument, the argument that the hint suggests and its result; the error, and a part of its
# message.
Hints = dict[str, tuple[Callable[[Any], Any], Any, Any, Any, type[Exception], str]]

PHOTOS = np.random.default_rng(0).integers(0, 256, (3, 8, 6, 3), np.uint8)
PLANES = np.ascontiguousarray(PHOTOS.transpose(0, 3, 1, 2))
COLOR = PIL.Image.fromarray(PHOTOS[1])
LABELS = np.array([2, 0, 1])


def check_hint(call, wrong, right, expected, error, message):
    with pytest.raises(error, match=message):
        call(wrong)
    actual = call(right)
    if isinstance(expected, torch.Tensor) and expected.is_floating_point():
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-6)
    else:
        assert_same(actual, expected)


def done(action):
    """Calls the action: for mistakes that have little in common with their fix."""
    return action()


def of(samples):
    """Returns a function that batches these samples, with some fields."""
    return lambda fields: Collate(fields)(samples)


def by(fields):
    """Returns a function that batches some samples with these fields."""
    return lambda samples: Collate(fields)(samples)


def rows(arrays, fields=None):
    """Returns the batch of all rows of arrays."""
    dataset = ArrayDataset(arrays)
    return Collate(fields)(dataset.__getitems__(range(len(dataset))))


def first(loader):
    return next(iter(loader))


def loaded(collate, fields):
    """Returns the batch of all images, with the fields applied on a device."""
    loader = DataLoader(list(PHOTOS), len(PHOTOS), collate_fn=collate)
    return first(DeviceLoader(loader, "cpu", fields=fields))


def first_image(**options):
    """Returns the first image of a batch as bytes."""
    return Collate(Image(dtype=torch.uint8, **options))([PHOTOS[0]])
