"""The function itself: arguments in, a dataset out."""

from __future__ import annotations

import atexit
import itertools
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import IterableDataset

from pinfeed.arguments import known_length, require_flags
from pinfeed.exports.loader import require_loader
from pinfeed.exports.to_numpy.to_numpy import to_numpy
from pinfeed.optional import import_extra


def to_tensorflow(
    loader: Iterable[Any],
    *,
    in_memory: bool = False,
    channels_last: bool | str | Iterable[str] = False,
    signature: Any = None,
) -> Any:
    """The batches of a loader as a ``tf.data.Dataset``: for ``model.fit``, ``.map``, ``.prefetch``.

    Each loop over the dataset, such as an epoch of ``fit``, iterates the loader once. TensorFlow
    takes the arrays as they are, through ``Dataset.from_generator``, and keeps them as long as it
    needs them, so a loader must not write into a batch that it has returned. Tensors of torch and
    pinfeed begin at a multiple of 64 bytes. Those that don't, such as slices, are copied.

    Args:
        loader: Any iterable of batches: a DataLoader, a DeviceLoader, a list, a generator.
        in_memory: Drain the loader now, by `pinfeed.to_numpy`, into a dataset of single samples,
            for ``.shuffle`` and ``.batch``.
        channels_last: Which entries get their channels from axis 1 to the end, as TensorFlow's
            layers want them: True for all of uint8 or floats with 4 axes, NCHW; or their names:
            ``"image"``, ``["left", "right"]``; ``"views.left"`` for one within, ``"0"`` for the
            first of a tuple. Batches that lie in channels_last memory already are not copied.
        signature: What the dataset's elements are: their structure, of ``tf.TensorSpec`` and
            ``tf.RaggedTensorSpec``. None: what the first batch says.

    Elements have the structure of the batches. Dicts, tuples and NamedTuples stay what they are;
    lists become tuples and dataclasses dicts, since tf.data knows neither. In them:

    - Tensors, from whatever device, and ndarrays become ``tf.Tensor`` of their dtype.
    - `Padded` stays a tuple of values, lengths and mask. `JaggedBatch` and `RaggedArray` become
      ``tf.RaggedTensor``.
    - Strings, numbers, and lists and tuples of nothing else become tensors: of strings, int64,
      float32 or bool.
    - None stays None.

    Without a ``signature``, the first batch is read at once, which begins the loader's first epoch;
    the dataset still begins with it. The batch axis is None in the signature, and so are the axes
    that are known to vary: those that `Pad` and an `Image` with ``pad_value`` in the loader's
    `Collate` or ``fields`` pad, and those of `Padded` batches. All others must stay as they are in
    the first batch, because many layers have to know the sizes of their inputs. If more axes vary,
    pass a ``signature``.

    The length of the loader is the cardinality of the dataset. With workers over an IterableDataset
    it would be a guess, so the cardinality is unknown.

    An error of the loader, or of a batch that doesn't fit, reaches the loop as one of TensorFlow, a
    ``tf.errors.OpError``, whose text has its type, message and traceback. A loop that is left ends
    the loader's iterator, and so its workers.

    Returns:
        The dataset.

    Raises:
        TypeError: The loader is no iterable of batches, an entry is nothing of the kind above, or
            an argument is of the wrong kind.
        ValueError: The loader yields nothing; names or the signature don't fit.
        ImportError: TensorFlow is not installed.
        tf.errors.OpError: In a loop: a dtype, a shape or the structure has changed, the length was
            wrong, or a generator, which can't begin again, was used up by an earlier loop.

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
    if not tf.executing_eagerly():
        raise RuntimeError(
            "to_tensorflow: must be called where TensorFlow executes eagerly; "
            "make the dataset outside of the tf.function"
        )
    # It imports TensorFlow.
    from pinfeed.exports.to_tensorflow.signature import Signature, varying_axes

    if in_memory:
        if signature is not None:
            raise ValueError(
                "to_tensorflow: signature is for batches that are yet to come; "
                "with in_memory=True there are none, so leave it out"
            )
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
            raise RuntimeError("to_tensorflow: keep the dataset while something iterates it")
        return _Epoch(passes.begin(), entries)

    dataset = tf.data.Dataset.from_generator(epoch, output_signature=tuple(entries.parts))
    dataset = dataset.map(entries.element)
    length = passes.length()
    if length is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(length))
    # TensorFlow keeps `epoch` until the process ends. The loader need not live as long.
    dataset.passes = passes
    return dataset


class _Passes:
    """The passes over a loader, of which the first may have begun before anyone asked for it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._first: list[Iterator[Any]] = []  # the pass that `peek` has begun
        self._is_used_up = False

    def peek(self) -> Any:
        """Begins the first pass, and returns its first batch, which `begin` will return too."""
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
        if self._is_used_up:
            raise RuntimeError(
                f"to_tensorflow: loader, a {type(self._loader).__name__}, was used up by an earlier "
                "loop over the dataset and can't begin again; hand over what can, such as a "
                "DataLoader or a list, or make the dataset with in_memory=True"
            )
        self._is_used_up = isinstance(self._loader, Iterator)
        return self._first.pop() if self._first else iter(self._loader)

    def length(self) -> int | None:
        """How many batches every pass has, None if the loader can't know."""
        if isinstance(self._loader, Iterator):
            return None  # that of the whole, maybe, and not of what is left
        has_stream = isinstance(getattr(self._loader, "dataset", None), IterableDataset)
        if has_stream and getattr(self._loader, "num_workers", 0) > 0:
            return None
        return known_length(self._loader)


class _Epoch:
    """One pass over the loader: the arrays of its batches, until the process ends.

    It is an iterator that goes on after an error, as a DataLoader does; a generator would end.
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


# TensorFlow's threads ask for batches ahead. One that is in Python when the interpreter ends never
# comes out again, and TensorFlow waits for it forever.
_epochs: weakref.WeakSet[_Epoch] = weakref.WeakSet()
_is_exiting = threading.Event()


@atexit.register
def _let_threads_out() -> None:
    _is_exiting.set()
    for epoch in list(_epochs):
        if epoch.inside.acquire(timeout=5):  # a loader may be busy
            epoch.inside.release()
    if _epochs:
        time.sleep(0.5)  # for what TensorFlow does in Python around an epoch, on a busy machine too
