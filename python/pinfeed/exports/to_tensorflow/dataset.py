"""The dataset of a loader's batches: its epochs, how TensorFlow asks for them, and how they end."""

from __future__ import annotations

import atexit
import functools
import itertools
import math
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch.utils.data import IterableDataset
from typing_extensions import override

from pinfeed.exports.to_tensorflow.signature import Layout
from pinfeed.optional import import_extra

tf: Any = import_extra("tensorflow", "tensorflow")

# How long the end of the process waits for a loader that is busy.
_SECONDS = 5.0
# How long nobody has come back for when nobody will.
_QUIET_SECONDS = 0.1
_END = object()


class LoaderDataset(tf.data.Dataset):  # type: ignore[misc] # tf is Any
    """The batches of a loader.

    A loop in Python over the dataset itself takes them from the loader in its own thread. All else,
    that is ``model.fit``, a ``tf.function`` and other datasets made of this one, has them from an op
    of TensorFlow, `_generated`, whose threads take longer for a small batch than the loader does.

    Args:
        passes: Over the loader.
        layout: Of its batches.
        limit: The most samples to take in each epoch.
    """

    def __init__(self, passes: Passes, layout: Layout, limit: int | None) -> None:
        length = passes.length() if limit is None else None
        # Not a method: a cycle of references would keep the loader's first iterator for a while.
        self._epoch = functools.partial(_Epoch, passes, layout, length, limit)
        self._layout = layout
        self._batches = _generated(self._epoch, layout, length)
        super().__init__(tf.data.experimental.to_variant(self._batches))

    @property
    @override
    def element_spec(self) -> Any:
        return self._batches.element_spec

    @override
    def _inputs(self) -> list[Any]:
        return [self._batches]

    @override
    def __iter__(self) -> Any:
        if not tf.executing_eagerly():
            return super().__iter__()
        epoch, layout, batches = self._epoch(), self._layout, self._batches

        def begin() -> Any:
            return iter(_generated(lambda: epoch, layout, None) if epoch.has_begun else batches)

        return _LoaderIterator(epoch, layout, batches.element_spec, begin)


class _LoaderIterator(tf.data.Iterator):  # type: ignore[misc] # tf is Any
    """A loop over a loader, until a tf.function takes the iterator over.

    Then ``begin`` makes TensorFlow's own iterator, over what is left of the epoch.
    """

    def __init__(
        self, epoch: _Epoch, layout: Layout, element_spec: Any, begin: Callable[[], Any]
    ) -> None:
        super().__init__()
        self._epoch = epoch
        self._layout = layout
        self._element_spec = element_spec
        self._begin = begin
        self._own: Any = None

    @property
    @override
    def element_spec(self) -> Any:
        return self._element_spec

    @override
    def __next__(self) -> Any:
        if self._own is not None or not tf.executing_eagerly():
            return next(self._native())
        return self._layout.element(*next(self._epoch))

    @override
    def get_next(self) -> Any:
        return self._native().get_next()

    @override
    def get_next_as_optional(self) -> Any:
        return self._native().get_next_as_optional()

    def _native(self) -> Any:
        """TensorFlow's own iterator."""
        if self._own is None:
            with tf.init_scope():  # out of the graph that asks for it, if one does
                self._own = self._begin()
        return self._own

    # How a tf.function takes an iterator as an argument.

    @property
    def _type_spec(self) -> Any:
        return tf.data.IteratorSpec(self._element_spec)

    def __tf_tracing_type__(self, context: Any) -> Any:
        return self._type_spec

    @property
    def _iterator_resource(self) -> Any:
        return self._native()._iterator_resource


