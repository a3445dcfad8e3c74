"""Coordinates of boxes and points that can be told to have another unit or format than was said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.arguments import Problem

BoxFormat = Literal["xyxy", "xywh", "cxcywh"]

#: Those of a box: two corners; the upper left corner, width and height; the center, width and height.
FORMATS: tuple[BoxFormat, ...] = get_args(BoxFormat)

# Samples that say nothing of their image.
_PLAIN = {np.ndarray, torch.Tensor, list, tuple}
# What torchvision's say of their image.
_KNOWN = {"format", "canvas_size", "clamping_mode"}
# Annotations are rounded, and some datasets count pixels from 1.
_TOLERANCE = 1
# The number of boxes or points that make a suspicion, and their share.
_FEW, _SHARE = 3, 0.25
# Fewer boxes that reach beyond their image may all be inside in another format by chance.
_CERTAIN = 12
# So many boxes or points of the first batches are looked at together.
_ENOUGH = 64


def require_pixels(numbers: npt.NDArray[Any], what: str, name: str) -> None:
    """Raises ValueError for fractions of an image; ``what`` they are: ``"boxes"``, ``"points"``."""
    if not np.fmax.reduce(np.abs(numbers), axis=None, initial=0) <= 1.01:
        return
    finite = numbers[np.isfinite(numbers)]
    if (2 * finite == np.rint(2 * finite)).all():
        return  # a single pixel, or its center, or zeros where nothing is known
    got = f"fractions, at most {finite.max():g}"
    hint = "multiply them by width and height; Boxes(normalized=True) is about the batch"
    raise ValueError(Problem(name, f"{what} in pixels of their image", got, hint))


def canvases(samples: Sequence[Any]) -> list[Any] | None:
    """The sizes of images that samples carry with them, as torchvision's do; None: they carry none."""
    if {*map(type, samples)} <= _PLAIN:
        return None
    return [getattr(sample, "canvas_size", None) for sample in samples]


def plain(samples: Sequence[Any]) -> Sequence[Any]:
    """Samples as they are, and torchvision's, whose format and canvas are looked at, as tensors."""
    if {*map(type, samples)} <= _PLAIN:
        return samples
    return [
        sample.as_subclass(torch.Tensor)
        if isinstance(sample, torch.Tensor) and vars(sample).keys() <= _KNOWN
        else sample
        for sample in samples
    ]


def require_canvases(canvases: list[Any] | None, sizes: Sequence[Any], name: str) -> None:
    """Raises ValueError if a sample is of an image of another size than its image has."""
    for position, canvas in enumerate(canvases or ()):
        if canvas is not None and tuple(canvas) != tuple(sizes[position]):
            expected = f"coordinates in an image of {tuple(sizes[position])}, as their image has it"
            got = f"canvas_size={tuple(canvas)}"
            hint = "resize both or neither in the dataset"
            raise ValueError(Problem(name, expected, got, hint, sample=position))


class Earlier:
    """Items of the first batches, with their limits: one or two boxes of a batch say little.

    Later batches are not judged, because a few items of one may look wrong by chance.
    """

    def __init__(self) -> None:
        self._batches: list[tuple[Any, Any]] = []

    def add(self, items: npt.NDArray[Any], limits: npt.NDArray[Any]) -> None:
        """Keeps the items of a batch, until there are enough."""
        if len(items) and sum(len(known) for known, _ in self._batches) < _ENOUGH:
            self._batches = [*self._batches, (items.copy(), limits)]

    def looks(self, items: npt.NDArray[Any], limits: npt.NDArray[Any]) -> list[tuple[Any, Any]]:
        """The items of the first batches, up to this one; empty for a later one."""
        if sum(len(known) for known, _ in self._batches) >= _ENOUGH:
            return []
        pairs = zip(*self._batches, (items, limits), strict=True)
        return [tuple(map(np.concatenate, pairs))]  # type: ignore[list-item]


def require_inside(
    corners: npt.NDArray[Any],
    offsets: Any,
    sizes: Sequence[Any],
    format: BoxFormat,
    earlier: Earlier,
    name: str,
) -> None:
    """Raises ValueError for boxes beyond their images that another format would have inside.

    Some boxes reach beyond their image in good annotations; hardly any has its center there. One such
    box is enough, or many that reach beyond, where all boxes of the batch are inside by another format;
    or all of the first batches.

    Args:
        corners: Boxes as x1, y1, x2, y2, float64 of shape (n, 4).
        offsets: Where the boxes of each image begin.
        sizes: The height and width of each image.
        format: How samples have them.
        earlier: Boxes of earlier batches.
        name: What messages call the entry.
    """
    limits = _limits(sizes, offsets)
    is_beyond = _is_beyond(corners, limits)
    hints = []
    if is_beyond.any():
        hints = [_box_hint(*look, format) for look in earlier.looks(corners, limits)]
    earlier.add(corners, limits)
    if hint := next(filter(None, hints), ""):
        is_far = is_beyond & _is_center_outside(corners, limits)
        row_is_bad = is_far if is_far.any() else is_beyond
        raise _beyond(row_is_bad, in_format(corners, format), offsets, sizes, hint, name)


