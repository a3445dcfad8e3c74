"""The entries of a batch that can be on a device: tensors, and objects that know how to move."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable
from typing import Any

import torch

from pinfeed import structure

# What looks like a container, and holds nothing that moves.
_WHOLE = (torch.Tensor, torch.Size, range, bytearray, memoryview)


def map_movable(function: Callable[[Any], Any], batch: Any) -> Any:
    """The batch with ``function(entry)`` for each entry that can be on a device.

    Those are tensors, and objects that move themselves. Everything else stays the object that it is:
    what can't move, and containers in which nothing changed.
    """

    def changed(entry: Any) -> Any:
        return function(entry) if isinstance(entry, torch.Tensor) or moves_itself(entry) else entry

    is_entry = lambda node: isinstance(node, _WHOLE) or moves_itself(node)
    return structure.map_entries(changed, batch, is_entry)


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


def moved(entry: Any, device: torch.device) -> Any:
    """The entry on the device, by its own ``.to``."""
    result = entry.to(device)
    return entry if result is None else result  # it moved in place


def tensors_in(node: Any) -> list[torch.Tensor]:
    """All tensors that containers lead to."""
    found = structure.entries(node, lambda node: isinstance(node, _WHOLE))
    return [entry for _, entry in found if isinstance(entry, torch.Tensor)]


def has_own_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor is one stretch of memory, and not made of other tensors."""
    return (
        tensor.layout == torch.strided
        and not tensor.is_nested
        and not hasattr(tensor, "__tensor_flatten__")
    )
