"""Checks for boxes, points and masks that aren't transformed with their images, or get interpolated."""

from __future__ import annotations

import functools
import itertools
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from pinfeed.arguments import ARRAYS, Problem, host_array, known_length
from pinfeed.augment.geometry import Flip, Resizing
from pinfeed.augment.sizes import Resize
from pinfeed.collation.graphs import warn_of_edges
from pinfeed.collation.positions import NAME, Found, boxes_field, find_positions, fits, has_name
from pinfeed.collation.sample_entries import (
    SPREAD,
    FieldEntry,
    as_numbers,
    is_encoded,
    sample_entries,
    spread_names,
)
from pinfeed.fields.field import Field
from pinfeed.fields.image import INTEGERS, Image
from pinfeed.fields.pad import Pad
from pinfeed.fields.patches import Patches
from pinfeed.fields.stack import Keep, Stack
from pinfeed.fields.targets import Target, are_classes
from pinfeed.functional.padding import warn_of_stacked_row

_BOXES = re.compile(
    NAME.format("[or]?b?box(?:es)?|[or]?bbs|obb|detections?|dets?|rects?|rois?"), re.IGNORECASE
)
_ROTATED = re.compile("rot|orient|(?<![a-z])([or]b?box|[or]bb)", re.IGNORECASE)
_POINTS = re.compile(
    NAME.format(
        "key_?points?|points?|kpts?|pts|kps|landmarks?|lmks?|joints?|poly(?:gon|line)s?|contours?|vertices"
    ),
    re.IGNORECASE,
)
# Names of polygons in COCO, labelme and OpenCV, and names that have other values too.
_OUTLINES = re.compile(
    NAME.format("poly(?:gon|line)?s?|contours?|outlines?|segmentations?|quads?"), re.IGNORECASE
)
_MAYBE_OUTLINES = re.compile(NAME.format("segm?s?|segments?|masks?|lanes?"), re.IGNORECASE)
_MASKS = re.compile("mask|segm", re.IGNORECASE)
_CLASSES = re.compile("mask|segm|label|annot|semantic|panoptic", re.IGNORECASE)
_IMAGES = re.compile("image|img|photo|picture|pixel|rgb|frame|view", re.IGNORECASE)
_MAPS = re.compile("mask|segm|depth|dispar|flow|normal|heat|alpha|matte|height", re.IGNORECASE)
# Names of maps whose values are lengths or directions in the image, which flips and resizes change.
_VECTORS = re.compile(
    "(?<![a-z])(?:flows?|normals?|disparit(?:y|ies)|disp)(?![a-z])", re.IGNORECASE
)
#: Number of samples to check, because images of the first ones can be without objects.
SAMPLES = 256
# Number of masks to check, and the maximum number of classes; photos have more values.
_MASKS_READ, _MAX_CLASSES = 8, 32
_MAX_IDS = 65535  # of objects
# Number of polygons of a sample to check, and of their points.
_OUTLINES_READ, _POINTS_READ = 8, 64


#: Paths of entries without values so far (None: all), and the number of samples in which to check them.
Left = tuple[set[str] | None, int]


class FirstSamples:
    """Checks the first samples of a `Collate` with these fields."""

    def __init__(self, fields: Any) -> None:
        self._fields = fields
        self._is_first = True

    def check(self, samples: Sequence[Any], left: Left | None) -> Left | None:
        """Checks a batch of samples of one structure.

        Args:
            samples: The samples.
            left: What earlier batches of this structure left to check; None: this is the first one.

        Returns:
            What the next batch has to be checked for; None: nothing.
        """
        walk = functools.cache(lambda position: sample_entries(self._fields, samples[position]))

        def first(count: int) -> Iterator[list[FieldEntry]]:
            return map(walk, range(min(count, len(samples))))

        paths, count = (None, SAMPLES) if left is None else left
        paths = require_transformed(first(SAMPLES), paths)
        count -= len(samples)
        if left is None:
            warn_of_blended(first(_MASKS_READ))
            warn_of_edges(first(SAMPLES))
        if self._is_first:
            self._is_first = False
            for entry in walk(0):
                if not entry.fields and warn_of_stacked_row(entry.value, entry.path):
                    break
        return (paths, count) if paths != set() and count > 0 else None


