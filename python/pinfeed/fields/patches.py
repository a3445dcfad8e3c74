"""The `Patches` field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from pinfeed.arguments import (
    DType,
    Interpolation,
    Problem,
    checked_integer,
    torch_dtype,
    with_hints,
)
from pinfeed.augment.augmentation import split_transforms
from pinfeed.augment.geometry import Crop, Geometry, Resizing
from pinfeed.fields.field import (
    EntryWithExtras,
    Field,
    FieldContext,
    OutputRequest,
    checked_key,
)
from pinfeed.fields.image import as_array
from pinfeed.functional.normalization import PerChannel
from pinfeed.functional.patches import Patching, grid_of
from pinfeed.memory.outputs import as_output, batch_allocator
from pinfeed.sources.source import Source


class Patches(Field):
    """Resizes, normalizes and cuts images of any size into patches, in one native pass.

    Vision-language models take patches instead of images of one size. The batch is a tuple:

    - The patches of all images, concatenated to shape (N, C · temporal · patch_size²). With ``pad_to``,
      each image has the same number of patches: (images, pad_to, C · patch_size²).
    - The grid: each image's number of patches in time, height and width, int64 of shape (images, 3).

    A sample is an image, a clip, None, or a list of images and clips, which can be empty. Without
    ``max_pixels`` and ``max_patches``, images aren't resized, and their sides must be multiples of
    patch_size × multiple_of. `from_processor` creates the field of a transformers image processor.

    Args:
        patch_size: Rows and columns of a patch, in pixels.
        mean: Number or one per channel, in units of ``x * scale``. None is 0.
        std: Number or one per channel, in units of ``x * scale``. None is 1.
        scale: Factor applied first, as in `Image`.
        merge: Number n of patches along each side of the n × n block that the model merges into one token.
            The patches of a block are adjacent in the batch.
        temporal: Number of frames per patch. The last frame of a clip is repeated to fill its last patch.
            An image counts as a clip of one frame.
        order: Order of the axes within a patch: ``"CHW"`` (channel, frame, row, column) or ``"HWC"``
            (frame, row, column, channel).
        dtype: Dtype of the batch: ``torch.float32``, ``float16`` or ``bfloat16``; or ``uint8``, without
            mean, std and scale.
        input: Layout of samples, as in `Image`, such as ``"THWC"`` for clips.
        interpolation: Antialiased ``"bicubic"`` or ``"bilinear"``; or ``"nearest-exact"`` or ``"nearest"``,
            as in `Image`.
        min_pixels: Minimum number of pixels per frame after the resize; requires ``max_pixels``.
        max_pixels: Maximum number of pixels per frame after the resize. Both sides become multiples of
            patch_size × merge, and the aspect ratio, at most 200, is kept approximately, as with
            ``smart_resize`` of Qwen2-VL.
        max_patches: Maximum number of patches per image. Images are resized to the largest size of their
            aspect ratio that fits, as in SigLIP 2.
        multiple_of: Number that divides the grid's rows and columns. None: ``merge``.
        min_side: Minimum length of a side in pixels; images with a shorter side raise ValueError.
        augment: Geometric transforms of `pinfeed.augment`, applied before the resize. Without
            ``max_pixels`` and ``max_patches``, they may resize, as ``RandomResizedCrop(224)`` does. All
            images of a sample, and all frames of a clip, get the same draws.
        rng_stream: Number of the random stream, as in `Image`.
        pad_to: Number of patches to which every image is padded with zeros, for batches without clips.
        grid: Whether to return the grid; with ``pad_to`` only its height and width, int64 (images, 2).
            True returns it in the batch's tuple; a string stores it under that key of the same dict.
        cu_seqlens: Whether to return the boundaries between frames (or groups of ``temporal`` frames) in
            the patches, int32 of shape (frames + 1,), for attention kernels; or a key, as for ``grid``.
        mask: With ``pad_to``, whether to return a mask, bool (images, pad_to), False for padding; or a
            key, as for ``grid``.

    Raises:
        TypeError, ValueError: If an argument is invalid. When samples are collated: if an image doesn't
            fit; the message names the sample.

    Example:
        >>> field = pinfeed.Patches(
        ...     14, 0.5, 0.25, merge=2, min_pixels=56 * 56, max_pixels=10**6
        ... )
        >>> photos = [np.zeros((60, 90, 3), np.uint8), np.zeros((120, 80, 3), np.uint8)]
        >>> values, grid = pinfeed.Collate(field)(photos)
        >>> values.shape, grid.tolist()
        (torch.Size([72, 588]), [[1, 4, 6], [1, 8, 6]])
        >>> field.tokens(60, 90)
        6
    """

    takes_none = True

    @with_hints()
    def __init__(
        self,
        patch_size: int,
        mean: PerChannel = None,
        std: PerChannel = None,
        *,
        scale: float | None = None,
        merge: int = 1,
        temporal: int = 1,
        order: Literal["CHW", "HWC"] = "CHW",
        dtype: DType = torch.float32,
        input: Literal["HWC", "CHW", "HW", "THWC", "TCHW", "CTHW", "THW"] | None = None,
        interpolation: Interpolation = "bicubic",
        min_pixels: float | None = None,
        max_pixels: float | None = None,
        max_patches: int | None = None,
        multiple_of: int | None = None,
        min_side: int = 1,
        augment: Geometry | Sequence[Geometry] | None = None,
        rng_stream: int = 0,
        pad_to: int | None = None,
        grid: bool | str = True,
        cu_seqlens: bool | str = False,
        mask: bool | str = False,
    ) -> None:
        self.patch_size = patch_size
        self.mean = mean
        self.std = std
        self.scale = scale
        self.merge = merge
        self.temporal = temporal
        self.order = order
        self.dtype = dtype = torch_dtype(dtype, "Patches")
        self.input = input
        self.interpolation = interpolation
        self.min_pixels = min_pixels
        self.max_pixels = max_pixels
        self.max_patches = max_patches
        self.multiple_of = multiple_of
        self.min_side = min_side
        self.augment = augment
        #: The same as one transform.
        self.geometry = split_transforms(augment, "Patches", geometry_only=True).geometry
        self.augments = self.geometry is not None
        self.rng_stream = checked_integer(rng_stream, "Patches: rng_stream", 0)
        self.pad_to = pad_to
        self.grid = checked_key(grid, "Patches: grid", True, False)
        self.cu_seqlens = checked_key(cu_seqlens, "Patches: cu_seqlens", True, False)
        self.mask = checked_key(mask, "Patches: mask", True, False)
        self._patching = Patching(
            "Patches",
            patch_size,
            mean,
            std,
            scale=scale,
            input=input,
            order=order,
            dtype=dtype,
            merge=merge,
            temporal=temporal,
            interpolation=interpolation,
            pad_to=pad_to,
            min_pixels=min_pixels,
            max_pixels=max_pixels,
            max_patches=max_patches,
            multiple_of=multiple_of,
            min_side=min_side,
            geometry=None if self.geometry is None else self._native(self.geometry),
        )
        self._is_doubtful = self._patching.constants.is_doubtful  # until the first batch
        self.axes = self._patching.input
        self._steps = () if self.geometry is None else self.geometry.steps
        self.is_random = any(step.is_random for step in self._steps)
        if pad_to is None and mask is not False:
            raise ValueError("Patches: mask needs pad_to; pass pad_to, or leave mask out")
        if pad_to is not None and (cu_seqlens is not False or "T" in self._patching.input):
            raise ValueError(
                "Patches: pad_to must be None for clips and with cu_seqlens, because it gives each image a row "
                f"of its own, got {pad_to!r}; leave it out"
            )

    def _native(self, geometry: Geometry) -> dict[str, Any]:
        """What native code takes for the geometry."""
        if geometry.needs_boxes:
            raise ValueError(
                f"Patches: {geometry!r} crops around the boxes of objects, but Patches can't move "
                "boxes; use RandomResizedCrop or RandomCrop"
            )
        has_limit = self.max_pixels is not None or self.max_patches is not None
        for step in geometry.steps:
            if has_limit and isinstance(step, Resizing):
                raise ValueError(
                    f"Patches: images are resized by {step!r}, and by max_pixels or max_patches; "
                    "leave one of them out"
                )
        return geometry.native(None)

    @classmethod
    def from_processor(cls, processor: Any, **arguments: Any) -> Self:
        """Creates a field equivalent to a transformers image processor.

        It supports the processors of Qwen2-VL (also used by Qwen2.5-VL, Qwen3-VL and others),
        MiniMax-M3-VL, ERNIE-4.5-VL, VideoLLaMA 3, HunYuanVL, HY-V4-VL, GLM-4V, GLM-4.6V and SigLIP 2.

        Grids equal the processor's, and values are equal up to rounding of the normalization if the
        processor resizes with torch on the CPU. If it resizes with PIL, bytes differ by at most 1 where an
        image shrinks, and by up to about 16 at sharp edges where a side grows. VideoLLaMA 3's model also
        needs ``merge_sizes``: ``torch.full((len(grid),), field.merge)``.

        Convert gray and RGBA images to RGB first; processors do so themselves. GLM's processors enlarge
        images with sides below ``min_side``; this field raises ValueError.

        Args:
            processor: The image processor, or a processor that has one.
            **arguments: Arguments of the field that override the processor's settings.

        Raises:
            TypeError: If the processor is of another kind.
            ValueError: If a setting is not supported.

        Example:
            >>> from transformers import Siglip2ImageProcessor
            >>> pinfeed.Patches.from_processor(Siglip2ImageProcessor()).tokens(480, 640)
            252
        """
        from pinfeed.augment.from_processor import patches_arguments

        return cls(**patches_arguments(processor) | arguments)

    def grid_of(self, height: Any, width: Any) -> tuple[Any, Any]:
        """Returns the number of rows and columns of patches of an image, or arrays of them.

        Args:
            height: Height in pixels: an integer or an array.
            width: Width in pixels: an integer or an array.

        Raises:
            ValueError: If ``augment`` changes sizes, or a size can't be cut into patches.
        """
        if any(isinstance(step, Crop | Resizing) for step in self._steps):
            raise ValueError(
                "Patches: augment changes the size of images; pass patch_grid the sizes after "
                f"{self.augment!r}"
            )
        return grid_of(height, width, self._patching.options.sizes, "Patches")

    def tokens(self, height: Any, width: Any) -> Any:
        """Returns an image's number of tokens, which is its number of patches divided by merge².

        Add it to the text length for a sampler's ``lengths``.

        Args:
            height: Height in pixels: an integer or an array, such as heights from file headers.
            width: Width in pixels: an integer or an array.

        Raises:
            ValueError: As in `grid_of`.
        """
        rows, columns = self.grid_of(height, width)
        return rows * columns // self.merge**2

    @override
    def extra_keys(self) -> tuple[str, ...]:
        return tuple(key for key in (self.grid, self.cu_seqlens, self.mask) if isinstance(key, str))

    @override
    def collate(self, samples: Sequence[Any], context: FieldContext) -> Any:
        images: list[Any] = []
        clips, positions = [], []
        for position, clip in _clips(samples, context.name):
            frames = self._patching.frames_of(clip)
            if len(frames) == 0:
                empty = Problem(context.name, "a clip of at least one frame", "none")
                empty.sample, empty.part = position
                raise ValueError(empty)
            images += frames
            clips.append(len(frames))
            positions += [position] * len(frames)
        if self._is_doubtful and images:
            self._is_doubtful = False
            self._patching.constants.warn_of_units(images, context.name)
        frames_of_clips = np.array(clips, np.int64) if "T" in self._patching.input else None
        try:
            return self._batch(
                images, None, frames_of_clips, [sample for sample, _ in positions], context
            )
        except (TypeError, ValueError) as error:
            problem = Problem.of(error)
            if problem is not None and problem.sample is not None:
                problem.sample, problem.part = positions[problem.sample]
            raise

    @override
    def gather(self, source: Source, indices: npt.NDArray[np.int64], context: FieldContext) -> Any:
        if source.is_ragged or "T" in self._patching.input:
            return super().gather(source, indices, context)
        if self._is_doubtful:
            return super().gather(source, indices, context)  # checks the first batch
        selection = source.select(indices)
        return self._batch(
            selection.rows, selection.indices, None, np.arange(len(indices)), context
        )

    @override
    def apply(self, batch: Any, host: Any, context: FieldContext) -> Any:
        wrong = "Patches() takes images of different sizes, so it can't convert whole batches"
        hint = (
            "pass it to the DataLoader's collate_fn, and leave it out of fields; dtype=torch.bfloat16 "
            "halves the bytes copied to the device"
        )
        raise TypeError(Problem(context.name, wrong, hint=hint))

    def _batch(
        self, images: Any, indices: Any, frames: Any, samples: Any, context: FieldContext
    ) -> Any:
        """Returns the batch of images; ``samples`` has the number of each image's sample."""
        draws: dict[str, Any] = {}
        if self.augments and context.random_state is not None:
            random_state = context.random_state
            draws = {
                "key": random_state.key(self.rng_stream),
                "samples": random_state.samples[samples],
            }
        target = batch_allocator(context.pin)
        return self._in_batch(
            *self._patching.batch(images, indices, frames, target, context.name, **draws), context
        )

    def _in_batch(self, values: torch.Tensor, grid: torch.Tensor, context: FieldContext) -> Any:
        """Returns the entry of the batch for patches and their grid."""
        counts = grid[:, 1] * grid[:, 2]
        outputs: list[tuple[OutputRequest, torch.Tensor]] = []
        if self.grid is not False:
            outputs.append((self.grid, grid if self.pad_to is None else grid[:, 1:].contiguous()))
        if self.cu_seqlens is not False:
            ends = torch.repeat_interleave(counts, grid[:, 0]).cumsum(0, dtype=torch.int32)
            outputs.append((self.cu_seqlens, torch.nn.functional.pad(ends, (1, 0))))
        if self.pad_to is not None and self.mask is not False:
            outputs.append((self.mask, torch.arange(self.pad_to, device="cpu") < counts[:, None]))
        extras = {
            key: as_output(part, context.pin) for key, part in outputs if isinstance(key, str)
        }
        inside = [as_output(part, context.pin) for key, part in outputs if key is True]
        batch = (values, *inside) if inside else values
        return EntryWithExtras(batch, extras) if extras else batch


def _clips(samples: Sequence[Any], name: str) -> Iterator[tuple[tuple[int, int | None], Any]]:
    """Yields the images and clips of a batch, each with its sample number and position in a list."""
    modes: dict[int, str] = {}
    for number, sample in enumerate(samples):
        if isinstance(sample, list | tuple):
            for part, image in enumerate(sample):
                yield (number, part), as_array(image, False, name, number, modes)
        elif sample is not None:
            yield (number, None), as_array(sample, False, name, number, modes)
