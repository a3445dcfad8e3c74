"""The `Pack` field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import (
    Problem,
    checked_integer,
    described,
    dtype_name,
    positive_integer,
    require_flags,
    with_hints,
)
from pinfeed.batches import Selection
from pinfeed.fields.field import EntryWithExtras, Field, FieldContext
from pinfeed.functional.padding import require_rows
from pinfeed.memory.outputs import batch_allocator
from pinfeed.runtime import get_num_threads
from pinfeed.sources.source import Source

_EXTRAS = ("position_ids", "document_ids", "seq_idx", "attention_mask", "cu_seqlens", "max_seqlen")


class Pack(Field):
    """Packs documents into rows, as a `PackSampler` planned. Returns a tensor of shape (rows, seq_length).

    Samples are ndarrays, CPU tensors or lists of numbers; rows of an `ArrayDataset` are read
    directly from its arrays. The end of a row is padding. Entries with other fields have one value
    per document.

    With ``seq_length=None`` it concatenates all samples of a batch in order, from any sampler and
    without padding, into (1, tokens), as transformers' ``DataCollatorWithFlattening`` does.

    ``position_ids``, ``document_ids``, ``cu_seqlens``, ``max_seqlen``, ``attention_mask`` and
    ``seq_idx`` each add an entry to the dict batch: True stores it under the argument's name, a string under
    that key, a tuple of strings under each of those keys. A *segment* is a document, or the padding of a row.

    Args:
        seq_length: Tokens per row, the same number as the PackSampler's. None: one row of all tokens.
        pad_value: Padding value.
        first_token: Value that overwrites the first token of each document. For labels, pass the loss's
            ignore index, so that no document predicts the start of the next.
        dtype: Dtype of the batch, if not the samples' own, as in `Pad`.
        flat: Whether to return shape (1, rows × seq_length).
        position_ids: Positions in the segment, int64, shaped like the rows.
        position_start: Position of a document's first token.
        document_ids: Number of the token's document in its row, int32, shaped like the rows; -1 for
            padding. Input of `packing.attention_mask`. With ``flat``, numbers continue from row to row,
            and the padding of a row uses up one number.
        cu_seqlens: Segment boundaries in all rows, int32 of shape (N + 1,). N is rows × (max_documents + 1)
            if the PackSampler has ``max_documents``, else the number of segments rounded up to a power of
            two; unused entries repeat the total length. Without ``seq_length``, N is the number of segments.
        max_seqlen: Length of the longest segment, a Python int. It is rounded up to a power of two, but
            at most ``seq_length``; exact without ``seq_length``.
        attention_mask: Mask of tokens, bool, shaped like the rows; False for padding.
        seq_idx: Like ``document_ids``, int32, but padding has the number after its row's last document.
            Input of linear attention and state-space models.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range. When samples are collated: if the batch carries no
            row layout, a document's length differs from the length that the sampler got or from its
            ``input_ids``, or there are 2**31 tokens or more.

    Example:
        >>> tokens = pinfeed.RaggedArray.from_sequences([[1, 2, 3], [4, 5], [6]])
        >>> sampler = pinfeed.samplers.PackSampler(
        ...     tokens, seq_length=4, batch_size=2, shuffle=False
        ... )
        >>> dataset = pinfeed.ArrayDataset({"input_ids": tokens, "labels": tokens})
        >>> fields = {
        ...     "input_ids": pinfeed.Pack(seq_length=4, position_ids=True, document_ids=True),
        ...     "labels": pinfeed.Pack(seq_length=4, pad_value=-100, first_token=-100),
        ... }
        >>> loader = torch.utils.data.DataLoader(
        ...     dataset, batch_sampler=sampler, collate_fn=pinfeed.Collate(fields)
        ... )
        >>> for key, rows in next(iter(loader)).items():
        ...     print(key, rows.tolist())
        input_ids [[1, 2, 3, 6], [4, 5, 0, 0]]
        position_ids [[0, 1, 2, 0], [0, 1, 0, 1]]
        document_ids [[0, 0, 0, 1], [0, 0, -1, -1]]
        labels [[-100, 2, 3, -100], [-100, 5, -100, -100]]
    """

    packs = True

    @with_hints(fill="pass pad_value", padding_value="pass pad_value", mask="pass attention_mask")
    def __init__(
        self,
        *,
        seq_length: int | None,
        pad_value: Any = 0,
        first_token: Any = None,
        dtype: Any = None,
        flat: bool = False,
        position_ids: bool | str | tuple[str, ...] = False,
        position_start: int = 0,
        document_ids: bool | str | tuple[str, ...] = False,
        cu_seqlens: bool | str | tuple[str, ...] = False,
        max_seqlen: bool | str | tuple[str, ...] = False,
        attention_mask: bool | str | tuple[str, ...] = False,
        seq_idx: bool | str | tuple[str, ...] = False,
    ) -> None:
        self.seq_length = positive_integer(seq_length, "Pack: seq_length", 2**31 - 1)
        self.pad_value = pad_value
        self.first_token = first_token
        self.dtype = None if dtype is None else dtype_name(dtype, "Pack")
        for keyword, value in (
            ("pad_value", pad_value),
            ("first_token", 0 if first_token is None else first_token),
        ):
            # Without a dtype, complex128 accepts every number.
            _core.check_value(value, self.dtype or "complex128", "Pack", keyword)
        require_flags("Pack", flat=flat)
        self.flat = flat
        self.position_start = checked_integer(
            position_start, "Pack: position_start", -(2**62), 2**62
        )
        extras = (position_ids, document_ids, seq_idx, attention_mask, cu_seqlens, max_seqlen)
        self._keys = {
            extra: _checked_keys(keys, extra) for extra, keys in zip(_EXTRAS, extras, strict=True)
        }
        self._options = _core.PackOptions(
            fill=pad_value,
            first=first_token,
            dtype=self.dtype,
            flat=flat,
            position_start=self.position_start,
            **{extra: bool(self._keys[extra]) for extra in _EXTRAS[:-2]},
            cu_seqlens=bool(self._keys["cu_seqlens"]) or seq_length is None,  # for comparisons
        )

    @override
    def extra_keys(self) -> tuple[str, ...]:
        return tuple(key for keys in self._keys.values() for key in keys)

    @override
    def collate(self, samples: Sequence[Any], context: FieldContext) -> Any:
        require_rows(samples, context.name, context.path)
        return self._packed(Selection(list(samples)), context)

    @override
    def gather(self, source: Source, indices: npt.NDArray[np.int64], context: FieldContext) -> Any:
        return self._packed(source.select(indices), context)

    def _packed(self, samples: Selection, context: FieldContext) -> Any:
        packing = None if self.seq_length is None else context.packing
        if packing is None and self.seq_length is not None:
            wrong = (
                "Pack needs the rows that a PackSampler planned: DataLoader(dataset, "
                f"batch_sampler=PackSampler(lengths, seq_length={self.seq_length}), ...)"
            )
            hint = (
                "any dataset but an ArrayDataset needs IndexedDataset(dataset) around it, and a "
                "PackedStream needs batch_size=None"
            )
            raise ValueError(Problem(context.name, wrong, hint=hint))
        if packing is not None and self.seq_length != packing.seq_length:
            expected = f"seq_length={packing.seq_length} for Pack, like the PackSampler's"
            raise ValueError(Problem(context.name, expected, str(self.seq_length)))
        packed = _core.pack(
            *samples,
            packing,
            self._options,
            batch_allocator(context.pin),
            context.name,
            get_num_threads(),
        )
        extras = {key: packed[extra] for extra, keys in self._keys.items() for key in keys}
        if context.shared is not None:
            context.shared.lengths = packed["cu_seqlens"].diff()
        return EntryWithExtras(packed["values"], extras) if extras else packed["values"]

    @override
    def _call(self) -> str:
        return described(self, **{extra: keys for extra, keys in self._keys.items() if keys})


def _checked_keys(keys: Any, name: str) -> tuple[str, ...]:
    if isinstance(keys, bool):
        return (name,) if keys else ()
    if isinstance(keys, str) and keys:
        return (keys,)
    if isinstance(keys, tuple) and keys and all(isinstance(key, str) and key for key in keys):
        return keys
    raise TypeError(
        f"Pack: {name} must be True, False, the key of a dict or a tuple of keys, got {keys!r}"
    )
