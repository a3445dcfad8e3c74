"""Checks that detect boxes and points in a wrong unit or format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.arguments import Problem

BoxFormat = Literal["xyxy", "xywh", "cxcywh"]

#: Box formats: two corners; upper left corner, width, height; center, width, height.
FORMATS: tuple[BoxFormat, ...] = get_args(BoxFormat)

# Types of samples without information about their image.
_PLAIN = {np.ndarray, torch.Tensor, list, tuple}
# Attributes of torchvision's boxes and points.
_KNOWN = {"format", "canvas_size", "clamping_mode"}
# Annotations are rounded, and some datasets count pixels from 1.
_TOLERANCE = 1
# Maximum of coordinates in fractions of an image; objects can extend beyond its border.
_MOST = 1.1
# The minimum number and fraction of boxes or points outside their image for an error.
_FEW, _SHARE = 3, 0.25
# Fewer boxes can be inside in another format by coincidence.
_CERTAIN = 12
_OTHER_SIZE = (
    "outside: if they are in pixels of an image of another size, scale them; if the image was cut "
    "from a larger one, leave out the ones outside"
)
_OTHER_UNIT = (
    "the unit may differ: scale boxes to pixels of their image if they are in thousandths, or in "
    "pixels of an image of another size"
)
_TURNED = "columns in the order boxes[:, [1, 0, 3, 2]]"
# Number of boxes or points of the first batches to check together.
_ENOUGH = 512


def require_pixels(numbers: npt.NDArray[Any], kind: str, name: str) -> None:
    """Raises ValueError for fractions of an image; ``kind`` is ``"boxes"`` or ``"points"``."""
    if (numbers[:16] > _MOST).any() or (np.abs(numbers) > _MOST).any():
        return  # usually the first objects are enough
    finite = numbers[np.isfinite(numbers)]
    if (2 * finite == np.rint(2 * finite)).all():
        return  # a single pixel, its center, or zeros for unknown points
    got = f"fractions, at most {finite.max():g}"
    hint = "multiply them by width and height"
    if finite.min() < -0.2:
        got, hint = f"numbers from {finite.min():g} to {finite.max():g}", "scale them to pixels"
        hint += " (coordinates of -1..1: (x + 1) / 2 * width)"
    if kind == "boxes":
        hint += "; Boxes(normalized=True) sets the unit of the batch, not of the samples"
    raise ValueError(Problem(name, f"{kind} in pixels of their image", got, hint))


def canvases(samples: Sequence[Any]) -> list[Any] | None:
    """Returns the image sizes that samples carry, as torchvision's do, or None."""
    if {*map(type, samples)} <= _PLAIN:
        return None
    return [getattr(sample, "canvas_size", None) for sample in samples]


def plain(samples: Sequence[Any]) -> Sequence[Any]:
    """Returns the samples, with torchvision's boxes and points as plain tensors."""
    if {*map(type, samples)} <= _PLAIN:
        return samples
    return [
        sample.as_subclass(torch.Tensor)
        if type(sample) not in _PLAIN
        and isinstance(sample, torch.Tensor)
        and vars(sample).keys() <= _KNOWN
        else sample
        for sample in samples
    ]


def require_canvases(canvases: list[Any] | None, sizes: Sequence[Any], name: str) -> None:
    """Raises ValueError if the image size that a sample carries is not its image's size."""
    for position, canvas in enumerate(canvases or ()):
        if canvas is not None and tuple(canvas) != tuple(sizes[position]):
            expected = f"coordinates for their image of {tuple(sizes[position])}"
            got = f"canvas_size={tuple(canvas)}"
            hint = "resize both or neither in the dataset"
            raise ValueError(Problem(name, expected, got, hint, sample=position))


class FirstBatches:
    """Boxes or points of the first batches, with the width and height of the image of each.

    They are collected because one batch has too few to judge. Later batches are not checked, because a few
    items can look wrong by coincidence.
    """

    def __init__(self) -> None:
        self._batches: list[tuple[Any, Any]] = []

    @property
    def are_complete(self) -> bool:
        """Whether there are enough items, so that further ones are not checked."""
        return sum(len(batch) for batch, _ in self._batches) >= _ENOUGH

    def add(self, items: npt.NDArray[Any], limits: npt.NDArray[Any]) -> None:
        """Stores the items of a batch."""
        if len(items):
            self._batches = [*self._batches, (items.copy(), limits)]

    def with_items(self, items: npt.NDArray[Any], limits: npt.NDArray[Any]) -> tuple[Any, Any]:
        """Returns the stored items with these, and their limits."""
        pairs = zip(*self._batches, (items, limits), strict=True)
        return tuple(map(np.concatenate, pairs))  # type: ignore[return-value]