class Passes:
    """The passes over a loader, of which the first may have begun before anyone asked for it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._first: list[Iterator[Any]] = []  # the pass that `peek` has begun
        self._has_begun = self._has_yielded = False

    def peek(self) -> Any:
        """Begins the first pass, and returns its first batch, which `begin` will return too.

        Raises:
            ValueError: There is none.
        """
        rest = iter(self._loader)
        for batch in rest:
            # Unlike an iterator of the list, `pop` keeps no batch alive.
            self._first.append(itertools.chain(map([batch].pop, [0]), rest))
            return batch
        raise ValueError(
            "to_tensorflow: loader yielded no batch, and nothing else says what arrays there are; "
            "give signature=, the structure of a batch with a tf.TensorSpec for each array"
        )

    def begin(self) -> Iterator[Any]:
        """Begins the next pass; raises RuntimeError if the loader can't begin again."""
        if self._has_begun and isinstance(self._loader, Iterator):
            raise self._used_up()
        self._has_begun = True
        try:
            return self._first.pop()
        except IndexError:
            return iter(self._loader)

    def end(self, batches: int) -> None:
        """Notes how many batches a pass had; raises RuntimeError if only an earlier one had some."""
        if batches == 0 and self._has_yielded:
            raise self._used_up()
        self._has_yielded = self._has_yielded or batches > 0

    def length(self) -> int | None:
        """How many batches every pass has, None if the loader can't know."""
        if isinstance(self._loader, Iterator):
            return None  # that of the whole, maybe, and not of what is left
        has_stream = isinstance(getattr(self._loader, "dataset", None), IterableDataset)
        if has_stream and getattr(self._loader, "num_workers", 0) > 0:
            return None
        try:
            return len(self._loader)
        except (TypeError, NotImplementedError):
            return None

    def _used_up(self) -> RuntimeError:
        return RuntimeError(
            f"to_tensorflow: loader, a {type(self._loader).__name__}, was used up by an earlier loop "
            "over the dataset and can't begin again; hand over what can, such as a DataLoader or a "
            "list, or make the dataset with in_memory=True"
        )


class _Epoch(Iterator[Any]):
    """One pass over the loader: its batches as plain tensors of TensorFlow.

    It begins when its first batch is asked for: Keras makes iterators that it never uses.
    """

    def __init__(
        self, passes: Passes, layout: Layout, length: int | None, limit: int | None
    ) -> None:
        self._passes = passes
        self._layout = layout
        self._length = length
        self._left = limit  # samples
        self._batches: Iterator[Any] | None = None
        self._is_closed = False
        self._asked = 0  # for batches; those that the loader failed at count

    @property
    def has_begun(self) -> bool:
        return self._batches is not None or self._is_closed

    def __next__(self) -> list[Any]:
        if self._is_closed:
            raise StopIteration
        if self._batches is None:
            self._batches = self._passes.begin()
        number, self._asked = self._asked, self._asked + 1
        batch = next(self._batches, _END)
        if batch is _END:
            self._end(number)
            raise StopIteration
        if self._asked == self._length:  # TensorFlow won't ask for more
            more = sum(1 for _ in itertools.islice(self._batches, 1))
            self._end(self._asked + more)
        parts, count = self._layout.parts(batch, number, self._left)
        if self._left is not None:
            self._left -= count
            if self._left == 0:
                self.close()
        return parts

    def close(self) -> None:
        """Lets go of the loader's iterator, which ends its workers; there are no more batches."""
        self._is_closed, self._batches = True, None

    def _end(self, batches: int) -> None:
        self.close()
        self._passes.end(batches)
        if self._length not in (None, batches):
            got = str(batches) if batches < (self._length or 0) else "more"
            raise ValueError(
                f"to_tensorflow: expected {self._length} batches, as len(loader) says, got {got}; "
                "a loader that can't know should have no len(): (batch for batch in loader), say"
            )


