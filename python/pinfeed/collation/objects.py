"""Groups of images and the entries that depend on them: boxes, points, masks, and labels of boxes."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from pinfeed.arguments import ARRAYS, Problem, known_length
from pinfeed.fields.field import (
    ABSENT,
    EntryWithExtras,
    Field,
    FieldContext,
    Objects,
    Shared,
    sharing,
)
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


class _Entry(Protocol):
    """What a group needs of the plan's entries, which import this file."""

    fields: Any
    field: Field | None
    context: FieldContext

    def make(
        self, column: Any, indices: npt.NDArray[np.int64] | None, batch: FieldContext
    ) -> Any: ...


class ImageGroup:
    """An entry of images, and the entries of the same dict that depend on it.

    Args:
        image: Key of the images.
        entries: Entries of the dict by key.

    Attributes:
        keys: Keys of the entries in the group.
        labels: Keys of the entries with one value per box.
    """

    def __init__(self, image: Any, entries: Mapping[Any, _Entry]) -> None:
        self._image, self._entries = image, entries
        self._targets = {
            key: entry.field
            for key, entry in entries.items()
            if isinstance(entry.field, Target) and entry.field.image == image
        }
        boxes = {key: field for key, field in self._targets.items() if isinstance(field, Boxes)}
        self._boxes = next(iter(boxes), None)
        self.labels = tuple(label for field in boxes.values() for label in field.labels_of)
        # Boxes first, because some crops depend on them.
        keys = dict.fromkeys([*boxes, *self._targets, image, *self.labels])
        self.keys = [key for key in keys if key in entries]
        # For each entry outside the group, the numbers of boxes in some images, if it had equally many
        # values in all batches so far; otherwise None.
        self._equal_counts: dict[tuple[Any, ...], list[int] | None] = {}

    def add_batches(
        self, batches: dict[Any, Any], columns: Mapping[Any, Any], indices: Any, batch: FieldContext
    ) -> Objects | None:
        """Adds the batch of each entry in the group, and returns the boxes, if there are any.

        Args:
            batches: Batches by key.
            columns: Columns of samples by key, or of sources.
            indices: Sample indices, if columns are sources.
            batch: Context of the batch.
        """
        shared = Shared()
        for key in self.keys:
            context = sharing(batch, shared) if key == self._image else batch
            batches[key] = made = self._entries[key].make(columns[key], indices, context)
            if key == self._boxes and made is not ABSENT:
                shared.objects = made.objects
        for key in self.keys:  # boxes first, because they determine which objects remain
            context, made = self._entries[key].context, batches[key]
            if key in self._targets and made is not ABSENT:
                batches[key] = self._targets[key].transformed(made, shared, context)
            elif key in self.labels and shared.objects is not None:
                batches[key] = _remaining(made, shared.objects, context.name)
        return shared.objects

    def require_named(
        self,
        others: Mapping[Any, Any],
        objects: Objects | None,
        samples_of: Callable[[Any], Sequence[Any]],
    ) -> None:
        """Raises ValueError if boxes are dropped and an entry with one value per box is not a label.

        Warns if an entry has a row for each box, in images that all have the same number of boxes.

        Args:
            others: Batches of the entries outside all groups.
            objects: Boxes, as `add_batches` returns them.
            samples_of: Returns the samples of the entry under a key.
        """
        if objects is None:
            return
        counts, is_all = np.diff(objects.offsets), bool(objects.remain.all())
        for first, part in others.items():
            for keys, batch, field in _columns(part, self._entries[first].fields, (first,)):
                equal = self._equal_counts.setdefault(keys, [])
                if is_all and (equal is None or len(equal) >= _ENOUGH):
                    continue  # nothing to raise, and nothing to learn
                items = _items(batch) if field is None or isinstance(field, Stack) else []
                inner = items[0] if items and isinstance(items[0], Mapping) else ()
                is_named = any(map(_is_of_boxes, (*keys, *inner)))
                if isinstance(field, Keep) or (equal is None and not is_named):
                    continue
                is_padded = isinstance(field, Jagged | Pad) and isinstance(batch, torch.Tensor)
                if is_padded and len(keys) == 1:
                    own: Any = [known_length(sample) for sample in samples_of(first)]
                else:
                    own = _counts(batch, items, counts, is_named)
                if not np.array_equal(own, counts):
                    self._equal_counts[keys] = None
                    continue
                equal = [] if equal is None else equal
                found = counts[counts > 0].tolist()
                equal += found if len(equal) < _ENOUGH else {*found} - {*equal}
                values = batch.values if isinstance(batch, JaggedBatch | Padded) else batch
                is_row = getattr(values, "ndim", 0) > 2 - isinstance(batch, JaggedBatch)
                are_enough = len(equal) >= _ENOUGH
                is_clear = len({*equal}) > 1 and (is_row or are_enough)
                is_likely = (
                    field is None and are_enough and equal[0] > 1 and _is_table(batch, items)
                )
                if is_all or not (is_named or is_clear or is_likely):
                    continue
                entry = "".join(f"[{key!r}]" for key in keys)
                text = f"a value for each box of [{self._boxes!r}], and some boxes were dropped"
                hint = self._hint(keys, items)
                if is_named or is_clear:
                    raise ValueError(Problem("", f"Collate: entry {entry} has {text}", hint=hint))
                self._equal_counts[keys] = None
                hint += "" if items else ", and so does Stack()"
                warnings.warn(f"Collate: entry {entry} seems to have {text}; {hint}", stacklevel=2)

    def _hint(self, keys: tuple[Any, ...], items: list[Any]) -> str:
        """Returns the hint for values of dropped boxes under these keys."""
        drops = _drops(keys[-1], self.labels)
        if len(keys) > 1:
            return f"move it into the dict of the boxes, where {drops}"
        if items and getattr(items[0], "ndim", 0) != 1:  # no numbers
            return f"Keep() leaves them as they are, and with it {drops}"
        return f"{drops}, Keep() leaves them as they are"


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
    entries: Mapping[Any, _Entry], all_fields: Mapping[Any, Any], name: str
) -> list[ImageGroup]:
    """Returns the groups of the entries of a dict.

    Args:
        entries: Entries by the keys of the batch.
        all_fields: All fields from the user, including optional ones that samples lack.
        name: Name of the dict of fields in messages.

    Raises:
        ValueError: If a field depends on an entry without images, two fields have boxes of the same
            images, or a label is missing.
    """
    targets = {key: e.field for key, e in entries.items() if isinstance(e.field, Target)}
    keys = list(entries)
    boxes: dict[Any, Any] = {}  # key of the boxes by the key of their images
    labelled: dict[Any, Any] = {}
    for key, field in targets.items():
        image = field.image
        shown = entries[image].fields if image in entries else all_fields.get(image)
        has_image = isinstance(shown, Image)
        if not has_image:
            kind = type(field).__name__
            hint = f"use Image() for these images, or pass the key of the images, {kind}(image=...)"
            if field.image not in entries:
                hint = (
                    f"pass the key of the images, {kind}(image=...), one of {keys}, and use Image() for them; "
                    'if they are not in this dict, put both in one, such as {"image": image, **target}'
                )
            wrong = f"{kind} needs an Image() under {field.image!r} in the same dict"
            raise ValueError(Problem(f"{name}[{key!r}]", wrong, hint=hint))
        if not isinstance(field, Boxes):
            continue
        if (other := boxes.setdefault(field.image, key)) != key:
            wrong = f"{name} must have one Boxes() for the images under {field.image!r}, which determines the objects "
            wrong += f"that remain, got {other!r} and {key!r}"
            raise ValueError(Problem("", wrong, hint="leave one out"))
        for label in field.labels_of:
            wrong = hint = ""
            if label in targets or labelled.setdefault(label, key) != key:
                wrong = f"has the label {label!r}, but that entry is transformed with images, or has the labels of other boxes"
                hint = "leave it out of labels="
            elif label not in entries:
                wrong = f"has labels={label!r}, but samples have {keys}"
                hint = (
                    "pass the keys of the entries with one value per box as labels=, or labels=()"
                )
            if wrong:
                raise ValueError(Problem("", f"{name}[{key!r}] {wrong}", hint=hint))
    images = dict.fromkeys(field.image for field in targets.values())
    return [ImageGroup(image, entries) for image in images]


def explain_difference(
    error: Exception, key: Any, column: Any, groups: Sequence[ImageGroup]
) -> None:
    """Adds a hint to the error of an entry beside images, if its samples differ in length."""
    if (problem := Problem.of(error)) and groups:
        if getattr(column[0], "ndim", 0) == 3:
            problem.explain_difference("use InstanceMasks() for masks of objects")
        elif _is_of_boxes(key):
            labels = [label for group in groups for label in group.labels]
            problem.explain_difference(_drops(key, labels))


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


def _is_table(batch: Any, items: list[Any]) -> bool:
    """Whether a sample is a list of dicts, or a table; the rows of a square matrix can be something else."""
    if not items:
        return getattr(batch, "ndim", 0) == 3 and batch.shape[1] != batch.shape[2]
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
