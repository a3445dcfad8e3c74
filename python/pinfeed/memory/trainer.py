"""The trainer's side of the arena: making it before workers start, handing it over, limiting it."""

from __future__ import annotations

import dataclasses
import logging
import os
import resource
import sys
import weakref
from multiprocessing import context, process, reduction
from pathlib import Path
from typing import Any

from pinfeed import _core
from pinfeed.arguments import checked_integer
from pinfeed.limits import free_memory
from pinfeed.runtime import is_worker_process

logger = logging.getLogger("pinfeed")

#: How loudly the log says that there is no arena: only where one could have been expected.
LOG_LEVEL = logging.WARNING if hasattr(os, "memfd_create") else logging.INFO

# Addresses are plenty, and pages that nobody wrote cost nothing. Slots of one size are not used for
# much smaller batches, so that there may have to be many.
_ADDRESSES_PER_BYTE_OF_MEMORY = 16
#: Where the process's addresses are limited, the share of them that an arena takes.
_SHARE_OF_LIMITED_ADDRESSES = 4

_STATISTICS = (
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

_wanted = False  # a Collate exists, so workers of this process may need an arena
_max_bytes: int | None = None  # what the user asked for
_arenas: dict[int, _core.Arena] = {}  # by id; two if two threads made the first at once
_mine: _core.Arena | None = None  # the last one made, perhaps by such a process
_creator = 0  # the process that made it
_refused: str | None = None  # why there is none
_offered_to: weakref.WeakSet[Any] = weakref.WeakSet()  # processes being spawned


def arena_stats() -> dict[str, int]:
    """How much memory this process shares with its DataLoader workers, and how it was used.

    Returns:
        A dict of integers. ``slots`` counts the places for arrays made so far, ``live_slots`` and
        ``live_bytes`` those in use: being written, on their way, or viewed by a tensor of this
        process. ``resident_bytes`` is what all slots take now, ``high_water`` the most they ever
        took, ``max_bytes`` what they may. ``grows`` counts the times a slot got memory, ``waits``
        the arrays that had to wait for room, ``workers`` the processes that write: each from its
        first batch on, until it ends. All are 0 before the first workers start, and where there is
        no arena.

    Example:
        >>> sorted(pinfeed.arena_stats())[:4]
        ['grows', 'high_water', 'live_bytes', 'live_slots']
    """
    arena = own_arena()
    if arena is None:
        return dict.fromkeys(_STATISTICS, 0)
    arena.sweep()  # processes that have ended don't count, nor does what they held
    return arena.stats()


def set_arena_limit(max_bytes: int | None) -> None:
    """Sets how much memory the batches of this process's DataLoader workers may take together.

    Workers that reach the limit wait until the trainer lets a batch go; when it has read
    everything and keeps its batches, they raise MemoryError after half a minute. Running workers obey
    at once. What is in use already stays.

    Args:
        max_bytes: At least 1 MiB and less than 2**63, or None for half of the memory that is free
            now, divided among the ranks that torchrun started on this machine, which is the default.

    Raises:
        TypeError: ``max_bytes`` is no integer.
        ValueError: ``max_bytes`` is too small or too large.

    Example:
        >>> pinfeed.set_arena_limit(4 * 2**30)
        >>> pinfeed.set_arena_limit(None)
    """
    global _max_bytes
    if max_bytes is not None:
        max_bytes = checked_integer(max_bytes, "set_arena_limit: max_bytes", 2**20, sys.maxsize)
    _max_bytes = max_bytes
    arena = own_arena()
    if arena is not None:
        arena.set_max_bytes(_limit(_physical_memory()))


@dataclasses.dataclass(frozen=True)
class Offer:
    """An arena on its way to a process that is being spawned."""

    trainer: int  # the process number
    descriptor: Any  # reduction.DupFd; None if an earlier offer brought it


def want_arena() -> None:
    """Notes that workers of this process, and of its children, will need an arena."""
    global _wanted
    if _wanted:
        return
    _wanted = True
    os.register_at_fork(before=_before_fork)
    # Now, for a worker that is spawned may look for it; but not for what is being spawned itself,
    # most likely as a worker.
    if not getattr(process.current_process(), "_inheriting", False):
        _before_fork()


def _before_fork() -> None:
    # A worker's children are no workers.
    if not is_worker_process():
        ensure_arena()


def offer_arena() -> Offer | None:
    """What a Collate takes along to a process that is being spawned; None at other times."""
    popen = context.get_spawning_popen()
    if popen is None or is_worker_process():
        return None
    arena = ensure_arena()
    if arena is None:
        return None
    if popen in _offered_to:  # a descriptor can be handed over only once
        return Offer(os.getpid(), None)
    _offered_to.add(popen)
    return Offer(os.getpid(), reduction.DupFd(arena.descriptor))


def ensure_arena() -> _core.Arena | None:
    """This process's arena, made if need be; None if it can't be had, which is logged once."""
    global _mine, _creator, _refused
    arena = own_arena()
    if arena is not None:
        return arena
    try:
        memory = _physical_memory()
        arena = _core.Arena.create(_addresses(memory), _limit(memory))
    except (OSError, RuntimeError, MemoryError) as error:
        if _refused is None:
            logger.log(
                LOG_LEVEL,
                "no arena for batches of workers, torch's shared memory serves: %s",
                error,
            )
        _refused = str(error)
        return None
    _refused = None
    _arenas[arena.id] = arena
    _mine, _creator = arena, os.getpid()
    return arena


def own_arena() -> _core.Arena | None:
    """This process's arena; None if it has none yet."""
    return _mine if _mine is not None and _mine.is_mine else None


def inherited_arena(trainer: int) -> _core.Arena | None:
    """The arena that a process made before it forked this one, if it did."""
    return _mine if _creator == trainer else None


def find_arena(number: int) -> _core.Arena | None:
    """The arena of this process that has this id."""
    arena = _arenas.get(number)
    return arena if arena is not None and arena.is_mine else None


def refusal() -> str | None:
    """Why this process has no arena; None if it has one or did not try."""
    return _refused


def _limit(memory: int) -> int:
    """What the user asked for, or this rank's share of half of the memory that is free now.

    Args:
        memory: What the machine has, where nothing tells how much is free.
    """
    if _max_bytes is not None:
        return _max_bytes
    free = free_memory()
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # that torchrun started on this machine
    return (memory if free is None else free) // (2 * max(ranks, 1))


def _addresses(memory: int) -> int:
    """How many bytes of addresses the arena takes."""
    wanted = _ADDRESSES_PER_BYTE_OF_MEMORY * memory
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or not Path("/proc/self/statm").exists():
        return wanted
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    return min(wanted, max(limit - used, 0) // _SHARE_OF_LIMITED_ADDRESSES)


def _physical_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
