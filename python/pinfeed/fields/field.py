"""The contract of a field."""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from pinfeed.arguments import ARRAYS, Problem, described, sample_after
from pinfeed.augment.chance import Chance
from pinfeed.augment.geometry import Geometry
from pinfeed.batches import Packing
from pinfeed.functional.sequences import Padded
from pinfeed.memory.outputs import Pin
from pinfeed.sources.source import Source
from pinfeed.sources.strings import encode


class Objects(NamedTuple):
    """The boxes of the objects in a batch of images.

    Attributes:
        corners: x1, y1, x2, y2 in pixels of the images, float64 of shape (total, 4). Once the batch of
            images is made, they move to where it shows them.
        offsets: Where the boxes of each image begin, int64 of shape (B + 1,).
        remain: Whether each remains, bool of shape (total,).
    """

    corners: Any
    offsets: Any
    remain: Any


class Seen(NamedTuple):
    """What a batch of images shows of them.

    Attributes:
        views: What is seen of each image, as native code has it.
        size: The height and width of the batch.
        geometry: The geometry that the views were found for.
    """

    views: Any
    size: tuple[int, int]
    geometry: Geometry | None


class Followed(NamedTuple):
    """What a field returns that others follow: its batch, and what they have to know of it.

    That is a `Seen` of images, and of padded samples their lengths.
    """

    batch: Any
    known: Any


class FieldContext(NamedTuple):
    """What a field knows about the entry whose batch it makes.

    Attributes:
        name: What messages call it, such as ``"Collate: entry ['image']"``.
        path: Where it is in a sample, such as ``"['image']"``; empty if the sample is one array.
        pin: Whether the batch lies in pinned memory, as `Collate`'s ``pin``.
        chance: What is random in the batch; None unless a field of the `Collate` augments.
        packing: Which rows the documents of the batch go to; None unless a `PackSampler` chose them.
        epoch: The epoch that the batch is of; None if nobody told.
        followed: Whether other entries follow this one: the field returns a `Followed` then.
        objects: Of images that are followed the boxes of their objects; None: nobody has boxes.
    """

    name: str
    path: str = ""
    pin: Pin = False
    chance: Chance | None = None
    packing: Packing | None = None
    epoch: int | None = None
    followed: bool = False
    objects: Objects | None = None


