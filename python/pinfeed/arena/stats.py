"""What a user sees and sets of the arena."""

from __future__ import annotations

import operator

from pinfeed.arena import trainer


def arena_stats() -> dict[str, int]:
    """How much memory this process shares with its DataLoader workers, and how it was used.

    Returns:
        A dict of integers. ``slots`` counts the places for arrays made so far, ``live_slots`` and
        ``live_bytes`` those in use: being written, on their way, or viewed by a tensor of this
        process. ``resident_bytes`` is what all slots take now, ``high_water`` the most they ever
        took, ``max_bytes`` what they may. ``grows`` counts the times a slot got memory, ``waits``
        the arrays that had to wait for room, ``workers`` the processes that write, as far as known.
        All are 0 before the first workers start, and where there is no arena.

    Example:
        >>> sorted(pinfeed.arena_stats())[:4]
        ['grows', 'high_water', 'live_bytes', 'live_slots']
    """
    arena = trainer.own_arena()
    if arena is None:
        return dict.fromkeys(_NAMES, 0)
    return arena.stats()


def set_arena_limit(max_bytes: int | None) -> None:
    """Sets how much memory the batches of this process's DataLoader workers may take together.

    Workers that reach the limit wait until the trainer lets a batch go; when it has read
    everything and keeps its batches, they raise MemoryError after half a minute. Running workers obey
    at once. What is in use already stays.

    Args:
        max_bytes: At least 1 MiB, or None for half of the memory that is free now, divided among
            the ranks that torchrun started on this machine, which is the default.

    Raises:
        TypeError: ``max_bytes`` is no integer.
        ValueError: ``max_bytes`` is too small.

    Example:
        >>> pinfeed.set_arena_limit(4 * 2**30)
        >>> pinfeed.set_arena_limit(None)
    """
    if max_bytes is not None:
        max_bytes = operator.index(max_bytes)
        if max_bytes < 2**20:
            raise ValueError(
                f"set_arena_limit: max_bytes must be at least {2**20:,} (1 MiB), got {max_bytes:,}"
            )
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
)
