"""The `Mask` field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from pinfeed.arguments import (
    ARRAYS,
    DType,
    Problem,
    checked_choice,
    checked_integer,
    require_flags,
    torch_dtype,
    torch_dtype_name,
    with_hints,
)
from pinfeed.augment.augmentation import split_transforms
from pinfeed.augment.geometry import Geometry, may_pad
from pinfeed.fields.field import EntryWithExtras, Field, FieldContext
from pinfeed.fields.image import INTEGERS, Image, as_array
from pinfeed.functional.sequences import Padded
from pinfeed.sources.source import Source
from pinfeed.structure import children, map_entries, step_name

_NONE = 255  # no class
_OPTIONS = ("dtype", "fill", "interpolation", "reduce_labels", "pad_value", "multiple_of", "sizes")


class Mask(Image):
    """Stacks class masks, transformed together with an `Image`. Returns int64 of shape (B, H, W).

    Masks are cropped, flipped and resized with the same random draws as the `Image` in the same dict
    or tuple, or in an enclosing one. Classes stay as they are.

    Samples are integers or bools of shape (H, W), (1, H, W) or (H, W, 1), or PIL images of mode L, P, 1, I
    or I;16; a batch can mix them. The classes of a palette image are its indices. Color images raise an
    error. In ``fields`` of a `DeviceLoader`, Mask converts batches of bytes to ``dtype`` on the device.

    Args:
        image: Key of the image in the same dict. None: the dict's images, which must share ``augment``.
        dtype: Integer dtype of the batch; it must hold all values of the samples' dtype.
        augment: Geometric transforms, if they differ from the image's. None: the image's ``augment``,
            ``rng_stream`` and ``multiple_of``; if the image has a ``pad_value``, ``fill`` pads the masks.
        fill: Class outside the mask, usually the ``ignore_index`` of the loss. If a crop can extend beyond
            the mask, bytes and bools are converted first to hold ``fill``; other dtypes must hold it.
        interpolation: ``"nearest-exact"`` or ``"nearest"``, as in `Image`.
        reduce_labels: Whether to subtract 1 from classes and turn 0 into 255, for datasets such as
            ADE20K, where 0 is not a class.
        pad_value: Class that pads masks smaller than the batch's largest, on the right and bottom.
        multiple_of: Number, or pair (height, width), as in `Image`.
        sizes: Whether to return each mask's height and width, as in `Image`.
        rng_stream: Number of the random stream, as in `Image`.

    Raises:
        TypeError, ValueError: If an argument is invalid. When samples are collated: if a sample doesn't
            fit; the message names it.

    Example:
        >>> flip = pinfeed.augment.RandomHorizontalFlip(p=1)
        >>> fields = {"image": pinfeed.Image(augment=flip), "mask": pinfeed.Mask()}
        >>> image, mask = np.zeros((1, 2, 3), np.uint8), np.array([[0, 1]], np.uint8)
        >>> pinfeed.Collate(fields)([{"image": image, "mask": mask}])["mask"]
        tensor([[[1, 0]]])
    """

    @with_hints(
        mean="classes stay as they are; Image(mean, std) normalizes images",
        scale="classes stay as they are; Image(scale=...) scales images",
        like="Mask(image=...) names the key of the image; a single image is found without it",
        num_classes="torch.nn.functional.one_hot converts classes to channels",
        ignore_index="Mask(fill=...) is the class outside a mask",
    )
    def __init__(
        self,
        image: str | None = None,
        *,
        dtype: DType = torch.int64,
        augment: Geometry | Sequence[Geometry] | None = None,
        fill: int = 255,
        interpolation: Literal["nearest-exact", "nearest"] = "nearest-exact",
        reduce_labels: bool = False,
        pad_value: int | None = None,
        multiple_of: int | tuple[int, int] | None = None,
        sizes: bool | str = False,
        rng_stream: int = 0,
    ) -> None:
        if image is not None and not isinstance(image, str):
            raise TypeError(
                f"Mask: image must be the key of an image in the same dict, got {image!r}; pass a "
                "geometry as augment="
            )
        require_flags("Mask", reduce_labels=reduce_labels)
        dtype = torch_dtype(dtype, "Mask")
        if dtype not in INTEGERS:
            raise TypeError(f"Mask: dtype must be one of {INTEGERS}, got {dtype}")
        limits = torch.iinfo(dtype)
        for name, value in (("fill", fill), ("pad_value", pad_value)):
            if value is not None or name == "fill":
                checked_integer(value, f"Mask: {name}", limits.min, limits.max)
            if reduce_labels and value not in (None, _NONE):
                raise ValueError(
                    f"Mask: {name} must be {_NONE} with reduce_labels, which turns 0 into it, got {value!r}"
                )
        geometry = split_transforms(augment, "Mask", geometry_only=True).geometry
        checked_choice(interpolation, ("nearest-exact", "nearest"), "Mask: interpolation")
        super().__init__(
            input="HW",
            output="HW",
            dtype=dtype,
            augment=augment,
            fill=fill if may_pad(geometry) else None,
            interpolation=interpolation,
            pad_value=pad_value,
            multiple_of=multiple_of,
            sizes=sizes,
            rng_stream=rng_stream,
        )
        self.image, self.fill, self.reduce_labels = image, fill, reduce_labels
        self._has_image_settings = False  # whether it has the settings of an image
        self._is_mask = True
        self._widens = (
            may_pad(geometry) and not 0 <= fill <= _NONE
        )  # crops pad in the samples' dtype
        # A guess, so that an additional axis of one channel is allowed.
        self._format = self._constants.format(
            "HW", "HW", torch_dtype_name(self.dtype), is_guess=True
        )

    @classmethod
    @override
    def from_processor(cls, processor: Any, **options: Any) -> Self:
        """Creates a field equivalent to a transformers image processor, for segmentation maps.

        Args:
            processor: The image processor of Segformer, or a processor that has one.
            **options: Further arguments of `Mask`.

        Raises:
            TypeError: If ``processor`` is of another kind.
            ValueError: If a setting is not supported.

        Example:
            >>> from transformers import SegformerImageProcessor
            >>> processor = SegformerImageProcessor(do_reduce_labels=True)
            >>> pinfeed.Mask.from_processor(processor)
            Mask(augment=Resize((512, 512)), reduce_labels=True)
        """
        from pinfeed.augment.from_processor import mask_arguments

        return cls(**mask_arguments(processor) | options)

    def with_settings_of(self, images: Mapping[str, Image], name: str) -> Self:
        """Returns the mask with the settings of its image, unless it has its own or has them already."""
        if self.augment is not None or self._has_image_settings:
            return self
        if self.image is not None:
            if self.image not in images:
                return self  # the image can be in an outer container
            images = {self.image: images[self.image]}
        first, *others = images.values()
        if any(_view(other) != _view(first) for other in others):
            raise ValueError(
                f"{name} has a Mask beside images {list(images)}, which are cropped, flipped, resized or "
                f"padded in different ways; pass the key of one, Mask({next(iter(images))!r})"
            )
        options: dict[str, Any] = vars(self)
        options = {name: options[name] for name in _OPTIONS}
        if first.pad_value is not None and self.pad_value is None:
            options["pad_value"] = self.fill
        if self.multiple_of is None:
            options["multiple_of"] = first.multiple_of
        if first.geometry is not None:
            options |= {"augment": first.geometry, "rng_stream": first.rng_stream}
        field = type(self)(self.image, **options)
        field.source, field.is_optional, field._has_image_settings = (
            self.source,
            self.is_optional,
            True,
        )
        return field

    @override
    def collate(self, samples: Sequence[Any], context: FieldContext) -> Any:
        if len({getattr(sample, "ndim", 2) for sample in samples}) > 1:  # PIL images have no ndim
            samples = [_plane(sample, context, i) for i, sample in enumerate(samples)]
        if self._widens:
            samples = [_widened(mask, self.fill, context, i) for i, mask in enumerate(samples)]
        return super().collate(samples, context)

    @override
    def gather(self, source: Source, indices: npt.NDArray[np.int64], context: FieldContext) -> Any:
        if self._widens:
            return Field.gather(self, source, indices, context)
        return super().gather(source, indices, context)

    @override
    def _batch(self, images: Any, indices: Any, context: FieldContext) -> Any:
        if self.image is not None and not self._has_image_settings and self.augment is None:
            wrong = f"Mask({self.image!r}) needs an Image() of that key in the same dict"
            hint = f"give {self.image!r} an Image(), or pass the key of the images"
            raise ValueError(Problem(context.name, wrong, hint=hint))
        batch = super()._batch(images, indices, context)
        if self.reduce_labels:
            entry = batch.entry if isinstance(batch, EntryWithExtras) else batch
            _reduce(entry.values if isinstance(entry, Padded) else entry)
        return batch

    @override
    def apply(self, batch: Any, host: Any, context: FieldContext) -> Any:
        if self.augment is not None or self.pad_value is not None:
            wrong = "augment and pad_value are for the samples of a Collate, but this is already a batch"
            hint = "pass this Mask to the Collate, and leave it out of fields"
            raise TypeError(Problem(context.name, wrong, hint=hint))
        if not isinstance(batch, torch.Tensor):
            raise TypeError(Problem(context.name, "a tensor for Mask()", type(batch).__name__))
        if batch.is_cpu and len(batch):  # native code needs at least one sample
            return self._batch(batch, np.arange(len(batch)), context)
        # Reading values would wait for the device, so all values of the input dtype must fit.
        axis = 1 if batch.ndim == 4 and batch.shape[1] == 1 else -1
        masks = batch.squeeze(axis) if batch.ndim == 4 else batch
        batch_dtype, dtype = torch_dtype_name(batch.dtype), torch_dtype_name(self.dtype)
        if masks.ndim != 3 or batch.is_floating_point() or not np.can_cast(batch_dtype, dtype):
            expected = f"integers that {dtype} can hold, of shape (N, H, W)"
            raise TypeError(Problem(context.name, expected, f"{batch_dtype} {tuple(batch.shape)}"))
        classes = masks.to(self.dtype, copy=True)
        if self.reduce_labels:
            _reduce(classes)
        return classes


def _plane(mask: Any, context: FieldContext, position: int) -> Any:
    """Returns a mask as (H, W), for batches whose samples differ in the number of axes."""
    if not isinstance(mask, ARRAYS):  # a PIL image, or native code raises
        return mask
    shape = tuple(mask.shape)
    if len(shape) == 3 and 1 in (shape[0], shape[2]):
        return mask[0] if shape[0] == 1 else mask[..., 0]
    if len(shape) < 2 or len(shape) == 3:
        hint = ""
        if len(shape) == 3:
            hint = (
                "pass mask[..., 0] if channels are equal; InstanceMasks() takes a mask per object"
            )
        raise ValueError(
            Problem(context.name, "a mask of shape (H, W)", str(shape), hint, sample=position)
        )
    return mask


def _widened(mask: Any, fill: Any, context: FieldContext, position: int) -> Any:
    """Returns a mask of bytes or bools as integers that hold ``fill``, and any other sample unchanged."""
    # No unsigned dtype: int16 and int32 batches can't hold all of its values.
    dtype = next(n for n in ("int16", "int32", "int64") if abs(2 * fill + 1) < 2 ** int(n[3:]))
    if as_array(mask, True, context.name, position, {}, "HW") is not mask:
        mask = np.asarray(mask)  # a PIL image
    if isinstance(mask, np.ndarray) and mask.dtype in (np.uint8, np.bool_):
        return mask.astype(dtype)
    if isinstance(mask, torch.Tensor) and mask.dtype in (torch.uint8, torch.bool):
        return mask.to(getattr(torch, dtype))
    return mask


def _reduce(classes: torch.Tensor) -> None:
    """Subtracts 1 from classes in place; 0 becomes 255, and 255 stays."""
    classes -= 1
    classes[(classes == -1) | (classes == _NONE - 1)] = _NONE


def _view(image: Image) -> tuple[Any, ...]:
    """Returns the settings that an image shares with its masks."""
    steps = () if image.geometry is None else image.geometry.steps
    return steps, image.rng_stream, image.pad_value is None, image.multiple_of


def with_image_settings(fields: Any, parts: list[Any], name: str) -> list[Any]:
    """Returns the parts of a container of fields, with masks set up for the images in it.

    Args:
        fields: The container.
        parts: Its children.
        name: Name of the container in messages.
    """
    images = {
        step_name(step): part
        for (step, _), part in zip(children(fields), parts, strict=True)
        if isinstance(part, Image) and not isinstance(part, Mask)
    }
    if not images:
        return parts
    with_settings = lambda part: (
        part.with_settings_of(images, name) if isinstance(part, Mask) else part
    )
    return [
        map_entries(with_settings, part, lambda node: isinstance(node, Field)) for part in parts
    ]