def _generated(begin: Callable[[], _Epoch], layout: Layout, length: int | None) -> Any:
    """The elements of epochs, as a dataset of TensorFlow.

    As ``tf.data.Dataset.from_generator``, but without its way through ndarrays and their checks,
    which takes longer than all else here.

    Args:
        begin: Makes an epoch.
        layout: Of the batches.
        length: How many batches each epoch has, if that is known.
    """
    epochs = _OpenEpochs(begin, length is not None)
    open_epoch = _weakly(epochs.open, _refuse)
    next_batch = _weakly(epochs.next, _refuse)
    close_epoch = _weakly(epochs.close, lambda number: number)  # gone is closed
    specs = layout.part_specs

    def initialize() -> Any:
        return tf.ensure_shape(tf.numpy_function(open_epoch, [], tf.int64), [])

    def advance(number: Any) -> Any:
        parts = tf.py_function(next_batch, [number], [spec.dtype for spec in specs])
        for part, spec in zip(parts, specs, strict=True):
            part.set_shape(spec.shape)
        return parts

    def finalize(number: Any) -> Any:
        return tf.numpy_function(close_epoch, [number], tf.int64)

    # Where the length is known, the generator yields the epoch's number without end.
    is_counted = length is not None
    elements = [tf.TensorSpec([], tf.int64)] if is_counted else specs
    number = tf.TensorSpec([], tf.int64)
    functions = {
        name: tf.function(function, autograph=False).get_concrete_function(*arguments)
        for name, function, arguments in (
            ("init_func", initialize, []),
            ("next_func", tf.identity if is_counted else advance, [number]),
            ("finalize_func", finalize, [number]),
        )
    }
    variant = tf.raw_ops.GeneratorDataset(
        **functions,
        **{f"{name}_other_args": [] for name in functions},
        output_types=[spec.dtype for spec in elements],
        output_shapes=[spec.shape for spec in elements],
    )
    source = tf.data.experimental.from_variant(variant, tuple(elements))
    source.in_use = functions, epochs  # else they are gone when the last reference from Python is
    if not is_counted:
        return source.map(layout.element)
    # A zip is as long as the shorter one, and counts batches that the loader failed at, unlike
    # assert_cardinality, which ignore_errors then asks again without end. To TensorFlow, `repeat`
    # makes the source the longer one. It asks the source once more than there are batches, but not
    # `advance`, whose error it would log.
    counted = tf.data.Dataset.zip(tf.data.Dataset.range(length), source.repeat())
    return counted.map(lambda _, numbers: layout.element(*advance(*numbers)))


class _OpenEpochs:
    """The epochs of all iterators that TensorFlow has over the dataset, by number."""

    def __init__(self, begin: Callable[[], _Epoch], is_counted: bool) -> None:
        self._begin = begin
        self._is_counted = is_counted
        self._epochs: dict[int, _Epoch] = {}
        self._numbers = itertools.count()

    def open(self) -> np.int64:
        number = next(self._numbers)
        self._epochs[number] = self._begin()
        return np.int64(number)

    def next(self, number: Any) -> list[Any]:
        try:
            if _is_exiting:
                raise StopIteration
            return next(self._epochs[int(number)])
        except StopIteration:
            if self._is_counted and not _is_exiting:
                raise EOFError("to_tensorflow: the epoch has ended") from None
            raise
        except BaseException as error:  # noqa: BLE001, it is raised
            # Variables in its frames would keep the loader's iterator alive, and its workers with it.
            traceback.clear_frames(error.__traceback__)
            raise _readable(error) from None

    def close(self, number: np.int64) -> np.int64:
        self._epochs.pop(int(number)).close()
        return number


def _weakly(method: Callable[..., Any], without: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls the method for as long as its object is there, then ``without``.

    TensorFlow keeps every Python function that a graph calls until the process ends.
    """
    weak = weakref.WeakMethod(method)

    def call(*args: Any) -> Any:
        global _left_at
        _inside.append(None)
        try:
            return (weak() or without)(*args)
        finally:
            _inside.pop()
            _left_at = time.monotonic()

    return call


def _refuse(*_: Any) -> None:
    raise RuntimeError("to_tensorflow: keep the dataset while something iterates it")


def _readable(error: BaseException) -> BaseException:
    """The error if its text is UTF-8 without NUL; all else TensorFlow cuts, or crashes on it.

    The name of a file that is no UTF-8 has surrogates, for one.
    """
    text = str(error)
    escaped = text.encode(errors="backslashreplace").decode().replace("\0", "\\0")
    if escaped == text:
        return error
    return RuntimeError(f"{type(error).__name__}: {escaped}").with_traceback(error.__traceback__)


# A thread that is in Python when the interpreter ends never comes out again, and TensorFlow would
# wait for it forever. So before the end all of them are let out, and nobody is handed a batch any
# more. They come back at once: `prefetch` goes on to ask after an error, up to the size of its
# buffer, and whoever has come to the end closes the epoch.

_inside: list[None] = []  # one for each such thread
_left_at = -math.inf  # when the last one did
_is_exiting = False


@atexit.register
def _let_threads_out() -> None:
    global _is_exiting
    _is_exiting = True
    end = time.monotonic() + _SECONDS
    time.sleep(0.01)  # for those on their way in
    while (_inside or time.monotonic() < _left_at + _QUIET_SECONDS) and time.monotonic() < end:
        time.sleep(0.001)
