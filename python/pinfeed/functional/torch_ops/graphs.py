"""Result shapes of the ops, for torch.compile, torch.export and "meta", and their gradients.

Shapes are computed in Python because the stable ABI has no symbolic sizes. These functions check only what
the shapes depend on; an op checks everything else when it runs. The gradient of each op is another op.
"""

from __future__ import annotations

from typing import Any

import torch

_INPUT_AXES = {"NHWC": (1, 2, 3), "NCHW": (2, 3, 1), "NHW": (1, 2, None)}  # of H, W, C


def register(library: Any) -> None:
    """Registers all shapes, as kernels for "meta", and the gradients; images are bytes and have none."""
    for name, shape in (
        ("normalize_images", _normalize_images),
        ("permute", _permute),
        ("pad_jagged", _pad_jagged),
        ("unpad_to_jagged", _unpad_to_jagged),
    ):
        library.impl(name, shape, "Meta")
    for name, backward, setup in (
        ("permute", _permute_backward, _setup_permute),
        ("pad_jagged", _pad_backward, _setup_jagged),
        ("unpad_to_jagged", _unpad_backward, _setup_jagged),
    ):
        torch.library.register_autograd(f"pinfeed::{name}", backward, setup_context=setup)


def _normalize_images(
    images: torch.Tensor,
    mean: Any = None,
    std: Any = None,
    *,
    input: str = "NHWC",
    output: str = "NCHW",
    dtype: torch.dtype | None = None,
    channels_last: bool = False,
    **_: Any,
) -> torch.Tensor:
    if input not in _INPUT_AXES or images.ndim != len(input):
        raise ValueError(
            f"normalize_images: input must be one of {tuple(_INPUT_AXES)} and have a letter for "
            f"each axis of images, got {input!r} and shape {tuple(images.shape)}"
        )
    row, column, channel = _INPUT_AXES[input]
    channels = 1 if channel is None else images.shape[channel]
    count, height, width = images.shape[0], images.shape[row], images.shape[column]
    is_packed = channels_last or output == "NHWC"
    shape = (count, height, width, channels) if is_packed else (count, channels, height, width)
    batch = images.new_empty(shape, dtype=dtype or torch.float32)
    return batch.permute(0, 3, 1, 2) if channels_last else batch


def _permute(images: torch.Tensor, input: str = "NHWC", output: str = "NCHW") -> torch.Tensor:
    if sorted(input) != sorted(output) or images.ndim != len(input):
        raise ValueError(
            "permute: input and output must have the same letters, one for each axis of images, "
            f"got {input!r}, {output!r} and shape {tuple(images.shape)}"
        )
    return images.new_empty([images.shape[input.index(letter)] for letter in output])


def _pad_jagged(values: torch.Tensor, offsets: torch.Tensor, length: int, **_: Any) -> torch.Tensor:
    return values.new_empty((offsets.shape[0] - 1, length, *values.shape[1:]))


def _unpad_to_jagged(
    padded: torch.Tensor, offsets: torch.Tensor, total: int, **_: Any
) -> torch.Tensor:
    return padded.new_empty((total, *padded.shape[2:]))


def _setup_permute(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    _, ctx.input, ctx.output = inputs


def _permute_backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    return torch.ops.pinfeed.permute(gradient, ctx.output, ctx.input), None, None


def _setup_jagged(
    ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any
) -> None:
    batch, offsets, _ = inputs
    ctx.save_for_backward(offsets)
    ctx.shape = batch.shape
    ctx.options = {key: value for key, value in keyword_only_inputs.items() if key != "pad_value"}


def _pad_backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    (offsets,) = ctx.saved_tensors
    values = torch.ops.pinfeed.unpad_to_jagged(gradient, offsets, ctx.shape[0], **ctx.options)
    return values, None, None


def _unpad_backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    (offsets,) = ctx.saved_tensors
    padded = torch.ops.pinfeed.pad_jagged(gradient, offsets, ctx.shape[1], **ctx.options)
    return padded, None, None
