"""transformers: classes that take the place of its data collators."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from pinfeed.fields import Field, Pad, Stack
from pinfeed.fields.collate import Collate
from pinfeed.fields.pack import Pack
from pinfeed.optional import import_extra
from pinfeed.sources.source import Source

__all__ = [
    "DataCollatorForLanguageModeling",
    "DataCollatorForSeq2Seq",
    "DataCollatorForTokenClassification",
    "DataCollatorWithFlattening",
    "DataCollatorWithPadding",
]

_BatchEncoding: Any = import_extra("transformers", "transformers").BatchEncoding
_NO_LENGTH = 1e20  # tokenizers without a longest input say something beyond it


class _Numbers(Field):
    """Numbers, arrays or lists of one length, as ``torch.tensor`` makes them of Python's numbers.

    Integers become int64, floats the default dtype, float32.
    """

    @override
    def collate(self, samples: Sequence[Any], name: str) -> Any:
        if not isinstance(samples[0], list | tuple):
            return self._cast(Stack().collate(samples, name), samples[0], name)
        try:
            return torch.tensor(samples)
        except (RuntimeError, TypeError, ValueError) as error:
            raise type(error)(f"{name}: {error}; {_LEAVE_OUT}") from error

    @override
    def gather(self, source: Source, indices: npt.NDArray[np.int64], name: str) -> Any:
        return self._cast(Stack().gather(source, indices, name), source, name)

    def _cast(self, batch: Any, given: Any, name: str) -> torch.Tensor:
        if not isinstance(batch, torch.Tensor):
            raise TypeError(f"{name}: expected numbers, got {type(given).__name__}; {_LEAVE_OUT}")
        if batch.dtype == torch.bool or batch.is_complex():
            return batch
        return batch.to(torch.get_default_dtype() if batch.is_floating_point() else torch.int64)


_LEAVE_OUT = (
    "only input_ids, attention_mask, token_type_ids and special_tokens_mask are padded; leave others "
    "out, as Dataset.remove_columns() of datasets does, or take the collator of transformers"
)


class _Collator(Collate):
    """A `Collate` whose spec depends on the leaves that the features have."""

    return_tensors: str

    def __post_init__(self) -> None:
        super().__init__()
        self._require_tensors(self.return_tensors)

    def _require_tensors(self, return_tensors: str | None) -> None:
        if return_tensors not in (None, "pt"):
            raise ValueError(
                f"{type(self).__name__}: return_tensors must be 'pt', got {return_tensors!r}; "
                "Tensor.numpy() of a batch's leaf is an array of the same memory"
            )

    def _collate(self, features: Sequence[Any], spec: Mapping[str, Field], keys: set[str]) -> Any:
        """The batch of the leaves with these keys, as a dict."""
        if not features[0].keys() <= keys:
            features = [{key: feature[key] for key in keys} for feature in features]
        return dict(Collate(spec)(features))


class _Padding(_Collator):
    """A collator that pads as ``tokenizer.pad`` does."""

    tokenizer: Any
    padding: bool | str = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if not hasattr(self.tokenizer, "pad_token_id"):
            raise TypeError(
                f"{type(self).__name__}: tokenizer must be one of transformers, with a pad_token_id, "
                f"got {type(self.tokenizer).__name__}; for what a feature extractor or a processor "
                "pads, take the collator of transformers"
            )
        if self.padding not in (True, "longest", "max_length"):
            raise ValueError(
                f"{type(self).__name__}: padding must be True, 'longest' or 'max_length', got "
                f"{self.padding!r}; features of one length get no padding from padding=True"
            )

    def _pad(
        self,
        features: Sequence[Any],
        labels: Mapping[str, Field],
        without: Collection[str] = (),
    ) -> Any:
        """The batch of features that are dicts.

        Args:
            features: At least one.
            labels: The fields of leaves that ``tokenizer.pad`` does not pad.
            without: The leaves that the batch is not to have.
        """
        tokenizer, first = self.tokenizer, features[0]
        ids = tokenizer.model_input_names[0]
        if ids not in first:
            raise ValueError(f"{type(self).__name__}: expected {ids!r} in features, got {[*first]}")
        self._require_pad_token()
        keys = {key for key in first if key not in without}
        fills = {
            ids: tokenizer.pad_token_id,
            "attention_mask": 0,
            "token_type_ids": tokenizer.pad_token_type_id,
            "special_tokens_mask": 1,
        }
        padded = [key for key in fills if key in keys and getattr(first[key], "ndim", 1) == 1]
        renamed = {label.source for label in labels.values()}
        spec: dict[str, Field] = dict.fromkeys(keys - renamed, _Numbers().optional())
        spec |= {key: self._field(fills[key], self._width(), lengths=True) for key in padded}
        if "attention_mask" in tokenizer.model_input_names and "attention_mask" not in keys:
            mask = {"mask": "attention_mask", "mask_dtype": torch.int64}
            spec[ids] = self._field(fills[ids], self._width(), lengths=True, **mask)
            padded.append("attention_mask")
        batch = self._collate(features, spec | dict(labels), keys)

        lengths = batch[ids].lengths
        for key in padded:
            if isinstance(batch[key], torch.Tensor):  # the mask that was made
                values = batch[key]
            else:
                values, others = batch[key]
                self._require_same(lengths, others, ids, key)
            batch[key] = self._widened(values, self._width(), fills[key], lengths)
        return _BatchEncoding(batch)

    def _field(self, fill: int, width: int | None, **keywords: Any) -> Pad:
        """A field that rounds up to ``pad_to_multiple_of``, or pads to a width."""
        keywords |= {"side": self.tokenizer.padding_side, "dtype": torch.int64}
        return Pad(fill, multiple_of=width or self.pad_to_multiple_of, **keywords)

    def _width(self) -> int | None:
        """How wide batches are, None if that is up to the features."""
        if self.padding != "max_length":
            return None
        length = self.tokenizer.model_max_length if self.max_length is None else self.max_length
        if length > _NO_LENGTH:
            raise ValueError(
                f"{type(self).__name__}: padding='max_length' needs max_length, because the "
                "tokenizer has no model_max_length"
            )
        multiple = self.pad_to_multiple_of or 1
        return int(-(-length // multiple) * multiple)

    def _widened(self, values: Any, width: int | None, fill: int, lengths: Any = None) -> Any:
        """The values in their width; the field, which rounds up, made no columns of empty ones."""
        if width is None or values.shape[1] == width:
            return values
        if values.shape[1] > width:
            longest = values.shape[1] if lengths is None else int(lengths.max())
            raise ValueError(
                f"{type(self).__name__}: expected features of at most {width} tokens and labels, got "
                f"{longest}; the tokenizer cuts with truncation=True, max_length={width}"
            )
        return torch.nn.functional.pad(values, (0, width - values.shape[1]), value=fill)

    def _require_pad_token(self) -> None:
        if self.tokenizer.pad_token is None:
            raise ValueError(
                f"{type(self).__name__}: the tokenizer has no token to pad with; set one, such as "
                "tokenizer.pad_token = tokenizer.eos_token"
            )

    def _require_same(self, lengths: Any, others: Any, ids: str, key: str) -> None:
        if not torch.equal(lengths, others):
            position = int((lengths != others).nonzero()[0])
            raise ValueError(
                f"{type(self).__name__}: {key} of feature {position}: expected {lengths[position]} "
                f"numbers, one for each of {ids}, got {others[position]}"
            )


@dataclass
class DataCollatorWithPadding(_Padding):
    """Takes the place of transformers' ``DataCollatorWithPadding``: pads what a tokenizer made.

    The arguments are those of transformers, and so are the batch's keys, dtypes and values. Leaves
    of a tokenizer are padded, all others stacked; ``label`` and ``label_ids`` become ``labels``.

    Args:
        tokenizer: Says what to pad with, and on which side.
        padding: True or ``"longest"``, or ``"max_length"``.
        max_length: The width, for ``padding="max_length"``; None: ``tokenizer.model_max_length``.
        pad_to_multiple_of: What the width is rounded up to a multiple of.
        return_tensors: ``"pt"``.

    Raises:
        ValueError: ``padding`` is False, which makes lists; ``return_tensors`` is not ``"pt"``. When
            a batch is made: the tokenizer has no padding token; a feature is longer than
            ``max_length``; leaves of a feature differ in length; or as with `pinfeed.Collate`.

    Example:
        >>> from transformers import ByT5Tokenizer
        >>> collator = DataCollatorWithPadding(ByT5Tokenizer())
        >>> collator([{"input_ids": [5, 6], "label": 1}, {"input_ids": [7], "label": 0}])
        {'input_ids': tensor([[5, 6],
                [7, 0]]), 'attention_mask': tensor([[1, 1],
                [1, 0]]), 'labels': tensor([1, 0])}
    """

    tokenizer: Any
    padding: bool | str = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    return_tensors: str = "pt"

    @override
    def __call__(self, features: Sequence[Any]) -> Any:
        """Collates features that are dicts, into a ``BatchEncoding``."""
        name = "label_ids" if "label_ids" in features[0] else "label"
        labels = {"labels": _Numbers().of(name).optional()} if name in features[0] else {}
        return self._pad(features, labels, without=() if name == "label" else ("label",))


@dataclass
class DataCollatorForTokenClassification(_Padding):
    """Takes the place of transformers' ``DataCollatorForTokenClassification``: pads labels, too.

    Args:
        tokenizer: As for `DataCollatorWithPadding`, and so are the others; its errors, too.
        padding: True or ``"longest"``, or ``"max_length"``.
        max_length: The width, for ``padding="max_length"``.
        pad_to_multiple_of: What the width is rounded up to a multiple of.
        label_pad_token_id: What ``label`` or ``labels`` are padded with, as wide as the tokens.
        return_tensors: ``"pt"``.
    """

    tokenizer: Any
    padding: bool | str = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    label_pad_token_id: int = -100
    return_tensors: str = "pt"

    @override
    def __call__(self, features: Sequence[Any], return_tensors: str | None = None) -> Any:
        """Collates features that are dicts, into a ``BatchEncoding``."""
        self._require_tensors(return_tensors)
        name = "label" if "label" in features[0] else "labels"
        batch = self._pad(
            features, {name: self._field(self.label_pad_token_id, self._width()).optional()}
        )
        if name in batch:
            width = batch[self.tokenizer.model_input_names[0]].shape[1]
            batch[name] = self._widened(batch[name], width, self.label_pad_token_id)
        return batch


@dataclass
class DataCollatorForSeq2Seq(_Padding):
    """Takes the place of transformers' ``DataCollatorForSeq2Seq``: labels with a length of their own.

    ``label`` or ``labels`` become ``labels``, which is None if all features lack them.

    Args:
        tokenizer: As for `DataCollatorWithPadding`, and so are the others; its errors, too.
        model: Prepares ``decoder_input_ids`` of the labels, if it can.
        padding: True or ``"longest"``, or ``"max_length"``.
        max_length: The width, for ``padding="max_length"``, of labels, too.
        pad_to_multiple_of: What the widths are rounded up to a multiple of.
        label_pad_token_id: What labels are padded with.
        return_tensors: ``"pt"``.
    """

    tokenizer: Any
    model: Any = None
    padding: bool | str = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    label_pad_token_id: int = -100
    return_tensors: str = "pt"

    @override
    def __call__(self, features: Sequence[Any], return_tensors: str | None = None) -> Any:
        """Collates features that are dicts, into a ``BatchEncoding``."""
        self._require_tensors(return_tensors)
        name = "label" if "label" in features[0] else "labels"
        fill = self.label_pad_token_id
        width = None if self.max_length is None else self._width()
        batch = self._pad(features, {"labels": self._field(fill, width).of(name).optional()})
        batch["labels"] = labels = batch.get("labels")
        if labels is not None:
            batch["labels"] = labels = self._widened(labels, width, fill)
            if hasattr(self.model, "prepare_decoder_input_ids_from_labels"):
                prepared = self.model.prepare_decoder_input_ids_from_labels(labels=labels)
                batch["decoder_input_ids"] = prepared
        return batch


@dataclass
class DataCollatorForLanguageModeling(_Padding):
    """Takes the place of transformers' ``DataCollatorForLanguageModeling(mlm=False)``.

    ``labels`` are the tokens, with -100 wherever the padding token is, also where it stands in a
    text. Labels that features have are not read, and ``special_tokens_mask`` is left out.

    Args:
        tokenizer: As for `DataCollatorWithPadding`; its errors, too.
        mlm: Must be False.
        whole_word_mask: Must be False.
        mlm_probability: For masked language models, as are the next two, and ``seed``: not read.
        mask_replace_prob: Not read.
        random_replace_prob: Not read.
        pad_to_multiple_of: What the width is rounded up to a multiple of.
        return_tensors: ``"pt"``.
        seed: Not read.
    """

    tokenizer: Any
    mlm: bool = True
    whole_word_mask: bool = False
    mlm_probability: float | None = 0.15
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    pad_to_multiple_of: int | None = None
    return_tensors: str = "pt"
    seed: int | None = None

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mlm or self.whole_word_mask:
            raise ValueError(
                "DataCollatorForLanguageModeling: expected mlm=False and whole_word_mask=False; for "
                "masked language models take that of transformers"
            )

    @override
    def __call__(self, features: Sequence[Any], return_tensors: str | None = None) -> Any:
        """Collates features that are dicts, into a ``BatchEncoding``; or sequences, into a dict."""
        self._require_tensors(return_tensors)
        if isinstance(features[0], Mapping):
            without = ("labels", "special_tokens_mask", "offset_mapping")
            batch = self._pad(features, {}, without=without)
        else:
            batch = {"input_ids": self._pad_sequences(features)}
        labels = batch["input_ids"].clone()
        if self.tokenizer.pad_token_id is not None:
            labels[labels == self.tokenizer.pad_token_id] = -100
        batch["labels"] = labels
        return batch

    def _pad_sequences(self, features: Sequence[Any]) -> torch.Tensor:
        dtype = None if isinstance(features[0], torch.Tensor) else torch.int64
        fill = self.tokenizer.pad_token_id
        options = {"side": self.tokenizer.padding_side, "multiple_of": self.pad_to_multiple_of}
        tokens, lengths = Collate(Pad(fill or 0, dtype=dtype, **options))(features)
        if (lengths != tokens.shape[1]).any():
            self._require_pad_token()
        return tokens


@dataclass
class DataCollatorWithFlattening(_Collator):
    """Takes the place of transformers' ``DataCollatorWithFlattening``: (1, tokens), no padding.

    Only ``input_ids`` and ``labels`` are read. See `pinfeed.Pack` for what models take.

    Args:
        return_tensors: ``"pt"``.
        return_position_ids: Whether to return ``position_ids``.
        separator_id: What overwrites the first label of each feature.
        return_flash_attn_kwargs: Whether to return ``cu_seq_lens_q``, ``cu_seq_lens_k``,
            ``max_length_q`` and ``max_length_k``.
        return_seq_idx: Whether to return ``seq_idx``.
        position_ids_start: The position of a feature's first token.

    Raises:
        ValueError: ``return_tensors`` is not ``"pt"``. When a batch is made: there are not as many
            labels as tokens; or as with `pinfeed.Collate`.
    """

    return_tensors: str = "pt"
    return_position_ids: bool = field(default=True, kw_only=True)
    separator_id: int = field(default=-100, kw_only=True)
    return_flash_attn_kwargs: bool = field(default=False, kw_only=True)
    return_seq_idx: bool = field(default=False, kw_only=True)
    position_ids_start: int = field(default=0, kw_only=True)

    @override
    def __call__(
        self,
        features: Sequence[Any],
        return_tensors: str | None = None,
        separator_id: int | None = None,
    ) -> dict[str, Any]:
        """Collates features that are dicts, into a dict."""
        self._require_tensors(return_tensors)
        has_flash = self.return_flash_attn_kwargs
        tokens = Pack(
            None,
            dtype=torch.int64,
            position_ids=self.return_position_ids,
            position_start=self.position_ids_start,
            seq_idx=self.return_seq_idx,
            cu_seqlens=("cu_seq_lens_q", "cu_seq_lens_k") if has_flash else False,
            max_seqlen=("max_length_q", "max_length_k") if has_flash else False,
        )
        first = self.separator_id if separator_id is None else separator_id
        source = "input_ids" if features[0].get("labels") is None else "labels"
        labels = Pack(None, first=first, dtype=torch.int64).of(source)
        spec = {"input_ids": tokens, "labels": labels}
        batch: dict[str, Any] = self._collate(features, spec, {"input_ids", source})
        shapes = batch["labels"].shape, batch["input_ids"].shape
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"DataCollatorWithFlattening: expected as many labels as input_ids, got "
                f"{shapes[0][1]} and {shapes[1][1]}"
            )
        return batch
