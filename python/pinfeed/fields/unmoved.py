"""Boxes, points and masks beside images that are cropped, flipped or resized, and that nothing moves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pinfeed.arguments import ARRAYS, Problem
from pinfeed.fields.field import Field
from pinfeed.fields.image import Image
from pinfeed.fields.keep import Keep
from pinfeed.fields.pad import Pad
from pinfeed.fields.stack import Stack
from pinfeed.fields.targets import Target
from pinfeed.structure import children, is_container

_BOXES = re.compile("box|(?<![a-z])rect(?!i)|roi(?![a-z])|rois", re.IGNORECASE)
_POINTS = re.compile("(?<!view)point|kpt|landmark|joint", re.IGNORECASE)
# So many samples are looked at, because the first ones may be of images without objects.
_SAMPLES = 16


class _Entry(NamedTuple):
    """An entry of a sample.

    Attributes:
        path: The steps from the sample to the entry, such as ``"['image']"``.
        parent: The path of the container that it is in.
        key: The last key on the path that is a string; empty if there is none.
        fields: The fields that are made of the entry, each behind its own key.
        value: What the sample has there.
    """

    path: str
    parent: str
    key: str
    fields: tuple[tuple[Any, Field], ...]
    value: Any


def require_moved(fields: Any, samples: Sequence[Any]) -> None:
    """Raises ValueError for an entry that should follow an augmented image, and does not.

    It looks like boxes, points or a mask of an image that an `Image` crops, flips or resizes, and has
    no field. Entries named like boxes or points whose field leaves them where they are count too, where
    the geometry is random: nobody can move them later.

    Args:
        fields: As `Collate` has them.
        samples: Those of a batch.
    """
    for position in range(min(len(samples), _SAMPLES)):
        entries = list(_entries(fields, samples[position], "", "", ""))
        images = [
            (entry, key, field)
            for entry in entries
            for key, field in entry.fields
            if isinstance(field, Image) and field.augment is not None
        ]
        if not images:
            return
        for entry in entries:
            for image in images:
                _require_moved(entry, *image)


def _require_moved(entry: _Entry, image: _Entry, key: Any, field: Image) -> None:
    others = [other for _, other in entry.fields]
    if any(isinstance(f, Keep | Image | Target) or (isinstance(f, Pad) and f.like) for f in others):
        return
    array, size = _numbers(entry.value), _size(image.value, field)
    if array is None or size is None or field.augment is None:
        return
    what, way = _kind(array, entry.key, size, "" if key in ("image", "") else repr(key))
    is_random = any(step.is_random for step in field.augment.steps)
    is_named = bool(_BOXES.search(entry.key) or _POINTS.search(entry.key))
    if not what:
        return
    if others:  # which a table may have; but Jagged() and Pad() are for objects
        is_meant = isinstance(others[0], Stack) and not is_named
        if is_meant or not is_random or what not in ("boxes", "points"):
            return
    if image.parent != entry.parent or not image.path.endswith("']"):
        way = f'put both in one dict, such as {{"image": image, **target}}, where {way}'
    text = f"looks like {what} for the image in {image.path}, which augment= moves"
    text += f" and {others[0]!r} does not" if others else ""
    hint = f"{way}, {'Keep()' if is_named else 'Stack() or Keep()'} leaves them as they are"
    raise ValueError(Problem("", f"Collate: entry {entry.path} {text}", hint=hint))


def _entries(
    fields: Any, node: Any, path: str, parent: str, key: str, made: Sequence[Any] = ()
) -> Iterator[_Entry]:
    """The entries of a sample; ``made``: the fields that `Field.of` makes of this one."""
    if isinstance(fields, Field):
        yield _Entry(path, parent, key, ((key, fields), *made), node)
    elif made or not is_container(node) or _numbers(node) is not None:
        yield _Entry(path, parent, key, (*made,), node)
    else:
        given = dict(children(fields)) if is_container(fields) else {}
        below = list(fields.items()) if isinstance(fields, Mapping) else []
        keys = list(node) if isinstance(node, Mapping) else [None] * len(children(node))
        for name, (step, child) in zip(keys, children(node), strict=True):
            of = [(k, f) for k, f in below if isinstance(f, Field) and f.source == name is not None]
            name = name if isinstance(name, str) else step[1:] if step[0] == "." else key
            yield from _entries(given.get(step), child, path + step, path, name, of)


def _numbers(value: Any) -> Any:
    """An array, or a list of numbers as one; None for anything else."""
    if isinstance(value, ARRAYS):
        return value
    first = value
    while isinstance(first, list | tuple) and first:
        first = first[0]
    if not isinstance(value, list | tuple) or not isinstance(first, list | tuple | int | float):
        return None
    try:
        array = np.array(value)
    except ValueError:  # lists of different lengths
        return None
    return array if array.dtype.kind in "iuf" else None


def _size(image: Any, field: Image) -> tuple[int, int] | None:
    """Height and width of an image."""
    if isinstance(image, ARRAYS):
        axes = field.axes
        if image.ndim != len(axes):
            return None
        return int(image.shape[axes.index("H")]), int(image.shape[axes.index("W")])
    width, height = getattr(image, "size", None) or (0, 0)
    return (height, width) if height else None


def _kind(array: Any, key: str, size: tuple[int, int], image: str) -> tuple[str, str]:
    """What an array looks like beside an image of this size, and the way to move it; empty: nothing."""
    shape = tuple(array.shape)
    is_empty = shape == (0,)
    if _BOXES.search(key) and (is_empty or (len(shape) in (1, 2) and shape[-1] in (4, 5))):
        suffix = "" if is_empty or (len(shape) == 2 and shape[1] == 4) else " of shape (n, 4)"
        return "boxes", f"the field Boxes({image}) moves boxes{suffix} along"
    if len(shape) == 2 and shape[1] == 4 and _are_boxes(array, size):
        return "boxes", f"the field Boxes({image}) moves boxes along"
    if _POINTS.search(key) and (is_empty or _are_points(array, size)):
        return "points", f"the field Points({image}) moves points along"
    if len(shape) == 3 and shape[1:] == size:
        classes = f", Mask({image}) a mask of classes" if shape[0] == 1 else ""
        return "masks", f"the field InstanceMasks({image}) moves masks along{classes}"
    if shape == size or shape == (*size, 1):
        field = f"Mask({image})"
        if "float" in str(array.dtype):
            field = 'Image(input="HW", output="HW", augment=...) with the same geometry'
        return "a mask", f"the field {field} moves it along"
    if len(shape) == 3 and shape[:2] == size:
        return "another image", "the field Image(augment=...) with the same geometry moves it along"
    return "", ""


def _are_boxes(array: Any, size: tuple[int, int]) -> bool:
    """Whether all are corners in pixels of an image of this size."""
    boxes = np.asarray(array, np.float64)
    limits = size[1], size[0]
    is_inside = (boxes >= 0).all() and (boxes[:, 2:] <= limits).all()
    return bool(
        len(boxes) and is_inside and (boxes[:, 2:] > boxes[:, :2]).all() and boxes.max() > 1
    )


def _are_points(array: Any, size: tuple[int, int]) -> bool:
    """Whether they may be points in an image of this size, with a flag or without."""
    if array.ndim not in (1, 2, 3) or array.shape[-1] not in (2, 3):
        return False
    points = np.asarray(array, np.float64).reshape(-1, array.shape[-1])
    is_inside = (points[:, :2] >= 0).all() and (points[:, :2] <= (size[1], size[0])).all()
    return bool(is_inside and np.isin(points[:, 2:], (0, 1, 2)).all())
