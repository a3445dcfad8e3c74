"""Notes on other people's exceptions."""

from __future__ import annotations

import contextlib


def add_note(error: BaseException, note: str) -> None:
    """Adds a note, if the exception takes one.

    Those that refuse attributes (frozen dataclasses) don't, and must be raised all the same.
    """
    with contextlib.suppress(Exception):
        error.add_note(note)
