"""Gradients of the ops; the gradient of each op is another op."""

from __future__ import annotations

from typing import Any

import torch


def register() -> None:
    """Registers the gradients. Images are bytes, so normalize_images has none."""
    for name, backward, setup in (
        ("permute", _permute_backward, _setup_permute),
        ("pad_jagged", _pad_backward, _setup_pad),
        ("unpad_to_jagged", _unpad_backward, _setup_unpad),
    ):
        torch.library.register_autograd(f"pinfeed::{name}", backward, setup_context=setup)


def _setup_permute(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    _, ctx.input, ctx.output = inputs


def _permute_backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    return torch.ops.pinfeed.permute(gradient, ctx.output, ctx.input), None, None


def _setup_pad(
    ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any
) -> None:
    values, offsets, _ = inputs
    ctx.save_for_backward(offsets)
    ctx.total = values.shape[0]
    ctx.options = {key: value for key, value in keyword_only_inputs.items() if key != "pad_value"}


def _pad_backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    (offsets,) = ctx.saved_tensors
    values = torch.ops.pinfeed.unpad_to_jagged(gradient, offsets, ctx.total, **ctx.options)
    return values, None, None


def _setup_unpad(
    ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any
) -> None:
    padded, offsets, _ = inputs
    ctx.save_for_backward(offsets)
    ctx.length = padded.shape[1]
    ctx.options = keyword_only_inputs


def _unpad_backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    (offsets,) = ctx.saved_tensors
    padded = torch.ops.pinfeed.pad_jagged(gradient, offsets, ctx.length, **ctx.options)
    return padded, None, None
