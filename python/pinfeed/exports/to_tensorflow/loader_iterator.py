"""Loops over the batches of a loader themselves."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from pinfeed.exports.to_tensorflow.epoch import Epoch
from pinfeed.exports.to_tensorflow.failures import Failures
from pinfeed.exports.to_tensorflow.feed_iterator import FeedIterator
from pinfeed.exports.to_tensorflow.layout import Layout
from pinfeed.optional import import_extra

tf: Any = import_extra("tensorflow", "tensorflow")


class LoaderIterator(FeedIterator):
    """Runs the loader in the thread that loops, until a tf.function takes the iterator over.

    TensorFlow's own threads would take longer for a small batch than the loader does.

    Args:
        epoch: The pass over the loader.
        layout: Of its batches.
        element_spec: Of the dataset.
        begin: Makes TensorFlow's own iterator, over what is left of the epoch.
        failures: Where the loader's errors go in TensorFlow's threads.
    """

    def __init__(
        self,
        epoch: Epoch,
        layout: Layout,
        element_spec: Any,
        begin: Callable[[], Any],
        failures: Failures,
    ) -> None:
        super().__init__(element_spec, begin, failures)
        self._epoch = epoch
        self._layout = layout

    def __next__(self) -> Any:
        if self._is_taken():
            return super().__next__()
        return self._layout.element(*itertools.chain.from_iterable(next(self._epoch)))

    def get_next(self) -> Any:
        """See ``tf.data.Iterator``."""
        if self._is_taken():
            return super().get_next()
        try:
            return next(self)
        except StopIteration:
            raise tf.errors.OutOfRangeError(None, None, "End of sequence") from None

    def get_next_as_optional(self) -> Any:
        """See ``tf.data.Iterator``."""
        if self._is_taken():
            return super().get_next_as_optional()
        try:
            return tf.experimental.Optional.from_value(next(self))
        except StopIteration:
            return tf.experimental.Optional.empty(self._element_spec)

    def _is_taken(self) -> bool:
        return self._own is not None or not tf.executing_eagerly()
