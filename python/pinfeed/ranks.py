"""Rank and world size of this process in a distributed job."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, Literal

import torch

from pinfeed.arguments import Problem, checked_integer

#: How to give all ranks the same number of samples: repeat some, drop some, or don't.
Uneven = Literal["repeat", "drop", "keep"]


def checked_ranks(rank: Any, world_size: Any, name: str) -> tuple[int, int] | None:
    """Validates rank and world size; returns None if both are None."""
    if (rank is None) != (world_size is None):
        raise ValueError(
            f"{name}: rank and world_size must both be given, or neither, got rank={rank!r} and "
            f"world_size={world_size!r}; pass both, or leave both out"
        )
    if rank is None:
        return None
    world_size = checked_integer(world_size, f"{name}: world_size", 1)
    rank = checked_integer(rank, f"{name}: rank", 0)
    if rank >= world_size:
        raise ValueError(f"{name}: rank must be below world_size={world_size}, got {rank}")
    return rank, world_size


def group_ranks() -> tuple[int, int] | None:
    """Returns rank and world size of torch's process group, or None without one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return None


def ranks_now(name: str) -> tuple[int, int]:
    """Returns rank and world size of the process group, else of the environment, else (0, 1)."""
    return group_ranks() or environment_ranks(name)


def environment_ranks(name: str) -> tuple[int, int]:
    """Returns ``RANK`` and ``WORLD_SIZE`` as torchrun sets them; without them, (0, 1)."""
    texts = [os.environ.get(variable) for variable in ("RANK", "WORLD_SIZE")]
    if texts == [None, None]:
        return 0, 1
    try:
        rank, world_size = (int(text or "") for text in texts)
    except ValueError:
        rank, world_size = 0, 0
    if not 0 <= rank < world_size:
        raise ValueError(
            f"{name}: expected integers 0 <= RANK < WORLD_SIZE in the environment, as "
            f"torchrun sets them, got RANK={texts[0]!r} and WORLD_SIZE={texts[1]!r}; unset both, "
            "or pass rank and world_size"
        )
    return rank, world_size


def different_steps(name: str, positions: Iterable[tuple[int, str]]) -> ValueError:
    """Returns the error of states that ranks saved after different steps, from each rank's position."""
    texts = ", ".join(f"rank {rank} has {position}" for rank, position in positions)
    text = f"the states of all ranks must be at the same step, but {texts}"
    return ValueError(
        Problem(name, text, hint="load states that all ranks saved after the same step")
    )


def ranks_on_this_machine() -> int:
    """Returns the number of ranks that torchrun started on this machine, or 1."""
    text = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(text)) if text.isdecimal() else 1


def is_accelerate_in_charge() -> bool:
    """Whether Hugging Face's accelerate runs several processes."""
    accelerate = sys.modules.get("accelerate")
    return (
        accelerate is not None
        and accelerate.state.is_initialized()
        and accelerate.PartialState().num_processes > 1
    )


def prepared_loader() -> Any:
    """Returns accelerate's prepared loader whose loop began last, if it shards over processes."""
    if not is_accelerate_in_charge():
        return None
    return sys.modules["accelerate"].state.GradientState().active_dataloader
