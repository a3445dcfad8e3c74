"""Leaves that stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pinfeed.fields.field import Field


class Keep(Field):
    """A list of the samples' objects, untouched: names, metadata, arrays of different shapes.

    Example:
        >>> pinfeed.Collate({"id": pinfeed.Keep()})([{"id": "a"}, {"id": None}])
        {'id': ['a', None]}
    """

    def collate(self, samples: Sequence[Any], name: str) -> list[Any]:
        """See `Field.collate`; of an `ArrayDataset` the items are views."""
        return list(samples)

    def __repr__(self) -> str:
        return "Keep()"
