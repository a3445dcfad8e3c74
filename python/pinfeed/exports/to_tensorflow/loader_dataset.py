"""The dataset of a loader's batches."""

from __future__ import annotations

import functools
from typing import Any

from pinfeed.exports.to_tensorflow.dataset import LoaderSource
from pinfeed.exports.to_tensorflow.epoch import Epoch
from pinfeed.exports.to_tensorflow.failures import Failures
from pinfeed.exports.to_tensorflow.feed_dataset import FeedDataset
from pinfeed.exports.to_tensorflow.layout import Layout
from pinfeed.exports.to_tensorflow.loader_iterator import LoaderIterator
from pinfeed.exports.to_tensorflow.passes import Passes
from pinfeed.optional import import_extra

tf: Any = import_extra("tensorflow", "tensorflow")


class LoaderDataset(FeedDataset):
    """The batches of a loader.

    A loop in Python takes them from the loader itself. All else in TensorFlow, that is
    ``model.fit``, a ``tf.function`` and other datasets made of this one, has them from a
    `LoaderSource`.

    Args:
        passes: Over the loader.
        layout: Of its batches.
        limit: The most samples to take in each epoch.
        is_counted: Whether every epoch must have as many batches as the loader says, if it knows.
    """

    def __init__(
        self, passes: Passes, layout: Layout, limit: int | None, is_counted: bool = True
    ) -> None:
        length = passes.length() if limit is None and is_counted else None
        # Not a method: a cycle of references would keep the loader's first iterator for a while.
        self._epoch = functools.partial(Epoch, passes, layout, length, limit)
        self._layout = layout
        failures = Failures()
        batches = LoaderSource(self._epoch, layout.part_specs, failures).map(layout.element)
        if length is not None:
            batches = batches.apply(tf.data.experimental.assert_cardinality(length))
        super().__init__(batches, failures)
        self._passes = passes
        self._limit = limit
        self._is_counted = length is not None
        self._uncounted: LoaderDataset | None = None

    def uncounted(self) -> FeedDataset:
        """See `FeedDataset.uncounted`."""
        if not self._is_counted:
            return self
        if self._uncounted is None:  # kept: a tf.function that loops over it keeps but this one
            with tf.init_scope():
                self._uncounted = LoaderDataset(self._passes, self._layout, self._limit, False)
        return self._uncounted

    def __iter__(self) -> Any:
        if not tf.executing_eagerly():
            return super().__iter__()
        epoch = self._epoch()

        def begin() -> Any:
            if not epoch.has_begun:
                return tf.data.Dataset.__iter__(self)
            rest = LoaderSource(lambda: epoch, self._layout.part_specs, self._failures)
            return iter(rest.map(self._layout.element))

        return LoaderIterator(epoch, self._layout, self.element_spec, begin, self._failures)
