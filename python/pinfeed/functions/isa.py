"""Forcing an instruction set, in the core and in the torch ops."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pinfeed import _core
from pinfeed.functions.torch_ops import force_isa


@contextlib.contextmanager
def use_isa(name: str) -> Iterator[None]:
    """Forces one instruction set for the whole process while the context is open; for tests.

    Args:
        name: One of ``build_config()["isa"]["available"]``, such as ``"scalar"`` or ``"avx2"``.

    Raises:
        ValueError: This build or this CPU has no such instruction set.

    Example:
        >>> with pinfeed.use_isa("scalar"):
        ...     pinfeed.build_config()["isa"]["active"]
        'scalar'
    """
    before = _core.active_isa()
    if not isinstance(name, str) or not _core.force_isa(name):
        raise ValueError(
            f"use_isa: name must be one of {_core.available_isas()} on this machine, got {name!r}"
        )
    force_isa(name)
    try:
        yield
    finally:
        _core.force_isa(before)
        force_isa(before)
