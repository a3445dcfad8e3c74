"""Drop-in replacements for the data collators of transformers."""

from __future__ import annotations

import functools
import numbers
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader
from typing_extensions import override

from pinfeed.arguments import Problem, rounded_up
from pinfeed.collation.collate import Collate
from pinfeed.fields.field import EntryWithExtras, Field, FieldContext
from pinfeed.fields.pack import Pack
from pinfeed.fields.pad import Pad
from pinfeed.fields.stack import Stack
from pinfeed.imports import import_extra
from pinfeed.samplers.pack import PackSampler
from pinfeed.sources.dataset import ArrayDataset, Rows
from pinfeed.sources.source import Source

__all__ = [
    "DataCollatorForLanguageModeling",
    "DataCollatorForSeq2Seq",
    "DataCollatorForTokenClassification",
    "DataCollatorWithFlattening",
    "DataCollatorWithPadding",
    "packed_loader",
]

_theirs: Any = import_extra("transformers", "transformers")
_BatchEncoding, _Tokenizer = _theirs.BatchEncoding, _theirs.PreTrainedTokenizerBase
_FLASH = {  # arguments of flash attention
    "cu_seqlens": ("cu_seq_lens_q", "cu_seq_lens_k"),
    "max_seqlen": ("max_length_q", "max_length_k"),
}
_NO_LENGTH = 1e20  # tokenizers without a maximum length have a larger value
_LEAVE_OUT = (
    "only input_ids, attention_mask, token_type_ids and special_tokens_mask are padded; leave others "
    "out, as Dataset.remove_columns() of datasets does, or use the collator of transformers"
)
# Columns of loss masks: a label is -100 where one of them is 0.
_LOSS_MASKS = ("completion_mask", "assistant_masks", "loss_mask")
# Columns of samples that are packed already.
_DOCUMENTS = (
    *("seq_lengths", "cu_seqlens", "cu_seq_lens_q", "cu_seq_lens_k"),
    *("document_ids", "segment_ids", "seq_idx"),
)
# Columns with a number per sample that affects the loss: weights, and positions among the tokens.
_WEIGHTS = re.compile("weight|importance")
_POSITIONS = re.compile(
    "(?:^|_)(?:len|length|start|end|begin|until|offset|pos|position|tokens)(?:$|_)"
    "|^(?:prompt|prefix|response|completion|answer)_(?:size|idx|index)$"
)
_IDS = re.compile("^(?:idx|index|row)$|id$")
_TOKEN_MASKS = ("attention_mask", *_LOSS_MASKS)
# Columns of tokenizers that say nothing if they are 0, or count the tokens.
_REDUNDANT = ("token_type_ids", "special_tokens_mask", "position_ids")


def _is_redundant(features: Sequence[Any], key: str) -> bool:
    """Whether a column of `_REDUNDANT` says nothing in all features."""
    columns = [np.asarray(feature[key]) for feature in features if key in feature]
    if key == "position_ids":
        return all(
            np.array_equal(column, np.arange(len(column))) for column in columns if column.ndim
        )
    return not any(column.any() for column in columns)


def _refuse(function: str, key: str) -> None:
    """Raises ValueError because ignoring a column would change training."""
    why = "which does not reach the model"
    if key in _DOCUMENTS:
        why = "which says that samples are packed; pass single documents (packing=False in TRL)"
    elif key == "position_ids":
        why = "but the positions of each document are counted here"
    elif key in _LOSS_MASKS:
        why = "which can't be applied to these labels; write -100 into a labels column instead"
    hint = (
        f"if training does not depend on {key!r}, call dataset.remove_columns([{key!r}]), or pass an "
        "ArrayDataset without it"
    )
    raise ValueError(Problem(function, f"samples have {key!r}, {why}", hint=hint))


