"""The fields `Boxes`, `Points` and `InstanceMasks`, transformed together with their images."""

from __future__ import annotations

import functools
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import (
    ARRAYS,
    DType,
    Problem,
    checked_choice,
    checked_number,
    host_array,
    torch_dtype,
    with_hints,
)
from pinfeed.augment.geometry import Geometry
from pinfeed.fields.coordinates import (
    FORMATS,
    FirstBatches,
    canvases,
    in_format,
    known_points,
    plain,
    require_canvases,
    require_inside,
    require_pixels,
    require_points_inside,
)
from pinfeed.fields.field import Field, FieldContext, Objects, Shared, checked_key
from pinfeed.functional.sequences import JaggedBatch
from pinfeed.memory.outputs import batch_allocator
from pinfeed.runtime import get_num_threads
from pinfeed.sources.source import Source

_MASKS = (torch.uint8, torch.bool)

# Number of single masks to check for classes; the first few show what the values are.
_SINGLE_MASKS = 64

_LABELS_OF_BOXES = "Boxes(labels=...) names entries with one value per object"
# Names of formats elsewhere.
_KNOWN_FORMATS = {
    "coco": "COCO's format is 'xywh'",
    "pascal_voc": "Pascal VOC's format is 'xyxy'",
    "yolo": "YOLO's format is 'cxcywh', in fractions: multiply boxes by width and height",
}

# Pixels by which x2 may be less than x1, because computed annotations are rounded.
_ROUNDING = 1e-3


class Target(Field):
    """Base class of fields that depend on the images under a key of the same dict.

    ``collate`` reads and checks the samples; ``transformed`` creates the batch after the batch of images.
    """

    def __init__(self, image: str) -> None:
        self.image = checked_key(image, f"{type(self).__name__}: image")
        self._first_batches = FirstBatches()

    @abstractmethod
    def transformed(self, items: Any, shared: Shared, context: FieldContext) -> JaggedBatch:
        """Returns the batch.

        Args:
            items: Result of `collate` or `gather`.
            shared: Crops of the images, if there are any; boxes of the objects, and which of them remain.
            context: Context, as in `collate`.
        """

    def _require_no_objects(self, offsets: Any, context: FieldContext) -> None:
        """Raises ValueError for objects in a batch without images."""
        if offsets[-1] == 0:
            return
        sample = int(np.flatnonzero(np.diff(offsets))[0])
        expected = f"no objects, because no sample of the batch has an image under {self.image!r}"
        hint = "pass an empty list for such samples, or None, with allow_missing() for this field"
        got = str(int(offsets[sample + 1] - offsets[sample]))
        raise ValueError(Problem(context.name, expected, got, hint, sample=sample))


class _Boxes(NamedTuple):
    """Samples of `Boxes`: the boxes, and the image sizes that samples carry."""

    objects: Objects
    canvases: list[Any] | None


