"""Libraries that only some users need, imported on first use."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any


def import_extra(module: str, extra: str) -> Any:
    """Imports a module, such as ``"pyarrow.parquet"``, that an extra, such as ``"arrow"``, brings."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module.partition('.')[0]} is not installed: pip install '.[{extra}]' in a checkout of pinfeed"
        ) from error


def add_note(error: BaseException, note: str) -> None:
    """Adds a note, if the exception takes one.

    Those that refuse attributes (frozen dataclasses) don't, and must be raised all the same.
    """
    with contextlib.suppress(Exception):
        error.add_note(note)
