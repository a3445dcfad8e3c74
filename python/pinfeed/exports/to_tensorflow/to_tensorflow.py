"""The function itself: arguments in, a dataset out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pinfeed.arguments import positive_integer
from pinfeed.exports.loader import require_loader
from pinfeed.exports.to_numpy.to_numpy import to_numpy
from pinfeed.functions.padding import flag
from pinfeed.optional import import_extra


def to_tensorflow(
    loader: Iterable[Any],
    *,
    in_memory: bool = False,
    channels_last: bool | str | Iterable[str] = False,
    signature: Any = None,
    max_samples: int | None = None,
) -> Any:
    """The batches of a loader as a ``tf.data.Dataset``: for ``model.fit``, ``.map``, ``.prefetch``.

    Each loop over the dataset, such as an epoch of ``fit``, iterates the loader once. TensorFlow
    takes the tensors as they are and keeps them as long as it needs them, so a loader must not write
    into a batch that it has returned. Tensors of torch and pinfeed begin at a multiple of 64 bytes.
    Those that don't, such as slices, are copied.

    Args:
        loader: Any iterable of batches: a DataLoader, a DeviceLoader, a list, a generator.
        in_memory: Drain the loader now, by `pinfeed.to_numpy`, into a dataset of single samples,
            for ``.shuffle`` and ``.batch``.
        channels_last: Which leaves get their channels from axis 1 to the end, as TensorFlow's
            layers want them: True for all of uint8 or floats with 4 axes, NCHW; or names of leaves:
            ``"image"``, ``["left", "right"]``; ``"views.left"`` for one within, ``"0"`` for the
            first of a tuple. Batches that lie in channels_last memory already are not copied.
        signature: What the dataset's elements are: their structure, of ``tf.TensorSpec`` and
            ``tf.RaggedTensorSpec``. None: what the first batch says.
        max_samples: End after so many samples; the last batch is cut. An infinite loader needs it
            for ``in_memory``.

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
    that are known to vary: those that `Pad`, `Jagged` and an `Image` with ``pad_value`` in the
    loader's `Collate` make, those of `Padded` batches, and those that differ within a list of
    batches. All others must stay as they are in the first batch, because many layers have to know
    the sizes of their inputs. If more axes vary, pass a ``signature``.

    The length of the loader is the cardinality of the dataset. With workers over an IterableDataset
    it would be a guess, so the cardinality is unknown.

    A loop over the dataset itself raises an error of the loader as it is, Ctrl-C included. Behind
    ``.map``, ``.prefetch`` and the like, and in ``model.fit``, TensorFlow asks for the batches and
    raises an error of its own, a ``tf.errors.OpError``, whose text has type, message and traceback of
    the loader's. A loop that is left ends the loader's iterator, and so its workers.

    Returns:
        The dataset.

    Raises:
        TypeError: The loader is no iterable of batches, a leaf is nothing of the kind above, or an
            argument is of the wrong kind. In a loop: a dtype has changed.
        ValueError: The loader yields nothing; names or the signature don't fit. In a loop: a shape or
            the structure has changed, or the length was wrong.
        RuntimeError: In a loop: a generator, or another iterator that can't begin again, was used up
            by an earlier loop.
        ImportError: TensorFlow is not installed.

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
    flag(in_memory, "to_tensorflow: in_memory")
    positive_integer(max_samples, "to_tensorflow: max_samples")
    tf = import_extra("tensorflow", "tensorflow")
    if not tf.executing_eagerly():
        raise RuntimeError(
            "to_tensorflow: must be called where TensorFlow executes eagerly; "
            "make the dataset outside of the tf.function"
        )
    # These import TensorFlow.
    from pinfeed.exports.to_tensorflow.dataset import LoaderDataset, Passes
    from pinfeed.exports.to_tensorflow.signature import Layout, signature_of, varying_axes

    if in_memory:
        if signature is not None:
            raise ValueError(
                "to_tensorflow: signature is for batches that are yet to come; "
                "with in_memory=True there are none, so leave it out"
            )
        arrays = to_numpy(loader, max_samples=max_samples)
        layout = Layout(signature_of(arrays, {}), channels_last, is_guess=True)
        parts, _ = layout.parts(arrays, 0)
        return tf.data.Dataset.from_tensor_slices(layout.element(*parts))
    passes = Passes(loader)
    is_guess = signature is None
    if is_guess:
        batch = passes.peek()
        signature = signature_of(batch, varying_axes(loader, batch))
    return LoaderDataset(passes, Layout(signature, channels_last, is_guess), max_samples)
