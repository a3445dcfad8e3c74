"""Where a column is written: one flat array that grows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

# Room that nothing was written to yet costs nothing, in memory as in a file that is cut at the end.
_GROWTH = 2


class Storage(ABC):
    """Items of one dtype, one after the other.

    Args:
        dtype: Of an item.

    Attributes:
        capacity: For how many items there is room.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self.capacity = 0

    @abstractmethod
    def resize(self, items: int) -> None:
        """Makes room for exactly so many items; those that are there stay.

        Raises:
            MemoryError, OSError: There is none.
        """

    @abstractmethod
    def view(self, start: int, stop: int) -> npt.NDArray[Any]:
        """The items from ``start`` to ``stop``, to read and to write.

        A view that is still around when the storage is resized shows the items as they were.
        """

    @abstractmethod
    def finish(self, shape: tuple[int, ...], name: str) -> None:
        """Cuts off the room that is left.

        Args:
            shape: Of the array that the items are.
            name: Of its file, if it lies in one.
        """

    @abstractmethod
    def result(self) -> npt.NDArray[Any]:
        """The array, once the storage is finished and the output committed."""

    def reserve(self, items: int) -> None:
        """Makes room for at least so many items; for many more, so that this is rarely needed."""
        if items <= self.capacity:
            return
        try:
            self.resize(max(items, _GROWTH * self.capacity))
        except (MemoryError, OSError):
            self.resize(items)

    def array(self, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """The first items as an array."""
        return self.view(0, math.prod(shape)).reshape(shape)
