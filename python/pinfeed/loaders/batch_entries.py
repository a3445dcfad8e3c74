"""The entries of a batch that can be on a device: tensors, and objects with a ``.to``."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable
from typing import Any

import torch

from pinfeed import structure

# Sequences that are not containers of entries.
_WHOLE = (torch.Tensor, torch.Size, range, bytearray, memoryview)


def map_movable(function: Callable[[Any], Any], batch: Any) -> Any:
    """Returns the batch with ``function(entry)`` for each tensor and each object that moves itself.

    Other entries, and containers without changes, stay the same objects.
    """

    def changed(entry: Any) -> Any:
        return function(entry) if isinstance(entry, torch.Tensor) or moves_itself(entry) else entry

    is_entry = lambda node: isinstance(node, _WHOLE) or moves_itself(node)
    return structure.map_entries(changed, batch, is_entry)


def moves_itself(node: Any) -> bool:
    """Whether to move an object by its own ``.to``.

    A UserDict, such as a tokenizer's BatchEncoding, is treated as a dict instead: its ``.to`` only
    moves the values.
    """
    return callable(getattr(node, "to", None)) and not isinstance(
        node, (torch.Tensor, UserDict, type)
    )


def moved(entry: Any, device: torch.device) -> Any:
    """Moves an entry to the device by its own ``.to``."""
    result = entry.to(device)
    return entry if result is None else result  # it moved in place


def tensors_in(node: Any) -> list[torch.Tensor]:
    """Returns all tensors in nested containers."""
    found: list[Any] = []
    is_entry = lambda node: isinstance(node, _WHOLE)
    structure.map_entries(lambda entry: found.append(entry) or entry, node, is_entry)  # type: ignore[func-returns-value]
    return [entry for entry in found if isinstance(entry, torch.Tensor)]


def has_own_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a plain strided one, not composed of other tensors."""
    return (
        tensor.layout == torch.strided
        and not tensor.is_nested
        and (type(tensor) is torch.Tensor or not hasattr(tensor, "__tensor_flatten__"))
    )