def _check_others(function: str, sample: Any, supported: Collection[str]) -> None:
    """Raises ValueError if a sample, or the sources of samples, have numbers for tokens under other keys.

    Warns about other numbers that are neither ids nor lengths.
    """
    first = {
        key: value[0] if isinstance(value, Source) and len(value) else value
        for key, value in sample.items()
    }
    ignored = []
    for key, value in first.items():
        is_number = isinstance(value, numbers.Real | np.bool_)
        if key in supported:
            if is_number and key != "input_ids":
                expected = "a number for each token"
                hint = f"dataset.remove_columns([{key!r}]) leaves it out, to train on all tokens"
                raise ValueError(Problem(f"{function}: {key}", expected, str(value), hint))
        elif _is_of_tokens(key, value, len(first["input_ids"])) or _WEIGHTS.search(key):
            _refuse(function, key)
        elif is_number and not (_IDS.search(key) or _POSITIONS.search(key)):
            ignored.append(key)
    if ignored:
        warnings.warn(
            f"{function}: numbers in {ignored} are ignored; if the loss depends on them, store a loss_mask "
            f"or labels for each token instead; dataset.remove_columns({ignored}) ends this warning",
            stacklevel=3,
        )


def _is_of_tokens(key: str, value: Any, tokens: int) -> bool:
    """Whether a value of a sample, or one in a struct, has numbers for tokens or is a position among them."""
    if isinstance(value, numbers.Real):
        # A position behind the last token, such as the sample's own length, leaves none out.
        return _POSITIONS.search(key) is not None and value < tokens
    if isinstance(value, Mapping):
        return any(_is_of_tokens(name, part, tokens) for name, part in value.items())
    if isinstance(value, list | tuple):
        if value and isinstance(value[0], Mapping):
            return any(_is_of_tokens(key, part, tokens) for part in value)
        return not value or not isinstance(value[0], str | bytes)
    return getattr(value, "ndim", 0) > 0


def _apply_masks(batch: dict[str, Any], function: str) -> None:
    """Removes the masks from a batch of whole documents, and sets masked labels to -100."""
    for key in _LOSS_MASKS:
        if key in batch:
            batch["labels"].masked_fill_(batch.pop(key) == 0, -100)
    if "attention_mask" in batch and not batch.pop("attention_mask").all():
        got = "0: samples are stored with padding, which would be trained on"
        hint = "tokenize with padding=False"
        raise ValueError(Problem(f"{function}: attention_mask", "1 for every token", got, hint))


class _Numbers(Field):
    """Stacks numbers, arrays or lists of one length with the dtypes of ``torch.tensor``.

    Integers become int64, floats the default dtype, float32.
    """

    @override
    def collate(self, samples: Sequence[Any], context: FieldContext) -> Any:
        if not isinstance(samples[0], list | tuple):
            return self._cast(Stack().collate(samples, context), samples[0], context.name)
        try:
            return torch.tensor(samples, device="cpu")
        except (RuntimeError, TypeError, ValueError) as error:
            raise type(error)(Problem(context.name, str(error), hint=_LEAVE_OUT)) from error

    @override
    def gather(self, source: Source, indices: npt.NDArray[np.int64], context: FieldContext) -> Any:
        return self._cast(Stack().gather(source, indices, context), source, context.name)

    def _cast(self, batch: Any, values: Any, name: str) -> torch.Tensor:
        if not isinstance(batch, torch.Tensor):
            raise TypeError(Problem(name, "numbers", type(values).__name__, _LEAVE_OUT))
        if batch.dtype == torch.bool or batch.is_complex():
            return batch
        return batch.to(torch.get_default_dtype() if batch.is_floating_point() else torch.int64)


def _first(features: Sequence[Any]) -> Any:
    """Returns an object with the keys of the features: the first feature, or the sources of rows."""
    if len(features) == 0:
        raise ValueError(Problem("data collator: features", "at least one sample", "none"))
    return features.sources if isinstance(features, Rows) else features[0]


@functools.lru_cache  # equal fields are the same object, and so key the cache of Collates
def _numbers(source: str) -> Field:
    return _Numbers().from_key(source).allow_missing()


