"""One pass over the loader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pinfeed.exports.to_tensorflow.layout import Layout, Parts
from pinfeed.exports.to_tensorflow.passes import Passes


class Epoch(Iterator[Any]):
    """The batches of one pass, as plain tensors of TensorFlow, leaf by leaf.

    It begins when its first batch is asked for: Keras makes iterators that it never uses.

    Args:
        passes: Over the loader.
        layout: Of its batches.
        length: How many batches there are, None if that is not known.
        limit: The most samples to take.
    """

    def __init__(
        self, passes: Passes, layout: Layout, length: int | None, limit: int | None
    ) -> None:
        self._passes = passes
        self._layout = layout
        self._length = length
        self._limit = limit
        self._ahead: list[Any] = []
        self._rest: Iterator[Any] | None = None
        self._is_closed = False
        self._batches = 0
        self._samples = 0

    @property
    def has_begun(self) -> bool:
        """Whether a batch was asked for."""
        return self._rest is not None or self._is_closed

    def __next__(self) -> Parts:
        if self._is_closed:
            raise StopIteration
        if self._rest is None:
            self._ahead, self._rest = self._passes.begin()
        try:
            batch = self._ahead.pop() if self._ahead else next(self._rest)
        except StopIteration:
            self.close()
            self._passes.end(self._batches)
            if self._length not in (None, self._batches):
                raise self._wrong_length() from None
            raise
        number, self._batches = self._batches, self._batches + 1
        if number == self._length:
            raise self._wrong_length()
        return self._limited(self._layout.parts(batch, number), number)

    def close(self) -> None:
        """Lets go of the loader's iterator, which ends its workers; there are no more batches."""
        self._is_closed = True
        self._ahead, self._rest = [], None

    def _limited(self, parts: Parts, number: int) -> Parts:
        if self._limit is None:
            return parts
        count, wanted = self._layout.count(parts, number), self._limit - self._samples
        self._samples += count
        if count >= wanted:
            self.close()
        return parts if count <= wanted else self._layout.first(parts, wanted)

    def _wrong_length(self) -> ValueError:
        got = "more" if self._batches > (self._length or 0) else str(self._batches)
        return ValueError(
            f"to_tensorflow: expected {self._length} batches, as len(loader) says, got {got}; "
            "a loader that can't know should have no len(): (batch for batch in loader), say"
        )
