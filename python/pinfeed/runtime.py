"""Threads, instruction sets and what this build is made of."""

from __future__ import annotations

import multiprocessing
from typing import Any

import torch

from pinfeed.arguments import checked_integer

_MOST_THREADS = 65536
_num_threads: int | None = None
_process: Any = None  # what `_is_worker_loop` is about; another object after a fork
_is_worker_loop = False


def set_num_threads(count: int | None) -> None:
    """Sets how many threads native work may use, the calling one included.

    Args:
        count: From 1 to 65536, or None to follow ``torch.get_num_threads()`` again.

    Raises:
        TypeError: ``count`` is no integer.
        ValueError: ``count`` is out of range.

    Example:
        >>> pinfeed.set_num_threads(1)
        >>> pinfeed.get_num_threads()
        1
        >>> pinfeed.set_num_threads(None)
    """
    global _num_threads
    if count is not None:
        count = checked_integer(count, "set_num_threads: count", 1, _MOST_THREADS)
    _num_threads = count


def is_worker_process() -> bool:
    """Whether this process is a worker that a DataLoader started, or was forked by one.

    The process decides, not torch's worker info alone: threads that work for a DataLoader have one
    too, and they belong to the main process.
    """
    global _process, _is_worker_loop
    process = multiprocessing.current_process()
    if process is not _process:
        loop = getattr(process, "_target", None)  # torch's, or torchdata's
        _is_worker_loop = getattr(loop, "__name__", "") == "_worker_loop"
        _process = process
    return _is_worker_loop and torch.utils.data.get_worker_info() is not None


def get_num_threads() -> int:
    """The number of threads that native work uses now.

    In a DataLoader worker 1, since the workers share the CPUs among themselves; elsewhere what
    `set_num_threads` set; otherwise ``torch.get_num_threads()``.
    """
    if is_worker_process():
        return 1
    return torch.get_num_threads() if _num_threads is None else _num_threads
