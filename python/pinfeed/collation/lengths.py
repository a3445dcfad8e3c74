"""Comparisons of entries that go together, such as tokens and labels: are they cut and padded equally?"""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pinfeed.arguments import Problem
from pinfeed.fields.jagged import Jagged
from pinfeed.fields.pack import Pack
from pinfeed.fields.pad import OF_SHAPES, Pad

# Keys of tokens, and of entries with one item per token.
_TOKENS = "input_ids", "token_ids", "tokens"
_OF_TOKENS = re.compile(
    "^(labels|label_ids|(ner|pos|chunk|bio|token)_?(tags|labels)|(attention|loss|completion|special_tokens)_mask|assistant_masks"
    "|token_type_ids|position_ids)$"
)

# Number of batches whose samples are measured because all have the maximum length, so they can be cut.
_MEASURED = 16


@dataclass(eq=False)
class Comparison:
    """Compares an entry with another one of its container, until the lengths of their samples differ."""

    key: Any
    field: Any
    other: Any  # key of the other entry
    other_field: Any
    are_same: bool  # whether the names say that lengths are equal
    differs: str = ""  # argument with different values in both fields
    in_dict: bool = True  # where a Pad can have like=
    name: str = ""  # of the entry in messages
    is_settled: bool = False  # whether further batches need no comparison
    left_to_measure: int = _MEASURED  # batches

    def check(
        self,
        lengths: torch.Tensor,
        other: torch.Tensor,
        samples_of: Callable[[Any], Sequence[Any]] | None,
    ) -> bool:
        """Returns whether it warned. Raises ValueError if related lengths differ under ``like`` or in a `Pack`.

        Args:
            lengths: Lengths of the samples of the entry in a batch.
            other: Lengths of the samples of the other entry.
            samples_of: Function that returns the samples under a key. None: nothing has cut ``lengths``.
        """
        if self.are_same and not torch.equal(lengths, other):
            problem = self._problem(lengths, other)
            if isinstance(self.field, Pack) or self.field.like:
                raise ValueError(problem)
            warnings.warn(str(problem), stacklevel=2)
            return True
        if not self.differs or lengths.shape != other.shape:
            return False
        here, there = _padding(self.field), _padding(self.other_field)
        limits = here["max_length"], there["max_length"]
        limit = min((n for n in limits if n is not None), default=2**63 - 1)
        cut, other_cut = lengths.clamp(max=limit), other.clamp(max=limit)
        self.is_settled = not torch.equal(cut, other_cut)
        if self.is_settled or not cut.numel():
            return False
        # One length in all samples can be chance, but it is wrong to cut or pad them at different ends,
        # and to cut one of two that were equally long.
        longest = cut.max()
        if (cut == longest).all():
            if self.differs not in ("side", "max_length"):
                return False
            length, multiples = int(longest), (here.get("multiple_of"), there.get("multiple_of"))
            is_padded = len(cut) > 1 and any(isinstance(n, int) and length % n for n in multiples)
            is_padded &= self.differs == "side"
            is_full = length == limit and not (here.get("axes") or there.get("axes"))
            if not is_padded and not (is_full and self._are_cut(lengths, other, limit, samples_of)):
                return False
        texts = [
            f"{key!r} has {self.differs}={padding[self.differs]!r}"
            for key, padding in ((self.other, there), (self.key, here))
        ]
        are_pads = isinstance(self.field, Pad) and isinstance(self.other_field, Pad)
        fix = f"pass the same {self.differs} to both"
        fix = f"pass like={self.other!r} instead" if are_pads and self.in_dict else fix
        fix += ", or, if these are separate sequences, like=False" * are_pads
        text = f"{self.name}: {' and '.join(texts)}, so related items are in different columns, or missing; {fix}"
        warnings.warn(text, stacklevel=2)
        return True

    def _are_cut(
        self,
        lengths: torch.Tensor,
        other: torch.Tensor,
        limit: int,
        samples_of: Callable[[Any], Sequence[Any]] | None,
    ) -> bool:
        """Whether samples that have the maximum length in a batch were longer, and equally long."""
        if samples_of is not None:
            if not self.left_to_measure:
                return False
            self.left_to_measure -= 1
            columns = samples_of(self.key), samples_of(self.other)
            is_nested = lengths.ndim > 1
            if is_nested and not all(isinstance(column[0], list | tuple) for column in columns):
                return False
            lengths, other = (
                torch.tensor([[*map(len, s)] if is_nested else len(s) for s in column])
                for column in columns
            )
        self.is_settled = not torch.equal(lengths, other)
        are_related = self.other in _TOKENS and bool(_OF_TOKENS.search(str(self.key)))
        is_sure = self.differs == "side" or are_related or bool((lengths != lengths.max()).any())
        return not self.is_settled and is_sure and int(lengths.max()) > limit

    def _problem(self, lengths: torch.Tensor, other: torch.Tensor) -> Problem:
        sample = 0  # or they have different numbers of sequences
        if lengths.shape == other.shape:
            sample = int((lengths != other).reshape(len(other), -1).any(1).nonzero()[0])
        is_pad = isinstance(self.field, Pad)
        fill = getattr(self.field, "padding", self.field).pad_value
        hint = f"store a value for every item of [{self.other!r}], such as {fill}"
        if is_pad and not self.field.like:
            hint += ", and set the same max_length for both"
        if lengths.ndim > other.ndim:
            hint += "; np.asarray(sample) makes rows of lists"
        separate = "pass like=False" if is_pad else "store it under another key with from_key()"
        hint += f", or, if this is a separate sequence, such as the labels of an encoder-decoder, {separate}"
        expected = f"length {other[sample].tolist()} as in [{self.other!r}]"
        return Problem(self.name, expected, str(lengths[sample].tolist()), hint, sample=sample)


