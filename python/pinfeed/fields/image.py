"""Entries that are images."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import (
    ARRAYS,
    DType,
    Interpolation,
    Problem,
    checked_multiples,
    instead,
    torch_dtype,
    torch_dtype_name,
)
from pinfeed.augment.augmentation import Augmentation, split_transforms
from pinfeed.augment.chance import Chance
from pinfeed.augment.geometry import Resizing, Transform
from pinfeed.fields.field import (
    Field,
    FieldContext,
    Followed,
    Seen,
    check_request,
    padded_entry,
)
from pinfeed.fields.pil_images import pil_pixels
from pinfeed.functional.normalization import (
    BYTE_SCALE,
    Normalization,
    PerChannel,
    checked_layouts,
    require_channels_last,
)
from pinfeed.functional.sequences import Padded, PaddedImages
from pinfeed.functional.torch_ops.tensors import normalize_tensor
from pinfeed.memory.outputs import batch_allocator
from pinfeed.runtime import get_num_threads
from pinfeed.sources.source import ArraySource, Source

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.uint16, torch.int16, torch.int32, torch.int64)

# PIL modes whose pixels are colours, and those whose pixels may be classes: entries of a palette.
_PIL_MODES = ("L", "LA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV", "I;16", "F")
_PIL_MASKS = ("L", "P", "1", "I;16", "I")


class Image(Field):
    """Images, masks and clips: converted, normalized, permuted, padded and stacked in one native pass.

    Every value becomes ``(x * scale - mean) / std``; see `pinfeed.functional.normalize` for the exact
    arithmetic. With ``pad_value`` the images of a batch may differ in size.

    Args:
        mean: Number or one per channel, in units of ``x * scale``. None is 0.
        std: The same. None is 1.
        scale: Factor applied first. None: one over the largest value of an integer dtype, so that
            bytes become 0..1; 1 for floats, which then must not go beyond 16 in some rows of a batch's
            first image that isn't dark, if there is a mean or std: 0..255 takes ``scale=1/255``. So do
            bytes in an integer dtype of 16 bits, which raise without it.
        input: How samples lie in memory: ``"HWC"``, ``"CHW"`` or ``"HW"`` (grey); with a T for the
            frames of clips: ``"THWC"``, ``"TCHW"``, ``"CTHW"`` or ``"THW"``. None is ``"HWC"``, or
            ``"HW"`` of samples with two axes and more than 4 columns, such as PIL images of mode L.
            Samples are ndarrays, tensors or PIL images of uint8, uint16, int16, float16, bfloat16 or
            float32; any strides, so crops and mirrored views cost nothing.
            A sample that looks channels first, because it would have more than 4 channels and as
            many as rows or columns, is an error unless you say what it is.
        output: ``"CHW"`` or ``"HWC"``: the batch is (B, C, H, W) or (B, H, W, C). Of clips
            ``"CTHW"``, ``"TCHW"`` or ``"THWC"``. Leave out the C for what has no channels:
            ``"HW"`` makes (B, H, W) of masks.
        dtype: ``torch.float32``, ``float16`` or ``bfloat16``; or an integer dtype that holds all values
            of the samples' own, ``torch.int64`` of masks: values stay as they are, and there is no
            mean, std or scale.
        channels_last: With ``output="CHW"``, lay the batch out in torch.channels_last memory;
            ``"CTHW"`` in channels_last_3d.
        pad_value: What stands below and to the right of images smaller than the batch's largest
            height and width: a number, or one for each channel, in units of the batch, after
            normalization, that ``dtype`` can hold, and which no field of a `DeviceLoader` may change.
            None: all images must have one size, or get one by ``augment``.
        multiple_of: Round the batch's height and width up to a multiple of this, or of a pair
            (height, width).
        sizes: Each image's height and width, int64 (B, 2), as the ``lengths`` of a `Padded`, or as
            an entry of its own under this key of the same dict.
        mask: The same for bool (B, H, W), True where an image is: the ``mask`` of a `Padded`, or a
            key.
        augment: Transform of `pinfeed.augment`, or a list of several, drawn anew for each sample and
            applied in the same pass: crops, flips and sizes, then colors, then a ``RandomErasing``.
            Images may differ in size if a transform gives them one, or with ``pad_value``.
            Entries with the same geometry, such as an image and its mask, get the same crop of
            the same sample; if they share the transforms, a sample's images must have the same size.
        fill: What stands where ``augment`` shows something beyond an image, if not the ``fill`` of
            its crops: 255 for a mask whose loss has ``ignore_index=255``, or one number for each
            channel. In units of the image's own values.
        interpolation: How ``augment`` resizes: ``"bilinear"`` or ``"bicubic"``, antialiased, or
            ``"nearest-exact"``, for masks: the pixel at the center of each output, as torch's mode of
            that name takes it, and PIL's NEAREST, except where a center lies between two pixels.
            ``"nearest"`` takes the pixel at the top left corner, as torch's mode of that name.
            A list of ``"bilinear"`` and ``"bicubic"``: one of them, drawn anew for each sample.
            None: ``"nearest-exact"`` for masks, which become an integer dtype other than uint8, and
            ``"bilinear"`` for images. Where a single channel may be either, say which.
        resize_dtype: None: bytes are resized to bytes, whose values are those of
            ``torch.nn.functional.interpolate`` on CPUs, and images of other dtypes in float32.
            ``torch.float32``: bytes too, so that nothing is rounded before it is normalized.
        rng_stream: Number of the random stream. Fields with the same geometry and another number draw
            other crops of the same sample: two views of one image.

    Raises:
        TypeError, ValueError: An argument does not fit; samples that don't fit raise when they are
            collated, with the number of the sample.

    Example:
        >>> image = pinfeed.Image(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
        >>> pinfeed.Collate(image)([np.zeros((8, 6, 3), np.uint8)]).shape
        torch.Size([1, 3, 8, 6])

        Images of different sizes:

        >>> photos = [np.zeros((8, 6, 3), np.uint8), np.zeros((5, 9, 3), np.uint8)]
        >>> image = pinfeed.Image(pad_value=0, multiple_of=16, sizes=True)
        >>> batch, sizes, _ = pinfeed.Collate(image)(photos)
        >>> batch.shape, sizes.tolist()
        (torch.Size([2, 3, 16, 16]), [[8, 6], [5, 9]])

        Masks of classes, as a loss takes them:

        >>> mask = pinfeed.Image(input="HW", output="HW", dtype=torch.int64)
        >>> batch = pinfeed.Collate(mask)([np.zeros((8, 6), np.uint8)])
        >>> batch.shape, batch.dtype
        (torch.Size([1, 8, 6]), torch.int64)
    """

    @instead(
        flip="Image(augment=pinfeed.augment.RandomHorizontalFlip()) flips",
        normalize="mean and std normalize: Image(mean, std)",
        size="Image(augment=pinfeed.augment.Resize(size)) resizes",
        resize="Image(augment=pinfeed.augment.Resize(size)) resizes",
        transform="Image(augment=...) takes transforms of pinfeed.augment, several in a list",
        antialias="resizing is antialiased, but for interpolation='nearest-exact'",
    )
    def __init__(
        self,
        mean: PerChannel = None,
        std: PerChannel = None,
        *,
        scale: float | None = None,
        input: Literal["HWC", "CHW", "HW", "THWC", "TCHW", "CTHW", "THW"] | None = None,
        output: Literal["CHW", "HWC", "HW", "CTHW", "TCHW", "THWC", "THW"] = "CHW",
        dtype: DType = torch.float32,
        channels_last: bool = False,
        pad_value: PerChannel = None,
        multiple_of: int | tuple[int, int] | None = None,
        sizes: bool | str = False,
        mask: bool | str = False,
        augment: Transform | Sequence[Transform] | None = None,
        fill: float | Sequence[float] | None = None,
        interpolation: Interpolation | Sequence[Interpolation] | None = None,
        resize_dtype: DType | None = None,
        rng_stream: int = 0,
    ) -> None:
        if isinstance(pad_value, np.ndarray | np.generic | torch.Tensor):
            pad_value = pad_value.tolist()
        if isinstance(pad_value, list):
            pad_value = tuple(pad_value)
        self.mean = mean
        self.std = std
        self.scale = scale
        #: A letter for each axis of a sample.
        self.axes, self.output = checked_layouts(input or "HWC", output, "Image")
        self.input = None if input is None else self.axes
        self.dtype = dtype = torch_dtype(dtype, "Image")
        self._is_mask = dtype in INTEGERS[1:]
        self.channels_last = channels_last
        self.pad_value = pad_value
        if pad_value is not None:
            self.varying_axes = (2, 3) if output == "CHW" else (1, 2)
            is_nothing = isinstance(pad_value, tuple) and not any(pad_value)
            self.byte_padding = None
            if dtype == torch.uint8:
                self.byte_padding = 0 if is_nothing else pad_value
        self.multiple_of = multiple_of
        self.sizes = check_request(sizes, "Image: sizes")
        self.mask = check_request(mask, "Image: mask")
        self.augment = augment
        transforms = split_transforms(augment, "Image")
        #: The crops, flips and sizes among them.
        self.geometry = transforms.geometry
        #: Whether any of them changes colors.
        self.changes_colors = bool(transforms.colors)
        self._erases = transforms.erasing is not None
        self.fill = fill
        self.interpolation = interpolation
        if resize_dtype is not None:
            resize_dtype = torch_dtype(resize_dtype, "Image", "resize_dtype")
        self.resize_dtype = resize_dtype
        self.rng_stream = rng_stream
        multiples = checked_multiples(multiple_of, 2, "Image: multiple_of")
        self._check_layout()
        self._augmentation = Augmentation(
            transforms,
            self._interpolation(),
            resize_dtype,
            rng_stream,
            dtype,
            fill,
            pad_value is not None,
            self._problem_with_one_channel() if dtype == torch.uint8 else "",
        )
        self.augments = bool(transforms)
        self.is_random = self._augmentation.is_random
        self._check_padding()
        self._constants = Normalization(mean, std, scale, "Image")
        # As the native side reads them.
        order = self.output.replace("C", "") + "C" if channels_last else self.output
        self._format = self._constants.format(
            self.axes,
            order,
            torch_dtype_name(dtype),
            is_guess=self.input is None,
            remembers=True,
        )
        self._padding = None
        if pad_value is not None:
            self._padding = _core.ImagePaddingOptions(
                value=pad_value,
                multiple_of=(multiples[0], multiples[1]),
                sizes=sizes is not False,
                mask=mask is not False,
            )

    @classmethod
    def from_torchvision(cls, transform: Any, **options: Any) -> tuple[Any, Self]:
        """Splits a transform of torchvision or timm into what stays and a field.

        The longest tail of the transform that one pass can do becomes the field. The values are those
        of ``torchvision.transforms.v2`` on uint8 tensors; random transforms draw from the same
        distributions.

        Args:
            transform: A ``Compose``, an ``nn.Sequential``, a list or a single transform of
                ``torchvision.transforms`` or its ``v2``, the ``transforms()`` of a model's weights, or
                what ``timm.data.create_transform`` returns.
            **options: Further arguments of `Image`, such as ``dtype``, ``channels_last`` or
                ``pad_value``; ``input="CHW"`` where samples are tensors and that doesn't show.

        Returns:
            The transforms that must stay in the dataset, in a container like the one passed, or an
            ``Identity``, which returns images as they are; and the field. ``print(field)`` shows how to
            write it.

        Raises:
            TypeError: ``transform`` is not of torchvision or timm; an option follows from it.
            ValueError: A transform after the conversion to floats can't be part of the pass: the message
                says where it goes; ``transform`` is not for single images.

        Example:
            ::

                transform = v2.Compose(
                    [v2.RandAugment(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
                )
                dataset.transform, image = pinfeed.Image.from_torchvision(transform)
                loader = DataLoader(dataset, 32, collate_fn=pinfeed.Collate((image, None)))
        """
        from pinfeed.augment.from_torchvision import split_transform  # large, and seldom called

        rest, image = split_transform(cls, transform, options)
        return rest, image

    @classmethod
    def from_processor(cls, processor: Any, **options: Any) -> Self:
        """Images as an image processor of transformers makes them.

        It resizes, crops the center, rescales, normalizes and pads as the processor's settings say.
        `Patches.from_processor` is for models of native resolution.

        Args:
            processor: The image processor of ViT, DeiT, BEiT, CLIP, SigLIP, BiT and DINOv2, ConvNeXt,
                Segformer or DETR and its relatives; or a processor that has one.
            **options: Further arguments of `Image`, such as ``dtype``.

        Sizes are those of transformers. Values are those of its torchvision backend up to the last
        digits; where transformers resizes with Pillow, they differ by a level or two of 255. Where a
        detector pads, the batch has a ``pixel_mask`` of bools, so the field must be in a dict.
        Without ``do_rescale`` values are taken as they are: images of 0..1 are floats, and where nothing
        normalizes them either, they take ``dtype=torch.float32``.

        Raises:
            TypeError: ``processor`` is of another kind.
            ValueError: A setting is not covered.

        Example:
            >>> from transformers import ViTImageProcessor
            >>> image = pinfeed.Image.from_processor(ViTImageProcessor())
            >>> image
            Image(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), augment=Resize((224, 224)))
        """
        from pinfeed.augment.from_processor import processor_arguments

        return cls(**processor_arguments(processor) | options)

    def _check_layout(self) -> None:
        if self.dtype not in (*_FLOATS, *INTEGERS):
            raise TypeError(
                f"Image: dtype must be one of {(*_FLOATS, *INTEGERS)}, got {self.dtype!r}"
            )
        if self.channels_last and "CH" not in self.output and "CT" not in self.output:
            raise ValueError(
                "Image: channels_last is a memory layout of output='CHW', or 'CTHW' and 'TCHW'; "
                f"got output={self.output!r}"
            )
        is_plain = self.mean is self.std is None and self.scale in (None, 1, BYTE_SCALE)
        if self.dtype in INTEGERS and not is_plain:
            raise ValueError(
                f"Image: dtype={self.dtype} keeps values as they are; leave out mean, std and scale, "
                "or ask for a floating dtype"
            )

    def _interpolation(self) -> Interpolation | Sequence[Interpolation]:
        """How it resizes; raises ValueError if nobody knows whether values are classes."""
        if self.interpolation is not None:
            return self.interpolation
        if self.dtype in INTEGERS[1:]:
            return "nearest-exact"
        keeps_values = self.dtype == torch.uint8 or self.scale == 1
        may_be_masks = "C" not in self.axes and (keeps_values or "C" not in self.output)
        if may_be_masks and (problem := self._problem_with_one_channel()):
            raise ValueError(f"Image: {problem}")
        return "bilinear"

    def _problem_with_one_channel(self) -> str:
        """What to say of images of one channel that are resized, and may be masks; empty: nothing."""
        steps = () if self.geometry is None else self.geometry.steps
        is_image = self.changes_colors or not self.mean is self.std is None
        if (
            self.interpolation is None
            and not is_image
            and any(isinstance(step, Resizing) for step in steps)
        ):
            return (
                "interpolation must be given, because images of one channel are resized, and "
                'may be masks; say interpolation="nearest-exact" for masks, dtype=torch.int64 for masks '
                'of classes, or interpolation="bilinear" for gray images'
            )
        return ""

    def _check_padding(self) -> None:
        if self.pad_value is None:
            if not (self.multiple_of is None and self.sizes is self.mask is False):
                raise ValueError(
                    "Image: multiple_of, sizes and mask are about padding; give pad_value, "
                    "or leave them out"
                )
            return
        values = self.pad_value if isinstance(self.pad_value, tuple) else (self.pad_value,)
        if not values:
            raise ValueError("Image: pad_value must be one number or one for each channel, got ()")
        for value in values:
            _core.check_value(value, torch_dtype_name(self.dtype), "Image", "pad_value")
        names = self.names()
        if len({*names}) < len(names):
            raise ValueError(f"Image: sizes and mask must have different keys, got {names}")
        if self._erases:
            raise ValueError(
                "Image: RandomErasing needs images of one size, and pad_value keeps different sizes; "
                "leave one out"
            )

    @override
    def collate(self, samples: Sequence[Any], context: FieldContext) -> Any:
        is_mask = self._is_mask
        images = [as_array(s, is_mask, context.name, i) for i, s in enumerate(samples)]
        return self._batch(images, None, context)

    @override
    def gather(self, source: Source, indices: npt.NDArray[np.int64], context: FieldContext) -> Any:
        if source.is_ragged:
            return super().gather(source, indices, context)
        selection = source.select(indices)
        return self._batch(selection.rows, selection.indices, context)

    @override
    def names(self) -> tuple[str, ...]:
        return tuple(key for key in (self.sizes, self.mask) if isinstance(key, str))

    @override
    def apply(self, batch: Any, host: Any, context: FieldContext) -> Any:
        self._augmentation.refuse_batch(context.name)
        if not isinstance(batch, torch.Tensor):
            expected = "a tensor of images, which Image() takes"
            raise TypeError(Problem(context.name, expected, type(batch).__name__))
        if self.input is None and batch.ndim == 3 and batch.shape[2] > 4:  # grey images
            batch = batch[..., None]
        self._require_images(batch, context.name)
        if self.input is None:
            require_channels_last(batch.shape, context.name)
        # The native side takes samples, at least one: their sizes are those of the batch.
        if batch.is_cpu and batch.shape[:1] != (0,):
            return self.gather(ArraySource(batch, context.name), np.arange(len(batch)), context)
        return self._apply_with_ops(batch, context.name)

    def require_same_padding(self, collated: Field, name: str) -> None:
        """Raises ValueError if `apply` gives the padding of ``collated`` another value."""
        pad_value = collated.byte_padding
        # Other bytes, such as white, are meant to be pixels; 0 is nothing, before and after.
        if pad_value != 0 or self.dtype in INTEGERS:
            return
        for value in self._constants.of(pad_value):
            if value != pad_value:
                raise ValueError(
                    f"{name} must not normalize padding, got {self!r}, which turns pad_value={pad_value} "
                    f"of the loader's {collated!r} into {value:.3g}; normalize in the Collate, "
                    "Image(mean, std, pad_value=...), or, to normalize padding too, leave this out of "
                    "fields and call pinfeed.functional.normalize in the loop"
                )

    def _batch(self, images: Any, indices: Any, context: FieldContext) -> Any:
        target, threads = batch_allocator(context.pin), get_num_threads()
        if self.augments or context.followed:
            written = self._augmented(images, indices, target, context)
        else:
            written = _core.normalize_images(
                images, indices, self._format, target, context.name, threads, padding=self._padding
            )
        batch = self._axes_in_order(written.values)
        if self._padding is not None:
            kind = PaddedImages if self.output == "CHW" else Padded
            batch = padded_entry(kind, batch, written.sizes, self.sizes, written.mask, self.mask)
        if not context.followed:
            return batch
        order = self._format.output
        height, width = (written.values.shape[1 + order.index(axis)] for axis in "HW")
        return Followed(batch, Seen(written.views, (height, width), self.geometry))

    def _augmented(
        self, images: Any, indices: Any, target: Any, context: FieldContext
    ) -> _core.WrittenImages:
        chance = context.chance
        if chance is None:
            chance = Chance(np.arange(len(images if indices is None else indices)), key=0)
        return self._augmentation.batch(
            images,
            indices,
            self._format,
            self._padding,
            chance,
            context.objects,
            target,
            context.name,
            context.path,
        )

    def _axes_in_order(self, batch: torch.Tensor) -> torch.Tensor:
        return batch.movedim(-1, 1 + self.output.index("C")) if self.channels_last else batch

    def _require_images(self, images: torch.Tensor, name: str) -> None:
        """Raises for what devices can't do: all but floats or uint8 of a batch of uint8 images."""
        if self.pad_value is not None:
            wrong = "pad_value is for images of different sizes, and those of a batch have one"
            hint = (
                "give this Image to the DataLoader's collate_fn, and leave pad_value out of fields"
            )
            raise TypeError(Problem(name, wrong, hint=hint))
        is_integer = self.dtype in INTEGERS[1:]
        if images.dtype != torch.uint8 or is_integer or self.output not in ("CHW", "HWC"):
            expected = "uint8 images, of which Image() makes floats or uint8 in fields"
            got = f"{torch_dtype_name(images.dtype)} {tuple(images.shape)} for {self!r}"
            hint = (
                "give this Image to the DataLoader's collate_fn alone, and leave it out of fields"
            )
            raise TypeError(Problem(name, expected, got, hint))
        if images.ndim != len(self.axes) + 1:
            expected = f"images of shape (N, {', '.join(self.axes)})"
            hint = 'for grey images say input="HW"' if images.ndim == 3 else ""
            raise ValueError(Problem(name, expected, str(tuple(images.shape)), hint))

    def _apply_with_ops(self, images: torch.Tensor, name: str) -> torch.Tensor:
        """The batch of images on a device."""
        return normalize_tensor(
            images,
            None if self.dtype == torch.uint8 else self._constants,
            input="N" + self.axes,
            output="N" + self.output,
            dtype=self.dtype,
            channels_last=self.channels_last,
            name=name,
        )


def as_array(sample: Any, is_mask: bool, name: str, position: int) -> Any:
    """The pixels of a PIL image; anything else as it is."""
    if isinstance(sample, ARRAYS):
        return sample
    pil = sys.modules.get("PIL.Image")  # nobody has a PIL image without having imported it
    if pil is None or not isinstance(sample, pil.Image):
        return sample  # the native side says what it is and what was expected
    sample.load()  # mode and size of some files are known only then
    modes = _PIL_MASKS if is_mask else _PIL_MODES
    if sample.mode not in modes:
        way_out = "a mask takes Mask(), an image .convert('RGB')"
        if is_mask:
            way_out = (
                "take the image before .convert('RGB') where it has a palette, .getchannel(0) where "
                "channels are equal; colors take Image()"
            )
        if sample.mode in ("La", "RGBa"):  # which Pillow converts to nothing else
            way_out = f".convert({sample.mode.upper()!r}) divides colors by alpha again"
        elif sample.mode.startswith("I"):  # .convert would cut off what is above 255
            dtype = "float32" if sample.mode == "I" else "uint16"
            way_out = f"np.asarray(image).astype(np.{dtype}) has its values"
        expected = f"a PIL image of one of the modes {modes}"
        raise TypeError(Problem(name, expected, repr(sample.mode), way_out, sample=position))
    return pil_pixels(sample)
