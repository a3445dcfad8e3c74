"""What autograd has to know about the overloads ``out``, which write into tensors of the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_BELOW = torch._C._after_ADInplaceOrView_keyset


def register(library: Any) -> None:
    """Registers it for all of them."""
    for name in (
        "normalize_images",
        "permute",
        "pad_jagged",
        "pad_jagged_with_mask",
        "unpad_to_jagged",
    ):
        op = getattr(torch.ops.pinfeed, name).out
        library.impl(f"{name}.out", _noticed(op), "Autograd", with_keyset=True)


def _noticed(op: torch._ops.OpOverload) -> Callable[..., None]:
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
