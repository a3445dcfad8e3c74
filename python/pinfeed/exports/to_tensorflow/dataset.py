"""The op of TensorFlow that asks the loader for batches."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from pinfeed.exports.to_tensorflow.epoch import Epoch
from pinfeed.exports.to_tensorflow.exit_gate import exit_gate
from pinfeed.exports.to_tensorflow.failures import Failures
from pinfeed.optional import import_extra

tf: Any = import_extra("tensorflow", "tensorflow")


class LoaderSource(tf.data.Dataset):  # type: ignore[misc] # tf is Any
    """The plain tensors of the batches, as a dataset of flat tuples.

    As ``tf.data.Dataset.from_generator``, but without its way through ndarrays and their checks,
    which takes longer than all else here.

    Args:
        begin: Makes a new epoch.
        specs: Of the tensors.
        failures: Where errors go.
    """

    def __init__(self, begin: Callable[[], Epoch], specs: list[Any], failures: Failures) -> None:
        self._specs = tuple(specs)
        self._epochs = _OpenEpochs(begin, failures)
        open_epoch = _weakly(self._epochs.open, _refuse)
        next_batch = _weakly(self._epochs.next, _refuse)
        close_epoch = _weakly(self._epochs.close, lambda number: number)  # gone is closed

        def initialize() -> Any:
            number = tf.numpy_function(open_epoch, [], tf.int64)
            number.set_shape([])
            return number

        def advance(number: Any) -> Any:
            parts = tf.py_function(next_batch, [number], [spec.dtype for spec in specs])
            for part, spec in zip(parts, specs, strict=True):
                part.set_shape(spec.shape)
            return parts

        def finalize(number: Any) -> Any:
            return tf.numpy_function(close_epoch, [number], tf.int64)

        number = tf.TensorSpec([], tf.int64)
        # Kept here, because TensorFlow forgets them when the last reference from Python is gone.
        self._functions_in_use = [
            tf.function(function, autograph=False).get_concrete_function(*arguments)
            for function, arguments in ((initialize, []), (advance, [number]), (finalize, [number]))
        ]
        names = ("init_func", "next_func", "finalize_func")
        variant = tf.raw_ops.GeneratorDataset(
            **dict(zip(names, self._functions_in_use, strict=True)),
            **{f"{name}_other_args": [] for name in names},
            output_types=[spec.dtype for spec in specs],
            output_shapes=[spec.shape for spec in specs],
        )
        super().__init__(variant)

    @property
    def element_spec(self) -> tuple[Any, ...]:
        """See ``tf.data.Dataset``."""
        return self._specs

    def _inputs(self) -> list[Any]:
        return []


class _OpenEpochs:
    """The epochs of all iterators that TensorFlow has over the dataset, by number.

    Args:
        begin: Makes a new epoch.
        failures: Where errors go.
    """

    def __init__(self, begin: Callable[[], Epoch], failures: Failures) -> None:
        self._begin = begin
        self._failures = failures
        self._epochs: dict[int, Epoch] = {}
        self._numbers = itertools.count()

    def open(self) -> np.int64:
        number = next(self._numbers)
        self._epochs[number] = self._begin()
        return np.int64(number)

    def next(self, number: Any) -> list[Any]:
        try:
            with exit_gate:
                return list(itertools.chain.from_iterable(next(self._epochs[int(number)])))
        except StopIteration:
            raise
        except BaseException as error:  # noqa: BLE001, it is raised, here or in the other thread
            told = self._failures.keep(error)
            try:
                if told is error:
                    raise
                raise told from None
            finally:
                # An error knows this frame. If the frame knew the error too, TensorFlow's iterator
                # would live on, and its threads, until a garbage collection.
                del told

    def close(self, number: np.int64) -> np.int64:
        self._epochs.pop(int(number)).close()
        return number


def _weakly(method: Callable[..., Any], without: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls the method for as long as its object is there, then ``without``.

    TensorFlow keeps every Python function that a graph calls until the process ends.
    """
    weak = weakref.WeakMethod(method)

    def call(*args: Any) -> Any:
        return (weak() or without)(*args)

    return call


def _refuse(*_: Any) -> None:
    raise RuntimeError("to_tensorflow: keep the dataset while something iterates it")
