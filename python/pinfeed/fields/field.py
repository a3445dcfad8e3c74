"""The base class of fields, and the types that fields exchange."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from pinfeed.arguments import described, sample_after
from pinfeed.augment.geometry import Geometry
from pinfeed.augment.random_state import BatchRandomState
from pinfeed.batches import Packing
from pinfeed.functional.sequences import Padded
from pinfeed.memory.outputs import Pin
from pinfeed.sources.source import Source
from pinfeed.sources.strings import encode


class Objects(NamedTuple):
    """The boxes of the objects in a batch of images."""

    # x1, y1, x2, y2 in pixels of the images, float64 of shape (total, 4); in pixels of the batch,
    # once the batch of images exists.
    corners: Any
    offsets: Any  # start of each image's boxes, int64 of shape (B + 1,)
    remain: Any  # whether each box remains, bool of shape (total,)


class BatchCrops(NamedTuple):
    """The crops of a batch of images."""

    native: Any  # the crop of each image, a ``_core.ImageCrops``
    size: tuple[int, int]  # height and width of the batch
    geometry: Geometry | None  # the geometry that the crops were drawn for


class Shared:
    """Values that entries of a dict share in a batch, because one depends on another.

    Attributes:
        objects: Boxes of the objects in the images; None without boxes.
        crops: Crops of the images, set by their field; None without images.
        lengths: Lengths of the samples, set by a field that pads, joins or packs them.
    """

    def __init__(self) -> None:
        self.objects: Objects | None = None
        self.crops: BatchCrops | None = None
        self.lengths: Any = None


class FieldContext(NamedTuple):
    """Context passed to a field: the name of the entry, and information about the batch.

    Attributes:
        name: Name for messages, such as ``"Collate: entry ['image']"``.
        path: Path in a sample, such as ``"['image']"``; empty if the sample is one array.
        pin: Whether to allocate the batch in pinned memory, as in `Collate`'s ``pin_memory``.
        random_state: Random state of the batch; None unless a field has ``augments`` or ``is_random``.
        packing: Row layout of the batch's documents; None unless a `PackSampler` planned it.
        epoch: Epoch of the batch; None if unknown.
        shared: Values for entries that depend on this one, as `Boxes` on their `Image`; None if there are none.
    """

    name: str
    path: str = ""
    pin: Pin = False
    random_state: BatchRandomState | None = None
    packing: Packing | None = None
    epoch: int | None = None
    shared: Shared | None = None


def sharing(context: FieldContext, shared: Shared) -> FieldContext:
    """Returns the context of an entry that others depend on."""
    return FieldContext._make((*context[:-1], shared))  # faster than _replace


class Field(ABC):
    """Base class of fields. A field says how one entry of the samples is batched.

    Subclasses implement `collate`. They must be stateless and picklable, because any worker or thread
    can call them.

    Attributes:
        source: Key of the entry to read, set by `from_key`. None: the field's own key.
        is_optional: Whether samples may lack the entry, set by `allow_missing`.
        takes_none: Whether some samples of a batch may be None.
        packs: Whether the field packs samples end to end into rows.
        pads: Whether the field pads samples to the longest one.
        varying_axes: Axes of the batch whose length depends on the largest sample in it.
        byte_padding: Padding value of uint8 batches; None if the field doesn't pad them.
        augments: Whether the field transforms samples, at random or not.
        is_random: Whether it draws random numbers, from `FieldContext.random_state`.

    Example:
        >>> class Length(pinfeed.Field):
        ...     def collate(self, samples, context):
        ...         return torch.tensor([len(sample) for sample in samples])
        >>> pinfeed.Collate({"text": Length()})([{"text": "one"}, {"text": "seven"}])
        {'text': tensor([3, 5])}
    """

    source: str | None = None
    is_optional: bool = False
    takes_none: bool = False
    packs: bool = False
    pads: bool = False
    varying_axes: tuple[int, ...] = ()
    byte_padding: Any = None
    augments: bool = False
    is_random: bool = False

    def from_key(self, key: str) -> Self:
        """Returns a copy of the field that reads from another key of the same dict.

        The batch contains the source key itself only if that key has a field too. The entry under the
        field's own key is not read.

        Args:
            key: Key of the entry in the samples.

        Raises:
            TypeError: If ``key`` is not a string.

        Example:
            >>> collate = pinfeed.Collate(
            ...     {
            ...         "input_ids": pinfeed.Pad(pad_value=0),
            ...         "targets": pinfeed.Pad(pad_value=-100).from_key("input_ids"),
            ...         "labels": pinfeed.Stack().from_key("label"),
            ...     }
            ... )
            >>> collate([{"input_ids": [5, 6], "label": 1}, {"input_ids": [7], "label": 0}])
            {'input_ids': tensor([[5, 6],
                    [7, 0]]), 'targets': tensor([[   5,    6],
                    [   7, -100]]), 'labels': tensor([1, 0])}
        """
        if not isinstance(key, str):
            raise TypeError(f"from_key: key must be a string, got {key!r}")
        field = copy.copy(self)
        field.source = key
        return field

    def allow_missing(self) -> Self:
        """Returns a copy of the field that is skipped if the entry is missing or None in all samples.

        The batch then lacks the entry too. Use it for labels, which are missing during inference.

        Example:
            >>> collate = pinfeed.Collate({"labels": pinfeed.Stack().allow_missing()})
            >>> (
            ...     collate([{"ids": 1, "labels": 0}]),
            ...     collate([{"ids": 1}]),
            ...     collate([{"labels": None}]),
            ... )
            ({'ids': tensor([1]), 'labels': tensor([0])}, {'ids': tensor([1])}, {})
        """
        field = copy.copy(self)
        field.is_optional = True
        return field

    def __call__(self, samples: Any) -> Any:
        """Raises TypeError: a DataLoader calls a `Collate`, which calls its fields."""
        name = type(self).__name__
        raise TypeError(
            f"{name}: a field can't be called, and is not a collate_fn by itself; pass it to a Collate: "
            f"collate_fn=Collate({name}(...))"
        )

    @abstractmethod
    def collate(self, samples: Sequence[Any], context: FieldContext) -> Any:
        """Returns the batch of a sequence of samples.

        Args:
            samples: Non-empty sequence with the entry of each sample.
            context: Name of the entry and information about the batch.
        """

    def gather(self, source: Source, indices: npt.NDArray[np.int64], context: FieldContext) -> Any:
        """Returns the batch of some rows of a source. By default, reads them and calls `collate`.

        Args:
            source: Source of the rows: an `ArraySource`, `RaggedArray` or `ConcatArray`.
            indices: Row indices, int64 of shape (B,), valid and not negative.
            context: Context, as in `collate`.
        """
        return self.collate(source.samples(indices, context.name), context)

    def apply(self, batch: Any, host: Any, context: FieldContext) -> Any:
        """Converts an entry that is already batched, as `DeviceLoader` does.

        By default, raises TypeError. On the CPU, the values must be the same as from `collate`; on other
        devices they should be. `Image` accepts uint8 tensors, in the layout of its ``input`` or else of shape
        (N, H, W, C). `Pad` accepts a `JaggedBatch` of tensors. `Stack` casts a tensor; on devices it does so
        as ``Tensor.to`` does, so integers that don't fit wrap.

        Args:
            batch: Batch of this entry, on any device.
            host: The same batch on the CPU. Read sizes from it, because reading them from a batch on a
                device waits for the device.
            context: Context, as in `collate`.

        Raises:
            TypeError, ValueError: If the field can't convert this batch.
        """
        raise TypeError(f"{context.name}: {self!r} can't convert whole batches; pass it to Collate")

    def extra_keys(self) -> tuple[str, ...]:
        """Returns the keys that the field adds to the dict batch, besides its own."""
        return ()

    def __repr__(self) -> str:
        key = "" if self.source is None else f".from_key({self.source!r})"
        return f"{self._call()}{key}{'.allow_missing()' if self.is_optional else ''}"

    def _call(self) -> str:
        """Returns the constructor call for `repr`."""
        return described(self)


def sequences_of(samples: Sequence[Any], name: str) -> tuple[Any, Any]:
    """Returns samples of different lengths in native form: a source, and offsets into it.

    Samples are arrays or lists of numbers; or str or bytes, which become uint8 arrays.
    """
    if isinstance(samples[0], str | bytes):
        strings = encode(samples, name + sample_after(name))
        return strings.values, strings.offsets
    return list(samples), None


#: The batch of an optional entry that all samples lack.
ABSENT = object()


class EntryWithExtras(NamedTuple):
    """Result of a field with extra keys (`Field.extra_keys`): its own entry and the extra entries."""

    entry: Any
    extras: dict[str, Any]


#: Argument for an extra output, such as lengths or a mask: False, True, or a key of the dict batch.
OutputRequest = bool | str


def checked_key(value: Any, name: str, *others: bool | None) -> Any:
    """Returns the key of a dict, or one of the ``others``; raises TypeError for anything else."""
    if (isinstance(value, str) and value) or any(value is other for other in others):
        return value
    choices = [*filter(None, [", ".join(map(str, others))]), "the key of a dict"]
    raise TypeError(f"{name} must be {' or '.join(choices)}, got {value!r}")


def padded_entry(
    kind: type[Padded],
    values: Any,
    lengths: Any,
    lengths_request: OutputRequest,
    mask: Any,
    mask_request: OutputRequest,
) -> Any:
    """Returns the entry of a field that pads: a `Padded` if lengths or mask are requested with True."""
    outputs = ((lengths_request, lengths), (mask_request, mask))
    extras = {key: part for key, part in outputs if isinstance(key, str)}
    inside = [part if request is True else None for request, part in outputs]
    entry = kind(values, *inside) if True in (lengths_request, mask_request) else values
    return EntryWithExtras(entry, extras) if extras else entry
