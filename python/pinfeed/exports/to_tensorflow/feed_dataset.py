"""Datasets that have a loader at their beginning."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from pinfeed.exports.to_tensorflow.failures import Failures
from pinfeed.exports.to_tensorflow.feed_iterator import FeedIterator
from pinfeed.optional import import_extra

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

    def uncounted(self) -> FeedDataset:
        """The same dataset without a claim to how many batches the loader has."""
        raise NotImplementedError

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator] # tf is Any
    def ignore_errors(self, *args: Any, **kwargs: Any) -> Any:
        """See ``tf.data.Dataset``; how many batches are left is not known.

        Below it nothing may count batches. After one that failed there are too few, which would be
        an error at the end, and again each time that TensorFlow asks past it: forever.
        """
        return _surfacing(tf.data.Dataset.ignore_errors)(self.uncounted(), *args, **kwargs)


class _MadeDataset(FeedDataset):
    """What a method made of such a dataset.

    Args:
        dataset: See `FeedDataset`.
        failures: See `FeedDataset`.
        remake: Makes the same of the uncounted one.
    """

    def __init__(self, dataset: Any, failures: Failures, remake: Callable[[], FeedDataset]) -> None:
        super().__init__(dataset, failures)
        self._remake = remake

    def uncounted(self) -> FeedDataset:
        """See `FeedDataset.uncounted`."""
        return self._remake()


def _surfacing(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a dataset, whose result is a FeedDataset too if it is a dataset."""

    @functools.wraps(method)
    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator] # tf is Any
    def surfacing(self: FeedDataset, *args: Any, **kwargs: Any) -> Any:
        result = self._failures.surface(method, self, *args, **kwargs)
        if not isinstance(result, tf.data.Dataset):
            return result
        return _MadeDataset(
            result, self._failures, lambda: surfacing(self.uncounted(), *args, **kwargs)
        )

    return surfacing


for _name, _method in vars(tf.data.Dataset).items():
    is_overridden = _name in vars(FeedDataset)
    if isinstance(_method, types.FunctionType) and not (_name.startswith("_") or is_overridden):
        setattr(FeedDataset, _name, _surfacing(_method))
