"""The `Pad` field."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import DType, Problem, described, torch_dtype, torch_dtype_name, with_hints
from pinfeed.fields.field import (
    BatchWithInfo,
    Field,
    FieldContext,
    OutputRequest,
    check_output_request,
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
_OF_SHAPES = ("side", "axes", "max_length", "multiple_of")


class Pad(Field):
    """Pads samples of different sizes to the longest and stacks them: tokens, audio, masks.

    Returns a tensor of shape (B, L, ...), or a `Padded`. Samples are ndarrays, CPU tensors or lists of
    numbers, of one rank and dtype; or strings, which become bytes (str as UTF-8).

    Samples can also be lists of C sequences each, such as the answers of a multiple-choice question.
    They become (B, C, L); ``lengths`` (B, C) and ``mask`` (B, C, L) then need keys.

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
        lengths: Return the lengths, int64 of shape (B,). True returns a `Padded`; a string stores them
            under that key of a dict batch. None is False in a dict, and True elsewhere: in a tuple, or
            if a sample is one array.
        mask: Return a mask, bool of shape (B, L), True for data. True or a string: as for ``lengths``.
        mask_dtype: Dtype of the mask, if not bool. Tokenizers return torch.int64, which some models need.
        like: Key of another `Pad` in the same dict, whose ``side``, ``axes``, ``max_length`` and
            ``multiple_of`` this one uses. Each sample must have the same length under both keys, like
            the labels of a decoder and its tokens. None: `Collate` warns once if ``labels``,
            ``label_ids``, ``ner_tags`` and similar keys differ in length from ``input_ids``, or if
            entries of the same lengths differ in ``side``, or in whether they have a ``max_length``.
            False: a separate sequence, like the labels of an encoder-decoder, which is not compared.

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
        self._padding = Padding(
            "Pad",
            pad_value,
            side=side,
            axes=axes,
            max_length=max_length,
            multiple_of=multiple_of,
            dtype=dtype,
            scale=scale,
        )
        if self._padding.dtype in (None, "uint8"):
            self.byte_padding = self._padding.pad_value
        self.lengths = None if lengths is None else check_output_request(lengths, "Pad: lengths")
        self.mask = check_output_request(mask, "Pad: mask")
        if mask_dtype is not None and self.mask is False:
            raise ValueError(
                f"Pad: mask_dtype={mask_dtype} needs a mask; pass mask=True, or leave mask_dtype out"
            )
        if mask_dtype is not None:
            mask_dtype = torch_dtype(mask_dtype, "Pad", "mask_dtype")
        self.mask_dtype = mask_dtype
        self._mask_name = torch_dtype_name(self.mask_dtype or torch.bool) if self.mask else ""
        if like is not None and like is not False and (not isinstance(like, str) or not like):
            raise TypeError(
                f"Pad: like must be the key of another Pad, False or None, got {like!r}"
            )
        extra = [name for name in _OF_SHAPES if getattr(self._padding, name) not in (None, "right")]
        if like and extra:
            raise ValueError(
                f"Pad: like={like!r} takes {extra[0]} from the Pad of {like!r}; leave out {extra[0]}"
            )
        self.like = like
        #: The keys of the `Pad`s to compare lengths with: whether lengths must be equal, and how the
        #: padding differs.
        self.compared: dict[Any, tuple[bool, str]] = {like: (True, "")} if like else {}
        self._has_warned = False

    @override
    def for_position(self, in_dict: bool) -> Pad:
        if self.lengths is not None:
            return self
        field = copy.copy(self)
        field.lengths = not in_dict
        return field

    @override
    def extra_keys(self) -> tuple[str, ...]:
        return tuple(name for name in (self.lengths, self.mask) if isinstance(name, str))

    @override
    def collate(self, samples: Sequence[Any], context: FieldContext) -> Any:
        if self._padding.axes is None:
            require_rows(samples, context.name, context.path, pads=True)
        if self._padding.axes is None and _are_nested(samples):
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
            self._padding, *batch, longest, **outputs, name=context.name
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
            self._padding.options,
            batch_allocator(context.pin),
            context.name,
            get_num_threads(),
            lengths=bool(self._lengths) or context.has_dependents,
            mask=self._mask_name,
            replaced=self._replaced,
        )

    def _in_batch(self, parts: tuple[Any, ...], context: FieldContext) -> Any:
        """Returns the entry of the batch for values, lengths and a mask."""
        values, lengths, mask = parts[:3]
        kind = LeftPadded if self._padding.side == "left" else Padded
        batch = padded_entry(kind, values, lengths, self._lengths, mask, self.mask)
        return BatchWithInfo(batch, lengths) if context.has_dependents else batch

    def compare(
        self,
        lengths: torch.Tensor,
        key: Any,
        other_lengths: torch.Tensor,
        other: Pad,
        context: FieldContext,
    ) -> None:
        """Raises ValueError, or warns once, if this entry is padded differently from a related one.

        Args:
            lengths: Lengths of this entry's samples.
            key: Key of the other entry.
            other_lengths: Lengths of the other entry's samples.
            other: Field of the other entry.
            context: Context of this entry.
        """
        are_same, differs = self.compared[key]
        if self._has_warned:
            return
        if not are_same or torch.equal(lengths, other_lengths):
            max_lengths = self._padding.max_length, other._padding.max_length
            if differs and _belong_together(lengths, other_lengths, *max_lengths):
                self._has_warned = True
                text = f"{differs}, so related items are in different columns, or missing"
                fix = f"pass like={key!r} instead, or, if these are separate sequences, like=False"
                warnings.warn(f"{context.name}: {text}; {fix}", stacklevel=2)
            return
        # Otherwise they have different numbers of sequences.
        is_same = lengths.shape == other_lengths.shape
        sample = (
            int((lengths != other_lengths).reshape(len(other_lengths), -1).any(1).nonzero()[0])
            if is_same
            else 0
        )
        limits = "" if self.like else ", and set the same max_length for both"
        if lengths.ndim > other_lengths.ndim:
            limits += "; np.asarray(sample) makes rows of lists"
        problem = Problem(
            context.name,
            f"length {other_lengths[sample].tolist()} as in [{key!r}]",
            str(lengths[sample].tolist()),
            f"give every item there a value, {self._padding.pad_value} where it has none{limits}, or, if "
            "this is a separate sequence, such as the labels of an encoder-decoder, pass like=False",
            sample=sample,
        )
        if self.like:
            raise ValueError(problem)
        self._has_warned = True
        warnings.warn(str(problem), stacklevel=2)

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
                if len({*map(len, (*samples[0], *sample))}) == 1:
                    hint = f"np.asarray(sample) makes an array of frames; if they are sequences, {hint}"
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

    def with_padding_of_like(self, key: Any, fields: Mapping[Any, Any], name: str) -> Pad:
        """Returns the field for its key in a dict of fields, with the padding of its ``like``."""
        if not self.like:
            return copy.copy(self)
        other = fields.get(self.like)
        if not isinstance(other, Pad) or other.like or key == self.like:
            raise ValueError(
                f"{name}[{key!r}] has like={self.like!r}, which must be the key of another Pad() in the "
                f"same dict, without like=; got {other!r} there"
            )
        field, own = copy.copy(self), self._padding
        shared = {name: getattr(other._padding, name) for name in _OF_SHAPES}
        field._padding = Padding("Pad", own.pad_value, dtype=own.dtype, scale=own.scale, **shared)
        return field

    @override
    def _call(self) -> str:
        padding = vars(self._padding)
        arguments = ("pad_value", "dtype", "scale") if self.like else padding
        return described(self, **{name: padding[name] for name in arguments})