class Boxes(Target):
    """Transforms bounding boxes together with an `Image` of the same dict. Returns a float32 `JaggedBatch`.

    Boxes are cropped, flipped, resized and clipped with their image. Boxes that become too small are
    dropped, as in torchvision's ``ClampBoundingBoxes`` and ``SanitizeBoundingBoxes``; so are their
    labels, and their `Points` and `InstanceMasks`. A sample has shape (n, 4), with any n; the
    batch's ``values`` have shape (sum of n, 4).

    Args:
        image: Key of the images in the same dict.
        format: Format of samples, in pixels: ``"xyxy"`` (corners), ``"xywh"`` (upper left corner, width,
            height; COCO's format) or ``"cxcywh"`` (center, width, height).
        output: Format of the batch. None: the same as ``format``.
        normalized: Unit of the batch. False: pixels. True: fractions of the batch's height and width.
            ``"image"``: fractions of each image's own size, without padding.
        min_size: Minimum side, in pixels after ``augment``; smaller boxes are dropped.
        min_area: Minimum area in square pixels of the batch; smaller boxes are dropped.
        labels: Keys in the same dict with one value per box, such as ``("labels", "area", "iscrowd")``.
            They become `JaggedBatch`es, or lists if their field is `Keep` (for names), without the
            values of dropped boxes.

    Raises:
        TypeError, ValueError: If an argument is invalid. When samples are collated: if a box doesn't
            have four numbers, has x2 < x1 or y2 < y1, or is given in fractions; if boxes are outside
            their image and another format would fit; if torchvision's ``BoundingBoxes`` have another
            format or canvas; or if the numbers of labels and boxes differ.

    Example:
        >>> flip = pinfeed.augment.RandomHorizontalFlip(p=1)
        >>> fields = {
        ...     "image": pinfeed.Image(augment=flip, pad_value=0),
        ...     "boxes": pinfeed.Boxes(),
        ... }
        >>> samples = [
        ...     {
        ...         "image": np.zeros((8, 8, 3), np.uint8),
        ...         "boxes": [[0, 2, 5, 4], [9, 0, 9, 2]],
        ...         "labels": [7, 9],
        ...     },
        ...     {"image": np.zeros((4, 6, 3), np.uint8), "boxes": [], "labels": []},
        ... ]
        >>> batch = pinfeed.Collate(fields)(samples)
        >>> batch["boxes"].values, batch["boxes"].offsets, batch["labels"].values
        (tensor([[3., 2., 8., 4.]]), tensor([0, 1, 1]), tensor([7]))
    """

    @with_hints(box_format="pass format", clip="boxes are clipped to their image")
    def __init__(
        self,
        image: str = "image",
        *,
        format: Literal["xyxy", "xywh", "cxcywh"] = "xyxy",
        output: Literal["xyxy", "xywh", "cxcywh"] | None = None,
        normalized: bool | Literal["image"] = False,
        min_size: float = 1.0,
        min_area: float = 1.0,
        labels: str | Sequence[str] = "labels",
    ) -> None:
        super().__init__(image)
        if image in FORMATS:
            raise ValueError(
                f"Boxes: image must be the key of the images, got {image!r}; pass format={image!r}"
            )
        if format not in FORMATS and (known := _KNOWN_FORMATS.get(str(format).lower())):
            raise ValueError(f"Boxes: format must be one of {FORMATS}, got {format!r}; {known}")
        self.format = checked_choice(format, FORMATS, "Boxes: format")
        self.output = checked_choice(output, (*FORMATS, None), "Boxes: output")
        if not isinstance(normalized, bool) and normalized != "image":
            raise ValueError(
                f'Boxes: normalized must be True, False or "image", got {normalized!r}'
            )
        keys = (labels,) if isinstance(labels, str) else labels
        if not isinstance(keys, Sequence) or not all(isinstance(key, str) for key in keys):
            hint = "; pass labels=() if boxes have no labels" if labels is None else ""
            raise TypeError(f"Boxes: labels must be a key or several, got {labels!r}{hint}")
        self.normalized = normalized
        self.min_size = checked_number(min_size, "Boxes: min_size", 0)
        self.min_area = checked_number(min_area, "Boxes: min_area", 0)
        self.labels = labels
        self.labels_of = tuple(dict.fromkeys(keys))
        self._options = _core.BoxOptions(
            format=output or format,
            of_image=normalized == "image",
            of_batch=normalized is True,
            min_size=self.min_size,
            min_area=self.min_area,
        )

    @override
    def collate(self, samples: Sequence[Any], context: FieldContext) -> _Boxes:
        self._require_format(samples, context)
        boxes = self._checked(*_joined(plain(samples), (4,), context), context)
        return _Boxes(boxes, canvases(samples))

    @override
    def gather(
        self, source: Source, indices: npt.NDArray[np.int64], context: FieldContext
    ) -> _Boxes:
        return _Boxes(self._checked(*_as_floats(*source.select(indices), context), context), None)

    def _require_format(self, samples: Sequence[Any], context: FieldContext) -> None:
        """Raises ValueError if a sample carries another format, as torchvision's do."""
        if plain(samples) is samples:
            return
        for position, sample in enumerate(samples):
            format = getattr(sample, "format", None)
            name = str(getattr(format, "name", format)).lower()
            if format is not None and name != self.format:
                hint = f'pass format="{name}"' if name in FORMATS else f"convert to {FORMATS}"
                got = f"a {type(sample).__name__} of format {name!r}"
                expected = f"boxes of format {self.format!r}"
                raise ValueError(Problem(context.name, expected, got, hint, sample=position))

    def _checked(self, boxes: Any, offsets: Any, context: FieldContext) -> Objects:
        if boxes.shape[1:] != (4,):
            hint = "[box] is a list of one box" if boxes.shape[1:] == () else ""
            if boxes.ndim == 2 and boxes.shape[1] > 4:
                hint = "pass boxes[:, :4], and classes or scores under a key of labels=; corners of rotated "
                hint += "boxes, of shape (n, 4, 2), go under a key with Points()"
            raise _wrong_shape(context, "boxes of shape (n, 4)", boxes, offsets, hint)
        require_pixels(boxes, "boxes", context.name)
        if not _core.to_corners(boxes, self.format):
            row = int(np.flatnonzero(~np.isfinite(boxes).all(1))[0])
            raise _about_box(row, boxes[row], offsets, "finite numbers", "", context.name)
        # By column, because NumPy is slow with two numbers per row.
        if (boxes[:, 2] < boxes[:, 0]).any() or (boxes[:, 3] < boxes[:, 1]).any():
            self._require_upright(boxes, offsets, context)
            np.maximum(boxes[:, 2:], boxes[:, :2], out=boxes[:, 2:])
        return Objects(boxes, offsets, np.ones(len(boxes), np.bool_))

    def _require_upright(self, boxes: Any, offsets: Any, context: FieldContext) -> None:
        """Raises ValueError for corners in the wrong order, beyond rounding."""
        is_turned = (boxes[:, 2:] < boxes[:, :2] - _ROUNDING).any(1)
        if is_turned.any():
            row = int(np.flatnonzero(is_turned)[0])
            expected, hint = "width and height of at least 0", "make them positive"
            if self.format == "xyxy":
                expected = "x1 <= x2 and y1 <= y2"
                hint = (
                    'for boxes with width and height, such as COCO\'s, pass format="xywh", or '
                    '"cxcywh" if they begin with their center'
                )
            box = in_format(boxes[row : row + 1], self.format)[0]
            raise _about_box(row, box, offsets, expected, hint, context.name)

    @override
    def transformed(self, items: _Boxes, shared: Shared, context: FieldContext) -> JaggedBatch:
        (objects, canvases), crops = items, shared.crops
        corners, offsets, _ = objects
        if crops is None:
            self._require_no_objects(offsets, context)
            return JaggedBatch(torch.zeros((0, 4), device="cpu"), torch.from_numpy(offsets))
        require_canvases(canvases, crops.native.sources, context.name)
        require_inside(
            corners, offsets, crops.native.sources, self.format, self._first_batches, context.name
        )
        target = batch_allocator(context.pin)
        return JaggedBatch(
            *_core.move_boxes(
                crops.native, objects, self._options, crops.size, target, context.name
            )
        )


