"""A shuffle buffer whose contents at any step follow from the seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed.samplers.order_sampler import ROUNDS, permutation, random_keys

_DRAWS = 1024  # drawn at a time


class ShuffleBuffer:
    """A buffer of ``size`` samples; each step yields one and puts the next sample in its slot.

    The slot of a step is drawn from ``seed``, ``key`` and the step's number only. So the contents after
    any number of steps can be computed without the samples: each slot has the sample of the last step
    that drew it.
    """

    def __init__(self, size: int, seed: int, key: tuple[int, ...]) -> None:
        self.size = size
        self._seed, self._key = seed, key

    def step_through(self, samples: Iterable[Any], buffered: list[Any], step: int) -> Iterator[Any]:
        """Yields a sample of the buffer for each arriving one.

        ``buffered`` are the slots, which are updated; ``step`` is the number of earlier steps.
        """
        bits = self._bits(step)
        blocks = (self._slots(bits.random_raw(_DRAWS)).tolist() for _ in repeat(None))
        for sample, slot in zip(samples, chain.from_iterable(blocks), strict=False):
            yield buffered[slot]
            buffered[slot] = sample

    def origins(self, steps: int, count: int | None = None) -> npt.NDArray[np.int64]:
        """Returns each slot's sample after ``steps`` steps, as its number in order of arrival.

        ``count`` is the number of filled slots; None: all, as after any step.
        """
        if steps == 0:  # the buffer may be far larger than the stream, and than memory
            return np.arange(self.size if count is None else min(count, self.size))
        origins = np.full(self.size, -1)
        start = steps
        while start > 0 and origins.min() < 0:
            stop = start
            start = max(0, stop - max(_DRAWS, self.size))
            slots = self._slots(self._bits(start).random_raw(stop - start))
            np.maximum.at(origins, slots, np.arange(start, stop) + self.size)
        return np.where(origins < 0, np.arange(self.size), origins)

    def last_order(self, count: int) -> npt.NDArray[np.int64]:
        """Returns the order in which the remaining samples are yielded at the end."""
        return permutation(count, random_keys(self._seed, (*self._key, 1), ROUNDS))

    def _bits(self, step: int) -> np.random.PCG64:
        """Returns the generator for the draws from ``step`` on."""
        bits = np.random.PCG64(np.random.SeedSequence(self._seed, spawn_key=(*self._key, 0)))
        return bits.advance(step)

    def _slots(self, raw: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        # With 64 bits, the bias of the remainder is undetectable.
        return (raw % np.uint64(self.size)).astype(np.int64)