def with_related_padding(fields: Mapping[Any, Any], name: str) -> list[Any]:
    """Returns the fields of a dict, with the padding of their ``like`` and the entries to compare."""
    pads = {
        key: field.with_padding_of_like(key, fields, name) if isinstance(field, Pad) else field
        for key, field in fields.items()
    }
    independent = {key: f for key, f in pads.items() if isinstance(f, Pad) and f.like is None}
    tokens = next((key for key in _TOKENS if key in independent), None)
    for i, (key, field) in enumerate(independent.items()):
        for j, (other, other_field) in enumerate(independent.items()):
            are_same = other == tokens and bool(_OF_TOKENS.search(str(key)))
            are_same &= (field.source or key) != (other_field.source or other)
            differs = _difference(other, other_field, key, field) if j < i else ""
            if (
                (are_same or differs)
                and field._padding.axes == other_field._padding.axes
                and j != i
            ):
                field.compared[other] = are_same, differs
    return list(pads.values())


# Keys of tokens, and of entries with one item per token.
_TOKENS = "input_ids", "token_ids", "tokens"
_OF_TOKENS = re.compile(
    "^(labels|label_ids|(ner|pos|chunk|bio|token)_?(tags|labels)|(attention|loss|special_tokens)_mask"
    "|token_type_ids|position_ids)$"
)


def _difference(key: Any, field: Pad, other_key: Any, other: Pad) -> str:
    """Describes how the padding of two fields differs. Two different limits can be intended."""
    first, second = field._padding, other._padding
    if first.side != second.side:
        arguments = f"side={first.side!r}", f"side={second.side!r}"
    elif (first.max_length is None) != (second.max_length is None):
        arguments = f"max_length={first.max_length}", f"max_length={second.max_length}"
    else:
        return ""
    return f"{key!r} has {arguments[0]} and {other_key!r} has {arguments[1]}"


def _belong_together(lengths: torch.Tensor, other: torch.Tensor, *limits: int | None) -> bool:
    """Whether samples of two entries have equal lengths up to the limits, and not all the same one."""
    if lengths.shape != other.shape or lengths.numel() == 0:
        return False
    limit = min((limit for limit in limits if limit is not None), default=2**63 - 1)
    lengths = lengths.clamp(max=limit)
    return torch.equal(lengths, other.clamp(max=limit)) and bool((lengths != lengths.max()).any())


def _are_nested(samples: Sequence[Any]) -> bool:
    """Whether samples are lists of sequences, judging by the first that is not empty."""
    for sample in samples:
        if not isinstance(sample, list | tuple):
            return False
        if sample:
            part = sample[0]
            return isinstance(part, list | tuple) or getattr(part, "ndim", 0) > 0
    return False
