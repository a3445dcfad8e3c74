"""Whose turn it is at a loader."""

from __future__ import annotations

import threading


class Turns:
    """Threads take turns at a loader.

    Attributes:
        lock: Held while the loader works. A thread that has it can take it again, since a signal
            handler can't wait for what it interrupted.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