def _box_hint(corners: npt.NDArray[Any], limits: npt.NDArray[Any], format: BoxFormat) -> str:
    """What boxes may be that are not what they are said to be; empty: nothing tells."""
    is_beyond = _is_beyond(corners, limits)
    is_far = is_beyond & _is_center_outside(corners, limits)
    are_many = len(corners) >= _CERTAIN and _are_many(is_beyond, _SHARE)
    if not (is_far.any() or are_many):
        return ""
    raw = in_format(corners, format)
    ways = {f'format="{other}"': (raw.copy(), other) for other in FORMATS if other != format}
    ways["columns in the order boxes[:, [1, 0, 3, 2]]"] = raw[:, [1, 0, 3, 2]], format
    for way, (boxes, other) in ways.items():
        boxes = np.ascontiguousarray(boxes)
        _core.to_corners(boxes, other)
        if (boxes[:, :2] <= boxes[:, 2:]).all() and not _is_beyond(boxes, limits).any():
            return f"all boxes so far are inside with {way}"
    if _are_many(is_far, 0.5):
        return "most boxes are outside: are they in pixels of an image of another size?"
    return ""


def require_points_inside(
    points: Any, offsets: Any, sizes: Sequence[Any], earlier: Earlier, name: str
) -> None:
    """The same for points: float64 of shape (n, ..., 2 or 3)."""
    if points.size == 0:
        return
    flat = points.reshape(len(points), -1, points.shape[-1])
    limits = np.repeat(_limits(sizes, offsets)[:, None], flat.shape[1], axis=1)
    is_known = flat[..., 2] != 0 if points.shape[-1] == 3 else np.ones(flat.shape[:2], np.bool_)
    is_beyond = is_known & _is_outside(flat[..., :2], limits)
    known = flat[is_known][:, :2], limits[is_known]
    hints = [_point_hint(*look) for look in earlier.looks(*known)] if is_beyond.any() else []
    earlier.add(*known)
    if hint := next(filter(None, hints), ""):
        raise _beyond(is_beyond.any(1), points, offsets, sizes, hint, name)


def _point_hint(points: npt.NDArray[Any], limits: npt.NDArray[Any]) -> str:
    """The same of points, of shape (n, 2)."""
    is_beyond = _is_outside(points, limits)
    share = _SHARE if len(points) < _ENOUGH // 4 else 0.15  # hardly so many are inside by chance
    if _are_many(is_beyond, share) and not _is_outside(points[:, ::-1], limits).any():
        return "all points so far are inside with x and y exchanged"
    if _are_many(is_beyond, 0.5):
        return "most points are outside: are they in pixels of an image of another size?"
    return ""


def known_points(points: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Where points are known: all of them, unless a third number says more."""
    return points[..., :2] if points.shape[-1] == 2 else points[points[..., 2] != 0][:, :2]


def in_format(corners: npt.NDArray[Any], format: str) -> npt.NDArray[Any]:
    """Corners as samples have them."""
    boxes = corners.copy()
    if format != "xyxy":
        boxes[:, 2:] -= boxes[:, :2]
    if format == "cxcywh":
        boxes[:, :2] += boxes[:, 2:] / 2
    return boxes


def _limits(sizes: Sequence[Any], offsets: Any) -> npt.NDArray[Any]:
    """The width and height of the image of each item."""
    return np.repeat(np.array(sizes, np.float64)[:, ::-1], np.diff(offsets), axis=0)


def _is_beyond(corners: npt.NDArray[Any], limits: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    low, high = corners[:, :2] < -_TOLERANCE, corners[:, 2:] > limits + _TOLERANCE
    return np.asarray((low | high).any(1))


def _is_center_outside(
    corners: npt.NDArray[Any], limits: npt.NDArray[Any]
) -> npt.NDArray[np.bool_]:
    center = (corners[:, :2] + corners[:, 2:]) / 2
    return np.asarray(((center < 0) | (center > limits)).any(1))


def _is_outside(points: npt.NDArray[Any], limits: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    is_outside = (points < -_TOLERANCE) | (points > limits + _TOLERANCE)
    return np.asarray(is_outside.any(-1))


def _are_many(flags: npt.NDArray[np.bool_], share: float) -> bool:
    return bool(flags.sum() >= _FEW and flags.mean() > share)


def _beyond(
    flags: Any, items: Any, offsets: Any, sizes: Sequence[Any], hint: str, name: str
) -> ValueError:
    """The error for the first item that is flagged."""
    row = int(np.flatnonzero(flags)[0])
    sample = int(np.searchsorted(offsets, row, "right")) - 1
    height, width = sizes[sample]
    expected = f"coordinates inside the image of {width} x {height} pixels (width x height)"
    got = f"{items[row].tolist()} of item {row - int(offsets[sample])}"
    return ValueError(Problem(name, expected, got, hint, sample=sample))
