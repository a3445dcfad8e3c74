"""The contract of a field."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed.sources import Source


class Field(ABC):
    """Turns one leaf of all samples of a batch into one leaf of the batch.

    Fields hold no batch and no buffer: they pickle, and any worker or thread may call them.
    """

    @abstractmethod
    def collate(self, samples: Sequence[Any], name: str) -> Any:
        """The batch of separate samples.

        Args:
            samples: The leaf of each sample, at least one.
            name: What messages call the leaf, such as ``"Collate: leaf ['image']"``.
        """

    @abstractmethod
    def gather(self, source: Source, indices: npt.NDArray[np.int64], name: str) -> Any:
        """The batch of rows of one array.

        Args:
            source: The array.
            indices: int64 of shape (B,), checked and not negative.
            name: What messages call the leaf.
        """
