"""Optional libraries, imported on first use."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any


def import_extra(module: str, extra: str) -> Any:
    """Imports a module, such as ``"pyarrow.parquet"``, of an extra, such as ``"arrow"``."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module.partition('.')[0]} is not installed: pip install '.[{extra}]' in a checkout of pinfeed"
        ) from error


def add_note(error: BaseException, note: str) -> None:
    """Adds a note if the exception allows it; exceptions that are frozen dataclasses don't."""
    with contextlib.suppress(Exception):
        error.add_note(note)
