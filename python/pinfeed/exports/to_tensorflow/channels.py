"""Which leaves get their channels from axis 1 to the end."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from pinfeed.functions.functions import permute


class Channels:
    """The keyword ``channels_last`` of `pinfeed.to_tensorflow`.

    Args:
        request: True for all images, or names of leaves, or False.

    Raises:
        TypeError: It is nothing of that kind.
    """

    def __init__(self, request: bool | str | Iterable[str]) -> None:
        self._all = request is True
        self._names: frozenset[str] = frozenset()
        if isinstance(request, bool):
            return
        names = [request] if isinstance(request, str) else request
        if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
            raise TypeError(
                "to_tensorflow: channels_last must be True, False, or names of leaves, "
                f"got {request!r}"
            )
        self._names = frozenset(names)

    def move(self, name: str, dtype: Any, rank: int | None) -> bool:
        """Whether the channels of a leaf move.

        Args:
            name: Of the leaf: the keys that lead to it, joined with dots.
            dtype: TensorFlow's.
            rank: How many axes it has, None if that is not known.

        Raises:
            ValueError: The leaf was named, and has no channels.
        """
        if name in self._names:
            if rank is None or rank < 3:
                raise ValueError(
                    f"to_tensorflow: channels_last names {name!r}, which must have a batch axis, "
                    f"channels and at least one more, got {rank} axes"
                )
            return True
        return self._all and rank == 4 and (dtype.is_floating or dtype.name == "uint8")

    def check(self, leaves: dict[str, bool]) -> None:
        """Raises ValueError if what was asked for is not there.

        Args:
            leaves: All leaves by name, and whether the channels of each move.
        """
        unknown = sorted(self._names - leaves.keys())
        if unknown:
            raise ValueError(
                f"to_tensorflow: channels_last names {unknown}, but the leaves are {list(leaves)}"
            )
        if self._all and not any(leaves.values()):
            raise ValueError(
                "to_tensorflow: channels_last=True is for leaves of uint8 or floats with 4 axes, "
                "but there are none; give names, or leave it out"
            )


def moved_sizes(sizes: Sequence[Any]) -> list[Any]:
    """The shape of a batch after its channels have moved."""
    return [sizes[0], *sizes[2:], sizes[1]]


def with_channels_last(array: Any) -> Any:
    """The batch in the order of axes that TensorFlow wants, contiguous.

    Args:
        array: Tensor or ndarray of shape (N, C, ...).
    """
    if isinstance(array, torch.Tensor):
        moved = array.movedim(1, -1)
        if moved.is_contiguous():
            return moved
    else:
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        moved = np.moveaxis(array, 1, -1)
        if moved.flags.c_contiguous:
            return moved
    axes = "NC" + string.ascii_lowercase[: array.ndim - 2]
    return permute(array, axes, "".join(moved_sizes(axes)))
