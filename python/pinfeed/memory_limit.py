"""How much of its memory a process may spend on mapped files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_SHARE = 4


def mapping_budget() -> int:
    """Bytes of files that pinfeed maps at most: a quarter of what this process may still take.

    That is what the system has available, or less where a control group or a limit of the process
    (``RLIMIT_AS``, ``RLIMIT_DATA``, ``RLIMIT_RSS``) allows less.
    """
    # Here, because draining is made of sources itself.
    from pinfeed.draining.free_memory import free_memory

    limits = list(_process_limits())
    free = free_memory()
    if free is not None:
        limits.append(free)
    return min(limits, default=0) // _SHARE


def _process_limits() -> Iterator[int]:
    with contextlib.suppress(ImportError):
        import resource

        for name in (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_RSS):
            soft, _ = resource.getrlimit(name)
            if soft != resource.RLIM_INFINITY:
                yield soft