@functools.lru_cache
def _padded(
    fill: int, side: Any, multiple: int | None, of: str, kind: type[Pad] = Pad, **options: Any
) -> Field:
    defaults: dict[str, Any] = {"dtype": torch.int64, "lengths": False, "like": False}
    padded = kind(pad_value=fill, side=side, multiple_of=multiple, **defaults | options)
    return padded.from_key(of).allow_missing()


class _TokensAndLabels(Pad):
    """Tokens, and under ``labels`` the same with -100 wherever the padding token is."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._replaced = options["pad_value"], -100

    @override
    def extra_keys(self) -> tuple[str, ...]:
        return (*super().extra_keys(), "labels")

    @override
    def _in_batch(self, parts: tuple[Any, ...], context: FieldContext) -> Any:
        result = super()._in_batch(parts, context)
        values, extras = result if isinstance(result, EntryWithExtras) else (result, {})
        return EntryWithExtras(values, {**extras, "labels": parts[3]})


@dataclass
class _Collator:
    """Caches a `Collate` per kind of batch.

    The first one exists from the beginning, so that forked or spawned workers inherit its settings.
    """

    _collates: dict[Any, Collate] = field(
        default_factory=lambda: {None: Collate()}, init=False, repr=False, compare=False
    )

    def _collated(self, features: Sequence[Any], first: Any, fields: dict[str, Field]) -> Any:
        """Collates the entries that have a field, to a dict."""
        keys = {label.source for label in fields.values()}
        if not first.keys() <= keys:
            keys &= first.keys()
            if isinstance(features, Rows):
                features = Rows({key: features.sources[key] for key in keys}, features.indices)
            else:
                features = [{key: feature[key] for key in keys} for feature in features]
        kind = tuple(fields.items())
        if kind not in self._collates:
            self._collates[kind] = Collate(fields)
        return dict(self._collates[kind](features))


class _Padding(_Collator):
    """Pads the same entries as ``tokenizer.pad``."""

    tokenizer: Any
    padding: Any = True
    max_length: int | None = None
    pad_to_multiple_of: int | None

    def numpy_call(self, features: Sequence[Any]) -> Any:
        """Collates with transformers."""
        return super().numpy_call([*features])  # type: ignore[misc]

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def _pads(self) -> bool:
        """Whether to pad, with a tokenizer; feature extractors pad differently."""
        return self.padding not in (False, "do_not_pad") and isinstance(self.tokenizer, _Tokenizer)

    def _pad(
        self,
        features: Sequence[Any],
        first: Any,
        labels: dict[str, Field],
        without: Collection[str] = (),
        more_fills: Mapping[str, int] = MappingProxyType({}),
        tokens: type[Pad] = Pad,
    ) -> Any:
        """Pads features that are dicts, without the entries in ``without``.

        ``labels`` are the fields of entries that ``tokenizer.pad`` does not pad; ``more_fills`` are the
        pad values of further entries with a number per token; ``tokens`` is the field of the tokens.
        """
        tokenizer = self.tokenizer
        ids = tokenizer.model_input_names[0]
        if ids not in first:
            raise ValueError(Problem(self._name, f"{ids!r} in features", str([*first])))
        fills = {
            ids: self._pad_token_id(),
            "attention_mask": 0,
            "token_type_ids": tokenizer.pad_token_type_id,
            "special_tokens_mask": 1,
            **more_fills,
        }
        for key in (*_LOSS_MASKS, *_DOCUMENTS):
            if key in first and key not in fills and first[key] is not None:
                _refuse(self._name, key)
        width = self._width()
        padded = [
            key
            for key in first
            if key in fills and getattr(first[key], "ndim", 1) == 1 and key not in without
        ]
        makes_mask = (
            "attention_mask" in tokenizer.model_input_names and "attention_mask" not in first
        )
        shape = (tokenizer.padding_side, width or self.pad_to_multiple_of)
        options = {"lengths": len(padded) > 1 or width is not None}
        mask = {"mask": "attention_mask", "mask_dtype": torch.int64} if makes_mask else {}
        sources = {label.source for label in labels.values()}
        fields = {}
        for key in first:
            if key in padded:
                more = {"kind": tokens, **mask} if key == ids else {}
                fields[key] = _padded(fills[key], *shape, key, **options, **more)
            elif key not in without and key not in sources:
                fields[key] = _numbers(key)
        batch = self._collated(features, first, fields | labels)
        lengths = batch[ids].lengths if options["lengths"] else None
        for key in padded if options["lengths"] else ():
            batch[key], own_lengths, _ = batch[key]
            self._require_same(lengths, own_lengths, ids, key)
        if width is not None:
            for key in [*padded, "attention_mask"] if makes_mask else padded:
                batch[key] = self._widened(batch[key], width, fills[key], lengths)
        return _BatchEncoding(batch)

    def _width(self) -> int | None:
        """Returns the fixed width of batches, or None if it depends on the features."""
        if self.padding != "max_length":
            return None
        length = self.tokenizer.model_max_length if self.max_length is None else self.max_length
        if length > _NO_LENGTH:
            why = "padding='max_length' needs max_length, because the tokenizer has no model_max_length"
            raise ValueError(Problem(self._name, why, hint="pass max_length"))
        return int(rounded_up(length, self.pad_to_multiple_of or 1))

    def _widened(self, values: Any, width: int, fill: int, lengths: Any = None) -> Any:
        """Pads values to a fixed width, which fields can't do."""
        missing = width - values.shape[1]
        if missing < 0:
            longest = values.shape[1] if lengths is None else int(lengths.max())
            expected = f"features of at most {width} tokens and labels"
            hint = f"the tokenizer cuts with truncation=True, max_length={width}"
            raise ValueError(Problem(self._name, expected, str(longest), hint))
        if missing == 0:
            return values
        sides = (0, missing) if self.tokenizer.padding_side == "right" else (missing, 0)
        return torch.nn.functional.pad(values, sides, value=fill)

    def _pad_token_id(self) -> int:
        fill: int | None = self.tokenizer.pad_token_id
        if fill is None:
            hint = "set one, such as tokenizer.pad_token = tokenizer.eos_token"
            raise ValueError(Problem(f"{self._name}: tokenizer", "a padding token", "None", hint))
        return fill

    def _require_same(self, lengths: Any, others: Any, ids: str, key: str) -> None:
        if lengths is not others and not torch.equal(lengths, others):
            position = int((lengths != others).nonzero()[0])
            subject = f"{self._name}: {key} of feature {position}"
            expected = f"{lengths[position]} numbers, one for each of {ids}"
            raise ValueError(Problem(subject, expected, str(int(others[position]))))


