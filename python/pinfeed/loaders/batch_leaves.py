"""The leaves of a batch that can be on a device: tensors, and objects that know how to move."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from pinfeed import structure

# What looks like a container, and holds nothing that moves.
_WHOLE = (torch.Tensor, torch.Size, range, bytearray, memoryview)

# What a batch may hold beside tensors without hiding one.
_PLAIN = (int, float, complex, str, bytes, type(None), np.ndarray, np.generic, *_WHOLE[1:])


def map_leaves(function: Callable[[Any], Any], batch: Any) -> Any:
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
    return [leaf for leaf in _leaves(node) if isinstance(leaf, torch.Tensor)]


def _leaves(node: Any) -> Iterator[Any]:
    return (leaf for _, leaf in structure.leaves(node, lambda node: isinstance(node, _WHOLE)))


def has_traceable_memory(leaf: Any) -> bool:
    """Whether the memory that a leaf uses on a device can be told.

    An object with a ``record_stream`` knows it; of others `tensors_in` must find all tensors.
    """
    knows_its_own = hasattr(leaf, "record_stream") and not isinstance(leaf, torch.Tensor)
    return knows_its_own or all(
        has_own_memory(part) if isinstance(part, torch.Tensor) else isinstance(part, _PLAIN)
        for part in _leaves(leaf)
    )


def has_own_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor is one stretch of memory, and not made of other tensors."""
    return (
        tensor.layout == torch.strided
        and not tensor.is_nested
        and not hasattr(tensor, "__tensor_flatten__")
    )
