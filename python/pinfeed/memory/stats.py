"""What a user sees and sets of the arena."""

from __future__ import annotations

import sys

from pinfeed.arguments import checked_integer
from pinfeed.memory import pinning, trainer


def arena_stats() -> dict[str, int]:
    """How much memory this process shares with its DataLoader workers, and how it was used.

    Returns:
        A dict of integers. ``slots`` counts the places for arrays made so far, ``live_slots`` and
        ``live_bytes`` those in use: being written, on their way, or viewed by a tensor of this
        process. ``resident_bytes`` is what all slots take now, ``high_water`` the most they ever
        took, ``max_bytes`` what they may. ``grows`` counts the times a slot got memory, ``waits``
        the arrays that had to wait for room, ``workers`` the processes that write: each from its first batch on, until it ends.
        ``pinned_bytes`` is what devices copy from by themselves; it grows when batches arrive in a
        process that uses CUDA, and stays.
        All are 0 before the first workers start, and where there is no arena.

    Example:
        >>> sorted(pinfeed.arena_stats())[:4]
        ['grows', 'high_water', 'live_bytes', 'live_slots']
    """
    arena = trainer.own_arena()
    if arena is None:
        return dict.fromkeys(_NAMES, 0)
    arena.sweep()  # processes that have ended don't count, nor does what they held
    return arena.stats() | {"pinned_bytes": pinning.pinned_bytes(arena)}


def set_arena_limit(max_bytes: int | None) -> None:
    """Sets how much memory the batches of this process's DataLoader workers may take together.

    Workers that reach the limit wait until the trainer lets a batch go; when it has read
    everything and keeps its batches, they raise MemoryError after half a minute. Running workers obey
    at once. What is in use already stays.

    Args:
        max_bytes: At least 1 MiB and less than 2**63, or None for half of the memory that is free now, divided among
            the ranks that torchrun started on this machine, which is the default.

    Raises:
        TypeError: ``max_bytes`` is no integer.
        ValueError: ``max_bytes`` is too small or too large.

    Example:
        >>> pinfeed.set_arena_limit(4 * 2**30)
        >>> pinfeed.set_arena_limit(None)
    """
    if max_bytes is not None:
        max_bytes = checked_integer(max_bytes, "set_arena_limit: max_bytes", 2**20, sys.maxsize)
    trainer.limit(max_bytes)


_NAMES = (
    "slots",
    "live_slots",
    "live_bytes",
    "resident_bytes",
    "high_water",
    "max_bytes",
    "grows",
    "waits",
    "workers",
    "pinned_bytes",
)
