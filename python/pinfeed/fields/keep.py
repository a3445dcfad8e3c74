"""Leaves that stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed.fields.field import Field
from pinfeed.sources import Source


class Keep(Field):
    """A list of the samples' objects, untouched: names, metadata, arrays of different shapes.

    Example:
        >>> pinfeed.Collate({"id": pinfeed.Keep()})([{"id": "a"}, {"id": None}])
        {'id': ['a', None]}
    """

    def collate(self, samples: Sequence[Any], name: str) -> list[Any]:
        """See `Field.collate`."""
        return list(samples)

    def gather(self, source: Source, indices: npt.NDArray[np.int64], name: str) -> list[Any]:
        """See `Field.gather`; the items are views."""
        return [source[index] for index in indices.tolist()]

    def __repr__(self) -> str:
        return "Keep()"
