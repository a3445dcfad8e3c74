"""The leaves of a batch that can be on a device: tensors, and objects that know how to move."""

from __future__ import annotations

import dataclasses
from collections import UserDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from pinfeed.structure import is_container, is_dataclass, rebuild

# What is met often, or looks like a container, and holds nothing that moves.
_PLAIN = (int, float, complex, str, bytes, type(None), range, torch.Size)
_PLAIN_TYPES = frozenset((*_PLAIN, bool))
_PLAIN_KINDS = (*_PLAIN, bytearray, memoryview, np.ndarray, np.generic)


def map_leaves(function: Callable[[Any], Any], node: Any) -> Any:
    """The batch with ``function(leaf)`` for each leaf that can be on a device.

    Everything else stays the object that it is: what can't move, and containers in which nothing
    changed.

    Args:
        function: Called with tensors and with objects that move themselves.
        node: The batch, or a part of it.
    """
    if type(node) in _PLAIN_TYPES:
        return node
    if isinstance(node, torch.Tensor) or moves_itself(node):
        return function(node)
    if isinstance(node, _PLAIN_KINDS) or not is_container(node):
        return node
    before = _children(node)
    after = [map_leaves(function, child) for child in before]
    if all(one is other for one, other in zip(before, after, strict=True)):
        return node
    return rebuild(node, after)


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
    if type(node) in _PLAIN_TYPES:
        return []
    if isinstance(node, torch.Tensor):
        return [node]
    if isinstance(node, _PLAIN_KINDS) or not is_container(node):
        return []
    return [tensor for child in _children(node) for tensor in tensors_in(child)]


def has_traceable_memory(leaf: Any) -> bool:
    """Whether the memory that a leaf uses on a device can be told.

    An object with a ``record_stream`` knows it; of others `tensors_in` must find all tensors.
    """
    if isinstance(leaf, torch.Tensor):
        return has_own_memory(leaf)
    return hasattr(leaf, "record_stream") or _shows_tensors(leaf)


def _shows_tensors(node: Any) -> bool:
    if isinstance(node, torch.Tensor):
        return has_own_memory(node)
    if isinstance(node, _PLAIN_KINDS):
        return True
    return is_container(node) and all(_shows_tensors(child) for child in _children(node))


def has_own_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor is one stretch of memory, and not made of other tensors."""
    return (
        tensor.layout == torch.strided
        and not tensor.is_nested
        and not hasattr(tensor, "__tensor_flatten__")
    )


def _children(node: Any) -> list[Any]:
    """As `structure.children`, without the steps."""
    if isinstance(node, Mapping):
        return list(node.values())
    if is_dataclass(node):
        return [getattr(node, field.name) for field in dataclasses.fields(node)]
    return list(node)
