"""What a loader raises in a thread of TensorFlow, on its way to whoever loops over the dataset."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from pinfeed.optional import import_extra

tf: Any = import_extra("tensorflow", "tensorflow")


class Failures:
    """Keeps an error of the loader until TensorFlow reports it.

    What comes out of TensorFlow is an error of its own that only quotes the loader's.
    """

    def __init__(self) -> None:
        self._last: BaseException | None = None
        self._quote = ""  # how a report begins that is about it

    def keep(self, error: BaseException) -> BaseException:
        """Keeps an error of the loader.

        Returns:
            What TensorFlow is to get: the error, or one in its stead where it can't read the text.
        """
        # Variables in its frames would keep the loader's iterator alive, and its workers with it.
        traceback.clear_frames(error.__traceback__)
        told = _readable(error)
        self._last, self._quote = error, f"{type(told).__name__}: {told}"[:200]
        return told

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
            del error  # as in LoaderSource

    def _reason(self, report: Any) -> BaseException | None:
        """The error that the report quotes."""
        error = self._last
        if error is None or self._quote not in report.message:
            return None
        self._last = None
        return error


def _readable(error: BaseException) -> BaseException:
    """The error if its text is UTF-8 without NUL; all else TensorFlow cuts, or crashes on it.

    The name of a file that is no UTF-8 has surrogates, for one.
    """
    try:
        text = str(error)
    except Exception as why:  # noqa: BLE001, it is the loader's code
        text = f"its text can't be had: {type(why).__name__}"
    else:
        escaped = text.encode(errors="backslashreplace").decode().replace("\0", "\\0")
        if escaped == text:
            return error
        text = escaped
    return RuntimeError(f"{type(error).__name__}: {text}").with_traceback(error.__traceback__)
