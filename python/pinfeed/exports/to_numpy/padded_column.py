"""Padded leaves whose padding is left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.exports.to_numpy.arrays import Array, plain
from pinfeed.exports.to_numpy.column import Wishes
from pinfeed.exports.to_numpy.ragged_columns import RaggedLeaf
from pinfeed.functions.padded import Padded
from pinfeed.functions.padding import Side, checked_lengths
from pinfeed.runtime import get_num_threads


class PaddedColumn(RaggedLeaf):
    """`Padded` with a length for each sample, of which the data is kept.

    Args:
        leaf: Of the first batch.
        wishes: What was asked for.
        name: Of the directory.
        where: What messages call the leaf.
    """

    _leading = 2

    def __init__(self, leaf: Any, wishes: Wishes, name: str, where: str) -> None:
        super().__init__(leaf, wishes, name, where)
        self._side: Side | None = wishes.side

    def parts(self, leaf: Any, where: str) -> tuple[Array, ...]:
        """See `Column.parts`: values, lengths, and the mask if there is one."""
        if not has_lengths(leaf):
            raise TypeError(f"{where}: expected a Padded with lengths, got {type(leaf).__name__}")
        parts = tuple(plain(part, self._wishes.bfloat16, where) for part in leaf)
        shape, counts = tuple(parts[0].shape), tuple(parts[1].shape)
        if len(shape) < 2 or counts != shape[:1]:
            raise ValueError(
                f"{where}: expected values of shape (B, L, ...) and lengths of shape (B,), "
                f"got {shape} and {counts}; of time_major batches pass values.swapaxes(0, 1)"
            )
        if len(parts) == 3 and tuple(parts[2].shape) != shape[:2]:
            raise ValueError(
                f"{where}: expected a mask of shape {shape[:2]}, got {tuple(parts[2].shape)}"
            )
        return parts

    def count(self, parts: tuple[Any, ...]) -> int:
        """See `Column.count`."""
        return len(parts[0])

    def _lengths(self, parts: tuple[Any, ...], where: str) -> npt.NDArray[np.int64]:
        shape = tuple(parts[0].shape)
        lengths = np.array(checked_lengths(parts[1], shape[:2], where), np.int64)
        if self._side is None:
            mask = np.asarray(parts[2]) if len(parts) == 3 else None
            self._side = _side(parts[0], lengths, mask, where)
        return lengths

    def _copy(
        self,
        target: npt.NDArray[Any],
        parts: tuple[Any, ...],
        lengths: npt.NDArray[np.int64],
        where: str,
    ) -> None:
        if target.size == 0:
            return
        # It asks for room for the values first, and then for the offsets.
        rooms = iter((target, np.empty(1 + len(lengths), np.int64)))
        _core.join(
            parts[0][: len(lengths)],
            None,
            None,
            lengths,
            self._side or "right",
            target.dtype.name,
            lambda shape, dtype: next(rooms),
            False,
            "to_numpy",
            where,
            get_num_threads(),
        )


def has_lengths(leaf: Any) -> bool:
    """Whether a leaf is a `Padded` that says how much of each sample is data, along one axis."""
    return isinstance(leaf, Padded) and getattr(getattr(leaf, "lengths", None), "ndim", 0) == 1


def _side(
    values: Any, lengths: npt.NDArray[np.int64], mask: npt.NDArray[Any] | None, where: str
) -> Side | None:
    """Where the padding of a batch is, None if it doesn't tell.

    A `Padded` doesn't say. A mask does; without one, padding is where one value stands everywhere.
    """
    right = np.arange(values.shape[1]) < lengths[:, np.newaxis]
    left = right[:, ::-1]
    if right.all():
        return None
    if mask is not None:
        if np.array_equal(mask, right):
            return "right"
        if np.array_equal(mask, left):
            return "left"
        raise ValueError(f"{where}: lengths and mask don't agree; side= says where padding is")
    if not _is_one_value(values, ~right):
        raise ValueError(
            f"{where}: what follows the data isn't one value, so padding may be on the left; "
            "a Padded doesn't say: give side='right' or side='left'"
        )
    return None if _is_one_value(values, ~left) else "right"


def _is_one_value(values: Any, mask: npt.NDArray[np.bool_]) -> bool:
    """Whether all items that the mask selects are the same."""
    if isinstance(values, torch.Tensor):
        chosen = values[torch.from_numpy(mask.copy())]
        items = (chosen.float() if chosen.dtype == torch.bfloat16 else chosen).numpy()
    else:
        items = values[mask]
    same = np.broadcast_to(items[0], items.shape)
    return np.array_equal(items, same, equal_nan=items.dtype.kind in "fc")
