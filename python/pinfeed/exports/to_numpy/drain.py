"""One run: batches in, columns out."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from pinfeed.exports.to_numpy.batch_size import batch_size
from pinfeed.exports.to_numpy.column import Wishes
from pinfeed.exports.to_numpy.layout import Layout
from pinfeed.exports.to_numpy.planned_length import PlannedLength
from pinfeed.exports.to_numpy.staging import Parts, Staging, Transfer, is_remote
from pinfeed.limits import require_memory


class _Fetched(NamedTuple):
    """Leaves of a batch that are on their way from a device.

    Attributes:
        transfer: The leaves.
        columns: Where they go, by number.
        start: How many samples come before.
        wanted: How many of the batch are.
        batch: Its number.
    """

    transfer: Transfer
    columns: list[int]
    start: int
    wanted: int
    batch: int


class Drain:
    """Takes batch by batch, and keeps none but one that is being fetched from a device.

    Args:
        wishes: What was asked for.
        pad: A number, or numbers in the structure of a batch.
        out: Arrays to write into, in the structure of a batch.
        limit: The most samples to take.
        plan: What the loader says about its length.

    Attributes:
        samples: How many were taken.
        expected: How many there are going to be, as far as is known.
    """

    def __init__(
        self,
        wishes: Wishes,
        pad: Any,
        out: Any,
        limit: int | None,
        plan: PlannedLength | Sequence[Any] | None,
    ) -> None:
        self._wishes = wishes
        self._pad, self._out = pad, out
        self._limit = limit
        self._plan = plan
        self._staging = Staging()
        self._pending: _Fetched | None = None
        self._layout: Layout | None = None
        self._batches = 0
        self._written = 0
        self.samples = 0
        self.expected: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether no more batches are wanted."""
        return self.samples == self._limit

    def add(self, batch: Any) -> tuple[int, int]:
        """Takes a batch, of which nothing is written unless all of it can be.

        Returns:
            How many samples were taken, and how many bytes the batch has.
        """
        number = self._batches
        layout = self._layout or self._begin(batch)
        parts = self._parts(layout, batch, number)
        count = self._count(layout, parts, number)
        wanted = count if self._limit is None else min(count, self._limit - self.samples)
        for i, (column, leaf) in enumerate(zip(layout.columns, parts, strict=True)):
            column.check(leaf, self.samples + wanted, layout.where(i, number))
        if number == 0:
            self._allocate(layout, count)
        start, self.samples = self.samples, self.samples + wanted
        self._batches += 1
        remote = [i for i, leaf in enumerate(parts) if any(map(is_remote, leaf))]
        transfer = self._staging.fetch([parts[i] for i in remote])
        self._flush()
        # What is in memory is written at once: a loader may use its memory again.
        for i, column in enumerate(layout.columns):
            if i not in remote:
                column.write(start, wanted, parts[i], layout.where(i, number))
        if remote:
            self._pending = _Fetched(transfer, remote, start, wanted, number)
        else:
            self._written = self.samples
        return wanted, sum(getattr(part, "nbytes", 0) for leaf in parts for part in leaf)

    def finish(self) -> Any:
        """The structure of all that was taken."""
        self._flush()
        if self._layout is None:
            raise ValueError(
                "to_numpy: loader yielded no batch, and nothing else says what arrays there are"
            )
        for column in self._layout.columns:
            column.finish(self._written)
        self._wishes.output.commit()
        return self._layout.rebuild([column.result() for column in self._layout.columns])

    def partial(self) -> Any:
        """The structure of all that was written before something failed, None if nothing was."""
        with contextlib.suppress(Exception):  # a device may be what failed
            self._flush()
        if self._layout is None or self._written == 0:
            return None
        return self._layout.rebuild(
            [column.partial(self._written) for column in self._layout.columns]
        )

    def _begin(self, batch: Any) -> Layout:
        first = self._plan.first if isinstance(self._plan, PlannedLength) else None
        self._layout = Layout(batch, batch_size(batch, first), self._pad, self._out, self._wishes)
        return self._layout

    def _parts(self, layout: Layout, batch: Any, number: int) -> list[Parts]:
        leaves = layout.leaves(batch, number)
        return [
            column.parts(leaf, layout.where(i, number))
            for i, (column, leaf) in enumerate(zip(layout.columns, leaves, strict=True))
        ]

    def _count(self, layout: Layout, parts: Sequence[Parts], number: int) -> int:
        counts = [column.count(leaf) for column, leaf in zip(layout.columns, parts, strict=True)]
        for i, count in enumerate(counts):
            if count != counts[0]:
                raise ValueError(
                    f"{layout.where(i, number)}: expected {counts[0]} samples, as "
                    f"{layout.path(0)} has, got {count}; the first axis of every leaf counts samples"
                )
        return counts[0]

    def _allocate(self, layout: Layout, first: int) -> None:
        """Makes room for all samples, if their number is known."""
        plan = self._plan
        if isinstance(plan, PlannedLength):
            # A collate function that leaves out samples, or makes more of them, makes the plan
            # void.
            self.expected = plan.samples if plan.first == first else None
        elif plan is not None:
            self.expected = self._total(layout, plan)
        if self.expected is None:
            return
        if self._limit is not None:
            self.expected = min(self.expected, self._limit)
        if self._wishes.output.in_memory:
            size = sum(column.size(self.expected) for column in layout.columns)
            require_memory(size, f"the result of {self.expected:,} samples needs")
        for i, column in enumerate(layout.columns):
            column.allocate(self.expected, layout.where(i, 0))

    def _total(self, layout: Layout, batches: Sequence[Any]) -> int | None:
        with contextlib.suppress(TypeError, ValueError):  # raised again when it is that one's turn
            return sum(
                self._count(layout, self._parts(layout, batch, number), number)
                for number, batch in enumerate(batches)
            )
        return None

    def _flush(self) -> None:
        """Writes the leaves that are being fetched."""
        if self._pending is None or self._layout is None:
            return
        fetched, self._pending = self._pending, None
        for i, leaf in zip(fetched.columns, fetched.transfer.wait(), strict=True):
            where = self._layout.where(i, fetched.batch)
            self._layout.columns[i].write(fetched.start, fetched.wanted, leaf, where)
        self._written = fetched.start + fetched.wanted