class Field(ABC):
    """Turns one entry of all samples into that entry of the batch.

    Fields hold no batch and no buffer: they pickle, and any worker or thread may call them.

    Attributes:
        source: The key of the entry that `of` named; None: the field's own.
        is_optional: Whether samples may lack the entry, as `allow_missing` says.
        takes_none: Whether a sample may be None beside others that are not.
        packs: Whether it lays the samples of a batch end to end, in rows of their own.
        pads: Whether it makes a row of each sample, as long as the longest.
        varying_axes: Which axes of the batch are as long as its largest sample.
        byte_padding: The value it pads batches of bytes with; None if it doesn't.
        augments: Whether it makes something else of samples than they are: it needs `Entry.chance`.
        is_random: Whether any of that is drawn for each sample.
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
        """The same field, of the samples' entry under another key of the same dict.

        An entry that others are made from is in the batch itself only if it has a field of its own.
        What samples have under the field's own key is not read.

        Args:
            key: Where samples have the entry.

        Raises:
            TypeError: ``key`` is no string.

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
        """The same field, of an entry that all samples of a batch may lack, or have as None.

        The batch has no such entry then. That suits labels, which are missing when a model
        predicts.

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
        """Raises TypeError: what a DataLoader calls is a `Collate`, of fields."""
        name = type(self).__name__
        raise TypeError(
            f"{name}: a field can't be called, and is no collate_fn by itself; give it to a Collate: "
            f"collate_fn=Collate({name}(...))"
        )

    @abstractmethod
    def collate(self, samples: Sequence[Any], context: FieldContext) -> Any:
        """The batch of separate samples.

        Args:
            samples: The entry of each sample, at least one.
            context: What messages call the entry, and what else is known of the batch.
        """

    def gather(self, source: Source, indices: npt.NDArray[np.int64], context: FieldContext) -> Any:
        """The batch of samples of one source; unless a field knows better, `collate` of them.

        Args:
            source: Where the samples are: an `ArraySource`, a `RaggedArray`, a `ConcatArray`.
            indices: int64 of shape (B,), checked and not negative.
            context: As for `collate`.
        """
        return self.collate(source.samples(indices, context.name), context)

    def apply(self, batch: Any, host: Any, context: FieldContext) -> Any:
        """Converts an entry that is already batched, as `DeviceLoader` does.

        On the CPU the result has the values that `collate` would give, and elsewhere it is meant
        to. `Image` takes uint8 tensors of shape (N, H, W, C), or as its ``input`` says; `Pad` takes
        a `JaggedBatch` of tensors; `Stack` casts a tensor, on devices as ``Tensor.to``: integers
        that don't fit wrap.

        Args:
            batch: The batch of this entry, on any device.
            host: The same before it was moved there; sizes are looked up in it.
            context: What messages call it.

        Raises:
            TypeError, ValueError: The batch is none that the field can take.
        """
        raise TypeError(f"{context.name}: {self!r} takes no whole batches")

    def placed(self, in_dict: bool) -> Field:
        """The field as it behaves where it stands: directly in a dict or elsewhere."""
        return self

    def names(self) -> tuple[str, ...]:
        """The keys of a dict that the field fills beside its own."""
        return ()

    def __repr__(self) -> str:
        key = "" if self.source is None else f".from_key({self.source!r})"
        return f"{self._call()}{key}{'.allow_missing()' if self.is_optional else ''}"

    def _call(self) -> str:
        """How the field was made."""
        return described(self)


def sequences_of(samples: Sequence[Any], name: str) -> tuple[Any, Any]:
    """Samples that may differ in length, as native code takes them: a source, and offsets in it.

    They are arrays and lists of numbers; or str or bytes, which count as arrays of uint8.
    """
    if isinstance(samples[0], str | bytes):
        strings = encode(samples, name + sample_after(name))
        return strings.values, strings.offsets
    return list(samples), None


# Entries of tokens, of which a row is a sample.
_TOKENS = re.compile("ids'|token|attention_mask", re.IGNORECASE)


def require_rows(samples: Sequence[Any], context: FieldContext) -> None:
    """Raises ValueError for samples (1, L) of tokens, as tokenizers return them with return_tensors.

    Either their name says what they are, or they are integers whose lengths differ.
    """
    if not all(_is_one_row(sample) for sample in samples):
        return
    lengths = {len(sample[0]) for sample in samples}
    if len(lengths) > 1 or _TOKENS.search(context.path):
        expected, got = "a row of tokens", f"shape (1, {len(samples[0][0])})"
        hint = "take sample[0], which a tokenizer gives without return_tensors"
        raise ValueError(Problem(context.name, expected, got, hint, sample=0))


def _is_one_row(sample: Any) -> bool:
    """Whether these are integers of shape (1, L)."""
    if isinstance(sample, list):
        is_row = len(sample) == 1 and isinstance(sample[0], list) and len(sample[0]) > 0
        return is_row and isinstance(sample[0][0], int)
    if not isinstance(sample, ARRAYS) or getattr(sample, "is_nested", False):
        return False
    is_row = sample.ndim == 2 and len(sample) == 1
    return is_row and str(sample.dtype).removeprefix("torch.") in _INTEGERS


_INTEGERS = {"int32", "int64"}

#: The batch of an optional entry that no sample has.
ABSENT = object()


class Beside(NamedTuple):
    """What a field returns that has `Field.names`: its entry, and the entries under those keys."""

    entry: Any
    siblings: dict[str, Any]


#: How a field is asked for lengths or a mask: no, yes, or under this key of a dict.
Request = bool | str


def check_request(request: Any, name: str) -> Request:
    """Returns the request; raises TypeError if it is none."""
    if isinstance(request, bool | str) and request != "":
        return request
    raise TypeError(f"{name} must be True, False or the key of a dict, got {request!r}")


def padded_entry(
    kind: type[Padded],
    values: Any,
    lengths: Any,
    lengths_request: Request,
    mask: Any,
    mask_request: Request,
) -> Any:
    """The entry of a field that pads: a `Padded` if anything stands in it beside the values.

    Lengths and mask are only looked at if they are asked for.
    """
    asked = ((lengths_request, lengths), (mask_request, mask))
    siblings = {key: part for key, part in asked if isinstance(key, str)}
    inside = [part if request is True else None for request, part in asked]
    entry = kind(values, *inside) if True in (lengths_request, mask_request) else values
    return Beside(entry, siblings) if siblings else entry
