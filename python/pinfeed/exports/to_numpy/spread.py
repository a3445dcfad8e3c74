"""Samples of different shapes, from one after the other to all in boxes of one size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from pinfeed.functions.padding import Side

# Moved in one go, through memory that stays in the cache.
_CHUNK_BYTES = 1 << 18

Shape = tuple[int, ...]

#: How many samples in a row have which shape.
Run = tuple[int, Shape]


def box(shape: Shape, target: Shape, side: Side) -> tuple[slice, ...]:
    """Where in a target a smaller shape lies, with padding on that side."""
    pairs = zip(shape, target, strict=True)
    if side == "left":
        return tuple(slice(large - small, large) for small, large in pairs)
    return tuple(slice(small) for small in shape)


def spread(
    items: npt.NDArray[Any],
    runs: Sequence[Run],
    target: Shape,
    value: Any,
    side: Side,
) -> None:
    """Widens samples in place, so that it takes no memory beyond the result.

    Args:
        items: 1-D with room for all samples in boxes; the samples come first, close together.
        runs: The samples.
        target: Shape of a box.
        value: What to fill boxes up with.
        side: Where in a box the filling goes.
    """
    size = math.prod(target)
    step = max(1, _CHUNK_BYTES // max(1, size * items.itemsize))
    end = sum(rows * math.prod(shape) for rows, shape in runs)
    target_end = sum(rows for rows, _ in runs) * size
    # From the last one on, because a box never begins before its sample: what is overwritten was
    # moved already.
    for rows, shape in reversed(runs):
        where = (slice(None), *box(shape, target, side))
        for left in range(rows, 0, -step):
            count = min(step, left)
            start, target_start = end - count * math.prod(shape), target_end - count * size
            if start < target_start or shape != target:
                samples = items[start:end].reshape(count, *shape).copy()
                boxes = items[target_start:target_end].reshape(count, *target)
                boxes[...] = value
                boxes[where] = samples
            end, target_end = start, target_start