def require_transformed(
    samples: Iterable[list[FieldEntry]], left: set[str] | None
) -> set[str] | None:
    """Raises ValueError for an entry that should be transformed with an image, and is not.

    Such an entry looks like boxes, points or a mask of an image that an `Image` crops, flips or
    resizes, and has no field. If the geometry is random, boxes, points and class masks whose field
    doesn't transform them raise too, because they can't be transformed later. If the geometry is fixed, such
    boxes and points cause a warning.

    Args:
        samples: Entries of each sample.
        left: Paths of the entries to check; None: all.

    Returns:
        Paths of the entries without values so far; None if no image changes.
    """
    problems: dict[str, tuple[Problem, bool]] = {}
    others: set[str] = set()
    empty: set[str] = set()
    filled: set[str] = set()
    unnamed: dict[str, list[tuple[FieldEntry, list[FieldEntry], Any]]] = {}
    is_changed = False
    for entries in samples:
        images = [
            (entry, key, field)
            for entry in entries
            for key, field in entry.fields
            if isinstance(field, Image | Patches) and field.geometry is not None
        ]
        if not images:
            return set()
        changed = [image for image in images if _is_changed(image[0].value, image[2])]
        is_changed |= bool(changed)
        for entry in entries if changed else ():
            if left is not None and entry.path not in left:
                continue  # judged in an earlier batch
            problem = next(
                filter(None, (_problem(entry, entries, *image) for image in changed)), None
            )
            is_empty = _is_empty(entry.value)
            (empty if is_empty else filled).add(entry.path)
            if problem is not None:
                problems.setdefault(entry.path, problem)
            elif not is_empty and _can_be_positions(entry):
                others.add(entry.path)  # other samples only looked like it
                unnamed.setdefault(entry.path, []).append((entry, entries, changed[0]))
    for path, seen in unnamed.items():
        if path not in problems and (problem := _problem_of_positions(seen)) is not None:
            problems[path] = problem
            others.discard(path)
    for path, (problem_of_path, is_error) in problems.items():
        if path not in others:
            if is_error:
                raise ValueError(problem_of_path)
            warnings.warn(str(problem_of_path), stacklevel=2)
            return set()
    if not is_changed:
        return left
    return (empty if left is None else left) - filled


def warn_of_blended(samples: Iterable[list[FieldEntry]]) -> None:
    """Warns about class masks that are resized like images: by name, or beside an image of their size."""
    masks: dict[str, tuple[Image, bool, set[Any]]] = {}
    images: set[str] = set()
    for entries in samples:
        sizes = [(e, f, _size(e.value, f)) for e in entries for _, f in e.fields]
        if not any(isinstance(field, Image) for _, field, _ in sizes):
            return
        for entry, field, size in sizes:
            is_beside = any(other.path != entry.path and of == size for other, _, of in sizes)
            is_named = bool(_CLASSES.search(entry.key))
            if size is None or not (is_beside or is_named) or not isinstance(field, Image):
                continue
            classes = _classes(entry, field, is_beside) if _blends(field) else set()
            if not classes:
                images.add(entry.path)
            masks.setdefault(entry.path, (field, is_named, set()))[2].update(classes)
    for path in masks.keys() - images:
        field, is_named, classes = masks[path]
        if not (is_named or images):
            continue
        # Blending a mask of one class into a soft mask can be intended.
        if len(classes) > 1 and len(classes - {0, 255}) > (field.interpolation is not None):
            first = sorted(classes, key=lambda one: one if isinstance(one, tuple) else (one,))[:4]
            text = f"Collate: entry {path} looks like a mask of classes {first}, and {field!r} "
            text += "interpolates between classes; Mask() keeps classes"
            if isinstance(next(iter(classes)), tuple):
                text += "; (mask[:, :, None] == colors).all(-1).argmax(-1) converts colors to them"
            text += "; if these are not classes, pass mean=0" * field.dtype.is_floating_point
            warnings.warn(text, stacklevel=2)


