"""The images of a dict and what follows them: boxes, points, masks, and what has a value for each box."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from pinfeed.arguments import Problem
from pinfeed.fields.field import ABSENT, Beside, Leaf, Objects
from pinfeed.fields.image import Image
from pinfeed.fields.jagged import Jagged
from pinfeed.fields.keep import Keep
from pinfeed.fields.pad import Pad
from pinfeed.fields.targets import Boxes, Target, require_as_many
from pinfeed.functions.sequences import JaggedBatch, Padded

# What detection datasets have for each box. Under other names, this many images tell.
_OF_BOXES = re.compile(
    "crowd|area|difficult|truncat|occlu|score|label|class|categor|visib|attribute|instance|object|names|"
    "annotation|^ids?$",
    re.IGNORECASE,
)
_ENOUGH = 4


def followed_by(field: Any) -> str | None:
    """The key in the same dict that a field follows; None: it follows none."""
    if isinstance(field, Target):
        return field.image
    return field.like or None if isinstance(field, Pad) else None


def with_labels(fields: Mapping[Any, Any], given: Mapping[Any, Any]) -> dict[Any, Any]:
    """The fields, with `Jagged` for entries without one that have a value for each box.

    Of all ``given`` fields: labels are of one type whether samples have optional boxes or not.
    """
    labels = {
        key for field in given.values() if isinstance(field, Boxes) for key in field.labels_of
    }
    return {
        key: Jagged() if field is None and key in labels else field for key, field in fields.items()
    }


class ImageGroup:
    """One entry of images, and the entries of the same dict that follow it.

    Args:
        image: The key of the images.
        fields: Those of all entries of the dict.
        leaves: What these are told.

    Attributes:
        keys: Those of all entries that it makes.
        labels: Those of the entries with a value for each box.
    """

    def __init__(self, image: Any, fields: Mapping[Any, Any], leaves: Mapping[Any, Leaf]) -> None:
        self._image, self._fields, self._leaves = image, fields, leaves
        followers = {
            key: field
            for key, field in fields.items()
            if isinstance(field, Target) and field.image == image
        }
        self._boxes = next((key for key in followers if isinstance(followers[key], Boxes)), None)
        self._followers = sorted(followers, key=lambda key: key != self._boxes)
        self.labels = () if self._boxes is None else fields[self._boxes].labels_of
        self.keys = {key for key in (image, *followers, *self.labels) if key in fields}

    def collate(self, make: Callable[..., Any]) -> tuple[dict[Any, Any], Any]:
        """The batch of each of its entries, and how many boxes each sample had, if not all remain.

        ``make`` makes the batch of a key; of the images it is told that they are followed, and the boxes.
        """
        fields, leaves, boxes = self._fields, self._leaves, self._boxes
        batches = dict.fromkeys(self.keys, ABSENT)
        read = {key: made for key in self._followers if (made := make(key)) is not ABSENT}
        objects, seen = read[boxes].objects if boxes in read else None, None
        if self._image in self.keys:
            batches[self._image], seen = make(self._image, True, objects)
        batches |= {key: make(key) for key in self.labels}
        for key, items in read.items():  # boxes first: they say which objects remain
            batches[key] = fields[key].moved(items, seen, objects, leaves[key])
        if objects is None:
            return batches, None
        for key in self.labels:
            batches[key] = _remaining(batches[key], objects, leaves[key].name)
        return batches, None if objects.remain.all() else np.diff(objects.offsets)

    def require_named(self, others: Mapping[Any, Any], counts: Any) -> None:
        """Raises ValueError for another entry of the dict with a value for each box, some of which are dropped.

        Args:
            others: The batches of the entries that belong to no group.
            counts: As `collate` returns them.
        """
        for key, batch in others.items():
            if isinstance(self._fields[key], Keep):
                continue
            tells = _is_of_boxes(key) or (
                np.count_nonzero(counts) >= _ENOUGH and len(np.unique(counts)) > 1
            )
            if tells and np.array_equal(_counts(batch, len(counts)), counts):
                text = (
                    f"has a value for each box of [{self._boxes!r}], and some boxes no longer show"
                )
                hint = f"{_drops(key, self.labels)}, Keep() leaves them as they are"
                if isinstance(batch, list) and isinstance(batch[0], tuple):  # of strings
                    hint = f"make them numbers, so that {hint}"
                raise ValueError(Problem("", f"Collate: entry [{key!r}] {text}", hint=hint))


def image_groups(
    fields: Mapping[Any, Any], given: Mapping[Any, Any], leaves: Mapping[Any, Leaf], name: str
) -> list[ImageGroup]:
    """The groups of a dict whose entries have these fields.

    A ValueError says that a field follows what shows no images, that two say which objects remain,
    or that an entry that should have a value for each object is not there.

    Args:
        fields: By the keys of the batch.
        given: All that the user gave, also those that samples lack.
        leaves: What the entries are told.
        name: What messages call the dict's fields.
    """
    followers = {key: field for key, field in fields.items() if isinstance(field, Target)}
    keys = list(fields)
    taken: dict[Any, Any] = {}
    labelled: dict[Any, Any] = {}
    for key, field in followers.items():
        is_shown = isinstance(fields.get(field.image, given.get(field.image)), Image)
        if not is_shown:
            hint = f"say by image= which of {keys} it follows, and give that leaf an Image()"
            if field.image not in fields:
                hint = 'put both in one dict, such as {"image": image, **target}, or ' + hint
            raise ValueError(
                f"{name}[{key!r}] follows {field.image!r}, which is no Image() there; {hint}"
            )
        if not isinstance(field, Boxes):
            continue
        if taken.setdefault(field.image, key) != key:
            raise ValueError(
                f"{name} has boxes under {taken[field.image]!r} and {key!r} that follow "
                f"{field.image!r}, and one of them says which objects remain; leave one out"
            )
        for label in field.labels_of:
            if label in followers or labelled.setdefault(label, key) != key:
                raise ValueError(
                    f"{name}[{key!r}] has {label!r} among its labels, which follows images "
                    "itself or has an entry for each of other boxes; give labels= of its own"
                )
            if label not in fields:
                raise ValueError(
                    f"{name}[{key!r}] has labels={label!r}, and samples have {keys}; name the leaves "
                    "with an entry for each box, or say labels=()"
                )
    images = dict.fromkeys(field.image for field in followers.values())
    return [ImageGroup(image, fields, leaves) for image in images]


def name_field(problem: Problem, key: Any, sample: Any, groups: Sequence[ImageGroup]) -> None:
    """Says which field takes an entry beside images whose samples differ in length."""
    if getattr(sample, "ndim", 0) == 3:
        problem.hint = "masks of objects take InstanceMasks()"
    elif _is_of_boxes(key):
        problem.hint = _drops(key, [label for group in groups for label in group.labels])


def _is_of_boxes(key: Any) -> bool:
    """Whether detection datasets have a value for each box under such a key."""
    return isinstance(key, str) and bool(_OF_BOXES.search(key))


def _drops(key: Any, labels: Sequence[Any]) -> str:
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


def _remaining(batch: Any, objects: Objects, name: str) -> Any:
    """The values of objects that remain."""
    if not isinstance(batch, JaggedBatch):
        raise TypeError(
            f"{name}: what has an entry for each box takes Jagged(), which can lose some, got "
            f"{type(batch).__name__}; leave its field out, or pad it afterwards"
        )
    require_as_many(batch.offsets.numpy(), objects.offsets, name)
    if objects.remain.all():
        return batch
    keep = torch.from_numpy(np.array(objects.remain))
    kept = torch.nn.functional.pad(keep.cumsum(0), (1, 0))  # how many of those before each one
    return JaggedBatch(batch.values[keep], kept[batch.offsets])
