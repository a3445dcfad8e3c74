"""Which of the processes of a distributed job this is."""

from __future__ import annotations

import operator
import os
from typing import Any

import torch


def checked_integer(value: Any, name: str, least: int) -> int:
    """An integer that is at least ``least``.

    Raises:
        TypeError: It is no integer.
        ValueError: It is less.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"StreamDataset: {name} must be an integer, got {value!r}")
    if number < least:
        raise ValueError(f"StreamDataset: {name} must be at least {least}, got {number}")
    return number


def checked_ranks(rank: Any, world_size: Any) -> tuple[int, int] | None:
    """What the caller said, or None if that is nothing."""
    if (rank is None) != (world_size is None):
        raise ValueError(
            "StreamDataset: expected both rank and world_size, or neither, "
            f"got rank={rank!r} and world_size={world_size!r}"
        )
    if rank is None:
        return None
    world_size = checked_integer(world_size, "world_size", 1)
    rank = checked_integer(rank, "rank", 0)
    if rank >= world_size:
        raise ValueError(f"StreamDataset: rank must be below world_size={world_size}, got {rank}")
    return rank, world_size


def group_ranks() -> tuple[int, int] | None:
    """Rank and world size of torch's process group, or None where there is none."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return None


def environment_ranks() -> tuple[int, int]:
    """What ``RANK`` and ``WORLD_SIZE`` say, as torchrun sets them; without them, one rank."""
    texts = [os.environ.get(name) for name in ("RANK", "WORLD_SIZE")]
    if texts == [None, None]:
        return 0, 1
    try:
        rank, world_size = (int(text or "") for text in texts)
    except ValueError:
        rank, world_size = 0, 0
    if not 0 <= rank < world_size:
        raise ValueError(
            "StreamDataset: expected integers 0 <= RANK < WORLD_SIZE in the environment, as "
            f"torchrun sets them, got RANK={texts[0]!r} and WORLD_SIZE={texts[1]!r}; unset both, "
            "or pass rank and world_size"
        )
    return rank, world_size
