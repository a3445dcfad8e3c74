"""What autograd knows of the ops: their gradients, and the overloads that write into ``out``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_OPS = ("normalize_images", "permute", "pad_jagged", "pad_jagged_with_mask", "unpad_to_jagged")
_BELOW = torch._C._after_ADInplaceOrView_keyset


def register(library: Any) -> None:
    """Registers the gradients and the overloads ``out``.

    The gradient of an op is another op. Images are bytes, so normalize_images has none.
    """
    for name, backward, setup in (
        ("permute", _permute_backward, _setup_permute),
        ("pad_jagged", _pad_backward, _setup_pad),
        ("pad_jagged_with_mask", _pad_backward, _setup_pad),
        ("unpad_to_jagged", _unpad_backward, _setup_unpad),
    ):
        torch.library.register_autograd(f"pinfeed::{name}", backward, setup_context=setup)
    for name in _OPS:
        op = getattr(torch.ops.pinfeed, name).out
        library.impl(f"{name}.out", _writing(op), "Autograd", with_keyset=True)


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
    ctx.options = {key: kept for key, kept in keyword_only_inputs.items() if key != "pad_value"}


def _pad_backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> tuple[Any, ...]:
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


def _writing(op: torch._ops.OpOverload) -> Callable[..., None]:
    names = [argument.name for argument in op._schema.arguments if argument.alias_info is not None]

    def write(keyset: Any, *args: Any, **kwargs: Any) -> None:
        if torch.is_grad_enabled():
            tensors = (a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor))
            if any(tensor.requires_grad for tensor in tensors):
                raise RuntimeError(
                    f"{op._opname}: with out= there are no gradients, but an argument requires "
                    "them; call it without out, or under torch.no_grad()"
                )
        # A tensor that was saved for a backward pass must not change unnoticed.
        torch.autograd.graph.increment_version([kwargs[name] for name in names])
        with torch._C._AutoDispatchBelowADInplaceOrView():
            op.redispatch(keyset & _BELOW, *args, **kwargs)

    return write