@dataclass
class DataCollatorWithPadding(_Padding, _theirs.DataCollatorWithPadding):  # type: ignore[misc]
    """Pads tokenized features. Drop-in replacement for transformers' ``DataCollatorWithPadding``.

    Arguments and batches are the same as in transformers. Features are dicts. The entries that a tokenizer
    returns are padded, all others are stacked, and ``label`` or ``label_ids`` becomes ``labels``.

    Args:
        tokenizer: Tokenizer that encoded the features. With a feature extractor, transformers collates.
        padding: True or ``"longest"`` pads to the longest feature, ``"max_length"`` to ``max_length``. With
            False, transformers collates.
        max_length: Number of tokens for ``padding="max_length"``. None: the tokenizer's
            ``model_max_length``.
        pad_to_multiple_of: Number of tokens; lengths are rounded up to a multiple of it. None: not rounded.
        return_tensors: ``"pt"`` returns tensors. With ``"np"``, transformers collates.

    Raises:
        ValueError: When a batch is collated: if the tokenizer has no padding token, a feature is longer
            than ``max_length``, a feature's keys differ in length, or `pinfeed.Collate` raises.

    Example:
        >>> from transformers import ByT5Tokenizer
        >>> collator = DataCollatorWithPadding(ByT5Tokenizer())
        >>> collator([{"input_ids": [5, 6], "label": 1}, {"input_ids": [7], "label": 0}])
        {'input_ids': tensor([[5, 6],
                [7, 0]]), 'attention_mask': tensor([[1, 1],
                [1, 0]]), 'labels': tensor([1, 0])}
    """

    @override
    def __call__(self, features: Sequence[Any]) -> Any:
        """Returns the batch of a list of dicts, as a ``BatchEncoding``."""
        if self.return_tensors != "pt" or not self._pads:
            return super().__call__([*features])
        first = _first(features)
        name = "label_ids" if "label_ids" in first else "label"
        labels = {"labels": _numbers(name)} if name in first else {}
        return self._pad(features, first, labels, without=() if name == "label" else ("label",))


