"""The `Pad` field."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import DType, Problem, described, torch_dtype, torch_dtype_name, with_hints
from pinfeed.fields.field import (
    Field,
    FieldContext,
    OutputRequest,
    checked_key,
    padded_entry,
    sequences_of,
)
from pinfeed.functional.padding import PAD_HINTS, Padding, require_rows
from pinfeed.functional.sequences import JaggedBatch, LeftPadded, Padded
from pinfeed.functional.torch_ops.tensors import longest_sample, pad_tensor
from pinfeed.memory.outputs import batch_allocator
from pinfeed.runtime import get_num_threads
from pinfeed.sources.ragged import RaggedArray
from pinfeed.sources.source import Source

# The arguments that `like` takes from another Pad.
OF_SHAPES = ("side", "axes", "max_length", "multiple_of")


class Pad(Field):
    """Pads samples of different sizes to the longest and stacks them: tokens, audio, masks.

    Returns a tensor of shape (B, L, ...), or a `Padded`. Samples are ndarrays, CPU tensors or lists of
    numbers, of one ndim and dtype; or strings, which become bytes (str as UTF-8).

    Samples can also be lists of C sequences each, such as the answers of a multiple-choice question.
    They become (B, C, L). ``lengths`` (B, C) and ``mask`` (B, C, L) must then be keys, not True.

    Args:
        pad_value: Padding value; must fit the dtype.
        side: Side to pad, on every axis: ``"right"`` or ``"left"``.
        axes: Axes of a sample that can differ, an integer or a tuple. None: all axes; ``max_length``
            and ``multiple_of`` then apply to axis 0.
        max_length: Maximum length along ``axes``; longer samples are cut on the padded side.
        multiple_of: Number, or a tuple with one for each of ``axes``; lengths are rounded up to
            multiples of it.
        dtype: Dtype of the batch, if not the samples' own. ``torch.can_cast`` must allow the cast, and
            integers must fit.
        scale: Factor for integers that become floats: ``scale=2**-15`` maps int16 to -1..1.
        lengths: Whether to return the lengths, int64 of shape (B,). True returns a `Padded`; a string
            stores them under that key of a dict batch. None: False in a dict, True elsewhere.
        mask: Whether to return a mask, bool of shape (B, L), True for data; or a key, as for ``lengths``.
        mask_dtype: Dtype of the mask, if not bool. Tokenizers return torch.int64, which some models need.
        like: Key of another `Pad` in the same dict, such as ``"input_ids"`` for labels. It sets
            ``side``, ``axes``, ``max_length`` and ``multiple_of`` of this `Pad`, and each sample must have
            equal lengths under both keys. None: `Collate` warns once if labels seem to need ``like``.
            False: no warning, for separate sequences such as the labels of an encoder-decoder.

    Raises:
        TypeError, ValueError: If an argument is invalid. When samples are collated: if a sample doesn't
            fit; the message names it.

    Example:
        Inputs of a language model:

        >>> collate = pinfeed.Collate(
        ...     {
        ...         "input_ids": pinfeed.Pad(
        ...             pad_value=0, mask="attention_mask", multiple_of=8
        ...         ),
        ...         "labels": pinfeed.Pad(pad_value=-100, like="input_ids"),
        ...     }
        ... )
        >>> batch = collate(
        ...     [
        ...         {"input_ids": [5, 6], "labels": [-100, 6]},
        ...         {"input_ids": [7], "labels": [7]},
        ...     ]
        ... )
        >>> list(batch), batch["input_ids"].shape
        (['input_ids', 'attention_mask', 'labels'], torch.Size([2, 8]))

        If samples are single arrays, the batch has lengths:

        >>> pinfeed.Collate(pinfeed.Pad())([[1, 2, 3], [4]]).lengths
        tensor([3, 1])
    """

    pads = True
    varying_axes = (1,)
    # A value and its replacement in a second output of values; None without a second output.
    _replaced: tuple[int, int] | None = None

    @with_hints(
        batch_first="the batch is (B, L, ...): .transpose(0, 1) puts the batch axis second",
        time_major="the batch is (B, L, ...): .transpose(0, 1) puts time first",
        **PAD_HINTS,
    )
    def __init__(
        self,
        *,
        pad_value: Any = 0,
        side: Literal["right", "left"] = "right",
        axes: int | tuple[int, ...] | None = None,
        max_length: int | None = None,
        multiple_of: int | tuple[int, ...] | None = None,
        dtype: Any = None,
        scale: float | None = None,
        lengths: bool | str | None = None,
        mask: bool | str = False,
        mask_dtype: DType | None = None,
        like: str | Literal[False] | None = None,
    ) -> None:
        self.padding = Padding(
            "Pad",
            pad_value,
            side=side,
            axes=axes,
            max_length=max_length,
            multiple_of=multiple_of,
            dtype=dtype,
            scale=scale,
        )
        if self.padding.dtype in (None, "uint8"):
            self.byte_padding = self.padding.pad_value
        self.lengths = (
            None if lengths is None else checked_key(lengths, "Pad: lengths", True, False)
        )
        self.mask = checked_key(mask, "Pad: mask", True, False)
        if mask_dtype is not None and self.mask is False:
            raise ValueError(
                f"Pad: mask_dtype={mask_dtype} needs a mask; pass mask=True, or leave mask_dtype out"
            )
        if mask_dtype is not None:
            mask_dtype = torch_dtype(mask_dtype, "Pad", "mask_dtype")
        self.mask_dtype = mask_dtype
        self._mask_name = torch_dtype_name(self.mask_dtype or torch.bool) if self.mask else ""
        self.like = checked_key(like, "Pad: like", False, None)
        extra = [name for name in OF_SHAPES if getattr(self.padding, name) not in (None, "right")]
        if like and extra:
            raise ValueError(
                f"Pad: like={like!r} takes {extra[0]} from the Pad of {like!r}; leave out {extra[0]}"
            )

    @override
    def extra_keys(self) -> tuple[str, ...]:
        return tuple(name for name in (self.lengths, self.mask) if isinstance(name, str))

    @override
    def collate(self, samples: Sequence[Any], context: FieldContext) -> Any:
        if self.padding.axes is None:
            require_rows(samples, context.name, context.path, pads=True)
        if self.padding.axes is None and _are_nested(samples):
            return self._pad_nested(samples, context)
        parts = self._padded(*sequences_of(samples, context.name), None, context)
        return self._in_batch(parts, context)

    @override
    def gather(self, source: Source, indices: npt.NDArray[np.int64], context: FieldContext) -> Any:
        return self._in_batch(self._padded(*source.select(indices), context), context)

    @override
    def apply(self, batch: Any, host: Any, context: FieldContext) -> Any:
        if not (isinstance(batch, JaggedBatch) and isinstance(batch.values, torch.Tensor)):
            expected = "a JaggedBatch of tensors, which Jagged() makes in a Collate"
            raise TypeError(Problem(context.name, expected, type(batch).__name__))
        if batch.values.is_cpu:
            return self.gather(RaggedArray(*batch), np.arange(len(batch.offsets) - 1), context)
        return self._apply_with_ops(batch, host.offsets, context)

    def _apply_with_ops(
        self, batch: JaggedBatch, offsets: torch.Tensor, context: FieldContext
    ) -> Any:
        """Returns the batch of samples on a device. Offsets are read on the host, to avoid a wait."""
        longest = longest_sample(offsets, context.name)
        outputs: Any = {"lengths": bool(self._lengths), "mask": bool(self.mask)}
        values, lengths, mask = pad_tensor(
            self.padding, *batch, longest, **outputs, name=context.name
        )
        if mask is not None and self.mask_dtype is not None:
            mask = mask.to(self.mask_dtype)
        return self._in_batch((values, lengths, mask), context)

    def _padded(
        self, source: Any, offsets: Any, indices: Any, context: FieldContext
    ) -> tuple[Any, ...]:
        """Returns values, lengths, a mask and values with one replaced; None unless requested."""
        return _core.pad(
            source,
            offsets,
            indices,
            self.padding.options,
            batch_allocator(context.pin),
            context.name,
            get_num_threads(),
            lengths=bool(self._lengths) or context.shared is not None,
            mask=self._mask_name,
            replaced=self._replaced,
        )

    def _in_batch(self, parts: tuple[Any, ...], context: FieldContext) -> Any:
        """Returns the entry of the batch for values, lengths and a mask."""
        values, lengths, mask = parts[:3]
        if context.shared is not None:
            context.shared.lengths = lengths
        kind = LeftPadded if self.padding.side == "left" else Padded
        return padded_entry(kind, values, lengths, self._lengths, mask, self.mask)

    def _pad_nested(self, samples: Sequence[Any], context: FieldContext) -> Any:
        """Returns the batch of samples that are lists of sequences: (B, C, L)."""
        if self._lengths is True or self.mask is True:
            wrong = "lengths and mask of lists of sequences need keys"
            hint = "make samples dicts and pass Pad(lengths='lengths', mask='mask'), or Pad(lengths=False)"
            raise ValueError(Problem(context.name, wrong, hint=hint))
        count = len(samples[0])
        for position, sample in enumerate(samples):
            if len(sample) != count:
                expected, got = f"{count} sequences as in sample 0", str(len(sample))
                hint = "extend the shorter ones with empty sequences: sample + [[]]"
                if (frames := _frames((*samples[0], *sample))) is not None:
                    sizes = ", ".join(map(str, (-1, *frames.shape[1:])))
                    array = f"np.array(sample, np.{frames.dtype}).reshape({sizes})"
                    hint = f"{array} makes an array of frames; if they are sequences, {hint}"
                raise ValueError(Problem(context.name, expected, got, hint, sample=position))
        sequences = [sequence for sample in samples for sequence in sample]
        try:
            parts = self._padded(sequences, None, None, context)
        except (TypeError, ValueError) as error:
            problem = Problem.of(error)
            if problem is not None and problem.sample is not None:
                problem.sample, problem.part = divmod(problem.sample, count)
            raise
        shape = (len(samples), count)
        parts = tuple(None if part is None else part.unflatten(0, shape) for part in parts)
        return self._in_batch(parts, context)

    @property
    def _lengths(self) -> OutputRequest:
        return self.lengths is None or self.lengths

    def in_dict(self, key: Any, fields: Mapping[Any, Any], name: str) -> Pad:
        """Returns the field for its key in a dict of fields, with the padding of its ``like``."""
        field, padding = copy.copy(self), self.padding
        field.lengths = self.lengths or False
        if not self.like:
            return field
        other = fields.get(self.like)
        if not isinstance(other, Pad) or other.like or key == self.like:
            raise ValueError(
                f"{name}[{key!r}]: like must be the key of another Pad() in the same dict, which has no like= "
                f"itself, got {self.like!r}, the key of {other!r}"
            )
        shared = {name: getattr(other.padding, name) for name in OF_SHAPES}
        field.padding = Padding(
            "Pad", padding.pad_value, dtype=padding.dtype, scale=padding.scale, **shared
        )
        return field

    @override
    def _call(self) -> str:
        padding = vars(self.padding)
        arguments = ("pad_value", "dtype", "scale") if self.like else padding
        return described(self, **{name: padding[name] for name in arguments})


def _frames(sequences: Sequence[Any]) -> Any:
    """Returns sequences of one shape as an array, None for others."""
    try:
        frames = np.array(sequences)
    except (RuntimeError, TypeError, ValueError):  # different lengths, or tensors on devices
        return None
    return frames if frames.dtype.kind in "biuf" else None


def _are_nested(samples: Sequence[Any]) -> bool:
    """Whether samples are lists of sequences, judging by the first that is not empty."""
    for sample in samples:
        if not isinstance(sample, list | tuple):
            return False
        if sample:
            part = sample[0]
            return isinstance(part, list | tuple) or getattr(part, "ndim", 0) > 0
    return False
