"""Random order by a buffer that samples pass through, and that can be filled again as it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed.samplers.order_sampler import ROUNDS, permutation, random_keys

# So many are drawn at once.
_DRAWS = 1024


class ShuffleBuffer:
    """A buffer of ``size`` samples, whose every step hands out one and puts the next in its place.

    Which place is a draw that follows from the seed and the number of the step alone. So what lies
    where after any number of steps is known without the samples: in each place, the sample of the
    last step that drew it. The draws follow from ``seed`` and the numbers in ``key``.
    """

    def __init__(self, size: int, seed: int, key: tuple[int, ...]) -> None:
        self.size = size
        self._seed, self._key = seed, key

    def step_through(self, samples: Iterable[Any], held: list[Any], step: int) -> Iterator[Any]:
        """Hands out samples for as long as there are others to put in their places.

        ``held`` is what lies in the places, and is kept up to date; ``step`` steps were made before.
        """
        bits = self._bits(step)
        blocks = (self._places(bits.random_raw(_DRAWS)).tolist() for _ in repeat(None))
        for sample, place in zip(samples, chain.from_iterable(blocks), strict=False):
            yield held[place]
            held[place] = sample

    def origins(self, steps: int, held: int | None = None) -> npt.NDArray[np.int64]:
        """Which sample lies in each place after so many steps, as its number in order of arrival.

        ``held`` is in how many places samples lie; None: in all, as after any step.
        """
        if steps == 0:  # the buffer may be far larger than the stream, and than memory
            return np.arange(self.size if held is None else min(held, self.size))
        origins = np.full(self.size, -1)
        start = steps
        while start > 0 and origins.min() < 0:
            stop = start
            start = max(0, stop - max(_DRAWS, self.size))
            places = self._places(self._bits(start).random_raw(stop - start))
            np.maximum.at(origins, places, np.arange(start, stop) + self.size)
        return np.where(origins < 0, np.arange(self.size), origins)

    def last_order(self, count: int) -> npt.NDArray[np.int64]:
        """The order in which the samples that lie there at the end are handed out."""
        return permutation(count, random_keys(self._seed, (*self._key, 1), ROUNDS))

    def _bits(self, step: int) -> np.random.PCG64:
        """Where the draws of this and the next steps come from."""
        bits = np.random.PCG64(np.random.SeedSequence(self._seed, spawn_key=(*self._key, 0)))
        return bits.advance(step)

    def _places(self, raw: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        # 64 bits leave no bias that one could find.
        return (raw % np.uint64(self.size)).astype(np.int64)
