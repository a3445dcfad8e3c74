"""Progress: a live bar on a terminal, one finished line per bar in a log."""

import sys
import time
from typing import Self

from pinfeed.demo.extra import import_demo_extra


class Progress:
    """A tqdm bar on standard error.

    A bar redraws its line with carriage returns, which makes a log unreadable; where standard error
    isn't a terminal the bar is written once, when it is full.

    Args:
        name: What stands before the bar.
        total: Number of steps.
        unit: What one step is, for the rate.
    """

    def __init__(self, name: str, total: int, unit: str) -> None:
        """Shows an empty bar."""
        self._tqdm = import_demo_extra("tqdm").tqdm
        self._bar = self._tqdm(desc=name, total=total, unit=unit, disable=None)
        # Asked now, because close() disables a live bar too.
        self._live = not self._bar.disable
        self._name, self._total, self._unit = name, total, unit
        self._note = ""
        self._start = time.perf_counter()

    def __enter__(self) -> Self:
        """Gives the bar to the ``with`` block."""
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        """Ends the line of the bar; in a log, writes it, unless the block failed."""
        self._bar.close()
        if not self._live and error_type is None:
            line = self._tqdm.format_meter(
                self._total,
                self._total,
                time.perf_counter() - self._start,
                prefix=self._name,
                unit=self._unit,
                postfix=self._note,
                bar_format="{desc}: {percentage:3.0f}%|{bar:20}| {n_fmt}/{total_fmt} "
                "[{elapsed}, {rate_fmt}{postfix}]",
            )
            print(line, file=sys.stderr, flush=True)

    def advance(self, note: str = "") -> None:
        """Moves on by one, and shows the note behind the bar."""
        self._note = note
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update()
