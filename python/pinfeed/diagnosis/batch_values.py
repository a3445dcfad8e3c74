"""Batches of any kind: how large they are, copies of them, and whether two are equal."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import torch

from pinfeed.structure import entries, is_container, parts, rebuild


def bytes_in(batch: Any) -> int:
    """Of all arrays and tensors that containers lead to."""
    count = 0
    for _, entry in entries(batch):
        with contextlib.suppress(Exception):  # a sparse tensor doesn't tell
            count += int(entry.nbytes)
    return count


def cloned(node: Any) -> Any:
    """A copy of a batch: its containers, tensors, arrays, and what else can make one of itself."""
    if is_container(node):
        return rebuild(node, [cloned(part) for part in parts(node)])
    try:
        clone = getattr(node, "clone", None)  # of tensors, and of what holds some
        return clone() if callable(clone) else copy.deepcopy(node)
    except Exception:  # noqa: BLE001, whatever else can't be copied
        return node


def have_equal_values(one: Any, other: Any, tolerance: float | None = 0) -> bool:
    """Whether two batches have the same types, keys, dtypes, strides and values; False if nobody can tell.

    ``tolerance``: how far floats and bytes may be apart; None: values are not compared.
    """
    # Nothing is raised where they differ: what torch raises keeps the frames of a loop, and its workers.
    try:
        return _types(one) == _types(other) and all(
            steps == other_steps and _are_equal(entry, twin, tolerance)
            for (steps, entry), (other_steps, twin) in zip(
                entries(one), entries(other), strict=True
            )
        )
    except Exception:  # noqa: BLE001, not as many entries; or what somebody's __eq__ raises
        return False


def _types(node: Any) -> Any:
    """Of a batch's parts; lists are as good as tuples, which torch makes lists of."""
    kind = list if type(node) is tuple else type(node)
    return (kind, [*map(_types, parts(node))]) if is_container(node) else kind


def _are_equal(entry: Any, twin: Any, tolerance: float | None = 0) -> bool:
    """Whether two of one type are equal; NaNs are."""
    for name in ("dtype", "shape", "requires_grad", "strides"):
        if getattr(entry, name, None) != getattr(twin, name, None):
            return False
    if isinstance(entry, torch.Tensor) and entry.stride() != twin.stride():
        return False
    if tolerance is None:
        return True
    if tolerance and isinstance(entry, torch.Tensor):
        return bool(((entry.double() - twin.double()).abs() <= tolerance).all())
    if names := getattr(getattr(entry, "dtype", None), "names", None):
        return all(_are_equal(entry[name], twin[name]) for name in names)
    same = (entry == twin) | ((entry != entry) & (twin != twin))  # noqa: PLR0124, NaN is not itself
    return bool(same.all() if hasattr(same, "all") else same)