def require_inside(
    corners: npt.NDArray[Any],
    offsets: Any,
    sizes: Sequence[Any],
    format: BoxFormat,
    first_batches: FirstBatches,
    name: str,
) -> None:
    """Raises ValueError for boxes that are outside their images, but inside in another format.

    Good annotations have some boxes that extend beyond their image. So it raises only on two conditions: in
    ``format``, a box of the first batches is far outside, or enough boxes extend beyond their images; and in
    another format, (nearly) all of them are inside.

    Args:
        corners: Boxes as x1, y1, x2, y2, float64 of shape (n, 4).
        offsets: Start of each image's boxes.
        sizes: Height and width of each image.
        format: Format of the samples.
        first_batches: Boxes of the first batches.
        name: Name of the entry in messages.
    """
    if first_batches.are_complete:
        return
    limits = _limits(sizes, offsets)
    is_beyond = _is_beyond(corners, limits)
    hint = ""
    if is_beyond.any():
        hint = _box_hint(*first_batches.with_items(corners, limits), format)
    first_batches.add(corners, limits)
    if hint:
        is_far = is_beyond & _is_center_outside(corners, limits)
        row_is_bad = is_far if is_far.any() else is_beyond
        raise _beyond(row_is_bad, in_format(corners, format), offsets, sizes, hint, name)