@dataclass
class DataCollatorForTokenClassification(
    _Padding,
    _theirs.DataCollatorForTokenClassification,  # type: ignore[misc]
):
    """Pads features with a label per token, like transformers' ``DataCollatorForTokenClassification``.

    ``label`` or ``labels`` is padded to the width of the tokens. Everything else, including arguments and
    errors, is as in `DataCollatorWithPadding`.

    Args:
        label_pad_token_id: Padding value of labels; by default -100, which losses ignore.

    Example:
        >>> from transformers import ByT5Tokenizer
        >>> collator = DataCollatorForTokenClassification(ByT5Tokenizer())
        >>> features = [
        ...     {"input_ids": [5, 6], "labels": [0, 1]},
        ...     {"input_ids": [7], "labels": [1]},
        ... ]
        >>> collator(features)["labels"]
        tensor([[   0,    1],
                [   1, -100]])
    """

    @override
    def torch_call(self, features: Sequence[Any]) -> Any:
        """Returns the batch of a list of dicts, as a ``BatchEncoding``."""
        if not self._pads:
            return super().torch_call([*features])
        tokenizer, fill = self.tokenizer, self.label_pad_token_id
        first = _first(features)
        name = "label" if "label" in first else "labels"
        multiple = self._width() or self.pad_to_multiple_of
        labels = {name: _padded(fill, tokenizer.padding_side, multiple, name)}
        batch = self._pad(features, first, labels)
        if name in batch:
            width = batch[tokenizer.model_input_names[0]].shape[1]
            batch[name] = self._widened(batch[name], width, fill)
        return batch


@dataclass
class DataCollatorForSeq2Seq(_Padding, _theirs.DataCollatorForSeq2Seq):  # type: ignore[misc]
    """Pads features and their target sequences, like transformers' ``DataCollatorForSeq2Seq``.

    ``label`` or ``labels`` becomes ``labels``, padded to the longest label sequence or, with
    ``padding="max_length"``, to ``max_length``; it is None if features have no labels. Everything else,
    including arguments and errors, is as in `DataCollatorWithPadding`.

    Args:
        model: Model that creates ``decoder_input_ids`` from the labels, if it has a method
            ``prepare_decoder_input_ids_from_labels``.
        label_pad_token_id: Padding value of labels; by default -100, which losses ignore.

    Example:
        >>> from transformers import ByT5Tokenizer
        >>> collator = DataCollatorForSeq2Seq(ByT5Tokenizer())
        >>> features = [
        ...     {"input_ids": [5, 6], "labels": [8]},
        ...     {"input_ids": [7], "labels": [8, 9]},
        ... ]
        >>> collator(features)["labels"]
        tensor([[   8, -100],
                [   8,    9]])
    """

    @override
    def __call__(self, features: Sequence[Any], return_tensors: str | None = None) -> Any:
        """Returns the batch of a list of dicts, as a ``BatchEncoding``."""
        if (return_tensors or self.return_tensors) != "pt" or not self._pads:
            return super().__call__([*features], return_tensors)
        first = _first(features)
        name = "label" if "label" in first else "labels"
        width = None if self.max_length is None else self._width()
        fill, side = self.label_pad_token_id, self.tokenizer.padding_side
        padded = _padded(fill, side, width or self.pad_to_multiple_of, name)
        batch = self._pad(features, first, {"labels": padded})
        batch["labels"] = labels = batch.get("labels")
        if labels is not None:
            if width is not None:
                batch["labels"] = labels = self._widened(labels, width, fill)
            if hasattr(self.model, "prepare_decoder_input_ids_from_labels"):
                prepared = self.model.prepare_decoder_input_ids_from_labels(labels=labels)
                batch["decoder_input_ids"] = prepared
        return batch


