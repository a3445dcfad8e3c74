"""The `Image` field."""

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
    host_array,
    require_flags,
    torch_dtype,
    torch_dtype_name,
    with_hints,
)
from pinfeed.augment.augmentation import Augmentation, split_transforms
from pinfeed.augment.geometry import Resizing, Transform
from pinfeed.augment.random_state import BatchRandomState
from pinfeed.fields.field import (
    BatchCrops,
    Field,
    FieldContext,
    checked_key,
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

# PIL modes of colors, and modes whose pixels can be classes, such as palette indices.
_PIL_MODES = ("L", "LA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV", "I;16", "F")
_CHANNELS = {"RGB": 3, "YCbCr": 3, "LAB": 3, "HSV": 3, "RGBA": 4, "RGBX": 4, "CMYK": 4}
_PIL_MASKS = ("L", "P", "1", "I;16", "I")
# Number of images whose values are checked, and the maximum number of classes.
_IMAGES_READ, _MAX_CLASSES = 8, 32


class Image(Field):
    """Converts, normalizes, augments, permutes, pads and stacks images in one native pass.

    Every value becomes ``(x * scale - mean) / std``; see `pinfeed.functional.normalize` for the exact
    arithmetic. Samples are images, masks or clips: ndarrays, tensors or PIL images of uint8, uint16,
    int16, float16, bfloat16 or float32, with any strides. If ``dtype`` is an integer dtype, samples are
    bools, or integers that it can hold.

    Args:
        mean: Number or one per channel, in units of ``x * scale``. None is 0.
        std: Number or one per channel, in units of ``x * scale``. None is 1.
        scale: Factor applied first. None: 1 / dtype maximum for integers, so bytes become 0..1; 1 for
            floats. Pass ``scale=1/255`` for values 0..255 in floats or in 16 bits.
        input: Layout of samples: ``"HWC"``, ``"CHW"`` or ``"HW"`` (grayscale); for clips ``"THWC"``,
            ``"TCHW"``, ``"CTHW"`` or ``"THW"``. None: ``"HWC"``, or ``"HW"`` for samples with two axes
            and more than 4 columns.
        output: Layout of the batch: ``"CHW"`` is (B, C, H, W), ``"HWC"`` is (B, H, W, C); for clips
            ``"CTHW"``, ``"TCHW"`` or ``"THWC"``. Leave out the C for samples without channels:
            ``"HW"`` is (B, H, W).
        dtype: Dtype of the batch: ``torch.float32``, ``float16`` or ``bfloat16``; or ``uint8``, ``uint16``,
            ``int16``, ``int32`` or ``int64``, which must hold all values of the samples' dtype and keeps
            them, without mean, std and scale.
        channels_last: Whether to use torch.channels_last memory with ``output="CHW"``, or
            channels_last_3d with ``"CTHW"``.
        pad_value: Value, or one per channel, to pad smaller images right and below, in units of the batch:
            it is not normalized. Required by ``multiple_of``, ``sizes`` and ``mask``. None: images must have
            one size.
        multiple_of: Number, or pair (height, width); the batch's height and width are rounded up to
            multiples of it.
        sizes: Whether to return each image's height and width, int64 (B, 2). True returns a `Padded` with
            them as ``lengths``; a string stores them under that key of the same dict.
        mask: Whether to return a mask, bool (B, H, W), True inside an image. True returns a `Padded` with
            it as ``mask``; a string stores it under that key of the same dict.
        augment: Transform of `pinfeed.augment`, or a list of them: crops, flips and resizes, then colors,
            then a ``RandomErasing``. Fields with equal geometric transforms draw the same crop, so two
            images of a sample stay aligned if they have equal sizes.
        fill: Value, or one per channel, of pixels outside the image, in the image's own units. Overrides
            the transform's ``fill``.
        interpolation: Resampling of ``augment``: ``"bilinear"`` or ``"bicubic"``, both antialiased, or a
            list of both, of which each sample draws one; for masks ``"nearest-exact"`` or ``"nearest"``,
            as in torch. None: ``"nearest-exact"`` for an integer ``dtype`` other than uint8, else
            ``"bilinear"``. Required to resize images of one channel and few values, which may be masks: mean and
            std are None, and ``dtype`` is torch.uint8; or ``input`` is ``"HW"``, and ``scale`` is 1 or
            ``output`` has no C.
        resize_dtype: Dtype for resizing. None: bytes are resized to bytes, as by
            ``torch.nn.functional.interpolate`` on CPUs, and other dtypes in float32.
            ``torch.float32``: bytes aren't rounded before normalization.
        rng_stream: Number of the random stream. Fields with different numbers draw independently, for
            two views of one image.

    Raises:
        TypeError, ValueError: If an argument is invalid. When samples are collated: if a sample doesn't
            fit, looks channels-first without ``input``, or has values that can't fit ``scale``; the
            message names the sample. If ``scale``, mean or std only seem wrong for the first batch, it warns.

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

        For class masks, use `Mask`.
    """

    @with_hints(
        flip="Image(augment=pinfeed.augment.RandomHorizontalFlip()) flips",
        normalize="mean and std normalize: Image(mean, std)",
        size="Image(augment=pinfeed.augment.Resize(size)) resizes",
        resize="Image(augment=pinfeed.augment.Resize(size)) resizes",
        transform="Image(augment=...) takes transforms of pinfeed.augment, several in a list",
        antialias="resizing is antialiased, except with interpolation='nearest-exact'",
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
        name = type(self).__name__
        if isinstance(pad_value, np.ndarray | np.generic | torch.Tensor):
            pad_value = pad_value.tolist()
        if isinstance(pad_value, list):
            pad_value = tuple(pad_value)
        self.mean = mean
        self.std = std
        self.scale = scale
        #: A letter for each axis of a sample.
        self.axes, self.output = checked_layouts(input or "HWC", output, name)
        self.input = None if input is None else self.axes
        self.dtype = dtype = torch_dtype(dtype, name)
        self._is_mask = dtype in INTEGERS[1:]
        require_flags(name, channels_last=channels_last)
        self.channels_last = channels_last
        self.pad_value = pad_value
        if pad_value is not None:
            self.varying_axes = (2, 3) if output == "CHW" else (1, 2)
            self.byte_padding = pad_value if dtype == torch.uint8 else None
        self.multiple_of = multiple_of
        self.sizes = checked_key(sizes, f"{name}: sizes", True, False)
        self.mask = checked_key(mask, f"{name}: mask", True, False)
        self.augment = augment
        transforms = split_transforms(augment, name)
        #: The crops, flips and sizes of ``augment``.
        self.geometry = transforms.geometry
        #: Whether ``augment`` changes colors.
        self.changes_colors = bool(transforms.colors)
        self._erases = transforms.erasing is not None
        self.fill = fill
        self.interpolation = interpolation
        if resize_dtype is not None:
            resize_dtype = torch_dtype(resize_dtype, name, "resize_dtype")
        self.resize_dtype = resize_dtype
        self.rng_stream = rng_stream
        multiples = checked_multiples(multiple_of, 2, f"{name}: multiple_of")
        self._check_layout(name)
        default: Interpolation = "nearest-exact" if self._is_mask else "bilinear"
        self._augmentation = Augmentation(
            name,
            transforms,
            default if interpolation is None else interpolation,
            resize_dtype,
            rng_stream,
            dtype,
            fill,
            pad_value is not None,
        )
        self._may_be_masks = self._would_blend_masks()  # until an image of many values
        self.augments = bool(transforms)
        self.is_random = self._augmentation.is_random
        self._check_padding(name)
        self._constants = Normalization(mean, std, scale, name)
        # Until the first batch. Integers keep their values.
        self._is_doubtful = self._constants.is_doubtful and dtype.is_floating_point
        order = self.output.replace("C", "") + "C" if channels_last else self.output
        self._format = self._constants.format(
            self.axes, order, torch_dtype_name(dtype), is_guess=self.input is None, remembers=True
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
        """Converts a transform of torchvision or timm to a field, and returns the rest for the dataset.

        The field replaces the transforms at the end that it can apply in one pass. Values match
        ``torchvision.transforms.v2`` on uint8 tensors; random transforms draw from the same
        distributions.

        Args:
            transform: A ``Compose``, an ``nn.Sequential``, a list or a single transform of
                ``torchvision.transforms`` or its ``v2``, the ``transforms()`` of a model's weights, or
                the result of ``timm.data.create_transform``.
            **options: Further arguments of `Image`, such as ``dtype``, ``channels_last`` or
                ``pad_value``; ``input="CHW"`` if samples are tensors and the transform doesn't show it.

        Returns:
            The transforms that must stay in the dataset, in a container like the one passed, or an
            ``Identity``; and the field. ``print(field)`` shows how to write it.

        Raises:
            TypeError: If ``transform`` is not from torchvision or timm, or sets one of ``options``.
            ValueError: If ``transform`` is not for single images, contains nothing to convert, or has a
                transform after the conversion to floats that the field can't apply; the message shows
                where to put it.

        Example:
            >>> from torchvision.transforms import v2
            >>> transform = v2.Compose(
            ...     [v2.RandAugment(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
            ... )
            >>> rest, image = pinfeed.Image.from_torchvision(transform)
            >>> rest.transforms[0].__class__.__name__, image
            ('RandAugment', Image())
        """
        from pinfeed.augment.from_torchvision import split_transform  # large, and seldom called

        rest, image = split_transform(cls, transform, options)
        return rest, image

    @classmethod
    def from_processor(cls, processor: Any, **options: Any) -> Self:
        """Creates a field equivalent to an image processor of transformers.

        It resizes, crops the center, rescales, normalizes and pads as in the processor's settings.
        Use `Patches.from_processor` for native-resolution models.

        Sizes match transformers. Values match its torchvision backend up to rounding; where
        transformers resizes with Pillow, they differ by one or two of 255 levels (up to 18 for noise
        images). For detectors that pad, the batch has a ``pixel_mask``, bool of shape (B, H, W), so the field
        must be in a dict. With ``do_rescale=False`` values stay as they are; if the processor doesn't
        normalize either, pass ``dtype=torch.float32`` for float images.

        Args:
            processor: The image processor of ViT, DeiT, BEiT, CLIP, SigLIP, BiT and DINOv2, ConvNeXt,
                Segformer or DETR and its relatives; or a processor that has one.
            **options: Further arguments of `Image`, such as ``dtype``.

        Raises:
            TypeError: If ``processor`` is of another kind.
            ValueError: If a setting is not supported.

        Example:
            >>> from transformers import ViTImageProcessor
            >>> image = pinfeed.Image.from_processor(ViTImageProcessor())
            >>> image
            Image(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), augment=Resize((224, 224)))
        """
        from pinfeed.augment.from_processor import processor_arguments

        arguments = processor_arguments(processor)
        derived = [key for key in options if key in arguments and key != "dtype"]
        if derived:
            raise TypeError(
                f"Image.from_processor: {derived[0]} follows from the processor; leave it out, or write the "
                f"field as {cls(**arguments)!r} with another {derived[0]}"
            )
        return cls(**arguments | options)

    def _check_layout(self, name: str) -> None:
        if self.dtype not in (*_FLOATS, *INTEGERS):
            raise TypeError(
                f"{name}: dtype must be one of {(*_FLOATS, *INTEGERS)}, got {self.dtype!r}"
            )
        if self.channels_last and "CH" not in self.output and "CT" not in self.output:
            raise ValueError(
                f"{name}: output must be 'CHW', 'CTHW' or 'TCHW' with channels_last=True, got "
                f"{self.output!r}; leave channels_last out"
            )
        is_plain = self.mean is self.std is None and self.scale in (None, 1, BYTE_SCALE)
        if self.dtype in INTEGERS and not is_plain:
            raise ValueError(
                f"{name}: dtype={self.dtype} keeps values as they are; leave out mean, std and scale, "
                "or choose a floating dtype"
            )

    def _would_blend_masks(self) -> bool:
        """Whether the default interpolation resizes images of one channel that can be masks."""
        steps = () if self.geometry is None else self.geometry.steps
        is_resized = any(isinstance(step, Resizing) for step in steps)
        is_gray = "C" not in self.axes and (self.scale == 1 or "C" not in self.output)
        is_image = self._is_mask or self.changes_colors or not self.mean is self.std is None
        may_be_masks = is_resized and not is_image and (is_gray or self.dtype == torch.uint8)
        return may_be_masks and self.interpolation is None

    def _require_no_masks(self, images: Sequence[Any], name: str) -> None:
        """Raises ValueError for images of one channel whose values look like classes of masks.

        A single image of many values is enough, because others can be dark.
        """
        found: Any = None
        for image in images[:_IMAGES_READ]:
            may_be_masks = True
            pixels = host_array(image) if isinstance(image, ARRAYS) else None
            if pixels is None or pixels.dtype.kind not in "biuf":
                return  # native code raises
            if pixels.ndim == len(self.axes) == len(self.axes.replace("C", "")) + 1:
                may_be_masks = pixels.shape[self.axes.index("C")] == 1
            pixels = pixels[tuple(slice(None, None, max(n // 64, 1)) for n in pixels.shape)]
            values = np.unique(pixels)
            may_be_masks &= len(values) <= min(_MAX_CLASSES, pixels.size // 4)
            may_be_masks &= bool((values == np.rint(values)).all())
            if not may_be_masks:
                self._may_be_masks = False  # other threads only set it to False too
                return
            found = values if found is None and len(values) > 1 else found
        if found is not None:
            wrong = "interpolation must be given, because images of one channel are resized, and "
            wrong += f"may be masks of classes {found[:4].tolist()}"
            hint = 'pass interpolation="nearest-exact" for masks, dtype=torch.int64 for masks of classes, '
            hint += 'or interpolation="bilinear" for gray images'
            raise ValueError(Problem(name, wrong, hint=hint))

    def _check_padding(self, name: str) -> None:
        if self.pad_value is None:
            if not (self.multiple_of is None and self.sizes is self.mask is False):
                raise ValueError(
                    f"{name}: multiple_of, sizes and mask need pad_value; pass pad_value, "
                    "or leave them out"
                )
            return
        values = self.pad_value if isinstance(self.pad_value, tuple) else (self.pad_value,)
        if not values:
            raise ValueError(
                f"{name}: pad_value must be one number or one for each channel, got ()"
            )
        for value in values:
            _core.check_value(value, torch_dtype_name(self.dtype), name, "pad_value")
        names = self.extra_keys()
        if len({*names}) < len(names):
            raise ValueError(f"{name}: sizes and mask must have different keys, got {names}")
        if self._erases:
            raise ValueError(
                f"{name}: RandomErasing needs images of one size, and pad_value keeps different sizes; "
                "leave one out"
            )

    @override
    def collate(self, samples: Sequence[Any], context: FieldContext) -> Any:
        is_mask = self._is_mask
        modes: dict[int, str] = {}
        images = [
            as_array(sample, is_mask, context.name, position, modes, self.axes)
            for position, sample in enumerate(samples)
        ]
        self._check_values(images, context)
        return self._batch(images, None, context)

    @override
    def gather(self, source: Source, indices: npt.NDArray[np.int64], context: FieldContext) -> Any:
        if source.is_ragged:
            return super().gather(source, indices, context)
        if self._is_doubtful or self._may_be_masks:
            self._check_values(source.samples(indices[:8], context.name), context)
        selection = source.select(indices)
        return self._batch(selection.rows, selection.indices, context)

    def _check_values(self, images: Any, context: FieldContext) -> None:
        """Warns about a first batch whose unit doesn't fit mean, std and scale; raises for masks."""
        if self._may_be_masks:
            self._require_no_masks(images, context.name)
        if self._is_doubtful:
            self._is_doubtful = False
            self._constants.warn_of_units(images, context.name)

    @override
    def extra_keys(self) -> tuple[str, ...]:
        return tuple(key for key in (self.sizes, self.mask) if isinstance(key, str))

    @override
    def apply(self, batch: Any, host: Any, context: FieldContext) -> Any:
        self._augmentation.refuse_batch(context.name)
        if not isinstance(batch, torch.Tensor):
            expected = "a tensor of images for Image()"
            raise TypeError(Problem(context.name, expected, type(batch).__name__))
        if self.input is None and batch.ndim == 3 and batch.shape[2] > 4:  # gray images
            batch = batch[..., None]
        self._require_images(batch, context.name)
        if self.input is None:
            require_channels_last(batch.shape, context.name)
        # Native code needs at least one sample.
        if batch.is_cpu and batch.shape[:1] != (0,):
            return self.gather(ArraySource(batch, context.name), np.arange(len(batch)), context)
        self._check_values(host, context)
        return self._apply_with_ops(batch, context.name)

    def _apply_with_ops(self, images: torch.Tensor, name: str) -> torch.Tensor:
        """Returns the batch of images that are on a device."""
        return normalize_tensor(
            images,
            None if self.dtype == torch.uint8 else self._constants,
            input="N" + self.axes,
            output="N" + self.output,
            dtype=self.dtype,
            channels_last=self.channels_last,
            name=name,
        )

    def require_same_padding(self, collated: Field, name: str) -> None:
        """Raises ValueError if `apply` gives the padding of ``collated`` another value."""
        pad_value = collated.byte_padding
        if pad_value is None or self.dtype in INTEGERS:
            return
        for before, after in self._constants.of(pad_value):
            if before != after:
                raise ValueError(
                    f"{name} must not normalize padding, got {self!r}, which turns pad_value={before:g} "
                    f"of the loader's {collated!r} into {after:.3g}; normalize in the Collate with "
                    "Image(mean, std, pad_value=...), or, to normalize padding too, leave this out of "
                    "fields and call pinfeed.functional.normalize in the loop"
                )

    def _batch(self, images: Any, indices: Any, context: FieldContext) -> Any:
        target, threads = batch_allocator(context.pin), get_num_threads()
        shared = context.shared
        if self.augments or shared is not None:
            random_state = context.random_state
            if random_state is None:
                count = len(images if indices is None else indices)
                random_state = BatchRandomState(np.arange(count), key=0)
            options = self._format, self._padding, random_state, shared and shared.objects
            outputs = self._augmentation.batch(
                images, indices, *options, target, context.name, context.path
            )
        else:
            outputs = _core.normalize_images(
                images, indices, self._format, target, context.name, threads, "", self._padding
            )
        values, sizes, mask, crops = outputs
        batch = values.movedim(-1, 1 + self.output.index("C")) if self.channels_last else values
        if self._padding is not None:
            kind = PaddedImages if self.output == "CHW" else Padded
            batch = padded_entry(kind, batch, sizes, self.sizes, mask, self.mask)
        if shared is not None:
            order = self._format.output
            height, width = (values.shape[1 + order.index(axis)] for axis in "HW")
            shared.crops = BatchCrops(crops, (height, width), self.geometry)
        return batch

    def _require_images(self, images: torch.Tensor, name: str) -> None:
        """Raises unless the field converts uint8 images to floats or uint8, as devices can."""
        if self.pad_value is not None:
            wrong = "pad_value is for images of different sizes, but a batch has only one size"
            hint = (
                "pass this Image to the DataLoader's collate_fn, and leave pad_value out of fields"
            )
            raise TypeError(Problem(name, wrong, hint=hint))
        is_integer = self.dtype in INTEGERS[1:]
        if images.dtype != torch.uint8 or is_integer or self.output not in ("CHW", "HWC"):
            expected = "uint8 images, which Image() in fields converts to floats or uint8"
            got = f"{torch_dtype_name(images.dtype)} {tuple(images.shape)} for {self!r}"
            hint = (
                "pass this Image to the DataLoader's collate_fn alone, and leave it out of fields"
            )
            raise TypeError(Problem(name, expected, got, hint))
        if images.ndim != len(self.axes) + 1:
            expected = f"images of shape (N, {', '.join(self.axes)})"
            hint = 'for gray images pass input="HW"' if images.ndim == 3 else ""
            raise ValueError(Problem(name, expected, str(tuple(images.shape)), hint))


def as_array(
    sample: Any, is_mask: bool, name: str, position: int, known: dict[int, str], axes: str = "HWC"
) -> Any:
    """Returns the pixels of a PIL image, and any other sample, whose axes are ``axes``, unchanged.

    ``known`` has the mode of the batch's earlier PIL images by number of channels; this adds the image's.
    """
    if isinstance(sample, ARRAYS):
        return sample
    if isinstance(sample, list | tuple):
        raise TypeError(_list_problem(sample, name, position, axes))
    pil = sys.modules.get("PIL.Image")  # PIL images exist only after this import
    if pil is None or not isinstance(sample, pil.Image):
        return sample  # native code raises if it is not an image
    if axes not in ("HWC", "HW"):
        hint = "leave input out, because PIL images are (height, width, channels)"
        expected = f"an array or a tensor with the axes {axes}"
        raise TypeError(Problem(name, expected, "a PIL image", hint, sample=position))
    try:
        sample.load()  # some files have no mode and size before
    except Exception as error:
        kind: type[Exception] = ValueError
        hint = "call its load() or convert() before its file is closed"
        if isinstance(error, OSError):
            kind, hint = OSError, "leave this file out, or set PIL.ImageFile.LOAD_TRUNCATED_IMAGES"
        file = getattr(sample, "filename", "") or "the image"
        wrong = f"Pillow can't read {file}: {str(error) or 'the file is closed'}"
        raise kind(Problem(name, wrong, hint=hint, sample=position)) from error
    modes = _PIL_MASKS if is_mask else _PIL_MODES
    if sample.mode not in modes:
        fix = "use Mask() for a mask, .convert('L') or .convert('RGB') for an image"
        if is_mask:
            fix = (
                "pass the image before .convert('RGB') if it has a palette, .getchannel(0) if its "
                "channels are equal; use Image() for colors"
            )
        if sample.mode in ("La", "RGBa"):  # Pillow converts them to no other mode
            fix = f".convert({sample.mode.upper()!r}) undoes the multiplication of colors by alpha"
        elif sample.mode == "F":
            fix = "np.asarray(image).astype(np.int32) converts whole numbers"
        elif sample.mode.startswith("I"):  # .convert would clip values above 255
            dtype = "float32" if sample.mode == "I" else "uint16"
            fix = f"np.asarray(image).astype(np.{dtype}) returns its values"
        expected = f"a PIL image of one of the modes {modes}"
        raise TypeError(Problem(name, expected, repr(sample.mode), fix, sample=position))
    if channels := _CHANNELS.get(sample.mode):
        mode = known.setdefault(channels, sample.mode)
        if mode != sample.mode:
            hint = f"convert all images to one mode, such as .convert({mode!r})"
            expected = f"PIL images of one mode, such as {mode!r}"
            raise ValueError(Problem(name, expected, repr(sample.mode), hint, sample=position))
    return pil_pixels(sample)


def _list_problem(images: Sequence[Any], name: str, position: int, axes: str) -> Problem:
    kinds = {type(image) for image in images}
    are_images = all(
        isinstance(one, ARRAYS) or type(one).__module__.startswith("PIL.") for one in images
    )
    hint = ""
    if not images:
        hint = "leave this sample out, because a batch needs an image of each sample"
    elif kinds <= {int, float, list}:
        hint = "np.array(image, np.uint8) converts nested lists of 0..255"
    elif are_images and "T" in axes:
        hint = "np.stack(frames) makes a clip of frames"
    elif are_images and isinstance(images, list):
        hint = 'np.stack(frames) makes a clip of frames for Image(input="THWC", output="CTHW")'
        hint += "; Patches() takes lists of images"
    got = (
        f"a {type(images).__name__} of {len(images)} {'/'.join(sorted(k.__name__ for k in kinds))}"
    )
    return Problem(name, "an array, a tensor or a PIL image", got.rstrip(), hint, sample=position)