def _blends(field: Image) -> bool:
    """Whether a field resizes possible classes with an interpolation that blends pixels."""
    steps = () if field.geometry is None else field.geometry.steps
    is_resized = any(isinstance(step, Resizing) for step in steps)
    is_exact = field.dtype in INTEGERS[1:] or "nearest" in str(field.interpolation)
    is_plain = field.mean is field.std is None and field.scale in (None, 1)
    return is_resized and is_plain and not is_exact and not field.changes_colors


def _classes(entry: FieldEntry, field: Image, is_beside: bool = True) -> set[Any]:
    """Returns the values of an image if they can be classes, or colors that stand for classes.

    ``is_beside``: whether another image of the same size suggests that they are.
    """
    image = entry.value
    pixels = np.asarray(host_array(image) if isinstance(image, torch.Tensor) else image)
    if field.input == "CHW" and pixels.ndim == 3:
        pixels = pixels.transpose(1, 2, 0)
    # An explicit interpolation means that blending is intended, of colors and of maps of floats.
    may_be_color = not field.interpolation and not _IMAGES.search(entry.key)
    is_color = may_be_color and pixels.ndim == 3 and pixels.shape[2] == 3
    pixels = pixels if is_color else np.squeeze(pixels)
    if pixels.ndim != 2 + is_color or pixels.dtype.kind not in "uif" or pixels.size == 0:
        return set()
    limit = _MAX_IDS if not is_color else 255
    if not 0 <= pixels.min() <= pixels.max() <= limit or (pixels != np.rint(pixels)).any():
        return set()
    values = pixels.astype(np.int32)
    codes = values @ [65536, 256, 1] if is_color else values
    found: Any = np.unique(codes)
    is_white = found >= 240
    # Such as a mask of one class that was stored as JPEG.
    if not is_color and 254 in found and (is_white | (found < 16)).all():
        return set()
    are_few = len(found) <= min(_MAX_CLASSES, codes.size // 8) and pixels.max() <= 255
    are_few &= is_beside and not (field.interpolation and pixels.dtype.kind == "f")
    if not are_few and not _are_many_classes(codes, entry.key):
        return set()
    if is_color:
        return {(v >> 16, v >> 8 & 255, v & 255) for v in found.tolist()}
    return {*found.tolist()}


def _are_many_classes(codes: Any, key: str) -> bool:
    """Whether many values look like classes: most neighbors are equal, and the others are far apart."""
    left, right = codes[:, :-1], codes[:, 1:]
    inner = (left != 0) & (left != 255)
    steps = np.abs(left - right)[left != right]
    is_named = bool(_CLASSES.search(key))
    is_soft = (codes == 255).sum() > inner.sum() or (_MAPS.search(key) and not is_named)
    if steps.size == 0 or not inner.any() or is_soft:
        return False
    is_flat = (left == right)[inner].mean() > 0.6
    is_dark = codes.max(initial=0, where=codes != 255) < 240  # soft masks and images are not
    return bool((is_flat or (is_named and is_dark)) and np.median(steps) > np.ptp(codes) / 16)


def _is_changed(image: Any, field: Image | Patches) -> bool:
    """Whether a geometry changes an image; a resize to the image's own size does not."""
    size = _size(image, field) or (0, 0)
    same = (size, [*size], min(size))
    steps = () if field.geometry is None else field.geometry.steps
    return any(not isinstance(s, Resize) or s.size not in same or s.max_size for s in steps)


def _can_be_positions(entry: FieldEntry) -> bool:
    """Whether to judge an entry by its values: without a known name, or with rows of 8 named like boxes."""
    if has_name(entry.key, _BOXES):
        return np.shape(as_numbers(entry.value))[-1:] == (8,)
    return not any(has_name(entry.key, n) for n in (_POINTS, _OUTLINES, _MAYBE_OUTLINES, _MASKS))


def _is_empty(value: Any) -> bool:
    array = as_numbers(value)
    return array is not None and 0 in array.shape


def _problem_of_positions(
    seen: Sequence[tuple[FieldEntry, list[FieldEntry], Any]],
) -> tuple[Problem, bool] | None:
    """Returns the problem of an entry that looks like boxes or points by its values in several samples."""
    arrays = [as_numbers(entry.value) for entry, _, _ in seen]
    sizes = [_size(image.value, field) for _, _, (image, _, field) in seen]
    if None in sizes or not all(array is not None and array.ndim for array in arrays):
        return None
    entry, entries, (image, key, field) = seen[-1]
    moves_fractions = not all(isinstance(step, Resize) for step in field.geometry.steps)
    is_named = any(has_name(step, _POINTS) for step in re.findall(r"\['(.*?)'\]", entry.path))
    of_image = _argument(key)
    found = find_positions(entry.key, arrays, sizes, of_image, moves_fractions, is_named)
    return found and _problem(entry, entries, image, key, field, found)


def _argument(key: Any) -> str:
    """Returns the argument for the key of an image in hints; empty for the default."""
    return "" if key in ("image", "") else repr(key)


def _problem(
    entry: FieldEntry,
    entries: Sequence[FieldEntry],
    image: FieldEntry,
    key: Any,
    field: Image | Patches,
    found: Found | None = None,
) -> tuple[Problem, bool] | None:
    """Returns the problem of an entry beside an image, and whether it is certainly an error."""
    others = [other for _, other in entry.fields]
    size, steps = _size(image.value, field), field.geometry.steps if field.geometry else ()
    if size is None or entry.path == image.path or _is_of_tokens(entry, entries):
        return None
    is_random = any(step.is_random for step in steps)
    is_moved = is_random or any(isinstance(step, Flip) for step in steps)
    found = found or _nested(entry, image, size, _argument(key))
    is_mask = not found and is_moved and all(_is_still_mask(f, entry) for f in others)
    array = as_numbers(entry.value)
    if is_mask and others and _size(entry.value, others[0]) == size:
        array = np.broadcast_to(np.uint8(0), size)  # stands for PIL images too
    elif any(isinstance(f, Keep | Image | Patches | Target) for f in others):
        return None
    if found is None and array is not None:
        found = _kind(array, entry.key, size, _argument(key))
    # Stack() can be a table column; Jagged() and Pad() are for objects.
    if found is None or (
        others and (isinstance(others[0], Stack) or found.kind == "another image")
    ):
        return None
    kind, fix, is_sure, keeping = found
    if kind in ("a mask", "another image") and has_name(entry.key, _VECTORS):
        fix = "if its values are vectors or disparities, they change with the geometry too: transform "
        fix += "both in the dataset"
    elif is_mask and others and _keeps_channel(others[0]):
        fix = (
            "pass the same geometry as its own augment= to transform it, or use Mask() for classes"
        )
    elif isinstance(field, Patches):
        fix = "Patches() does not transform other fields: crop and flip both in the dataset"
    elif image.parent != entry.parent or not image.path.endswith("']"):
        fix = f'put both in one dict, such as {{"image": image, **target}}, and {fix}'
    text = f"looks like {kind} for the image in {image.path}, which augment= transforms"
    text += f" and {others[0]!r} does not" if others else ""
    hint = f"{fix}; {keeping} leaves the entry as it is"
    problem = Problem("", f"Collate: entry {entry.path} {text}", hint=hint)
    return problem, is_sure and (is_random or not others)


def _is_of_tokens(entry: FieldEntry, entries: Sequence[FieldEntry]) -> bool:
    """Whether an entry has one row per token, such as the word boxes of layout models."""
    lengths = [known_length(e.value) for e in entries if e.key == "input_ids"]
    is_like = any(isinstance(field, Pad) and field.like for _, field in entry.fields)
    return is_like or known_length(entry.value) in lengths


def _is_still_mask(field: Field, entry: FieldEntry) -> bool:
    """Whether a field batches class masks without transforming them."""
    if not isinstance(field, Image) or field.geometry is not None:
        return False
    is_flat = field.input is None and getattr(entry.value, "ndim", 3) == 2
    if field.axes != "HW" and not is_flat:
        return False
    if _MASKS.search(entry.key) or field.dtype in INTEGERS[1:]:
        return True
    is_raw = field.dtype == torch.uint8 or (field.mean is field.std is None and field.scale == 1)
    return is_raw and not _IMAGES.search(entry.key) and len(_classes(entry, field)) > 1


def _keeps_channel(field: Field) -> bool:
    """Whether a field returns masks as images of floats with a channel."""
    return isinstance(field, Image) and "C" in field.output and field.dtype.is_floating_point


def _size(image: Any, field: Field) -> tuple[int, int] | None:
    """Returns the height and width of an image, None if unknown."""
    if isinstance(image, list | tuple) and len(image) == 1:  # of a document
        image = image[0]
    if isinstance(image, ARRAYS) and isinstance(field, Image | Patches):
        axes = "HW" if image.ndim == 2 and field.input is None else field.axes
        if image.ndim != len(axes):
            return None
        return int(image.shape[axes.index("H")]), int(image.shape[axes.index("W")])
    size = getattr(image, "size", None)  # of PIL
    return size[::-1] if isinstance(size, tuple) and len(size) == 2 else None


def _kind(array: Any, key: str, size: tuple[int, int], image: str) -> Found | None:
    """Returns what an array looks like beside an image of this size; None if nothing.

    ``image``: argument of the field in hints.
    """
    shape = tuple(array.shape)
    is_empty = shape == (0,)
    columns = {1: (4, 5), 2: (4, 5, 6)}.get(len(shape), ())  # also scores and classes
    if has_name(key, _BOXES) and (is_empty or (columns and shape[-1] in columns)):
        suffix = "" if is_empty or (len(shape) == 2 and shape[1] == 4) else " of shape (n, 4)"
        rotated = f"use Points({image}) for the corners (n, 4, 2) of rotated boxes"
        if shape[-1] > 4 and _ROTATED.search(key):
            return Found("rotated boxes", f"{rotated} to transform them too")
        more = f", with [:, 4:] as their labels; {rotated}" if shape[-1] > 4 else ""
        return Found("boxes", f"use Boxes({image}) to transform boxes{suffix} too{more}")
    is_named = has_name(key, _POINTS)
    is_of_corners = len(shape) == 3 and shape[1:] == (4, 2) and has_name(key, _BOXES)
    if (is_named and is_empty) or ((is_named or is_of_corners) and _are_points(array, size)):
        return Found("points", f"use Points({image}) to transform points too")
    # Rows as COCO and CelebA have them; no angles, no flags.
    is_row = len(shape) in (1, 2) and shape[-1] >= 6 and array.size and array.max() > np.pi
    for width in (3, 2) if has_name(key, _POINTS) and is_row else ():
        if shape[-1] % width == 0 and _are_points(np.asarray(array).reshape(-1, width), size):
            rows = f"(-1, {width})" if len(shape) == 1 else f"(-1, {shape[1] // width}, {width})"
            return Found(
                "points", f"use Points({image}) to transform np.reshape({key}, {rows}) too"
            )
    is_float = array.dtype.kind == "f"
    if is_float and size[0] == size[1] and not _MAPS.search(key):
        return None  # such as a square matrix of weights
    if len(shape) == 3 and shape[1:] == size and not is_float:
        if are_classes(array):
            return Found("a mask", f"use Mask({image}) to transform it too")
        classes = f", or Mask({image}) for a mask of classes" if shape[0] == 1 else ""
        return Found("masks", f"use InstanceMasks({image}) to transform masks too{classes}")
    if shape == size or (shape == (*size, 1) and not is_float):
        field = f"Mask({image})"
        if is_float:
            kind = "nearest-exact" if _MASKS.search(key) else "bilinear"
            field = f'Image(input="HW", output="HW", interpolation="{kind}", augment=...)'
            field += " with the same geometry"
        return Found("a mask", f"use {field} to transform it too")
    if len(shape) == 3 and size in (shape[:2], shape[1:]):
        kind = "" if shape[:2] == size else 'input="CHW", '
        kind += 'interpolation="nearest-exact", ' if _MASKS.search(key) else ""
        field = f"Image({kind}augment=...)"
        return Found("another image", f"use {field} with the same geometry to transform it too")
    planes = [shape[-2:], shape[:2]] if len(shape) in (2, 3) and _MAPS.search(key) else []
    if array.dtype.kind != "b" and any((h * k, w * k) == size for h, w in planes for k in (2, 4)):
        fix = "use Mask(), or Image() with the same geometry, to transform maps of the image's own size"
        return Found("a smaller map", f"{fix}, and resize them afterwards", is_sure=False)
    return None


def _nested(entry: FieldEntry, image: FieldEntry, size: tuple[int, int], name: str) -> Found | None:
    """Returns the same as `_kind` for numbers of a dict, lists of masks, polygons, and encoded masks."""
    value, found = entry.value, functools.partial(Found, keeping="Keep()")
    if image.path.startswith(entry.path):
        return None  # a list or a tuple with the image in it
    masks = f"use InstanceMasks({name})"
    if isinstance(value, Mapping):
        if is_encoded(value) and tuple(value["size"]) == size:
            fix = f"convert it with decode() of pycocotools.mask and {masks}"
            return found("a mask in run-length encoding", fix)
        if not (names := spread_names(value, None)):
            return None
        form, numbers = SPREAD[names], np.array([[float(value[n]) for n in names]])
        columns = f"[[{', '.join(names)}]] under a key of its own too"
        bounds = [size[::-1], (1, 1)]
        if form and any(fits(numbers, np.array([one]), form).all() for one in bounds):
            return found("boxes", f"use {boxes_field(name, form)} to transform {columns}")
        is_point = not form and has_name(entry.key, _POINTS)
        if is_point and ((numbers >= 0) & (numbers <= size[::-1])).all():
            return found("points", f"use Points({name}) to transform {columns}")
    elif isinstance(value, list | tuple) and value and {_plane_size(v) for v in value} == {size}:
        fix = f"{masks} to transform np.stack({entry.key or 'masks'}) too, "
        return found("masks", f"{fix}or Mask({name}) for a mask of classes under its own key")
    elif _are_outlines(value, entry.key, size):
        fix = f"convert them to masks with annToMask() of pycocotools or PIL.ImageDraw and {masks}, or "
        fix += f"use Points({name}) for np.reshape(polygon, (-1, 2)) of a polygon under its own key"
        return found("polygons", fix)
    return None


def _plane_size(mask: Any) -> tuple[int, ...] | None:
    """Returns the height and width of a mask in a list."""
    if isinstance(mask, ARRAYS):
        return tuple(mask.shape) if "float" not in str(mask.dtype) else None
    return mask.size[::-1] if getattr(mask, "mode", "") in ("L", "P", "1") else None  # of PIL


def _are_outlines(value: Any, key: str, size: tuple[int, int]) -> bool:
    """Whether nested lists or rows of numbers are polygons in an image of this size."""
    is_certain = has_name(key, _OUTLINES)
    if not is_certain and not has_name(key, _MAYBE_OUTLINES):
        return False
    array = as_numbers(value)
    if array is not None:
        is_of_points = array.ndim == 1 or array.shape[-1] in (2, 3)  # Points() takes them
        is_of_pixels = array.ndim > 1 and size in (array.shape[-2:], array.shape[:2])
        if (is_of_points and has_name(key, _POINTS)) or is_of_pixels:
            return False
        is_table = array.ndim > 1 and len(array) > 1 and array.shape[-1] != 2
        if is_table and not is_certain:
            return False  # such as a small mask
    outlines = (_outlines(value) or [])[:_OUTLINES_READ]
    limits = np.array([size[1], size[0]]) + 1  # annotations are rounded
    if not outlines or any(((p < -1) | (p > limits)).any() for p in outlines):
        return False
    points = np.concatenate(outlines)
    if points.max() <= 1:
        is_certain = False  # few of them can be shares
        if (points == np.rint(points)).all():
            return False
    are_spans = (points[:, 0] <= points[:, 1]).all()
    if not is_certain and (are_spans or max(map(len, outlines)) < 7):
        return False
    return sum(map(_is_outline, outlines)) > 0.7 * len(outlines)


def _outlines(value: Any) -> list[Any] | None:
    """Returns the polygons in lists or an array, each as points (n, 2), and None for anything else."""
    numbers = as_numbers(value)
    if numbers is None:
        parts = [_outlines(part) for part in value] if isinstance(value, list | tuple) else [None]
        found = [part for part in parts if part is not None]
        return [*itertools.chain(*found)] if len(found) == len(parts) else None
    if numbers.size == 0:
        return []
    if numbers.ndim == 0 or numbers.dtype.kind == "b":
        return None
    if numbers.ndim > 1 and numbers.shape[-1] == 2:  # OpenCV's contours are (n, 1, 2)
        is_one = numbers.ndim == 2 or numbers.shape[1] == 1
        return list(numbers.reshape(1 if is_one else len(numbers), -1, 2))
    rows = numbers.reshape(-1, numbers.shape[-1])[:_OUTLINES_READ]
    if rows.shape[1] % 2 and rows.shape[1] > 6 and rows[:, 1:].max() <= 1:
        rows = rows[:, 1:]  # after the class, as in files of YOLO
    return list(rows.reshape(len(rows), -1, 2)) if rows.shape[1] % 2 == 0 else None


def _is_outline(points: Any) -> bool:
    """Whether points go around or along something: they are different, and their lines don't cross."""
    points = np.asarray(points[:_POINTS_READ], np.float64)
    if len(points) < 3 or len(np.unique(points, axis=0)) <= 0.7 * len(points):
        return False
    if (np.diff(points.ravel()) >= 0).all() or (np.ptp(points, axis=0) == 0).any():
        return False  # such as times
    x, y = points.T
    # The side of each line on which each point is.
    sides = np.diff(x)[:, None] * (y - y[:-1, None]) - np.diff(y)[:, None] * (x - x[:-1, None])
    is_split = sides[:, :-1] * sides[:, 1:] < 0
    return not (is_split & is_split.T).any()


def _are_points(array: Any, size: tuple[int, int]) -> bool:
    """Whether these can be points in an image of this size, with or without a flag."""
    if array.ndim not in (1, 2, 3) or array.shape[-1] not in (2, 3):
        return False
    points = np.asarray(array, np.float64).reshape(-1, array.shape[-1])
    is_inside = (points[:, :2] >= 0).all() and (points[:, :2] <= (size[1], size[0])).all()
    last = points[:, 2:]  # visibility as in COCO, or a score
    return bool(is_inside and (np.isin(last, (0, 1, 2)) | ((last >= 0) & (last <= 1))).all())
