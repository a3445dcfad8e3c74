"""Leaves of different sizes, padded."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed.fields.field import Field, Request, check_request, padded_leaf, pin_of
from pinfeed.functions.padding import Axes, Padding, Side
from pinfeed.memory.outputs import batch_allocator
from pinfeed.sources.source import Source


class Pad(Field):
    """Samples of different sizes in one tensor, padded to the longest: tokens, audio, masks.

    Samples are ndarrays, CPU tensors or lists of numbers, of one rank and dtype; see `pinfeed.pad`
    for what the keywords shared with it mean.

    Args:
        value: What padding is made of.
        side: ``"right"`` or ``"left"``.
        axes: The axes of a sample that may differ. None: all; lengths, mask, ``max_length`` and
            ``multiple_of`` are about axis 0 then.
        max_length: Longer samples are cut.
        multiple_of: Round the size up.
        dtype: The batch's dtype, if not the samples' own.
        lengths: How much of each sample is data, int64 of shape (B,): True makes the leaf a
            `Padded`, a string is the key of a dict batch that they go to, beside the leaf. None is
            True for a bare leaf or one in a tuple, False in a dict, whose leaf stays a tensor.
        mask: The same for a bool mask of shape (B, L).
        time_major: Make it (L, B, ...).

    Raises:
        TypeError, ValueError: An argument does not fit; samples that don't fit raise when they are
            collated, with the number of the sample.

    Example:
        What a language model takes:

        >>> collate = pinfeed.Collate({
        ...     "input_ids": pinfeed.Pad(0, mask="attention_mask", multiple_of=8),
        ...     "labels": pinfeed.Pad(-100, multiple_of=8),
        ... })
        >>> batch = collate([{"input_ids": [5, 6], "labels": [6]}, {"input_ids": [7], "labels": []}])
        >>> list(batch), batch["input_ids"].shape
        (['input_ids', 'attention_mask', 'labels'], torch.Size([2, 8]))

        A bare leaf comes with its lengths:

        >>> pinfeed.Collate(pinfeed.Pad())([[1, 2, 3], [4]]).lengths
        tensor([3, 1])
    """

    def __init__(
        self,
        value: Any = 0,
        *,
        side: Side = "right",
        axes: Axes = None,
        max_length: int | None = None,
        multiple_of: int | None = None,
        dtype: Any = None,
        lengths: Request | None = None,
        mask: Request = False,
        time_major: bool = False,
    ) -> None:
        self._padding = Padding(
            value, side, axes, max_length, multiple_of, dtype, time_major, "Pad"
        )
        self.lengths = None if lengths is None else check_request(lengths, "Pad: lengths")
        self.mask = check_request(mask, "Pad: mask")

    def placed(self, in_dict: bool) -> Pad:
        """See `Field.placed`."""
        if self.lengths is not None:
            return self
        field = copy.copy(self)
        field.lengths = not in_dict
        return field

    def names(self) -> tuple[str, ...]:
        """See `Field.names`."""
        return tuple(name for name in (self.lengths, self.mask) if isinstance(name, str))

    def collate(self, samples: Sequence[Any], name: str) -> Any:
        """See `Field.collate`: shape (B, L, ...), or a `Padded`."""
        return self._pad(list(samples), None, None, name)

    def gather(self, source: Source, indices: npt.NDArray[np.int64], name: str) -> Any:
        """See `Field.gather`: shape (B, L, ...), or a `Padded`."""
        return self._pad(*source.select(indices), name)

    def _pad(self, source: Any, offsets: Any, indices: Any, name: str) -> Any:
        lengths_request = self.lengths is None or self.lengths
        values, lengths, mask = self._padding.pad(
            source,
            offsets,
            indices,
            lengths=bool(lengths_request),
            mask=bool(self.mask),
            target=batch_allocator(pin_of(name)),
            as_tensor=True,
            name=name,
        )
        return padded_leaf(values, lengths, lengths_request, mask, self.mask)

    def __repr__(self) -> str:
        padding = self._padding
        return (
            f"Pad({padding.value!r}, side={padding.side!r}, axes={padding.axes}, "
            f"max_length={padding.max_length}, multiple_of={padding.multiple_of}, "
            f"dtype={padding.dtype}, lengths={self.lengths!r}, mask={self.mask!r}, "
            f"time_major={padding.time_major})"
        )