class Points(Target):
    """Transforms points, such as keypoints, together with an `Image`. Returns a float32 `JaggedBatch`.

    Samples have shape (n, 2) or (n, points, 2), with x and y in pixels. A third number, as in COCO, can
    follow: it is 0 for unknown points, and becomes 0 for points outside the crop. The center of the
    first pixel is (0.5, 0.5): add 0.5 to coordinates that are pixel indices, as in COCO.

    Points are not clipped, and flips don't swap left and right keypoints. If `Boxes` of the same images
    drop a box, the points of its object are dropped too.

    Args:
        image: Key of the images in the same dict.

    Raises:
        TypeError, ValueError: If an argument is invalid. When samples are collated: if points don't have
            two or three numbers, or are given in fractions; if most points are outside their image, or all
            would be inside with x and y swapped; if torchvision's ``KeyPoints`` have another canvas; or if
            the numbers of objects and boxes differ.

    Example:
        >>> view = pinfeed.augment.CenterCrop(4)
        >>> fields = {"image": pinfeed.Image(augment=view), "points": pinfeed.Points()}
        >>> sample = {
        ...     "image": np.zeros((8, 8, 3), np.uint8),
        ...     "points": [[[2.5, 3.5, 2], [7, 3, 2]]],
        ... }
        >>> pinfeed.Collate(fields)([sample])["points"].values
        tensor([[[0.5000, 1.5000, 2.0000],
                 [5.0000, 1.0000, 0.0000]]])
    """

    @with_hints(labels=_LABELS_OF_BOXES)
    def __init__(self, image: str = "image") -> None:
        super().__init__(image)

    @override
    def collate(self, samples: Sequence[Any], context: FieldContext) -> Any:
        return *self._checked(*_joined(plain(samples), (2,), context), context), canvases(samples)

    @override
    def gather(self, source: Source, indices: npt.NDArray[np.int64], context: FieldContext) -> Any:
        return *self._checked(*_as_floats(*source.select(indices), context), context), None

    def _checked(self, points: Any, offsets: Any, context: FieldContext) -> tuple[Any, Any]:
        if points.ndim < 2 or points.shape[-1] not in (2, 3):
            expected = "points of shape (n, 2), (n, points, 2), or with 3 numbers each"
            raise _wrong_shape(context, expected, points, offsets, _way_from_flat(points, offsets))
        require_pixels(known_points(points), "points", context.name)
        return points, offsets

    @override
    def transformed(self, items: Any, shared: Shared, context: FieldContext) -> JaggedBatch:
        (points, offsets, sizes), crops = items, shared.crops
        if crops is None:
            self._require_no_objects(offsets, context)
            zeros = torch.zeros(points.shape, device="cpu")
            return JaggedBatch(zeros, torch.from_numpy(offsets))
        require_canvases(sizes, crops.native.sources, context.name)
        require_points_inside(
            points, offsets, crops.native.sources, self._first_batches, context.name
        )
        remain = _those_that_remain(shared.objects, offsets, context.name)
        target = batch_allocator(context.pin)
        return JaggedBatch(
            *_core.move_points(crops.native, points, offsets, remain, target, context.name)
        )


