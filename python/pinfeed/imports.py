"""Imports on first use: optional libraries, and public names that most programs don't need."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, str], submodules: Sequence[str]
) -> Callable[[str], Any]:
    """Returns the ``__getattr__`` of a package.

    Args:
        package: The package's name.
        modules: The module of each name; an empty string if the name is itself a module.
        submodules: The public modules, for the hint about names in them.
    """

    def __getattr__(name: str) -> Any:
        if name not in modules:
            parts = [] if name.startswith("_") else [f"{package}.{part}" for part in submodules]
            homes = [part for part in parts if name in importlib.import_module(part).__all__]
            hint = f"; use {homes[0]}.{name}" if homes else ""
            text = f"module {package!r} has no attribute {name!r}{hint}"
            raise AttributeError(text, name=name, obj=sys.modules[package])  # for Python's own hint
        if not modules[name]:
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__


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


def noted(samples: Iterable[Any], note: str) -> Iterator[Any]:
    """Yields the samples; adds a note, which the sample's number ends, to errors of the iterable."""
    iterator = iter(samples)
    for number in itertools.count():
        try:
            sample = next(iterator)
        except StopIteration:
            return
        except Exception as error:
            add_note(error, f"{note} {number}")
            raise
        yield sample
