"""Boxes, points and masks of the objects in images, which go where the images show them."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import ARRAYS, DType, Problem, checked_number, require_choice, torch_dtype
from pinfeed.augment.geometry import Geometry
from pinfeed.fields.coordinates import (
    FORMATS,
    Earlier,
    canvases,
    in_format,
    known_points,
    plain,
    require_canvases,
    require_inside,
    require_pixels,
    require_points_inside,
)
from pinfeed.fields.field import Field, FieldContext, Objects, Seen
from pinfeed.functional.sequences import JaggedBatch
from pinfeed.memory.outputs import batch_allocator
from pinfeed.runtime import get_num_threads
from pinfeed.sources.source import Source

_MASKS = (torch.uint8, torch.bool)

# Pixels by which x2 may lie before x1, in annotations that were computed.
_ROUNDING = 1e-3


class Target(Field):
    """What follows the images under a key of the same dict.

    Its ``collate`` reads and checks the samples; ``moved`` makes the batch when that of the images is there.
    """

    def __init__(self, image: str) -> None:
        name = type(self).__name__
        if not isinstance(image, str) or not image:
            raise TypeError(f"{name}: image must be the key of the images, got {image!r}")
        self.image = image
        self._earlier = Earlier()

    @abstractmethod
    def moved(
        self, read: Any, seen: Seen | None, objects: Objects | None, context: FieldContext
    ) -> JaggedBatch:
        """The batch.

        Args:
            read: What `collate` or `gather` returned.
            seen: What the images show; None: the batch has none.
            objects: The boxes of their objects, of which some remain; None: nobody has boxes.
            context: As for `collate`.
        """

    def _require_no_objects(self, offsets: Any, context: FieldContext) -> None:
        """Raises ValueError for objects in a batch without images."""
        if offsets[-1] == 0:
            return
        sample = int(np.flatnonzero(np.diff(offsets))[0])
        expected = f"no objects, because no sample of the batch has an image under {self.image!r}"
        hint = "give such samples an empty list, or make this field optional() and them None"
        got = str(int(offsets[sample + 1] - offsets[sample]))
        raise ValueError(Problem(context.name, expected, got, hint, sample=sample))


class _Boxes(NamedTuple):
    """What `Boxes` reads: the boxes, and the sizes of images that samples carry with them."""

    objects: Objects
    canvases: list[Any] | None


class Boxes(Target):
    """Boxes of the objects in images, moved along with what `Image` does: a `JaggedBatch`.

    They are cropped, flipped and resized with their image, and clipped to what is seen of it. Boxes
    of which too little remains are dropped, by the rule of torchvision's ``ClampBoundingBoxes`` and
    ``SanitizeBoundingBoxes``, and with them their labels, and the `Points` and `InstanceMasks` that
    follow the same images. It stands in a dict, beside the images.

    Args:
        image: The key of the images in the same dict.
        format: The four numbers of a box, in pixels of its image, not in fractions of it: ``"xyxy"``, two corners;
            ``"xywh"``, the upper left corner, width and height, as COCO has them; ``"cxcywh"``, the
            centre, width and height.
        output: The same for the batch. None: as ``format``.
        normalized: False: the batch has pixels. True: fractions of the batch's height and width.
            ``"image"``: of each image's own, without its padding.
        min_size: A box whose width or height is less, in pixels of the batch, is dropped.
        min_area: The same for its area.
        labels: The keys in the same dict that have a value for each box, such as
            ``("labels", "area", "iscrowd")``. They become `JaggedBatch`es without the dropped boxes',
            or, with the field `Keep`, lists without them: names, polygons.

    Raises:
        TypeError, ValueError: An argument does not fit. When samples are collated: boxes have no four
            numbers, or there are not as many labels as boxes; x2 < x1 or y2 < y1; boxes are
            fractions, lie beyond their images as another format would not have them, or are
            torchvision's ``BoundingBoxes`` of another format or canvas.

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
        require_choice(format, FORMATS, "Boxes: format")
        require_choice(output, (*FORMATS, None), "Boxes: output")
        if not isinstance(normalized, bool) and normalized != "image":
            raise ValueError(
                f'Boxes: normalized must be True, False or "image", got {normalized!r}'
            )
        keys = (labels,) if isinstance(labels, str) else labels
        if not isinstance(keys, Sequence) or not all(isinstance(key, str) for key in keys):
            raise TypeError(f"Boxes: labels must be a key or several, got {labels!r}")
        self.format = format
        self.output = output
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
        for position, sample in enumerate(samples):
            format = getattr(sample, "format", None)
            name = str(getattr(format, "name", format)).lower()
            if format is not None and name != self.format:
                hint = f'say format="{name}"' if name in FORMATS else f"convert to {FORMATS}"
                got = f"a {type(sample).__name__} of format {name!r}"
                expected = f"boxes of format {self.format!r}"
                raise ValueError(Problem(context.name, expected, got, hint, sample=position))
        boxes = self._checked(*_joined(plain(samples), (4,), context), context)
        return _Boxes(boxes, canvases(samples))

    @override
    def gather(
        self, source: Source, indices: npt.NDArray[np.int64], context: FieldContext
    ) -> _Boxes:
        return _Boxes(self._checked(*_as_floats(*source.select(indices), context), context), None)

    def _checked(self, boxes: Any, offsets: Any, context: FieldContext) -> Objects:
        if boxes.shape[1:] != (4,):
            raise _wrong_shape(context, "boxes of shape (n, 4)", boxes, offsets)
        require_pixels(boxes, "boxes", context.name)
        if not _core.to_corners(boxes, self.format):
            row = int(np.flatnonzero(~np.isfinite(boxes).all(1))[0])
            raise _about_box(row, boxes[row], offsets, "finite numbers", "", context.name)
        is_turned = boxes[:, 2:] < boxes[:, :2] - _ROUNDING
        np.maximum(boxes[:, 2:], boxes[:, :2], out=boxes[:, 2:], where=~is_turned)
        if is_turned.any():
            row = int(np.flatnonzero(is_turned.any(1))[0])
            expected, hint = "width and height of at least 0", "make them positive"
            if self.format == "xyxy":
                expected = "x1 <= x2 and y1 <= y2"
                hint = (
                    'boxes with width and height, such as COCO\'s, take format="xywh", or "cxcywh" '
                    "if they have their center"
                )
            box = in_format(boxes[row : row + 1], self.format)[0]
            raise _about_box(row, box, offsets, expected, hint, context.name)
        return Objects(boxes, offsets, np.ones(len(boxes), np.bool_))

    @override
    def moved(
        self, read: _Boxes, seen: Seen | None, objects: Objects | None, context: FieldContext
    ) -> JaggedBatch:
        objects, canvases = read
        corners, offsets, _ = objects
        if seen is None:
            self._require_no_objects(offsets, context)
            return JaggedBatch(torch.zeros((0, 4), device="cpu"), torch.from_numpy(offsets))
        require_canvases(canvases, seen.views.sources, context.name)
        require_inside(
            corners, offsets, seen.views.sources, self.format, self._earlier, context.name
        )
        target = batch_allocator(context.pin)
        return JaggedBatch(
            *_core.move_boxes(seen.views, objects, self._options, seen.size, target, context.name)
        )