class InstanceMasks(Target):
    """Transforms one mask per object together with an `Image`. Returns a `JaggedBatch`.

    Samples have shape (n, H, W), uint8 or bool, with the size of their image. Masks are resized with
    ``"nearest-exact"`` and padded with zeros to the size of the batch of images: values are
    (total, H, W). If `Boxes` of the same images drop a box, its mask is dropped too. A single uint8
    mask with values other than 0 and 1, or 0 and 255, warns, because it may be a mask of classes.

    Args:
        image: Key of the images in the same dict.
        dtype: Dtype of the batch: ``torch.uint8`` or ``torch.bool``.

    Raises:
        TypeError, ValueError: If an argument is invalid. When samples are collated: if masks and image
            differ in size, or the numbers of masks and boxes differ.

    Example:
        >>> flip = pinfeed.augment.RandomHorizontalFlip(p=1)
        >>> fields = {"image": pinfeed.Image(augment=flip), "masks": pinfeed.InstanceMasks()}
        >>> sample = {
        ...     "image": np.zeros((1, 2, 3), np.uint8),
        ...     "masks": np.array([[[0, 1]]], np.uint8),
        ... }
        >>> pinfeed.Collate(fields)([sample])["masks"].values
        tensor([[[1, 0]]], dtype=torch.uint8)
    """

    @with_hints(labels=_LABELS_OF_BOXES)
    def __init__(self, image: str = "image", *, dtype: DType = torch.uint8) -> None:
        super().__init__(image)
        dtype = torch_dtype(dtype, "InstanceMasks")
        if dtype not in _MASKS:
            raise TypeError(f"InstanceMasks: dtype must be one of {_MASKS}, got {dtype!r}")
        self.dtype = dtype
        self._unchecked = _SINGLE_MASKS
        self._format = _core.ImageFormat(
            mean=np.zeros(()), std=np.ones(()), scale=None, input="HW", output="HW", dtype="uint8"
        )

    @override
    def collate(self, samples: Sequence[Any], context: FieldContext) -> Any:
        for position, masks in enumerate(samples):
            if _is_empty(masks):
                continue
            is_array = isinstance(masks, ARRAYS)
            if not is_array or masks.ndim != 3 or masks.dtype not in (*_MASKS, np.uint8, np.bool_):
                got = type(masks).__name__
                if is_array:
                    got = f"{masks.dtype} {tuple(masks.shape)}"
                expected = "uint8 or bool masks of shape (n, H, W)"
                hint = ""
                if isinstance(masks, list | tuple) and isinstance(masks[0], list | tuple | dict):
                    hint = "annToMask() of pycocotools converts polygons and run-length encodings to masks"
                elif isinstance(masks, list | tuple):
                    hint = "np.stack(masks) converts a list of masks to an array; leave an empty list as it is"
                elif is_array and masks.ndim == 2:
                    hint = "masks[None] is the mask of one object; Mask() takes a mask of classes"
                elif is_array and masks.ndim == 3:
                    is_tensor = isinstance(masks, torch.Tensor)
                    hint = f"masks{'.bool()' if is_tensor else '.astype(bool)'} converts masks of 0 and 1"
                raise ValueError(Problem(context.name, expected, got, hint, sample=position))
            if self.dtype != torch.bool and self._unchecked > 0 and len(masks) == 1:
                self._unchecked -= 1
                if are_classes(masks):
                    self._unchecked = 0
                    image = "" if self.image == "image" else repr(self.image)
                    text = f"{context.name} of sample {position} is one mask with values up to {masks.max()}; "
                    text += (
                        f"use Mask({image}) if they are classes, or dtype=torch.bool for an object"
                    )
                    warnings.warn(text, stacklevel=2)
        return samples

    @override
    def transformed(self, items: Any, shared: Shared, context: FieldContext) -> JaggedBatch:
        counts, crops = [len(masks) for masks in items], shared.crops
        offsets = np.append(0, np.cumsum(counts))
        if crops is None:
            self._require_no_objects(offsets, context)
            return self._batch(torch.zeros((0, 0, 0), dtype=torch.uint8, device="cpu"), offsets)
        for position, (masks, size) in enumerate(zip(items, crops.native.sources, strict=True)):
            if getattr(masks, "ndim", 0) == 3 and masks.shape[1:] != size:
                expected = f"masks of {size}, the size of their image in entry [{self.image!r}]"
                got, hint = str(tuple(masks.shape[1:])), "resize both or neither in the dataset"
                if masks.shape[:2] == size:
                    got = f"{tuple(masks.shape)} with the objects last"
                    hint = "np.moveaxis(masks, -1, 0) puts them first"
                raise ValueError(Problem(context.name, expected, got, hint, sample=position))
        remain = _those_that_remain(shared.objects, offsets, context.name)
        rows = np.repeat(np.arange(len(items)), counts)[remain]
        remaining_offsets = np.append(0, np.cumsum(remain))[offsets]
        is_bool = self.dtype == torch.bool
        masks = [mask for masks in items for mask in _as_bytes(masks, is_bool)]
        masks = [mask for mask, remains in zip(masks, remain.tolist(), strict=True) if remains]
        if masks:
            values = _core.crop_images(
                *(masks, None, self._format, _options(crops.geometry)),
                batch_allocator(context.pin),
                context.name,
                get_num_threads(),
                key=0,
                samples=rows,
                entry="",
                crops=crops.native,
                rows=rows.tolist(),
                padding=_core.ImagePaddingOptions(value=0, min_size=crops.size),
            )[0]
        else:
            values = torch.zeros((0, *crops.size), dtype=torch.uint8, device="cpu")
        return self._batch(values, remaining_offsets)

    def _batch(self, values: torch.Tensor, offsets: Any) -> JaggedBatch:
        return JaggedBatch(values.view(self.dtype), torch.from_numpy(offsets))