def _box_hint(corners: npt.NDArray[Any], limits: npt.NDArray[Any], format: BoxFormat) -> str:
    """Returns the hint for boxes that seem to have another format; empty if there is none."""
    is_beyond, is_far = _is_beyond(corners, limits), _is_center_outside(corners, limits)
    ends = corners / np.tile(limits, 2)
    is_huge = is_far & ((ends < -0.25) | (ends > 1.25)).any(1)
    is_across = _is_beyond(corners[:, ::2], limits[:, :1])
    raw = in_format(corners, format)
    alternatives = {
        f'format="{other}"': (raw.copy(), other)
        for other in (*FORMATS[1:], FORMATS[0])
        if other != format
    }
    formats = [*alternatives]
    swapped = raw[:, [1, 0, 3, 2]]
    alternatives[_TURNED] = swapped, format
    if format != "xyxy":  # TensorFlow's y1, x1, y2, x2
        alternatives[f'format="xyxy" and {_TURNED}'] = swapped.copy(), "xyxy"
    min_count = is_far.sum()
    counts: dict[str, int] = {}  # of boxes that do not fit
    fitting: list[str] = []
    for alternative, (boxes, other) in alternatives.items():
        # Objects often leave images at the top or bottom only, but seldom at one of the other sides.
        is_swap = other == format
        if not is_swap and 4 * is_across.sum() < is_beyond.sum():
            continue
        boxes = np.ascontiguousarray(boxes)
        _core.to_corners(boxes, other)
        is_turned = (boxes[:, :2] > boxes[:, 2:]).any(1)
        misfits = is_turned | _is_beyond(boxes, limits)
        far_misfits = is_turned | _is_center_outside(boxes, limits)
        min_count = min(min_count, far_misfits.sum())
        flags, share = (is_far, 0.1) if is_swap else (is_beyond, _SHARE)
        are_many = len(boxes) >= _CERTAIN and _are_many(flags, share)
        counts[alternative] = int(misfits.sum())
        is_inside = not misfits.any() and (is_huge.any() or are_many)
        if is_inside or _are_more(flags, misfits) or _are_more(is_far, far_misfits):
            fitting.append(alternative)
    if fitting:
        best = min(fitting, key=counts.__getitem__)
        least = counts[best]
        if 2 * least > len(raw) or _are_thousandths(raw, limits):
            return _OTHER_UNIT
        most = min(least + max(1, len(raw) // 10), max(_CERTAIN, 8 * least) - 1)
        names = [name for name in formats if name in counts and counts[name] <= most]
        names = names if best in formats else [best]
        which = "most" if max(counts[name] for name in names) else "all"
        hint = f"pass {' or '.join(names)}: {which} boxes so far are then inside"
        return f"{hint}; draw a few to see which" if len(names) > 1 else hint
    # Boxes of a larger image are right of the image or below, and around it only if it is a crop.
    is_crop = (corners[:, :2] + corners[:, 2:] < 0).any()
    is_certain = _are_many(is_far, 0.5) and 2 * min_count >= is_far.sum() and not is_crop
    return f"most boxes are {_OTHER_SIZE}" if is_certain else ""


def _are_thousandths(raw: npt.NDArray[Any], limits: npt.NDArray[Any]) -> bool:
    """Whether boxes of any format seem to count from 0 to 1000, whatever the size of the image."""
    is_larger = raw > limits.max(1, keepdims=True) + _TOLERANCE
    is_both = is_larger[:, ::2].any() and is_larger[:, 1::2].any()
    return bool(
        is_both and raw.min() >= 0 and raw.max() <= 1000 and is_larger.any(1).mean() > _SHARE
    )


def _are_more(flags: npt.NDArray[np.bool_], others: npt.NDArray[np.bool_]) -> bool:
    """Whether enough boxes are outside in one format, and hardly any in another one.

    In the right format, few boxes cross the left or the right side of their image. In a format with another
    corner, or with the center, many boxes cross one of the two.
    """
    return bool(flags.sum() >= max(_CERTAIN, 8 * others.sum()))


def require_points_inside(
    points: Any, offsets: Any, sizes: Sequence[Any], first_batches: FirstBatches, name: str
) -> None:
    """Like `require_inside`; points are float64 of shape (n, ..., 2 or 3)."""
    if points.size == 0 or first_batches.are_complete:
        return
    flat = points.reshape(len(points), -1, points.shape[-1])
    limits = np.repeat(_limits(sizes, offsets)[:, None], flat.shape[1], axis=1)
    is_known = flat[..., 2] != 0 if points.shape[-1] == 3 else np.ones(flat.shape[:2], np.bool_)
    is_beyond = is_known & _is_outside(flat[..., :2], limits)
    items = flat[is_known][:, :2], limits[is_known]
    hint = _point_hint(*first_batches.with_items(*items)) if is_beyond.any() else ""
    first_batches.add(*items)
    if hint:
        raise _beyond(is_beyond.any(1), points, offsets, sizes, hint, name)


def _point_hint(points: npt.NDArray[Any], limits: npt.NDArray[Any]) -> str:
    """Returns the hint for points, of shape (n, 2), that seem to be in another order or unit."""
    is_beyond = _is_outside(points, limits)
    share = _SHARE if len(points) < 16 else 0.15  # more points make coincidence unlikely
    if _are_many(is_beyond, share) and not _is_outside(points[:, ::-1], limits).any():
        return "swap x and y: all points so far are then inside"
    is_crop = (points < -_TOLERANCE).any()  # or -100 stands for points that are missing
    return f"most points are {_OTHER_SIZE}" if _are_many(is_beyond, 0.5) and not is_crop else ""


def known_points(points: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns the known points: all, or those whose third number is not 0."""
    return points[..., :2] if points.shape[-1] == 2 else points[points[..., 2] != 0][:, :2]


def in_format(corners: npt.NDArray[Any], format: str) -> npt.NDArray[Any]:
    """Returns corners in the format of the samples."""
    boxes = corners.copy()
    if format != "xyxy":
        boxes[:, 2:] -= boxes[:, :2]
    if format == "cxcywh":
        boxes[:, :2] += boxes[:, 2:] / 2
    return boxes


def _limits(sizes: Sequence[Any], offsets: Any) -> npt.NDArray[Any]:
    """Returns the width and height of the image of each item."""
    return np.repeat(np.array(sizes, np.float64)[:, ::-1], np.diff(offsets), axis=0)


def _is_beyond(corners: npt.NDArray[Any], limits: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    half = limits.shape[1]
    low, high = corners[:, :half] < -_TOLERANCE, corners[:, half:] > limits + _TOLERANCE
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
    row = int(np.flatnonzero(flags)[0])
    sample = int(np.searchsorted(offsets, row, "right")) - 1
    height, width = sizes[sample]
    expected = f"coordinates inside the image of {width} x {height} pixels (width x height)"
    got = f"{items[row].round(3).tolist()} of item {row - int(offsets[sample])}"
    return ValueError(Problem(name, expected, got, hint, sample=sample))
