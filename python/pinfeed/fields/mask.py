"""Masks of classes, which show what the image beside them shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from typing_extensions import override

from pinfeed.arguments import (
    DType,
    Problem,
    instead,
    require_choice,
    require_flags,
    torch_dtype_name,
)
from pinfeed.augment.augmentation import split_transforms
from pinfeed.augment.geometry import Geometry
from pinfeed.fields.field import Beside, Field, FieldContext
from pinfeed.fields.image import INTEGERS, Image
from pinfeed.functional.sequences import Padded
from pinfeed.structure import children, map_entries, step_name

_NONE = 255  # no class
_OPTIONS = ("dtype", "fill", "interpolation", "reduce_labels", "pad_value", "multiple_of", "sizes")


class Mask(Image):
    """A class for each pixel, as a loss takes them: int64 of shape (B, H, W).

    It is cropped, flipped and resized as the `Image` beside it in the same dict or tuple, or around
    that, by the same random draws. Values stay as they are.

    Args:
        image: The key of that image's field in the same dict. None: all images there have the same
            ``augment``.
        dtype: An integer dtype that holds all values of the samples' own.
        augment: A geometry that is not the image's. None takes the image's ``augment``, ``rng_stream``,
            ``multiple_of`` and, where the image has a ``pad_value``, ``fill`` as the mask's.
        fill: The class where ``augment`` shows something beyond a mask: the ``ignore_index`` of the
            loss. Samples need a dtype that holds it.
        interpolation: ``"nearest-exact"`` or ``"nearest"``, as in `Image`.
        reduce_labels: Whether classes count from 1 in the samples, and 0 is none of them, as in
            ADE20K: they become 1 less, and 0 becomes 255.
        pad_value: The class below and to the right of masks smaller than the largest of the batch.
        multiple_of: As in `Image`.
        sizes: As in `Image`.
        rng_stream: As in `Image`.

    Samples are integers or bools of shape (H, W), (1, H, W) or (H, W, 1), also mixed, or PIL images of
    mode L, P, 1, I or I;16: of a palette, the indices are the classes, not the colors. Other images of
    colors raise. A `DeviceLoader` may have it in ``fields``, where batches of bytes become ``dtype`` on
    the device.

    Raises:
        TypeError, ValueError: An argument does not fit; samples that don't fit raise when they are
            collated, with the number of the sample.

    Example:
        >>> flip = pinfeed.augment.RandomHorizontalFlip(p=1)
        >>> fields = {"image": pinfeed.Image(augment=flip), "mask": pinfeed.Mask()}
        >>> image, mask = np.zeros((1, 2, 3), np.uint8), np.array([[0, 1]], np.uint8)
        >>> pinfeed.Collate(fields)([{"image": image, "mask": mask}])["mask"]
        tensor([[[1, 0]]])
    """

    @instead(
        mean="classes stay as they are; Image(mean, std) normalizes images",
        like="Mask(image=...) names the key of the image, which it finds by itself if there is one",
        num_classes="torch.nn.functional.one_hot makes channels of classes",
        ignore_index="Mask(fill=...) is the class of what is beyond a mask",
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
                f"Mask: image must be the key of an image in the same dict, got {image!r}; a geometry "
                "is augment="
            )
        require_flags("Mask", reduce_labels=reduce_labels)
        for name, value in (("fill", fill), ("pad_value", pad_value)):
            if reduce_labels and value not in (None, _NONE):
                raise ValueError(
                    f"Mask: {name} must be {_NONE} with reduce_labels, as what 0 becomes, got {value!r}"
                )
        split_transforms(augment, "Mask", geometry_only=True)
        require_choice(interpolation, ("nearest-exact", "nearest"), "Mask: interpolation")
        try:
            super().__init__(
                input="HW",
                output="HW",
                dtype=dtype,
                augment=augment,
                fill=None if augment is None else fill,
                interpolation=interpolation,
                pad_value=pad_value,
                multiple_of=multiple_of,
                sizes=sizes,
                rng_stream=rng_stream,
            )
        except (TypeError, ValueError) as error:
            raise type(error)(str(error).replace("Image:", "Mask:", 1)) from None
        if self.dtype not in INTEGERS:
            raise TypeError(f"Mask: dtype must be one of {INTEGERS}, got {self.dtype}")
        self.image, self.fill, self.reduce_labels = image, fill, reduce_labels
        self._is_beside = False  # whether it has what it takes of an image
        self._is_mask = True
        # A guess, so that one more axis of a single channel is nothing.
        self._format = self._constants.format(
            "HW", "HW", torch_dtype_name(self.dtype), is_guess=True
        )

    @classmethod
    @override
    def from_processor(cls, processor: Any, **options: Any) -> Self:
        """Masks as an image processor of transformers makes them of segmentation maps.

        Args:
            processor: The image processor of Segformer, or a processor that has one.
            **options: Further arguments of `Mask`.

        Raises:
            TypeError: ``processor`` is of another kind.
            ValueError: A setting is not covered.

        Example:
            >>> from transformers import SegformerImageProcessor
            >>> processor = SegformerImageProcessor(do_reduce_labels=True)
            >>> pinfeed.Mask.from_processor(processor)
            Mask(augment=Resize((512, 512)), reduce_labels=True)
        """
        from pinfeed.augment.from_processor import mask_arguments

        return cls(**mask_arguments(processor) | options)

    def beside(self, images: Mapping[str, Image], name: str) -> Self:
        """The mask of one of these images, unless it has a geometry or an image already."""
        if self.augment is not None or self._is_beside:
            return self
        if self.image is not None:
            if self.image not in images:
                return self  # which may be further out
            images = {self.image: images[self.image]}
        first, *others = images.values()
        if any(_view(other) != _view(first) for other in others):
            raise ValueError(
                f"{name} has a Mask beside images {list(images)}, which are cropped, flipped, resized or "
                f"padded in different ways; say which of them by Mask({next(iter(images))!r})"
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
        field.source, field.is_optional, field._is_beside = self.source, self.is_optional, True
        return field

    @override
    def collate(self, samples: Sequence[Any], context: FieldContext) -> Any:
        if len({getattr(sample, "ndim", 2) for sample in samples}) > 1:  # PIL images have no ndim
            samples = [_plane(sample, context, i) for i, sample in enumerate(samples)]
        return super().collate(samples, context)

    @override
    def _batch(self, images: Any, indices: Any, context: FieldContext) -> Any:
        if self.image is not None and not self._is_beside and self.augment is None:
            wrong = f"Mask({self.image!r}) needs an Image() of that key in the same dict"
            raise ValueError(Problem(context.name, wrong))
        batch = super()._batch(images, indices, context)
        if self.reduce_labels:
            made = batch.entry if isinstance(batch, Beside) else batch
            _reduce(made.values if isinstance(made, Padded) else made)
        return batch

    @override
    def apply(self, batch: Any, host: Any, context: FieldContext) -> Any:
        if self.augment is not None or self.pad_value is not None:
            wrong = "augment and pad_value are for the samples of a Collate, and this is a batch already"
            hint = "give this Mask to the Collate, and leave it out of fields"
            raise TypeError(Problem(context.name, wrong, hint=hint))
        if not isinstance(batch, torch.Tensor):
            raise TypeError(
                Problem(context.name, "a tensor, which Mask() takes", type(batch).__name__)
            )
        if batch.is_cpu and len(batch):  # the native side takes at least one sample
            return self._batch(batch, np.arange(len(batch)), context)
        # On a device values are not looked at, so all that the dtype has must fit.
        axis = 1 if batch.ndim == 4 and batch.shape[1] == 1 else -1
        masks = batch.squeeze(axis) if batch.ndim == 4 else batch
        given, dtype = torch_dtype_name(batch.dtype), torch_dtype_name(self.dtype)
        if masks.ndim != 3 or batch.is_floating_point() or not np.can_cast(given, dtype):
            expected = f"integers that {dtype} can hold, of shape (N, H, W)"
            raise TypeError(Problem(context.name, expected, f"{given} {tuple(batch.shape)}"))
        made = masks.to(self.dtype, copy=True)
        if self.reduce_labels:
            _reduce(made)
        return made


def _plane(mask: Any, context: FieldContext, position: int) -> Any:
    """A mask of (H, W), beside samples with another number of axes."""
    shape: tuple[int, ...] = tuple(getattr(mask, "shape", ()))
    if len(shape) == 3 and 1 in (shape[0], shape[2]):
        return mask[0] if shape[0] == 1 else mask[..., 0]
    if len(shape) == 3:
        hint = "mask[..., 0] is the mask where channels are equal"
        raise ValueError(
            Problem(context.name, "a mask of shape (H, W)", str(shape), hint, sample=position)
        )
    return mask


def _reduce(classes: torch.Tensor) -> None:
    """Makes classes 1 less, and 255 of 0 and of what is 255 already."""
    classes -= 1
    classes[(classes == -1) | (classes == _NONE - 1)] = _NONE


def _view(image: Image) -> tuple[Any, ...]:
    """All that its masks have to have as well."""
    steps = () if image.geometry is None else image.geometry.steps
    return steps, image.rng_stream, image.pad_value is None, image.multiple_of


def masks_placed(fields: Any, parts: list[Any], name: str) -> list[Any]:
    """The parts of a container of fields, in which masks follow the images of the container.

    Args:
        fields: The container.
        parts: Its children, as they behave there.
        name: What messages call it.
    """
    images = {
        step_name(step): part
        for (step, _), part in zip(children(fields), parts, strict=True)
        if isinstance(part, Image) and not isinstance(part, Mask)
    }
    if not images:
        return parts
    beside = lambda part: part.beside(images, name) if isinstance(part, Mask) else part
    return [map_entries(beside, part, lambda node: isinstance(node, Field)) for part in parts]