@functools.lru_cache(maxsize=64)
def _options(geometry: Geometry | None) -> _core.AugmentOptions:
    """Returns the native options for masks under a geometry."""
    steps = {} if geometry is None else geometry.native([0])
    return _core.AugmentOptions(**steps, interpolation="nearest-exact", in_floats=False)


def _as_floats(source: Any, offsets: Any, indices: Any, context: FieldContext) -> tuple[Any, Any]:
    """Returns samples of numbers, concatenated as float64, and their offsets."""
    where = np.ndarray, context.name, get_num_threads()
    return _core.join(source, offsets, indices, *where, dtype="float64")


def _about_box(row: int, box: Any, offsets: Any, expected: str, hint: str, name: str) -> ValueError:
    sample = int(np.searchsorted(offsets, row, "right")) - 1
    got = f"{box.round(3).tolist()} of box {row - int(offsets[sample])}"
    return ValueError(Problem(name, expected, got, hint, sample=sample))


def _way_from_flat(points: Any, offsets: Any) -> str:
    """Returns the hint for points in one row of numbers, which COCO stores as x, y, visibility."""
    if points.ndim == 1 and not (np.diff(offsets) % 3).any():
        return "np.reshape(points, (-1, 3)) converts COCO's x, y, visibility, x, ... to points"
    if points.ndim == 2 and points.shape[1] % 3 == 0:
        shape = f"(-1, {points.shape[1] // 3}, 3)"
        return f"np.reshape(points, {shape}) converts COCO's x, y, visibility, x, ... to points"
    return ""


