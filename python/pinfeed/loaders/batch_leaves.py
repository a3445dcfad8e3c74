"""The leaves of a batch that can be on a device: tensors, and objects that know how to move."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable
from typing import Any

import torch

from pinfeed import structure

# What looks like a container, and holds nothing that moves.
_WHOLE = (torch.Tensor, torch.Size, range, bytearray, memoryview)


def map_movable(function: Callable[[Any], Any], batch: Any) -> Any:
    """The batch with ``function(leaf)`` for each leaf that can be on a device.

    Those are tensors, and objects that move themselves. Everything else stays the object that it is:
    what can't move, and containers in which nothing changed.
    """

    def changed(leaf: Any) -> Any:
        return function(leaf) if isinstance(leaf, torch.Tensor) or moves_itself(leaf) else leaf

    is_leaf = lambda node: isinstance(node, _WHOLE) or moves_itself(node)
    return structure.map_leaves(changed, batch, is_leaf)


def moves_itself(node: Any) -> bool:
    """Whether the object has a ``.to`` that knows better how it gets to a device.

    A UserDict is a dict with more around it. Its ``.to``, such as that of the batches that
    tokenizers make, moves the values, which works better here.
    """
    return (
        callable(getattr(node, "to", None))
        and not isinstance(node, torch.Tensor | UserDict)
        and not isinstance(node, type)
    )


def moved(leaf: Any, device: torch.device) -> Any:
    """The leaf on the device, by its own ``.to``."""
    result = leaf.to(device)
    return leaf if result is None else result  # it moved in place


def tensors_in(node: Any) -> list[torch.Tensor]:
    """All tensors that containers lead to."""
    found = structure.leaves(node, lambda node: isinstance(node, _WHOLE))
    return [leaf for _, leaf in found if isinstance(leaf, torch.Tensor)]


def has_own_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor is one stretch of memory, and not made of other tensors."""
    return (
        tensor.layout == torch.strided
        and not tensor.is_nested
        and not hasattr(tensor, "__tensor_flatten__")
    )
