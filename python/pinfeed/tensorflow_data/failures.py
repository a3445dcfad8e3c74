"""What a loader raises in a thread of TensorFlow, on its way to whoever loops over the dataset."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from pinfeed.extras import import_extra

tf: Any = import_extra("tensorflow", "tensorflow")


class Failures:
    """Keeps an error of the loader until TensorFlow reports it.

    What comes out of TensorFlow is an error of its own that only quotes the loader's.
    """

    def __init__(self) -> None:
        self._last: BaseException | None = None

    def keep(self, error: BaseException) -> None:
        """Keeps an error that TensorFlow is about to get."""
        # Variables in its frames would keep the loader's iterator alive, and its workers with it.
        traceback.clear_frames(error.__traceback__)
        self._last = error

    def surface(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a function of TensorFlow; raises the loader's error where that is the reason."""
        try:
            return function(*args, **kwargs)
        except tf.errors.OpError as report:
            error = self._reason(report)
            if error is None:
                raise
        try:
            raise error
        finally:
            del (
                error
            )  # which knows this frame, and with it the iterator, whose threads would run on

    def _reason(self, report: Any) -> BaseException | None:
        """The error that the report quotes."""
        error = self._last
        if error is None or f"{type(error).__name__}: {error}"[:200] not in report.message:
            return None
        self._last = None
        return error
