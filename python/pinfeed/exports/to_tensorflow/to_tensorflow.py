"""`to_tensorflow`: a ``tf.data.Dataset`` over the batches of a loader."""

from __future__ import annotations

import atexit
import itertools
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import IterableDataset

from pinfeed.arguments import Problem, known_length, require_flags
from pinfeed.exports.to_numpy.to_numpy import require_loader, to_numpy
from pinfeed.imports import import_extra


def to_tensorflow(
    loader: Iterable[Any],
    *,
    in_memory: bool = False,
    channels_last: bool | str | Iterable[str] = False,
    signature: Any = None,
) -> Any:
    """Wraps a loader in a ``tf.data.Dataset``: for ``model.fit``, ``.map``, ``.prefetch``.

    Each loop over the dataset, such as an epoch of ``fit``, iterates the loader once. TensorFlow uses
    the arrays without a copy, through ``Dataset.from_generator``, so the loader must not overwrite
    batches that it has returned. Only memory that is not aligned to 64 bytes, such as a slice's, is copied.

    Args:
        loader: Any iterable of batches: a DataLoader, a DeviceLoader, a list, a generator.
        in_memory: Whether to load everything now, by `pinfeed.to_numpy`, into a dataset of single
            samples, for ``.shuffle`` and ``.batch``.
        channels_last: Entries whose channels are moved from axis 1 to the end, as TensorFlow layers expect:
            True for all uint8 or float entries with 4 axes (NCHW), or names: ``"image"``, ``["left",
            "right"]``, ``"views.left"`` for a nested entry, ``"0"`` for the first of a tuple. Batches in
            channels_last memory are not copied.
        signature: Nested ``tf.TensorSpec`` and ``tf.RaggedTensorSpec`` of the dataset's elements. None:
            derived from the first batch.

    Elements are nested like the batches. Dicts, tuples and NamedTuples are preserved; lists become
    tuples and dataclasses become dicts, because tf.data supports neither. Within them:

    - Tensors (on any device) and ndarrays become ``tf.Tensor`` of their dtype.
    - `Padded` stays a tuple of values, lengths and mask. `JaggedBatch` and `RaggedArray` become
      ``tf.RaggedTensor``.
    - Strings, numbers, and lists and tuples of only these become tensors of strings, int64, float32 or
      bool.
    - None stays None.

    Without a ``signature``, the first batch is read immediately, which begins the loader's first epoch;
    the dataset still yields this batch. In the signature, the batch axis is None. So is every axis that a
    `Pad`, or an `Image` with ``pad_value``, pads in the loader's `Collate` or ``fields``, and every padded
    axis of a `Padded` batch. All other axes keep their size in the first batch, because many layers need
    static sizes. If more axes vary, pass a ``signature``.

    The dataset's cardinality is the length of the loader. It is unknown with workers over an
    IterableDataset, whose length is only an estimate.

    Errors of the loader, or about a batch that doesn't fit, are raised in the loop as
    ``tf.errors.OpError``, with the original type, message and traceback in the text. Leaving a loop
    closes the loader's iterator and its workers.

    Returns:
        The dataset.

    Raises:
        TypeError: If the loader is not an iterable of batches, an entry has an unsupported type, or an
            argument has the wrong type.
        ValueError: If the loader yields no batch, or names or the signature don't fit.
        ImportError: If TensorFlow is not installed.
        tf.errors.OpError: In a loop, if a dtype, a shape or the structure changes, ``len`` was
            wrong, or an earlier loop has exhausted a generator.

    Example:
        >>> arrays = {"image": np.zeros((6, 8, 8, 3), np.uint8), "label": np.arange(6)}
        >>> collate = pinfeed.Collate({"image": pinfeed.Image(0.5, 0.25)})
        >>> loader = torch.utils.data.DataLoader(
        ...     pinfeed.ArrayDataset(arrays), batch_size=4, collate_fn=collate
        ... )
        >>> dataset = pinfeed.to_tensorflow(loader, channels_last=True)
        >>> len(dataset), dataset.element_spec["image"].shape
        (2, TensorShape([None, 8, 8, 3]))
        >>> [batch["label"].numpy().tolist() for batch in dataset]
        [[0, 1, 2, 3], [4, 5]]
    """
    require_loader(loader, "to_tensorflow")
    require_flags("to_tensorflow", in_memory=in_memory)
    tf = import_extra("tensorflow", "tensorflow")
    # This module imports TensorFlow.
    from pinfeed.exports.to_tensorflow.signature import Signature, varying_axes

    if in_memory:
        if signature is not None:
            expected = "None with in_memory=True, which reads all batches first"
            got, hint = type(signature).__name__, "leave it out"
            raise ValueError(Problem("to_tensorflow: signature", expected, got, hint))
        arrays = to_numpy(loader)
        whole = Signature.of_batch(arrays, {}, channels_last)
        return tf.data.Dataset.from_tensor_slices(whole.element(*whole.arrays(arrays, 0)))
    passes = _Passes(loader)
    if signature is None:
        batch = passes.peek()
        entries = Signature.of_batch(batch, varying_axes(loader, batch), channels_last)
        del batch
    else:
        entries = Signature.of_specs(signature, channels_last)
    weak = weakref.ref(passes)

    def epoch() -> _Epoch:
        passes = weak()
        if passes is None:
            raise RuntimeError(
                "to_tensorflow: the dataset was freed before its loop; keep a reference to it"
            )
        return _Epoch(passes.begin(), entries)

    dataset = tf.data.Dataset.from_generator(epoch, output_signature=tuple(entries.parts))
    if not entries.is_flat:
        dataset = dataset.map(entries.element)
    length = passes.length()
    if length is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(length))
    # TensorFlow keeps `epoch` until the process ends, so `epoch` must not keep the loader alive.
    dataset.passes = passes
    return dataset