@dataclass
class DataCollatorForLanguageModeling(
    _Padding,
    _theirs.DataCollatorForLanguageModeling,  # type: ignore[misc]
):
    """Pads tokens and adds labels, like transformers' ``DataCollatorForLanguageModeling``.

    With ``mlm=True``, transformers chooses the tokens to mask, with the same random draws. If features
    have ``labels``, they must equal the tokens.

    With ``mlm=False``, ``labels`` are the labels of the features or, without labels, the tokens. A label is
    -100 at every padding token (also within a text), and where ``completion_mask``, ``assistant_masks`` or
    ``loss_mask`` is 0. Labels taken from the tokens are also -100 where ``attention_mask`` is 0.

    Features that are sequences instead of dicts are passed to transformers. ``tokenizer``,
    ``pad_to_multiple_of``, ``return_tensors`` and errors are as in `DataCollatorWithPadding`.

    Args:
        mlm: Whether to mask tokens for masked language modeling.
        mlm_probability: Probability of masking a token, 0 to 1.
        mask_replace_prob: Fraction of masked tokens that the mask token replaces.
        random_replace_prob: Fraction of masked tokens that random tokens replace.
        whole_word_mask: Whether to mask whole words; features need ``offset_mapping``.
        seed: Seed of the masking. None: torch's default generator.

    Example:
        >>> from transformers import ByT5Tokenizer
        >>> collator = DataCollatorForLanguageModeling(ByT5Tokenizer(), mlm=False)
        >>> collator([{"input_ids": [5, 6]}, {"input_ids": [7]}])["labels"]
        tensor([[   5,    6],
                [   7, -100]])
    """

    @override
    def torch_call(self, examples: Sequence[Any]) -> Any:
        """Returns the batch of a list of dicts, as a ``BatchEncoding``."""
        first, tokenizer = _first(examples), self.tokenizer
        if not (self._pads and isinstance(first, Mapping)):
            return super().torch_call([*examples])
        has_labels = first.get("labels") is not None
        makes_labels = not (self.mlm or has_labels)
        fills = {"labels": self._pad_token_id() if self.mlm else -100} if has_labels else {}
        fills |= {} if self.mlm else {key: 1 for key in _LOSS_MASKS if key in first}
        without = [] if has_labels else ["labels"]
        without += [] if self.mlm else ["special_tokens_mask"]
        without += [] if self.whole_word_mask else ["offset_mapping"]
        kind = _TokensAndLabels if makes_labels else Pad
        batch = self._pad(examples, first, {}, without, fills, kind)
        if not self.mlm:
            labels = batch["labels"]
            if has_labels:
                tokens = batch["input_ids"].numpy()
                np.putmask(labels.numpy(), tokens == tokenizer.pad_token_id, -100)
            is_stored = first.get("attention_mask") is not None  # may mark stored padding
            mask = None if has_labels or not is_stored else batch.get("attention_mask")
            if mask is not None and mask.shape == labels.shape:
                np.putmask(labels.numpy(), mask.numpy() == 0, -100)
            for key in _LOSS_MASKS:
                if key in batch:
                    np.putmask(labels.numpy(), batch.pop(key).numpy() == 0, -100)
            return batch
        if has_labels and not torch.equal(batch.pop("labels"), batch["input_ids"]):
            expected = "numbers equal to input_ids, because mlm=True replaces them"
            hint = 'leave them out: dataset.remove_columns(["labels"])'
            raise ValueError(Problem(f"{self._name}: labels", expected, "others", hint))
        if self.seed is not None and self.generator is None:
            self.create_rng()
        batch["input_ids"], batch["labels"] = self.torch_mask_tokens(
            batch["input_ids"],
            special_tokens_mask=batch.pop("special_tokens_mask", None),
            offset_mapping=batch.pop("offset_mapping", None),
        )
        return batch


