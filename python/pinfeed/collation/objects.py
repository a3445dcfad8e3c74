"""Groups of images and the entries that depend on them: boxes, points, masks, and labels of boxes."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from pinfeed.arguments import ARRAYS, Problem, known_length
from pinfeed.fields.field import ABSENT, EntryWithExtras, FieldContext, Objects
from pinfeed.fields.image import Image
from pinfeed.fields.jagged import Jagged
from pinfeed.fields.pad import Pad
from pinfeed.fields.stack import Keep, Stack
from pinfeed.fields.targets import Boxes, Target, require_same_counts
from pinfeed.functional.sequences import JaggedBatch, Padded

# Names of entries with one value per box in detection datasets. Other names are recognized by their
# lengths, if they differ between images, after this many images, or after two if there is a row per box.
_OF_BOXES = re.compile(
    "crowd|area|difficult|truncat|occlu|score|label|class|categor|visib|attribute|attrs|instance|object|names|"
    "annotation|track|polygon|segment|ignore|^ids?$",
    re.IGNORECASE,
)
_ENOUGH = 4


def dependency_of(field: Any) -> str | None:
    """Returns the key in the same dict that a field depends on, or None."""
    if isinstance(field, Target):
        return field.image
    return field.like or None if isinstance(field, Pad) else None


def with_labels(fields: Mapping[Any, Any], all_fields: Mapping[Any, Any]) -> dict[Any, Any]:
    """Returns the fields, with `Jagged` for labels of boxes that have no field.

    It reads labels from ``all_fields``, so their type doesn't depend on optional boxes.
    """
    labels = {
        key for field in all_fields.values() if isinstance(field, Boxes) for key in field.labels_of
    }
    return {
        key: Jagged() if field is None and key in labels else field for key, field in fields.items()
    }


class ImageGroup:
    """An entry of images, and the entries of the same dict that depend on it.

    Args:
        image: Key of the images.
        fields: Fields of all entries of the dict.
        contexts: Contexts of all entries of the dict.

    Attributes:
        keys: Keys of the entries in the group.
        labels: Keys of the entries with one value per box.
    """

    def __init__(
        self, image: Any, fields: Mapping[Any, Any], contexts: Mapping[Any, FieldContext]
    ) -> None:
        self._image, self._fields, self._entries = image, fields, contexts
        followers = {
            key: field
            for key, field in fields.items()
            if isinstance(field, Target) and field.image == image
        }
        self._boxes = next((key for key in followers if isinstance(followers[key], Boxes)), None)
        self._followers = sorted(followers, key=lambda key: key != self._boxes)
        self.labels = () if self._boxes is None else fields[self._boxes].labels_of
        # For each entry, the numbers of boxes in some images, if it had equally many values in all
        # batches so far; otherwise None.
        self._equal_counts: dict[tuple[Any, ...], list[int] | None] = {}
        self.keys = {key for key in (image, *followers, *self.labels) if key in fields}

    def collate(self, make: Callable[..., Any]) -> tuple[dict[Any, Any], Objects | None]:
        """Returns the batch of each entry in the group, and the boxes, if there are any.

        ``make`` returns the batch of a key; for images it also takes ``has_dependents`` and the boxes.
        """
        fields, contexts, boxes = self._fields, self._entries, self._boxes
        batches = dict.fromkeys(self.keys, ABSENT)
        followers = {key: batch for key in self._followers if (batch := make(key)) is not ABSENT}
        objects, crops = followers[boxes].objects if boxes in followers else None, None
        if self._image in self.keys:
            batches[self._image], crops = make(self._image, True, objects)
        batches |= {key: make(key) for key in self.labels}
        # Boxes first, because they determine which objects remain.
        for key, items in followers.items():
            batches[key] = fields[key].transformed(items, crops, objects, contexts[key])
        if objects is None:
            return batches, None
        for key in self.labels:
            batches[key] = _remaining(batches[key], objects, contexts[key].name)
        return batches, objects

    def require_named(
        self,
        others: Mapping[Any, Any],
        objects: Objects,
        samples_of: Callable[[Any], Sequence[Any]],
    ) -> None:
        """Raises ValueError if boxes are dropped and an entry with one value per box is not a label.

        Warns if an entry has a row for each box, in images that all have the same number of boxes.

        Args:
            others: Batches of the entries outside all groups.
            objects: Boxes, as `collate` returns them.
            samples_of: Returns the samples of the entry under a key.
        """
        counts, is_all = np.diff(objects.offsets), bool(objects.remain.all())
        for first, part in others.items():
            for keys, batch, field in _columns(part, self._fields[first], (first,)):
                equal = self._equal_counts.setdefault(keys, [])
                if is_all and (equal is None or len(equal) >= _ENOUGH):
                    continue  # nothing to raise, and nothing to learn
                items = _items(batch) if field is None or isinstance(field, Stack) else []
                inner = items[0] if items and isinstance(items[0], Mapping) else ()
                is_named = any(map(_is_of_boxes, (*keys, *inner)))
                if isinstance(field, Keep) or (equal is None and not is_named):
                    continue
                own = _counts(batch, items, counts, is_named)
                if (
                    isinstance(field, Jagged | Pad)
                    and len(keys) == 1
                    and isinstance(batch, torch.Tensor)
                ):
                    own = [known_length(sample) for sample in samples_of(first)]
                if not np.array_equal(own, counts):
                    self._equal_counts[keys] = None
                    continue
                equal = [] if equal is None else equal
                found = counts[counts > 0].tolist()
                equal += found if len(equal) < _ENOUGH else {*found} - {*equal}
                values = batch.values if isinstance(batch, JaggedBatch | Padded) else batch
                is_row = getattr(values, "ndim", 0) > 2 - isinstance(batch, JaggedBatch)
                is_clear = len({*equal}) > 1 and (is_row or len(equal) >= _ENOUGH)
                # Rows of something else can be equally many, such as the rows of a matrix.
                is_table = field is None and getattr(batch, "ndim", 0) == 3
                is_table = is_table and batch.shape[1] != batch.shape[2]
                is_table |= field is None and bool(items) and _is_table(items)
                is_likely = is_table and len(equal) >= _ENOUGH and equal[0] > 1
                if is_all or not (is_named or is_clear or is_likely):
                    continue
                path = "".join(f"[{key!r}]" for key in keys)
                text = f"has a value for each box of [{self._boxes!r}], and some boxes were dropped"
                hint = f"{_drops(first, self.labels)}, Keep() leaves them as they are"
                if items and getattr(items[0], "ndim", 0) != 1:  # no numbers
                    hint = (
                        f"Keep() leaves them as they are, and with it {_drops(first, self.labels)}"
                    )
                if len(keys) > 1:
                    hint = (
                        f"move it into the dict of the boxes, where {_drops(keys[-1], self.labels)}"
                    )
                if not (is_named or is_clear):
                    self._equal_counts[keys] = None
                    text = f"Collate: entry {path} seems to have {text[4:]}; {hint}"
                    text += "" if items else ", and so does Stack()"
                    warnings.warn(text, stacklevel=2)
                    continue
                raise ValueError(Problem("", f"Collate: entry {path} {text}", hint=hint))


def _columns(
    batch: Any, field: Any, keys: tuple[Any, ...]
) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Yields the keys, batch and field of each entry in a part of a batch."""
    if isinstance(batch, Mapping):
        fields = field if isinstance(field, Mapping) else {}
        for key, child in batch.items():
            yield from _columns(child, fields.get(key), (*keys, key))
    else:
        yield keys, batch.entry if isinstance(batch, EntryWithExtras) else batch, field


