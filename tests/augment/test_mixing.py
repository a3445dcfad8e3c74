"""MixUp and CutMix: the bits of torchvision's formulas, in place."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from messages import check
from pinfeed import augment

seeds = st.integers(0, 2**32 - 1)
alphas = st.sampled_from([0.2, 1, 8.0])


def drawn_share(alpha):
    return float(torch.distributions.Beta(torch.tensor([alpha]), torch.tensor([alpha])).sample(()))


def mixed(tensor, share):
    return tensor.roll(1, 0).mul_(1.0 - share).add_(tensor.mul(share))


@st.composite
def batches(draw, dtypes, most=20):
    """Images of 64 KB and less, of which several steps mix more than eight, and labels."""
    count, channels = draw(st.integers(1, most)), draw(st.integers(1, 3))
    sides = draw(st.sampled_from([(128, 128), (1, 1), (7, 5), (2, 64, 64)]))
    dtype = draw(st.sampled_from(dtypes))
    torch.manual_seed(draw(seeds))
    images = torch.randn(count, channels, *sides).mul(50).to(dtype)
    if len(sides) == 2 and draw(st.booleans()):
        images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(5, (count,))
    if draw(st.booleans()):
        labels = torch.rand(count, 5)
    return images, labels


def as_rows(labels):
    return labels if labels.ndim == 2 else torch.nn.functional.one_hot(labels, 5).float()


@given(batches([torch.float32, torch.float16, torch.bfloat16]), alphas, seeds)
def test_mixup(batch, alpha, seed):
    images, labels = batch
    torch.manual_seed(seed)
    share = drawn_share(float(alpha))
    expected = mixed(images, share), mixed(as_rows(labels), share)
    torch.manual_seed(seed)
    result, mixed_labels = augment.mixup(images, labels, alpha=alpha, num_classes=5)
    assert result is images
    assert torch.equal(result, expected[0])
    assert torch.equal(mixed_labels, expected[1])


def test_mixup_of_large_images_and_of_views(num_threads):
    for images in (
        torch.randn(3, 1, 601, 500),  # of more than a megabyte
        torch.randn(3, 2, 8, 8)[..., ::2],
        torch.randn(2, 3, 8, 8).transpose(0, 1),
        torch.randn(3, 2, 8, 8).double(),
    ):
        torch.manual_seed(0)
        expected = mixed(images, drawn_share(1.0))
        torch.manual_seed(0)
        augment.mixup(images, torch.arange(3), num_classes=3)
        assert torch.equal(images, expected)


@given(batches([torch.float32, torch.bfloat16, torch.uint8], 5), alphas, seeds)
def test_cutmix(batch, alpha, seed):
    images, labels = batch
    height, width = images.shape[-2:]
    torch.manual_seed(seed)
    share = drawn_share(float(alpha))
    x, y = torch.randint(width, (1,)).item(), torch.randint(height, (1,)).item()
    side = 0.5 * math.sqrt(1.0 - share)
    left, right = max(x - int(side * width), 0), min(x + int(side * width), width)
    top, bottom = max(y - int(side * height), 0), min(y + int(side * height), height)
    expected = images.clone()
    expected[..., top:bottom, left:right] = images.roll(1, 0)[..., top:bottom, left:right]
    share = 1.0 - (right - left) * (bottom - top) / (width * height)
    torch.manual_seed(seed)
    result, mixed_labels = augment.cutmix(images, labels, alpha=alpha, num_classes=5)
    assert result is images
    assert torch.equal(result, expected)
    assert torch.equal(mixed_labels, mixed(as_rows(labels), share))


def test_labels_may_be_mixed_twice():
    images, labels = torch.rand(4, 3, 8, 8), torch.arange(4)
    _, labels = augment.mixup(images, labels, num_classes=4)
    _, labels = augment.cutmix(images, labels)
    assert torch.allclose(labels.sum(1), torch.ones(4))


IMAGES, LABELS = torch.zeros(2, 3, 4, 4), torch.tensor([0, 1])

ERRORS = [
    (lambda: augment.mixup(IMAGES.numpy(), LABELS), TypeError, "images must be a tensor, got nda"),
    (lambda: augment.cutmix(IMAGES, [0, 1]), TypeError, "labels must be a tensor, got list"),
    (lambda: augment.mixup(IMAGES.byte(), LABELS, num_classes=2), TypeError, "mixup: images must be floats, got torch.uint8"),
    (lambda: augment.mixup(IMAGES[0], LABELS), ValueError, "(B, ..., H, W)", "got (3, 4, 4)"),
    (lambda: augment.cutmix(IMAGES[:, :, :0], LABELS), ValueError, "with pixels"),
    (lambda: augment.mixup(IMAGES, LABELS[:1]), ValueError, "labels must be 2 integers", "(1,)"),
    (lambda: augment.mixup(IMAGES, torch.rand(2)), ValueError, "floats of shape (2, num_classes)"),
    (lambda: augment.mixup(IMAGES, LABELS), ValueError, "integer labels need num_classes"),
    (lambda: augment.mixup(IMAGES, torch.rand(2, 2), alpha=0), ValueError, "alpha must be a posi"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "words"), [(c, e, w) for c, e, *w in ERRORS])
def test_errors(call, error, words):
    check(call, error, *words)
    assert not IMAGES.any()
