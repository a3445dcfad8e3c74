"""Memory that DataLoader's processes share."""

from __future__ import annotations

import os
from typing import Any

import torch


def new_shared_storage(size: int, user: str) -> Any:
    """An untyped storage of ``size`` bytes that travels to another process as a handle.

    Args:
        size: At least 1.
        user: Whom an error names.

    Raises:
        OSError: There is no room for it.
    """
    try:
        return torch.UntypedStorage._new_shared(size)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise OSError(
            f"{user}: no room for {size:,} bytes of shared memory{_free_text()}: "
            f"{error}; make /dev/shm larger (docker run --shm-size=16g or --ipc=host; elsewhere "
            "mount -o remount,size=16g /dev/shm), or have less under way: fewer workers, a smaller "
            "prefetch_factor, smaller batches"
        ) from error


def _free_text() -> str:
    try:
        room = os.statvfs("/dev/shm")
    except OSError:  # no Linux
        return ""
    free, whole = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    return f" (/dev/shm has {free:,} of {whole:,} bytes free)"