def image_groups(
    fields: Mapping[Any, Any],
    all_fields: Mapping[Any, Any],
    contexts: Mapping[Any, FieldContext],
    name: str,
) -> list[ImageGroup]:
    """Returns the groups of a dict of fields.

    Args:
        fields: Fields by the keys of the batch.
        all_fields: All fields from the user, including optional ones that samples lack.
        contexts: Contexts of the entries.
        name: Name of the dict of fields in messages.

    Raises:
        ValueError: If a field depends on an entry without images, two fields have boxes of the same
            images, or a label is missing.
    """
    followers = {key: field for key, field in fields.items() if isinstance(field, Target)}
    keys = list(fields)
    boxes_keys: dict[Any, Any] = {}
    labelled: dict[Any, Any] = {}
    for key, field in followers.items():
        is_shown = isinstance(fields.get(field.image, all_fields.get(field.image)), Image)
        if not is_shown:
            kind = type(field).__name__
            hint = f"use Image() for these images, or pass the key of the images, {kind}(image=...)"
            if field.image not in fields:
                hint = (
                    f"pass the key of the images, {kind}(image=...), one of {keys}, and use Image() for them; "
                    'if they are not in this dict, put both in one, such as {"image": image, **target}'
                )
            raise ValueError(
                f"{name}[{key!r}]: {kind} needs an Image() under {field.image!r} in the same dict; {hint}"
            )
        if not isinstance(field, Boxes):
            continue
        if boxes_keys.setdefault(field.image, key) != key:
            raise ValueError(
                f"{name} must have one Boxes() for the images under {field.image!r}, which determines the objects "
                f"that remain, got {boxes_keys[field.image]!r} and {key!r}; leave one out"
            )
        for label in field.labels_of:
            if label in followers or labelled.setdefault(label, key) != key:
                raise ValueError(
                    f"{name}[{key!r}] has the label {label!r}, but that entry is transformed with images, or has "
                    "the labels of other boxes; leave it out of labels="
                )
            if label not in fields:
                raise ValueError(
                    f"{name}[{key!r}] has labels={label!r}, but samples have {keys}; pass the keys of the entries "
                    "with one value per box as labels=, or labels=()"
                )
    images = dict.fromkeys(field.image for field in followers.values())
    return [ImageGroup(image, fields, contexts) for image in images]


