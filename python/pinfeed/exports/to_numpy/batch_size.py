"""How many samples a batch has, and which of its lists hold one object for each.

A list in a batch may be a part of its structure, as in ``[images, labels]``, or it may hold an
object for each sample, as in ``["cat", "dog"]``. Nothing marks it as the one or the other.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch

from pinfeed.functions.jagged import JaggedBatch
from pinfeed.functions.padded import Padded
from pinfeed.sources.ragged import RaggedArray
from pinfeed.structure import children, is_container, is_namedtuple


def batch_size(batch: Any, planned: int | None) -> int | None:
    """The number of samples of the first batch.

    Args:
        batch: The batch.
        planned: How many samples the loader says it has, if it does.

    Returns:
        What the array nearest to the root says, or ``planned`` if only that is possible; None if
        there is no array.

    Raises:
        ValueError: Both are possible, for a list of arrays as long as the batch.
    """
    size = _nearest_size(batch)
    if size is None or planned in (None, size) or not _is_possible(batch, planned):
        return size
    if _is_possible(batch, size):
        raise ValueError(
            f"to_numpy: batch 0: {planned} arrays in a list could be the {planned} samples that "
            f"the loader plans, or parts of {size} samples; return np.fromiter(list, object) from "
            "collate_fn for the former, hand over iter(loader) for the latter"
        )
    return planned


def is_object_list(node: Any, size: int | None) -> bool:
    """Whether a list or tuple holds one object for each of ``size`` samples.

    So it does if no array is in it; or if the arrays in it have other sizes, and it has this one.
    """
    if not _is_list(node):
        return False
    sizes = _array_sizes(node)
    if sizes:
        possible = all(_is_possible(child, len(node)) for child in node)
        return len(node) == size and not possible and sizes != {size}
    if size is None or len(node) == size:
        return True
    return not (node and all(_is_list(child) and len(child) == size for child in node))


def _nearest_size(batch: Any) -> int | None:
    waiting = deque([batch])
    while waiting:
        node = waiting.popleft()
        size = _array_size(node)
        if size is not None:
            return size
        if is_container(node):
            waiting.extend(child for _, child in children(node))
    return None


def _is_possible(node: Any, size: int) -> bool:
    array_size = _array_size(node)
    if array_size is not None:
        return array_size == size
    if node is None or (_is_list(node) and len(node) == size):
        return True
    if isinstance(node, np.ndarray | torch.Tensor):
        return True  # 0-d: its own error says more
    return is_container(node) and all(_is_possible(child, size) for _, child in children(node))


def _array_size(node: Any) -> int | None:
    """The number of samples of a leaf that is made of arrays, None for anything else."""
    if isinstance(node, JaggedBatch):
        return len(node.offsets) - 1
    if isinstance(node, RaggedArray):
        return len(node)
    if isinstance(node, Padded) and hasattr(node, "lengths"):
        return len(node.lengths)
    if isinstance(node, np.ndarray | torch.Tensor):
        return len(node) if node.ndim > 0 else None
    return None


def _array_sizes(node: Any) -> set[int]:
    """The numbers of samples that the arrays in a node speak of."""
    size = _array_size(node)
    if size is not None:
        return {size}
    if not is_container(node):
        return set()
    return set().union(*(_array_sizes(child) for _, child in children(node)))


def _is_list(node: Any) -> bool:
    return isinstance(node, list | tuple) and not is_namedtuple(node)
