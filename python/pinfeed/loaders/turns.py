"""Whose turn it is at a loader."""

from __future__ import annotations

import os
import threading
import weakref


class Turns:
    """Threads take turns at a loader.

    Attributes:
        lock: Held while the loader works. A thread that has it can take it again, since a signal
            handler can't wait for what it interrupted. A forked process has another: there, nobody
            would ever release this one.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        _all.add(self)


def _begin_anew() -> None:
    for turns in _all:
        turns.lock = threading.RLock()


_all: weakref.WeakSet[Turns] = weakref.WeakSet()
os.register_at_fork(after_in_child=_begin_anew)