class DataCollatorWithFlattening(
    _Collator,
    _theirs.DataCollatorWithFlattening,  # type: ignore[misc]
):
    """Concatenates features to shape (1, tokens), like transformers' ``DataCollatorWithFlattening``.

    Arguments and batches are the same as in transformers, except that a label is -100 where
    ``completion_mask``, ``assistant_masks`` or ``loss_mask`` is 0. Columns of one number per feature, such as
    ``score``, are ignored with a warning.

    Args:
        return_position_ids: Whether to return ``position_ids``, which restart in each feature.
        position_ids_start: Position of each feature's first token.
        separator_id: Label of each feature's first token; by default -100, which losses ignore.
        return_flash_attn_kwargs: Whether to return ``cu_seq_lens_q``, ``cu_seq_lens_k``,
            ``max_length_q`` and ``max_length_k``, for flash attention.
        return_seq_idx: Whether to return ``seq_idx``, the number of each token's feature.

    Raises:
        ValueError: When a batch is collated: if the numbers of labels and tokens differ, an
            ``attention_mask`` has a 0, or another key has a list (except ``token_type_ids`` and
            ``special_tokens_mask`` of zeros, and ``position_ids`` that count from 0).

    Example:
        >>> collator = DataCollatorWithFlattening()
        >>> collator([{"input_ids": [5, 6]}, {"input_ids": [7]}])
        {'input_ids': tensor([[5, 6, 7]]), 'position_ids': tensor([[0, 1, 0]]), 'labels': tensor([[-100,    6, -100]])}
    """

    def __init__(self, *args: Any, position_ids_start: int = 0, **options: Any) -> None:
        _theirs.DataCollatorWithFlattening.__init__(self, *args, **options)
        _Collator.__init__(self)
        self.position_ids_start = position_ids_start  # not an argument in transformers 5.0

    @override
    def __call__(
        self,
        features: Sequence[Any],
        return_tensors: str | None = None,
        separator_id: int | None = None,
    ) -> Any:
        """Returns the batch of a list of dicts, as a dict."""
        if (return_tensors or self.return_tensors) != "pt":
            return super().__call__([*features], return_tensors, separator_id)
        first = _first(features)
        tokens = _packed(
            "input_ids",
            None,
            position_ids=self.return_position_ids,
            position_start=self.position_ids_start,
            seq_idx=self.return_seq_idx,
            **_FLASH if self.return_flash_attn_kwargs else {},
        )
        source = "input_ids" if first.get("labels") is None else "labels"
        labels = _packed(source, self.separator_id if separator_id is None else separator_id)
        fields = {"input_ids": tokens, "labels": labels}
        fields |= {key: _packed(key, 1) for key in _TOKEN_MASKS if first.get(key) is not None}
        redundant = [key for key in _REDUNDANT if key in first and _is_redundant(features, key)]
        _check_others("DataCollatorWithFlattening", first, ("labels", *fields, *redundant))
        batch = self._collated(features, first, fields)
        _apply_masks(batch, "DataCollatorWithFlattening")
        return batch


@functools.lru_cache
def _packed(of: str, first: int | None, **options: Any) -> Field:
    return Pack(seq_length=None, first_token=first, dtype=torch.int64, **options).from_key(of)


