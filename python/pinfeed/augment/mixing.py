"""Images of a batch mixed with one another, and their labels with them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from pinfeed import _core
from pinfeed.runtime import get_num_threads

# So many bytes of a batch are copied at a time, and mixed while they are in the cache of a core.
_STEP_BYTES = 2**19


def mixup(
    images: torch.Tensor,
    labels: torch.Tensor,
    *,
    alpha: float = 1.0,
    num_classes: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mixes each image with the previous one, in place, as ``torchvision.transforms.v2.MixUp``.

    One share is drawn for the batch, from torch's default generator: after ``torch.manual_seed``
    the results are those of torchvision, bit for bit.

    Args:
        images: (B, ..., H, W) floats on any device.
        labels: (B,) integers; or (B, num_classes) floats, such as those that this returns.
        alpha: The share is drawn from Beta(alpha, alpha).
        num_classes: How many classes there are, for labels that are integers.

    Returns:
        ``images`` themselves; and the labels as floats of shape (B, num_classes).

    Raises:
        TypeError: ``images`` are no tensor of floats, or labels no integers or floats.
        ValueError: A shape does not fit, alpha is not positive, or ``num_classes`` is missing.

    Example:
        >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
        <torch._C.Generator object at ...>
        >>> images = torch.tensor([0.0, 1.0]).reshape(2, 1, 1, 1)
        >>> _, labels = pinfeed.augment.mixup(images, torch.tensor([0, 1]), num_classes=2)
        >>> torch.equal(images.flatten(), labels[:, 1])
        True
    """
    _check(images, labels, num_classes, "mixup")
    if not images.is_floating_point():
        raise TypeError(f"mixup: images must be floats, got {images.dtype}; normalize them first")
    share = _share(alpha, "mixup")
    mixed_labels = _mixed_labels(labels, share, num_classes, "mixup")
    in_order = _in_order(images)
    if in_order is None:
        for some, before in _with_those_before(images):
            some.mul_(share).add_(before.mul_(1.0 - share))
    else:
        _core.mix_images(in_order, share, "mixup: images", get_num_threads())
    return images, mixed_labels


def cutmix(
    images: torch.Tensor,
    labels: torch.Tensor,
    *,
    alpha: float = 1.0,
    num_classes: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pastes a rectangle of the previous image into each, in place.

    As ``torchvision.transforms.v2.CutMix``: one rectangle is drawn for the batch, from torch's
    default generator, so after ``torch.manual_seed`` the results are those of torchvision, bit for
    bit. Labels are mixed by the areas.

    Args:
        images: (B, ..., H, W) on any device.
        labels: (B,) integers; or (B, num_classes) floats, such as those that this returns.
        alpha: The share of the rectangle is drawn from Beta(alpha, alpha).
        num_classes: How many classes there are, for labels that are integers.

    Returns:
        ``images`` themselves; and the labels as floats of shape (B, num_classes).

    Raises:
        TypeError: ``images`` are no tensor, or labels no integers or floats.
        ValueError: A shape does not fit, alpha is not positive, or ``num_classes`` is missing.
    """
    _check(images, labels, num_classes, "cutmix")
    height, width = images.shape[-2:]
    side = 0.5 * math.sqrt(1.0 - _share(alpha, "cutmix"))
    x, y = (int(torch.randint(room, (1,), device="cpu")) for room in (width, height))
    across, down = int(side * width), int(side * height)
    left, right = max(x - across, 0), min(x + across, width)
    top, bottom = max(y - down, 0), min(y + down, height)
    share = 1.0 - (right - left) * (bottom - top) / (width * height)
    mixed_labels = _mixed_labels(labels, share, num_classes, "cutmix")
    for some, before in _with_those_before(images[..., top:bottom, left:right]):
        some.copy_(before)
    return images, mixed_labels


def _check(images: Any, labels: Any, num_classes: Any, function: str) -> None:
    for name, tensor in (("images", images), ("labels", labels)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{function}: {name} must be a tensor, got {type(tensor).__name__}")
    if images.ndim < 4 or 0 in images.shape:
        raise ValueError(
            f"{function}: images must be a batch of shape (B, ..., H, W) with pixels, "
            f"got {tuple(images.shape)}"
        )
    if labels.shape[:1] != images.shape[:1] or labels.ndim != 2 - (not labels.is_floating_point()):
        raise ValueError(
            f"{function}: labels must be {len(images)} integers, or floats of shape ({len(images)}, "
            f"num_classes), got {labels.dtype} of shape {tuple(labels.shape)}"
        )
    if labels.ndim == 1 and num_classes is None:
        raise ValueError(f"{function}: integer labels need num_classes, got None")


def _in_order(images: torch.Tensor) -> torch.Tensor | None:
    """The images as native code takes them: float32 on the CPU, without gaps, in any order of axes."""
    if images.dtype != torch.float32 or not images.is_cpu or images.requires_grad:
        return None
    axes = sorted(range(1, images.ndim), key=images.stride, reverse=True)
    in_order = images.permute(0, *axes)
    return in_order if in_order.is_contiguous() else None


def _with_those_before(images: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Some images at a time, the last ones first, and copies of those before them."""
    count, last = len(images), images[-1:].clone()
    image_bytes = max(images[0].numel() * images.itemsize, 1)
    step = max(_STEP_BYTES // image_bytes, 1) if images.is_cpu else count
    for end in range(count, 0, -step):
        begin = max(end - step, 0)
        if begin > 0:
            before = images[begin - 1 : end - 1].clone()
        else:
            before = torch.cat([last, images[: end - 1]])
        yield images[begin:end], before


def _share(alpha: Any, function: str) -> float:
    if not isinstance(alpha, int | float) or not 0 < alpha < math.inf:
        raise ValueError(f"{function}: alpha must be a positive number, got {alpha!r}")
    parameter = torch.tensor([float(alpha)], dtype=torch.float32, device="cpu")
    return float(torch.distributions.Beta(parameter, parameter, validate_args=False).sample())


def _mixed_labels(
    labels: torch.Tensor, share: float, num_classes: int | None, function: str
) -> torch.Tensor:
    if labels.ndim == 1:
        assert num_classes is not None
        try:
            labels = torch.nn.functional.one_hot(labels.long(), num_classes).float()
        except RuntimeError as error:
            raise ValueError(
                f"{function}: labels must be from 0 to num_classes - 1, which is {num_classes - 1}, got "
                f"{int(labels.min())} to {int(labels.max())}"
            ) from error
    return labels.roll(1, 0).mul_(1.0 - share).add_(labels.mul(share))
