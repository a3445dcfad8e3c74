"""Libraries that only some users need, imported on first use."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any


class MissingExtraError(ImportError):
    """A library of an optional extra is not installed; the message says what to install."""


def import_extra(module: str, extra: str) -> Any:
    """Imports a module, such as ``"sklearn.datasets"``, that an extra, such as ``"demo"``, brings."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{module.partition('.')[0]} is not installed: pip install '.[{extra}]' in a checkout of pinfeed"
        ) from error


def add_note(error: BaseException, note: str) -> None:
    """Adds a note, if the exception takes one.

    Those that refuse attributes (frozen dataclasses) don't, and must be raised all the same.
    """
    with contextlib.suppress(Exception):
        error.add_note(note)
