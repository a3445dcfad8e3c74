"""What is shown while samples are copied."""

from __future__ import annotations

from typing import Any, Self

from pinfeed.optional import import_extra


class Progress:
    """A tqdm bar of samples, with their rate and bytes; or nothing.

    Args:
        shown: Whether there is a bar.
        function: What is written in front of it.

    Raises:
        ImportError: tqdm isn't installed.
    """

    def __init__(self, shown: bool, function: str) -> None:
        self._bar: Any = None
        self._bytes = 0
        if shown:
            tqdm = import_extra("tqdm.auto", "progress").tqdm
            self._bar = tqdm(desc=function, unit=" samples", unit_scale=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, samples: int, size: int, total: int | None) -> None:
        """Counts a batch of so many samples and bytes.

        Args:
            samples: In the batch.
            size: Of the batch, in bytes.
            total: How many samples there are going to be, as far as is known.
        """
        if self._bar is None:
            return
        self._bytes += size
        self._bar.total = total
        self._bar.set_postfix_str(self._bar.format_sizeof(self._bytes, "B"), refresh=False)
        self._bar.update(samples)
