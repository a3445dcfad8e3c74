"""Thread counts, and detection of DataLoader workers."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import torch

from pinfeed.arguments import checked_integer

_MAX_THREADS = 65536
_num_threads: int | None = None
_is_worker: bool | None = None  # None: not decided since this process began
#: Known not to be a DataLoader worker or forked by one. Read several times per batch.
is_main = False
_inherited: Any = None  # the process object of the parent, in a forked process


def set_num_threads(count: int | None) -> None:
    """Sets the number of threads for native work, including the calling thread.

    It has no effect in DataLoader workers, which use one thread.

    Args:
        count: Number of threads, 1 to 65536. None follows ``torch.get_num_threads()``.

    Raises:
        TypeError: If ``count`` is not an integer.
        ValueError: If ``count`` is out of range.

    Example:
        >>> pinfeed.set_num_threads(1)
        >>> pinfeed.get_num_threads()
        1
        >>> pinfeed.set_num_threads(None)
    """
    global _num_threads
    if count is not None:
        count = checked_integer(count, "set_num_threads: count", 1, _MAX_THREADS)
    _num_threads = count


def is_worker_process() -> bool:
    """Whether this process is a DataLoader worker, or was forked by one.

    torch's worker info alone does not tell: worker threads of torchdata have one too, and belong to
    the main process.
    """
    return _decided() if _is_worker is None else _is_worker


def _decided() -> bool:
    """Whether this process is a worker; cached as soon as it can't change any more."""
    global _is_worker, is_main
    process = multiprocessing.current_process()
    loop = getattr(process, "_target", None)  # of torch or torchdata
    if getattr(loop, "__name__", "") == "_worker_loop":
        if torch.utils.data.get_worker_info() is None:  # the loop is about to begin
            return False
        _is_worker = True
    elif process is not _inherited and not hasattr(process, "_inheriting"):
        _is_worker, is_main = False, True
    return bool(_is_worker)  # otherwise the object is still the parent's


def _after_fork() -> None:
    global _is_worker, is_main, _inherited
    _is_worker, is_main, _inherited = None, False, multiprocessing.current_process()


os.register_at_fork(after_in_child=_after_fork)


def get_num_threads() -> int:
    """Returns the number of threads for native work.

    1 in a DataLoader worker; otherwise the value of `set_num_threads`, or ``torch.get_num_threads()``.
    """
    if not is_main and is_worker_process():
        return 1
    return torch.get_num_threads() if _num_threads is None else _num_threads
