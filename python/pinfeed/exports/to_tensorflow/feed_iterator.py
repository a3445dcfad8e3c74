"""Loops over datasets that have a loader at their beginning."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from typing import Any

from pinfeed.exports.to_tensorflow.failures import Failures
from pinfeed.optional import import_extra

tf: Any = import_extra("tensorflow", "tensorflow")


_in_use: weakref.WeakSet[Any] = weakref.WeakSet()  # of TensorFlow's own iterators


class FeedIterator(tf.data.Iterator):  # type: ignore[misc] # tf is Any
    """An iterator of TensorFlow that raises the errors of the loader.

    Args:
        element_spec: Of the dataset.
        begin: Makes TensorFlow's own iterator, which is done when it is needed.
        failures: Where the loader's errors go.
    """

    def __init__(self, element_spec: Any, begin: Callable[[], Any], failures: Failures) -> None:
        super().__init__()
        self._element_spec = element_spec
        self._begin = begin
        self._failures = failures
        self._own: Any = None

    @property
    def element_spec(self) -> Any:
        """See ``tf.data.Iterator``."""
        return self._element_spec

    def __next__(self) -> Any:
        return self._failures.surface(next, self._native())

    def get_next(self) -> Any:
        """See ``tf.data.Iterator``."""
        return self._failures.surface(self._native().get_next)

    def get_next_as_optional(self) -> Any:
        """See ``tf.data.Iterator``."""
        return self._failures.surface(self._native().get_next_as_optional)

    def _native(self) -> Any:
        """TensorFlow's own iterator."""
        if self._own is None:
            with tf.init_scope():  # out of the graph that asks for it, if one does
                self._own = self._begin()
            _in_use.add(self._own)
        return self._own

    # How a tf.function takes an iterator as an argument, and a checkpoint as a part.

    @property
    def _type_spec(self) -> Any:
        return tf.data.IteratorSpec(self._element_spec)

    def __tf_tracing_type__(self, context: Any) -> Any:
        return self._type_spec

    @property
    def _iterator_resource(self) -> Any:
        return self._native()._iterator_resource

    def _serialize_to_tensors(self) -> Any:
        return self._native()._serialize_to_tensors()


def _close_all() -> None:
    """Ends the threads of TensorFlow that may ask a loader, while they still can get an answer.

    One that wants to enter Python when the interpreter has ended never comes back, and TensorFlow
    would wait for it forever.
    """
    for iterator in list(_in_use):
        iterator._iterator_resource = None


atexit.register(_close_all)
