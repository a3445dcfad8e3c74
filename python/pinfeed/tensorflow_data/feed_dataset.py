"""Datasets that have a loader at their beginning."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from pinfeed.extras import import_extra
from pinfeed.tensorflow_data.failures import Failures
from pinfeed.tensorflow_data.feed_iterator import FeedIterator

tf: Any = import_extra("tensorflow", "tensorflow")


class FeedDataset(tf.data.Dataset):  # type: ignore[misc] # tf is Any
    """A dataset whose loops raise the errors of the loader behind it.

    So do those over what its methods make of it, which are of this class again.

    Args:
        dataset: Any dataset that asks the loader in the end.
        failures: Where the loader's errors go.
    """

    def __init__(self, dataset: Any, failures: Failures) -> None:
        self._dataset = dataset
        self._failures = failures
        super().__init__(tf.data.experimental.to_variant(dataset))

    @property
    def element_spec(self) -> Any:
        """See ``tf.data.Dataset``."""
        return self._dataset.element_spec

    def _inputs(self) -> list[Any]:
        return [self._dataset]

    def __iter__(self) -> Any:
        if not tf.executing_eagerly():
            return super().__iter__()
        return FeedIterator(self.element_spec, super().__iter__, self._failures)


def _surfacing(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a dataset, whose result is a FeedDataset too if it is a dataset."""

    @functools.wraps(method)
    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator] # tf is Any
    def surfacing(self: FeedDataset, *args: Any, **kwargs: Any) -> Any:
        result = self._failures.surface(method, self, *args, **kwargs)
        return (
            FeedDataset(result, self._failures) if isinstance(result, tf.data.Dataset) else result
        )

    return surfacing


for _name, _method in vars(tf.data.Dataset).items():
    if isinstance(_method, types.FunctionType) and not _name.startswith("_"):
        setattr(FeedDataset, _name, _surfacing(_method))