class Comparisons:
    """The comparisons of the entries of a container.

    Args:
        fields: Fields by key.
        names: Names of the entries in messages, by key.
        in_dict: Whether the container is a dict.

    Attributes:
        keys: Keys of the entries that the next batch compares.
    """

    def __init__(
        self, fields: Mapping[Any, Any], names: Mapping[Any, str], *, in_dict: bool
    ) -> None:
        pairs = [
            (key, field.like, True, "")
            for key, field in fields.items()
            if isinstance(field, Pad) and field.like in fields
        ]
        own = {key: _padding(field) for key, field in fields.items() if _is_independent(field)}
        tokens = next((key for key in _TOKENS if key in own), None)
        for other, key in itertools.combinations(own, 2):
            here, there = own[key], own[other]
            differing = [name for name in here if there.get(name, here[name]) != here[name]]
            if "axes" in differing:
                continue
            key, other = (other, key) if key == tokens else (key, other)
            field, other_field = fields[key], fields[other]
            # Labels in a JaggedBatch can belong to the whole text.
            are_same = other == tokens and type(field) is type(other_field) is not Jagged
            are_same &= bool(_OF_TOKENS.search(str(key)))
            are_same &= (field.source or key) != (other_field.source or other)
            if are_same or differing:
                pairs.append((key, other, are_same, (*differing, "")[0]))
        self._keep(
            Comparison(
                key, fields[key], other, fields[other], are_same, differs, in_dict, names[key]
            )
            for key, other, are_same, differs in pairs
        )

    def _keep(self, comparisons: Iterable[Comparison]) -> None:
        self._comparisons = list(comparisons)
        self.keys = {key for one in self._comparisons for key in (one.key, one.other)}

    def check(
        self,
        lengths: Mapping[Any, torch.Tensor],
        samples_of: Callable[[Any], Sequence[Any]] | None = None,
    ) -> None:
        """Compares the lengths of a batch by key; arguments are as in `Comparison.check`."""
        warned: set[Any] = set()
        for one in self._comparisons:
            own, other = lengths.get(one.key), lengths.get(one.other)
            if own is None or other is None or one.key in warned:
                continue
            if one.check(own, other, samples_of):
                warned.add(one.key)
        left = [o for o in self._comparisons if not o.is_settled and o.key not in warned]
        if len(left) < len(self._comparisons):
            self._keep(left)


def _is_independent(field: Any) -> bool:
    """Whether a field pads, cuts or joins samples, and not by the lengths of another entry."""
    if isinstance(field, Pack):
        return field.seq_length is None
    return isinstance(field, Jagged) or (isinstance(field, Pad) and field.like is None)


def _padding(field: Any) -> dict[str, Any]:
    """Returns the arguments with which a field cuts and pads samples."""
    if isinstance(field, Pad):
        return {name: getattr(field.padding, name) for name in OF_SHAPES}
    if isinstance(field, Jagged) and field.max_length is not None:
        return {"side": field.side, "max_length": field.max_length}
    return {"max_length": None}
