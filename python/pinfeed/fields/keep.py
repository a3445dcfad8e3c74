"""The `Keep` field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from pinfeed.fields.field import Field, FieldContext


class Keep(Field):
    """Returns the samples' values as a list, unchanged: names, metadata, arrays of different shapes.

    Values from an `ArrayDataset` are views.

    Example:
        >>> pinfeed.Collate({"id": pinfeed.Keep()})([{"id": "a"}, {"id": None}])
        {'id': ['a', None]}
    """

    @override
    def collate(self, samples: Sequence[Any], context: FieldContext) -> list[Any]:
        return list(samples)
