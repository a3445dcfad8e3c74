"""Size and equality of batches of any kind."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from pinfeed.structure import entries, is_container, parts


def bytes_in(batch: Any) -> int:
    """Returns the bytes of all arrays and tensors in nested containers."""
    count = 0
    for _, entry in entries(batch):
        with contextlib.suppress(Exception):  # for example sparse tensors
            count += int(entry.nbytes)
    return count


def have_equal_values(batch: Any, other: Any, tolerance: float | None = 0) -> bool:
    """Whether two batches have the same types, keys, dtypes, strides and values; False if unknown.

    ``tolerance``: maximum difference of floats and bytes; None: values are not compared.
    """
    # Returns instead of raising, because an exception keeps the frames of a loop and its workers alive.
    try:
        return _types(batch) == _types(other) and all(
            steps == other_steps and _are_equal(entry, twin, tolerance)
            for (steps, entry), (other_steps, twin) in zip(
                entries(batch), entries(other), strict=True
            )
        )
    except Exception:  # noqa: BLE001, different numbers of entries, or an error of a custom __eq__
        return False


def _types(node: Any) -> Any:
    """Returns the nested types of a batch; tuples count as lists, because torch converts them."""
    kind = list if type(node) is tuple else type(node)
    return (kind, [*map(_types, parts(node))]) if is_container(node) else kind


def _are_equal(entry: Any, twin: Any, tolerance: float | None = 0) -> bool:
    """Whether two entries of one type are equal; NaN equals NaN."""
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
