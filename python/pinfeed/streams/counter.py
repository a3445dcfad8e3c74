"""Counting the samples that pass, at no cost in Python."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable, Iterator
from itertools import compress, repeat
from typing import Any


class Counter:
    """How many samples were taken.

    A loop in Python costs more than many a sample. So with each sample one item is taken from an
    iterator that knows how many it has left, all of that in C.
    """

    def __init__(self, count: int = 0) -> None:
        """Counts on from ``count``."""
        self._ticks = repeat(True, sys.maxsize - count)

    @property
    def count(self) -> int:
        """Samples taken so far."""
        return sys.maxsize - operator.length_hint(self._ticks)

    def counting(self, samples: Iterable[Any]) -> Iterator[Any]:
        """The samples, each of which is counted when it is taken."""
        return compress(samples, self._ticks)