def packed_loader(
    trainer: Any, seq_length: int, dataset: Any = None, **options: Any
) -> DataLoader[Any]:
    """Creates a training loader of packed rows for a ``Trainer``, or TRL's ``SFTTrainer``.

    Batches have ``per_device_train_batch_size`` rows. Documents don't attend to each other, not even with
    sliding windows: transformers derives the attention mask from ``position_ids``. With flash attention, all
    rows are concatenated, and the batch has ``cu_seq_lens_q`` and the kernel's other arguments.

    Labels are the dataset's ``labels`` or, without this column, the tokens. They are -100 at the first
    token of each document, and where ``completion_mask``, ``assistant_masks`` or ``loss_mask`` is 0 (except
    ``completion_mask`` under TRL's ``completion_only_loss=False``). Of the other columns, strings and ids are
    ignored. Lists of numbers, and numbers that can affect the loss, such as ``prompt_len`` and ``weight``,
    raise ValueError. All other numbers are ignored with a warning.

    Each epoch has its own rows. The loader splits the rows over ranks, so don't pass it to
    ``accelerator.prepare``. A resumed run continues with the remaining rows.

    Args:
        trainer: The trainer, whose arguments determine batch size, seed and number of workers.
        seq_length: Tokens per row.
        dataset: An `ArrayDataset`, or an argument of `ArrayDataset.from_arrow`, with ``input_ids``.
            None: the trainer's ``train_dataset``.
        **options: Options of `PackSampler`, such as ``overflow="truncate"``.

    Raises:
        KeyError, TypeError, ValueError: If samples have no ``input_ids`` or unsupported numbers, an
            ``attention_mask`` has a 0 (when a batch is collated), or `PackSampler` raises.

    Example:
        ::

            trainer = Trainer(model, arguments, train_dataset=dataset)
            trainer.get_train_dataloader = lambda: packed_loader(trainer, seq_length=2048)
            trainer.train()
    """
    arguments = trainer.args
    dataset = trainer.train_dataset if dataset is None else dataset
    keys = ["input_ids", "labels", *_TOKEN_MASKS]
    known_keys = [*keys]
    if getattr(arguments, "completion_only_loss", None) is False:
        keys.remove("completion_mask")
    table = dataset
    if not isinstance(dataset, ArrayDataset):
        names = getattr(dataset, "column_names", None)  # None for a file, which is read completely
        columns = None
        if names is not None:  # without tokens, from_arrow says which columns there are
            columns = [key for key in keys if key in names] or ["input_ids"]
        dataset = ArrayDataset.from_arrow(dataset, columns)
        table = dataset if names is None else table
    seed = arguments.seed if arguments.data_seed is None else arguments.data_seed
    options = {"batch_size": arguments.per_device_train_batch_size, "seed": seed} | options
    sampler = PackSampler(dataset["input_ids"], seq_length=seq_length, **options)
    arrays = {key: dataset[key] for key in keys if key in dataset[0]}
    # Indexing a pyarrow table returns a column, not a sample.
    is_table = hasattr(table, "to_pylist")
    sample = table.slice(0, 1).to_pylist()[0] if is_table else table[0]
    _check_others("packed_loader", sample, known_keys)
    is_flash = "flash" in str(getattr(trainer.model.config, "_attn_implementation", None))
    pack: Any = functools.partial(Pack, seq_length=seq_length, dtype=torch.int64, flat=is_flash)
    fields = {
        "input_ids": pack(position_ids=True, **_FLASH if is_flash else {}),
        "labels": pack(pad_value=-100, first_token=-100).from_key(
            "labels" if "labels" in arrays else "input_ids"
        ),
        **{key: pack(pad_value=1) for key in _TOKEN_MASKS if key in arrays},
    }
    return _TrainerLoader(
        ArrayDataset(arrays),
        batch_sampler=sampler,
        collate_fn=functools.partial(_for_trainer, Collate(fields)),
        num_workers=arguments.dataloader_num_workers,
        pin_memory=arguments.dataloader_pin_memory,
        persistent_workers=arguments.dataloader_persistent_workers,
        prefetch_factor=arguments.dataloader_prefetch_factor,
    )


class _TrainerLoader(DataLoader[Any]):
    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch; a ``Trainer`` calls this, also when it resumes."""
        self.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr]


def _for_trainer(collate: Collate, samples: Any) -> dict[str, Any]:
    batch = {**collate(samples), "use_cache": False}
    _apply_masks(batch, "packed_loader")
    return batch
