"""The contract of a column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from pinfeed.exports.to_numpy.outputs import Output
from pinfeed.functions.padding import Side


@dataclass(frozen=True)
class Wishes:
    """What a caller of `pinfeed.to_numpy` asked for, as far as a column cares.

    Attributes:
        output: Where columns lie.
        bfloat16: See `pinfeed.to_numpy`.
        side: See `pinfeed.to_numpy`.
    """

    output: Output
    bfloat16: str
    side: Side | None

    @property
    def padding_side(self) -> Side:
        """Where padding is, unless something else is known."""
        return self.side or "right"


class Column(ABC):
    """One leaf of all batches.

    A batch goes through `parts`, `count` and `check`, all leaves of it, before the first `write`.
    """

    @abstractmethod
    def parts(self, leaf: Any, where: str) -> tuple[Any, ...]:
        """The arrays that a leaf consists of, on whatever device, or lists.

        Args:
            leaf: Of a batch.
            where: What messages call it, such as ``"to_numpy: leaf ['x'] of batch 3"``.

        Raises:
            TypeError, ValueError: It is no leaf of this kind.
        """

    @abstractmethod
    def count(self, parts: tuple[Any, ...]) -> int:
        """How many samples the leaf of a batch has."""

    @abstractmethod
    def check(self, parts: tuple[Any, ...], end: int, where: str) -> None:
        """Raises TypeError or ValueError if the leaf can't follow those of the batches before.

        Args:
            parts: Its arrays.
            end: How many samples there are up to the end of this batch.
            where: What messages call the leaf.
        """

    def size(self, samples: int) -> int:
        """How many bytes of memory so many samples take, as far as the first batch tells."""
        return 0

    @abstractmethod
    def allocate(self, samples: int, where: str) -> None:
        """Makes room for that many samples, which may turn out to be more or fewer."""

    @abstractmethod
    def write(self, start: int, count: int, parts: tuple[Any, ...], where: str) -> None:
        """Copies the leaf of a batch, which is in memory by now.

        Args:
            start: How many samples were written before.
            count: How many samples of this batch are wanted, from its first on.
            parts: Those arrays.
            where: What messages call the leaf.
        """

    @abstractmethod
    def finish(self, samples: int) -> None:
        """Brings what was written into its final form."""

    @abstractmethod
    def result(self) -> Any:
        """The column, once it is finished and the output committed."""

    @abstractmethod
    def partial(self, samples: int) -> Any:
        """What was written of the first samples, as it lies there; moves nothing, takes no memory.

        Args:
            samples: How many, at least one.

        Raises:
            RuntimeError: It is in no order, because `finish` was left halfway.
        """