class _Passes:
    """The passes over a loader; `peek` may begin the first one early."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._first: list[Iterator[Any]] = []  # the pass that `peek` began
        self._is_used_up = False

    def peek(self) -> Any:
        """Begins the first pass, and returns its first batch, which `begin` will return too."""
        rest = iter(self._loader)
        for batch in rest:
            # Unlike an iterator of the list, `pop` drops its reference to the batch.
            self._first.append(itertools.chain(map([batch].pop, [0]), rest))
            return batch
        expected = "at least one batch, which determines the signature"
        hint = "pass signature=, nested like a batch, with a tf.TensorSpec for each array"
        raise ValueError(Problem("to_tensorflow: loader", expected, "none", hint))

    def begin(self) -> Iterator[Any]:
        """Begins the next pass; raises RuntimeError if the loader can't begin again."""
        if self._is_used_up:
            raise RuntimeError(
                f"to_tensorflow: loader, a {type(self._loader).__name__}, was exhausted by an earlier "
                "loop over the dataset and can't begin again; pass a DataLoader or a list, or pass "
                "in_memory=True"
            )
        self._is_used_up = isinstance(self._loader, Iterator)
        return self._first.pop() if self._first else iter(self._loader)

    def length(self) -> int | None:
        """Returns the number of batches per pass, or None if unknown."""
        if isinstance(self._loader, Iterator):
            return None  # its length may include batches that were taken already
        has_stream = isinstance(getattr(self._loader, "dataset", None), IterableDataset)
        if has_stream and getattr(self._loader, "num_workers", 0) > 0:
            return None
        return known_length(self._loader)


class _Epoch:
    """One pass over the loader, as arrays; stops when the interpreter exits.

    An iterator continues after an error, as a DataLoader does; a generator ends.
    """

    def __init__(self, batches: Iterator[Any], entries: Any) -> None:
        self._batches, self._entries = batches, entries
        self._number = itertools.count()
        self.inside = threading.Lock()
        _epochs.add(self)

    def __iter__(self) -> _Epoch:
        return self

    def __next__(self) -> tuple[Any, ...]:
        with self.inside:
            if _is_exiting.is_set():
                raise StopIteration
            number = next(self._number)
            return self._entries.arrays(next(self._batches), number)


# TensorFlow's threads prefetch batches. A thread that is in Python code when the interpreter exits
# never returns, and TensorFlow waits for it forever.
_epochs: weakref.WeakSet[_Epoch] = weakref.WeakSet()
_is_exiting = threading.Event()


@atexit.register
def _let_threads_out() -> None:
    _is_exiting.set()
    for epoch in list(_epochs):
        if epoch.inside.acquire(timeout=5):  # a loader may be busy
            epoch.inside.release()
    if _epochs:
        time.sleep(0.5)  # until TensorFlow's own Python code around an epoch has returned
