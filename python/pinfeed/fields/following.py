"""The order in which the leaves of a dict are made where some follow others: boxes images, labels tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from pinfeed.arguments import Problem
from pinfeed.fields.field import ABSENT, Beside, Field, Scene
from pinfeed.fields.jagged import Jagged
from pinfeed.fields.keep import Keep
from pinfeed.fields.targets import require_as_many
from pinfeed.functions.sequences import JaggedBatch, Padded

# What detection datasets have for each box. Under other names, this many images tell.
_OF_BOXES = re.compile(
    "crowd|area|difficult|truncat|occlu|score|label|class|categor|visib|attribute|instance|object|names|"
    "annotation|^ids?$",
    re.IGNORECASE,
)
_ENOUGH = 4


class Following:
    """Which leaves of a dict follow which images, and which have an entry for each object.

    A ValueError says that a field follows what shows no images, that two say which objects remain,
    or that a leaf that should have an entry for each object is not there.
    """

    def __init__(self, leaf_fields: Mapping[Any, Any], name: str, given: Mapping[Any, Any]) -> None:
        self._leaf_fields = leaf_fields
        keys = list(leaf_fields)
        followers = {key: field for key, field in leaf_fields.items() if _follows(field)}
        self.images = {field.follows for field in followers.values()}
        self.are_shown = not all(field.pads for field in followers.values())
        # Those that drop objects come before others that follow the same images.
        self._followers = sorted(followers, key=lambda key: not followers[key].objects_of)
        self._first = [*self._followers, *(key for key in keys if key in self.images)]
        self._last = [key for key in keys if key not in self._first]
        self._objects = {key: field for key, field in followers.items() if field.objects_of}
        #: The leaves with a value for each box.
        self.labels = tuple(key for field in self._objects.values() for key in field.objects_of)
        taken: dict[Any, Any] = {}
        labelled: dict[Any, Any] = {}
        for key, field in followers.items():
            shown = leaf_fields.get(field.follows, given.get(field.follows))
            if field.pads:
                continue  # what its entry is like is checked where fields are placed
            if not (isinstance(shown, Field) and shown.shows_images):
                hint = f"say by image= which of {keys} it follows, and give that leaf an Image()"
                if field.follows not in leaf_fields:
                    hint = 'put both in one dict, such as {"image": image, **target}, or ' + hint
                raise ValueError(
                    f"{name}[{key!r}] follows {field.follows!r}, which is no Image() there; {hint}"
                )
            if field.objects_of and taken.setdefault(field.follows, key) != key:
                raise ValueError(
                    f"{name} has boxes under {taken[field.follows]!r} and {key!r} that follow "
                    f"{field.follows!r}, and one of them says which objects remain; leave one out"
                )
            for label in field.objects_of:
                if label in followers or labelled.setdefault(label, key) != key:
                    raise ValueError(
                        f"{name}[{key!r}] has {label!r} among its labels, which follows images "
                        "itself or has an entry for each of other boxes; give labels= of its own"
                    )
                if label not in leaf_fields:
                    raise ValueError(
                        f"{name}[{key!r}] has labels={label!r}, and samples have {keys}; name the leaves "
                        "with an entry for each box, or say labels=()"
                    )

    @staticmethod
    def fields(leaf_fields: Mapping[Any, Any], given: Mapping[Any, Any]) -> dict[Any, Any]:
        """The leaf_fields, with `Jagged` for leaves without one that have an entry for each object.

        Of all ``given`` fields: labels are of one type whether samples have optional boxes or not.
        """
        labels = {
            label for field in given.values() if _follows(field) for label in field.objects_of
        }
        return {
            key: Jagged() if field is None and key in labels else field
            for key, field in leaf_fields.items()
        }

    def batches(
        self,
        make: Callable[[Any, Scene | None], Any],
        follow: Callable[[Any, Any, Scene], Any],
    ) -> list[Any]:
        """The batch of each leaf.

        ``make`` makes that of a key, with a scene or None, and `Field.follow` of it is ``follow``.
        """
        scenes = {key: Scene() for key in self.images}
        made = {}
        for key in (*self._first, *self._last):
            field = self._leaf_fields[key]
            image = field.follows if _follows(field) else key
            made[key] = make(key, scenes.get(image))
        for key in self._followers:
            if made[key] is not ABSENT:
                made[key] = follow(key, made[key], scenes[self._leaf_fields[key].follows])
        for key, field in self._objects.items():
            if made[key] is not ABSENT:
                _, offsets, remain = scenes[field.follows].objects
                if not remain.all():
                    self._require_named(made, key, np.diff(offsets))
                for label in field.objects_of:
                    made[label] = _remaining(made[label], offsets, remain, label)
        return [made[key] for key in self._leaf_fields]

    def _require_named(self, made: Mapping[Any, Any], boxes: Any, counts: Any) -> None:
        """Raises ValueError for a leaf with a value for each box, some of which are dropped, unless it is a label."""
        labels = self._objects[boxes].objects_of
        for key in self._last:
            if key in labels or isinstance(self._leaf_fields[key], Keep):
                continue
            tells = is_of_boxes(key) or (
                np.count_nonzero(counts) >= _ENOUGH and len(np.unique(counts)) > 1
            )
            if tells and np.array_equal(_counts(made[key], len(counts)), counts):
                text = f"has a value for each box of [{boxes!r}], and some boxes no longer show"
                hint = f"{drops(key, labels)}, Keep() leaves them as they are"
                if isinstance(made[key], list) and isinstance(made[key][0], tuple):  # of strings
                    hint = f"make them numbers, so that {hint}"
                raise ValueError(Problem("", f"Collate: entry [{key!r}] {text}", hint=hint))


def is_of_boxes(key: Any) -> bool:
    """Whether detection datasets have a value for each box under such a key."""
    return isinstance(key, str) and bool(_OF_BOXES.search(key))


def drops(key: Any, labels: Sequence[Any]) -> str:
    """The hint to name another label."""
    return f"Boxes(labels={(*labels, key)!r}) drops values with their boxes"


def _counts(batch: Any, samples: int) -> Any:
    """How many items each sample has; None if nobody knows."""
    batch = batch.leaf if isinstance(batch, Beside) else batch
    if isinstance(batch, list) and batch:  # of lists of numbers or strings, which have one length
        shapes = {(len(x),) if isinstance(x, tuple) else getattr(x, "shape", None) for x in batch}
        return np.full(samples, len(batch)) if shapes == {(samples,)} else None
    if isinstance(batch, JaggedBatch):
        return np.diff(batch.offsets)
    if isinstance(batch, Padded) and batch.lengths is not None:
        return np.asarray(batch.lengths)
    if isinstance(batch, torch.Tensor) and batch.ndim > 1:
        return np.full(len(batch), batch.shape[1])
    return None


def _follows(field: Any) -> bool:
    return isinstance(field, Field) and field.follows is not None


def _remaining(batch: Any, offsets: Any, remain: Any, label: Any) -> Any:
    """The entries of objects that remain."""
    name = f"Collate: leaf [{label!r}]"
    if not isinstance(batch, JaggedBatch):
        raise TypeError(
            f"{name}: what has an entry for each box takes Jagged(), which can lose some, got "
            f"{type(batch).__name__}; leave its field out, or pad it afterwards"
        )
    require_as_many(batch.offsets.numpy(), offsets, name)
    if remain.all():
        return batch
    keep = torch.from_numpy(np.array(remain))
    kept = torch.nn.functional.pad(keep.cumsum(0), (1, 0))  # how many of those before each one
    return JaggedBatch(batch.values[keep], kept[batch.offsets])
