"""Boxes and points recognized by their values, in the arrays of several images."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

# Keys that end in such a word. box_class, joint_angles and num_points are something else.
NAME = "^(?!num|n_|count|max).*?(?<![a-z])(?:{})(?:_?(?:xyxy|xywh|cxcywh|xyv?|2d))?$"
# Keys whose values decide what they are, and keys of points.
_TARGETS = re.compile(
    NAME.format("targets?|y|labels?|gts?|truths?|ann?(?:ot)?(?:ation)?s?|objects?"), re.IGNORECASE
)
_POSITIONS = re.compile(
    NAME.format(
        "eyes?|pupils?|corners?|coord(?:inate)?s?|xys?|poses?|cent(?:er|re|roid)s?|locations?|clicks?|tracks?|lms?"
    ),
    re.IGNORECASE,
)
_ROWS = 64  # of an array, to check
# Columns of boxes and points, and numbers of axes.
_AXES = {2: (2, 3), 4: (1, 2), 5: (2,), 6: (2,), 8: (2,)}
# Probabilities below which numbers of another meaning may, and can't, all fit a format of boxes.
_RARE, _IMPOSSIBLE = 2e-2, 1e-5
_SHIFTS = 32  # pairings of rows to try
# Share of an image over which points and boxes extend; class numbers and offsets hardly do.
_EXTENT = 0.25


def has_name(key: str, names: re.Pattern[str]) -> bool:
    """Whether a key has one of the names, as in gt_boxes or gtBoxes."""
    return bool(names.search(re.sub("(?<=[a-z])(?=[A-Z])", "_", key)))


class Found(NamedTuple):
    """What an entry looks like."""

    kind: str  # "boxes" or "points"
    hint: str
    is_sure: bool = True
    keeping: str = "Stack() or Keep()"  # fields that leave the entry as it is


def find_positions(
    key: str,
    arrays: Sequence[Any],
    sizes: Sequence[Any],
    image: str,
    moves_fractions: bool,
    is_named: bool = False,
) -> Found | None:
    """Returns what all arrays of an entry look like; None if they can be anything else.

    Args:
        key: Key of the entry; empty in a tuple.
        arrays: Arrays of the entry, one for each image.
        sizes: Height and width of each image.
        image: Argument of the field in hints.
        moves_fractions: Whether images are cropped or flipped, which changes coordinates in fractions too.
        is_named: Whether a name of points is on the path, as in ``["landmarks"]["nose"]``.
    """
    kinds = {(array.ndim, array.shape[-1]) for array in arrays if array.size}
    axes, width = kinds.pop() if len(kinds) == 1 else (0, 0)
    is_target, is_named = not key or has_name(key, _TARGETS), is_named or has_name(key, _POSITIONS)
    is_point = axes == 1 and width == 2 and is_named
    if axes not in _AXES.get(width, ()) and not is_point:
        return None
    is_x = key == "x" and all(array.dtype.kind == "f" for array in arrays)
    if width == 2 and not (is_target or is_named or is_x):
        return None
    parts = [np.asarray(array, np.float64).reshape(-1, width)[:_ROWS] for array in arrays]
    rows = np.concatenate(parts)
    limits = np.repeat([size[::-1] for size in sizes], [*map(len, parts)], axis=0)
    count = len(np.unique(rows, axis=0))
    if not np.isfinite(rows).all() or (
        count >= (4 if axes > 1 else 2) and (np.diff(rows) >= 0).all()
    ):
        return None  # rows that increase are quantiles or spans
    if width == 2:
        return _points(key, rows, limits, count, is_named, axes, image)
    if width == 4 and axes == 2 and rows.max() > 1 and fits(rows, limits, "xyxy").all():
        return Found("boxes", f"use Boxes({image}) to transform boxes too")
    if width == 4 and is_target:
        is_large = bool(((rows[:, 2:] - rows[:, :2]) / limits >= _EXTENT).all())
        is_constant = count == 1 < len(parts) and is_large and "label" not in key.lower()
        return _boxes(key, rows, limits, is_constant, axes, image)
    if width == 8 and rows.max() > 1 and fits(rows, limits, "corners").all():
        chance = _chance(rows, limits, "corners")
        fix = f"use Points({image}) to transform np.reshape({key or 'corners'}, (-1, 4, 2)) too"
        return Found("quadrilaterals", fix, chance < _IMPOSSIBLE) if chance < _RARE else None
    return _labelled(key, rows, limits, image, moves_fractions) if width in (5, 6) else None


def _points(
    key: str, rows: Any, limits: Any, count: int, is_named: bool, axes: int, image: str
) -> Found | None:
    """Returns points in pixels, or, under a key of points, in fractions of the image."""
    fractions = rows / limits
    if (rows < 0).any() or (fractions > 1).any():
        return None
    what = "points" if axes > 1 else "points of shape (n, 2)"
    fix = f"use Points({image}) to transform {what} too"
    low, high = sorted(np.ptp(fractions, axis=0).tolist())
    if rows.max() > 1:
        is_spread = high >= _EXTENT if is_named else high >= 2 * _EXTENT and low >= _EXTENT
        return Found("points", fix, is_named) if is_spread else None
    is_spread = count >= 3 and bool((rows != np.rint(rows)).any()) and np.ptp(rows) >= _EXTENT
    if not is_named or not is_spread or np.allclose(rows.sum(1), 1):
        return None
    scaled = f"use Points({image}) to transform {key} * [width, height] too"
    return Found("points", scaled, is_sure=False)


def _boxes(
    key: str, rows: Any, limits: Any, is_constant: bool, axes: int, image: str
) -> Found | None:
    """Returns boxes of any format, in pixels or fractions, if other numbers would hardly fit."""
    if np.allclose(rows.sum(1), 1):
        return None  # probabilities
    are_fractions = rows.max() <= 1
    bounds = np.ones_like(limits) if are_fractions else limits
    for name in ("xyxy", "cxcywh", "xywh") if are_fractions else ("xyxy", "xywh", "cxcywh"):
        if not fits(rows, bounds, name).all():
            continue
        chance = _chance(rows, bounds, name)
        if chance < _RARE or (is_constant and name == "xyxy" and not are_fractions):
            field = boxes_field(image, name)
            what = (
                f"{key or 'boxes'} * [width, height, width, height]" if are_fractions else "boxes"
            )
            what += "" if axes == 2 else " of shape (n, 4)"
            hint = f"use {field} to transform {what} too"
            return Found("boxes", hint, chance < _IMPOSSIBLE)
    return None


def boxes_field(image: str, form: str) -> str:
    """Returns the field for boxes of a format; ``image`` is its argument for the key of the images."""
    return f"Boxes({', '.join(filter(None, (image, f'format={form!r}' * (form != 'xyxy'))))})"


def _chance(rows: Any, limits: Any, name: str) -> float:
    """Returns the probability that all rows fit by chance, estimated from rows with another row's last half."""
    both = np.unique(np.concatenate([rows, limits], axis=1), axis=0)
    rows, limits, half = both[:, :-2], both[:, -2:], rows.shape[1] // 2
    fitting = 0.0
    shifts = range(0, len(rows), max(1, len(rows) // _SHIFTS))
    for shift in shifts:
        mixed = np.concatenate([rows[:, :half], np.roll(rows[:, half:], shift, axis=0)], axis=1)
        fitting += fits(mixed, limits, name).mean() / len(shifts)
    return float(fitting ** len(rows))


def _labelled(key: str, rows: Any, limits: Any, image: str, moves_fractions: bool) -> Found | None:
    """Returns boxes with a class, a score or both in the last or first columns, or as YOLO has them."""
    more = rows.shape[1] - 4
    last, first = ("4", "0") if more == 1 else ("4:", ":2")
    for columns, boxes, other, labels in (
        (":4", rows[:, :4], last, rows[:, 4:]),
        (f"{more}:", rows[:, more:], first, rows[:, :more]),
    ):
        are_classes = (labels == np.rint(labels)).all(0)
        are_labels = labels.min() >= 0 and (are_classes | (labels.max(0) <= 1)).all()
        what = f"{key or 'boxes'}[:, {columns}]"
        labelled = f"too, with [:, {other}] as their labels"
        if are_labels and boxes.max() > 1 and fits(boxes, limits, "xyxy").all():
            if more > 1 and _chance(boxes, limits, "xyxy") >= _RARE:
                continue
            return Found("boxes", f"use Boxes({image}) to transform {what} {labelled}")
    is_inside = ((boxes > 0) & (boxes <= 1)).all() and (boxes[:, :2] != np.rint(boxes[:, :2])).all()
    is_yolo = labels.min() >= 0 and are_classes.all() and is_inside and moves_fractions
    if not is_yolo or (more > 1 and key and not has_name(key, _TARGETS)):
        return None
    field = boxes_field(image, "cxcywh")
    scaled = f"{what} * [width, height, width, height] {labelled}"
    return Found("boxes", f"use {field} to transform {scaled}")


def _corners(rows: Any, name: str) -> Any:
    """Returns boxes of a format as x1, y1, x2, y2."""
    first, second = rows[:, :2], rows[:, 2:]
    if name == "xyxy":
        return rows
    first = first - second / 2 if name == "cxcywh" else first
    return np.concatenate([first, first + second], axis=1)


def fits(rows: Any, limits: Any, name: str) -> Any:
    """Whether each row is a box of a format with an area, in an image of this width and height.

    ``"corners"``: whether four points are the corners of a convex shape, in their order.
    """
    if name == "corners":
        points = rows.reshape(-1, 4, 2)
        sides = np.roll(points, -1, axis=1) - points
        after = np.roll(sides, -1, axis=1)
        turns = sides[..., 0] * after[..., 1] - sides[..., 1] * after[..., 0]
        is_convex = abs(np.sign(turns).sum(1)) >= 3
        return ((points >= 0) & (points <= limits[:, None])).all((1, 2)) & is_convex
    corners = _corners(rows, name)
    slack = 1e-6 * limits
    is_inside = (corners[:, :2] >= -slack) & (corners[:, 2:] <= limits + slack)
    return (is_inside & (corners[:, 2:] > corners[:, :2])).all(1)