def name_field(problem: Problem, key: Any, sample: Any, groups: Sequence[ImageGroup]) -> None:
    """Adds a hint about an entry beside images, if its samples differ in length."""
    if getattr(sample, "ndim", 0) == 3:
        problem.hint = "use InstanceMasks() for masks of objects"
    elif _is_of_boxes(key):
        problem.hint = _drops(key, [label for group in groups for label in group.labels])


def _is_of_boxes(key: Any) -> bool:
    """Whether detection datasets use such a key for one value per box."""
    return isinstance(key, str) and bool(_OF_BOXES.search(key))


def _drops(key: Any, labels: Sequence[Any]) -> str:
    """Returns the hint to add a label."""
    return f"Boxes(labels={(*labels, key)!r}) drops values with their boxes"


def _items(batch: Any) -> list[Any]:
    """Returns the batch of each position, if samples are lists of one length; empty for anything else."""
    is_list = isinstance(batch, list) and not any(isinstance(item, str | bytes) for item in batch)
    return batch if is_list else []


def _is_table(items: list[Any]) -> bool:
    """Whether items are dicts, or have another length than the list, unlike the rows of a matrix."""
    first, width = items[0], len(items)
    if isinstance(first, list):
        width = len(first)
    elif isinstance(first, torch.Tensor) and first.ndim == 2:
        width = first.shape[1]
    return isinstance(first, Mapping) or width != len(items)


def _counts(batch: Any, items: list[Any], boxes: Any, is_named: bool) -> Any:
    """Returns the number of items of each sample, None if unknown. ``boxes`` has the box counts."""
    if items:
        return np.full(len(boxes), len(items))
    if isinstance(batch, JaggedBatch):
        return np.diff(batch.offsets)
    if isinstance(batch, Padded) and batch.lengths is not None:
        return np.asarray(batch.lengths)
    if isinstance(batch, torch.Tensor) and batch.ndim > 1:
        if is_named and batch.shape[1] == boxes.max():  # such as a Pad() without lengths
            return boxes
        return np.full(len(batch), batch.shape[1])
    return None


def _remaining(batch: Any, objects: Objects, name: str) -> Any:
    """Returns the values of objects that remain."""
    _, offsets, remain = objects
    if isinstance(batch, list):  # of Keep()
        for position, sample in enumerate(batch):
            if not hasattr(sample, "__len__"):
                expected, got = (
                    "a list or an array, with an item for each box",
                    type(sample).__name__,
                )
                raise TypeError(Problem(name, expected, got, sample=position))
        require_same_counts(np.append(0, np.cumsum([*map(len, batch)])), offsets, name)
        parts = np.split(remain, offsets[1:-1])
        return [_remaining_items(sample, part) for sample, part in zip(batch, parts, strict=True)]
    if not isinstance(batch, JaggedBatch):
        raise TypeError(
            f"{name}: labels of boxes need Jagged() or Keep(), which can drop single labels, got "
            f"{type(batch).__name__}; leave out this field, or, if the entry does not have one value per box, "
            "pass Boxes(labels=())"
        )
    require_same_counts(batch.offsets.numpy(), offsets, name)
    if remain.all():
        return batch
    keep = torch.from_numpy(np.array(remain))
    counts = torch.nn.functional.pad(keep.cumsum(0), (1, 0))  # remaining objects before each one
    return JaggedBatch(batch.values[keep], counts[batch.offsets])


def _remaining_items(sample: Any, remain: Any) -> Any:
    """Returns the items of a sample that remain."""
    if isinstance(sample, ARRAYS):
        return sample[remain if isinstance(sample, np.ndarray) else torch.from_numpy(remain)]
    return [item for item, remains in zip(sample, remain.tolist(), strict=True) if remains]