def _wrong_shape(
    context: FieldContext, expected: str, items: Any, offsets: Any, hint: str = ""
) -> ValueError:
    """Returns the error for items of a wrong shape, which names the first sample with items."""
    sample = int(np.flatnonzero(np.diff(offsets))[0]) if len(items) else 0
    got = f"an array of shape {(int(offsets[sample + 1] - offsets[sample]), *items.shape[1:])}"
    return ValueError(Problem(context.name, expected, got, hint, sample=sample))


def are_classes(masks: Any) -> bool:
    """Whether masks are a single one, with other values than 0 and 1 or 0 and 255."""
    array = host_array(masks)
    if array is None or len(array) != 1 or not array.max(initial=0) > 1:
        return False
    values = np.unique(array)
    # A soft mask, or one of an object that was stored as JPEG, has values beside 255.
    return 254 not in values and {*values.tolist()} - {0} != {255}


def _is_empty(sample: Any) -> bool:
    return hasattr(sample, "__len__") and len(sample) == 0


def _joined(
    samples: Sequence[Any], item_shape: tuple[int, ...], context: FieldContext
) -> tuple[Any, Any]:
    """Does the same as `_as_floats` for samples that can be lists, or empty in any shape."""
    try:
        values, offsets = _as_floats(list(samples), None, None, context)
        if values.ndim > 1:
            return values, offsets
    except (TypeError, ValueError):
        pass  # _arrays raises a clearer error
    return _as_floats(_arrays(samples, item_shape, context.name), None, None, context)


def _arrays(samples: Sequence[Any], item_shape: tuple[int, ...], name: str) -> list[Any]:
    """Returns samples as arrays. Empty ones get the shape of the other samples, or ``item_shape``."""
    arrays = []
    for position, sample in enumerate(samples):
        array = sample
        if isinstance(sample, list | tuple):
            try:
                array = np.array(sample, np.float64)
            except (TypeError, ValueError):
                expected = f"numbers of shape (n, {', '.join(map(str, item_shape))})"
                problem = Problem(name, expected, "a ragged or non-numeric list", sample=position)
                raise ValueError(problem) from None
        elif not isinstance(sample, ARRAYS):
            expected = "an ndarray, a tensor or a list, empty for an image without objects"
            raise TypeError(Problem(name, expected, type(sample).__name__, sample=position))
        arrays.append(array)
    shape = next((array.shape[1:] for array in arrays if not _is_empty(array)), item_shape)
    empty = np.zeros((0, *shape))
    return [empty if _is_empty(array) else array for array in arrays]


def _as_bytes(masks: Any, is_bool: bool) -> Any:
    """Returns masks as uint8, with 0 and 1 for bool batches."""
    if is_bool and not _is_empty(masks):
        masks = masks != 0
    if isinstance(masks, torch.Tensor):
        return masks.view(torch.uint8) if masks.dtype == torch.bool else masks
    return masks.view(np.uint8) if getattr(masks, "dtype", None) == np.bool_ else masks


def _those_that_remain(objects: Objects | None, offsets: Any, name: str) -> npt.NDArray[np.bool_]:
    """Returns which objects remain: all without boxes."""
    if objects is None:
        return np.ones(int(offsets[-1]), np.bool_)
    require_same_counts(offsets, objects.offsets, name)
    return objects.remain


def require_same_counts(offsets: Any, expected: Any, name: str) -> None:
    """Raises ValueError unless each sample has one item per box."""
    if np.array_equal(offsets, expected):
        return
    counts, boxes = np.diff(offsets), np.diff(expected)
    sample = int(np.flatnonzero(counts != boxes)[0])
    count = int(boxes[sample])
    items = f"{count} item{'s' * (count != 1)}, one for each box"
    raise ValueError(Problem(name, items, str(counts[sample]), sample=sample))