class Points(Target):
    """Points in images, such as key points, moved along with what `Image` does: a `JaggedBatch`.

    Coordinates go from 0 at the left and upper border of an image to its width and height, so the
    centre of its first pixel is (0.5, 0.5): add 0.5 to those that number pixels, as COCO's do. Points
    are not clipped, and what is left of an object stays so by name when it is mirrored. Those of an object go when `Boxes`
    that follow the same images drop its box.

    Args:
        image: The key of the images in the same dict.

    Samples are of shape (n, 2) or (n, points, 2), with x and y in pixels of the image; or with a third
    number, as COCO has it: 0 where a point is not known. It becomes 0 where a point is no longer seen.

    Raises:
        TypeError, ValueError: An argument does not fit. When samples are collated: points have not two
            or three numbers, or there are not as many objects as boxes.

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
    def moved(
        self, read: Any, seen: Seen | None, objects: Objects | None, context: FieldContext
    ) -> JaggedBatch:
        points, offsets, sizes = read
        if seen is None:
            self._require_no_objects(offsets, context)
            none = torch.zeros(points.shape, device="cpu")
            return JaggedBatch(none, torch.from_numpy(offsets))
        require_canvases(sizes, seen.views.sources, context.name)
        require_points_inside(points, offsets, seen.views.sources, self._earlier, context.name)
        remain = _those_that_remain(objects, offsets, context.name)
        target = batch_allocator(context.pin)
        return JaggedBatch(
            *_core.move_points(seen.views, points, offsets, remain, target, context.name)
        )


class InstanceMasks(Target):
    """A mask for each object in an image, which shows what its `Image` shows: a `JaggedBatch`.

    Masks are resized with ``"nearest-exact"``, and padded with zeros to the size of the images' batch: the
    values are (total, H, W). Those of objects go when `Boxes` that follow the same images drop the box.

    Args:
        image: The key of the images in the same dict.
        dtype: ``torch.uint8`` or ``torch.bool``.

    Samples are of shape (n, H, W), uint8 or bool, as large as their image.

    Raises:
        TypeError, ValueError: An argument does not fit. When samples are collated: masks are not as
            large as their image, or not as many as its boxes.

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

    def __init__(self, image: str = "image", *, dtype: DType = torch.uint8) -> None:
        super().__init__(image)
        dtype = torch_dtype(dtype, "InstanceMasks")
        if dtype not in _MASKS:
            raise TypeError(f"InstanceMasks: dtype must be one of {_MASKS}, got {dtype!r}")
        self.dtype = dtype
        self._format = _core.ImageFormat(
            mean=np.zeros(()),
            std=np.ones(()),
            scale=None,
            input="HW",
            output="HW",
            dtype="uint8",
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
                raise ValueError(Problem(context.name, expected, got, sample=position))
        return samples

    @override
    def moved(
        self, read: Any, seen: Seen | None, objects: Objects | None, context: FieldContext
    ) -> JaggedBatch:
        counts = [len(masks) for masks in read]
        offsets = np.append(0, np.cumsum(counts))
        if seen is None:
            self._require_no_objects(offsets, context)
            return self._batch(torch.zeros((0, 0, 0), dtype=torch.uint8, device="cpu"), offsets)
        for position, (masks, size) in enumerate(zip(read, seen.views.sources, strict=True)):
            if getattr(masks, "ndim", 0) == 3 and masks.shape[1:] != size:
                expected = f"masks of {size}, as their image in entry [{self.image!r}] has it"
                got = str(tuple(masks.shape[1:]))
                raise ValueError(Problem(context.name, expected, got, sample=position))
        remain = _those_that_remain(objects, offsets, context.name)
        rows = np.repeat(np.arange(len(read)), counts)[remain]
        kept = np.append(0, np.cumsum(remain))[offsets]
        is_bool = self.dtype == torch.bool
        masks = [mask for masks in read for mask in _as_bytes(masks, is_bool)]
        masks = [mask for mask, remains in zip(masks, remain.tolist(), strict=True) if remains]
        if masks:
            values = _core.view_images(
                masks,
                None,
                self._format,
                _options(seen.geometry),
                batch_allocator(context.pin),
                context.name,
                get_num_threads(),
                key=0,
                samples=rows,
                entry="",
                views=seen.views,
                rows=rows.tolist(),
                padding=_core.ImagePaddingOptions(value=0, least=seen.size),
            ).values
        else:
            values = torch.zeros((0, *seen.size), dtype=torch.uint8, device="cpu")
        return self._batch(values, kept)

    def _batch(self, values: torch.Tensor, offsets: Any) -> JaggedBatch:
        return JaggedBatch(values.view(self.dtype), torch.from_numpy(offsets))


@functools.lru_cache(maxsize=64)
def _options(geometry: Geometry | None) -> _core.AugmentOptions:
    """How masks are seen through a geometry."""
    steps = {} if geometry is None else geometry.native([0])
    return _core.AugmentOptions(**steps, interpolation="nearest-exact", in_floats=False)


def _as_floats(source: Any, offsets: Any, indices: Any, context: FieldContext) -> tuple[Any, Any]:
    """Samples of numbers one after the other as float64, and where each begins."""
    where = np.ndarray, context.name, get_num_threads()
    return _core.join(source, offsets, indices, *where, dtype="float64")


def _about_box(row: int, box: Any, offsets: Any, expected: str, hint: str, name: str) -> ValueError:
    """The error for a box of the batch."""
    sample = int(np.searchsorted(offsets, row, "right")) - 1
    got = f"{box.tolist()} of box {row - int(offsets[sample])}"
    return ValueError(Problem(name, expected, got, hint, sample=sample))


def _way_from_flat(points: Any, offsets: Any) -> str:
    """The hint for points in one row of numbers, as COCO has x, y and visibility."""
    if points.ndim == 1 and not (np.diff(offsets) % 3).any():
        return "np.reshape(points, (-1, 3)) makes points of COCO's lists x, y, visibility, x, ..."
    if points.ndim == 2 and points.shape[1] % 3 == 0:
        shape = f"(-1, {points.shape[1] // 3}, 3)"
        return f"np.reshape(points, {shape}) makes points of COCO's lists x, y, visibility, x, ..."
    return ""


def _wrong_shape(
    context: FieldContext, expected: str, items: Any, offsets: Any, hint: str = ""
) -> ValueError:
    """The error for items of a wrong shape, about the first sample that has any."""
    sample = int(np.flatnonzero(np.diff(offsets))[0]) if len(items) else 0
    got = f"an array of shape {(int(offsets[sample + 1] - offsets[sample]), *items.shape[1:])}"
    return ValueError(Problem(context.name, expected, got, hint, sample=sample))


def _is_empty(sample: Any) -> bool:
    """Whether there is no object."""
    return hasattr(sample, "__len__") and len(sample) == 0


def _joined(
    samples: Sequence[Any], item_shape: tuple[int, ...], context: FieldContext
) -> tuple[Any, Any]:
    """As `_as_floats`, of samples that may be lists, or empty in any shape."""
    try:
        values, offsets = _as_floats(list(samples), None, None, context)
        if values.ndim > 1:
            return values, offsets
    except (TypeError, ValueError):
        pass  # which is told below
    return _as_floats(_arrays(samples, item_shape, context.name), None, None, context)


def _arrays(samples: Sequence[Any], item_shape: tuple[int, ...], name: str) -> list[Any]:
    """Samples as arrays; a list of no objects gets the shape of others, or that for an item."""
    arrays = []
    for position, sample in enumerate(samples):
        array = sample
        if isinstance(sample, list | tuple):
            try:
                array = np.array(sample, np.float64)
            except (TypeError, ValueError):
                expected = f"numbers of shape (n, {', '.join(map(str, item_shape))})"
                problem = Problem(name, expected, "a list of unlike items", sample=position)
                raise ValueError(problem) from None
        elif not isinstance(sample, ARRAYS):
            expected = "an ndarray, a tensor or a list, empty where there is no object"
            raise TypeError(Problem(name, expected, type(sample).__name__, sample=position))
        arrays.append(array)
    shape = next((array.shape[1:] for array in arrays if not _is_empty(array)), item_shape)
    none = np.zeros((0, *shape))
    return [none if _is_empty(array) else array for array in arrays]


def _as_bytes(masks: Any, is_bool: bool) -> Any:
    """Masks as uint8, of which those that become bool have to be 0 or 1."""
    if is_bool and not _is_empty(masks):
        masks = masks != 0
    if isinstance(masks, torch.Tensor):
        return masks.view(torch.uint8) if masks.dtype == torch.bool else masks
    return masks.view(np.uint8) if getattr(masks, "dtype", None) == np.bool_ else masks


def _those_that_remain(objects: Objects | None, offsets: Any, name: str) -> npt.NDArray[np.bool_]:
    """Which objects remain: all, unless boxes say more."""
    if objects is None:
        return np.ones(int(offsets[-1]), np.bool_)
    require_as_many(offsets, objects.offsets, name)
    return objects.remain


def require_as_many(offsets: Any, expected: Any, name: str) -> None:
    """Raises ValueError unless each sample has an entry for each of its boxes."""
    if np.array_equal(offsets, expected):
        return
    counts, boxes = np.diff(offsets), np.diff(expected)
    sample = int(np.flatnonzero(counts != boxes)[0])
    raise ValueError(
        Problem(
            name, f"{boxes[sample]} entries, one for each box", str(counts[sample]), sample=sample
        )
    )
