"""Keeps threads of TensorFlow out of Python when the process ends."""

from __future__ import annotations

import atexit
import threading
from types import TracebackType

# How long the end of the process waits for a loader that is busy.
_SECONDS = 5.0


class ExitGate:
    """A context for what such a thread does in Python; closed, it raises StopIteration.

    A thread that is in Python when the interpreter ends never comes out again, and TensorFlow would
    wait for it forever.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._is_closed = False

    def __enter__(self) -> None:
        with self._changed:
            if self._is_closed:
                raise StopIteration
            self._inside += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Lets nobody in, and waits a while until everybody is out."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: self._inside == 0, _SECONDS)


exit_gate = ExitGate()
atexit.register(exit_gate.close)
