"""Cuts images into patches, for vision transformers of native resolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.arguments import (
    ARRAYS,
    Interpolation,
    Problem,
    checked_choice,
    checked_integer,
    checked_number,
    dtype_name,
    positive_integer,
)
from pinfeed.functional.normalization import Normalization, PerChannel, checked_layouts
from pinfeed.runtime import get_num_threads

_DTYPES = ("float32", "float16", "bfloat16", "uint8")


class Patching:
    """Arguments of `pinfeed.Patches` and `patchify`, checked.

    Attributes:
        input: Letters of the axes of an image or clip.
        constants: Mean, std and scale.
        format: Native options for the values of an image, or of a clip's frame.
        options: Native options for the patches.
        channels: Number of channels that mean and std imply; 3 if they are single numbers.
        augment: Native options for crops and resizes.
    """

    def __init__(
        self,
        function: str,
        patch_size: int,
        mean: PerChannel,
        std: PerChannel,
        *,
        scale: float | None,
        input: str | None,
        order: str,
        dtype: Any,
        merge: int,
        temporal: int,
        interpolation: str,
        pad_to: int | None = None,
        geometry: dict[str, Any] | None = None,
        **sizes: Any,
    ) -> None:
        checked_choice(order, ("CHW", "HWC"), f"{function}: order")
        name = dtype_name(dtype, function)
        checked_choice(name, _DTYPES, f"{function}: dtype")
        if name == "uint8" and not (mean is std is scale is None):
            raise ValueError(
                f"{function}: dtype=torch.uint8 keeps values as they are; leave out mean, std and scale, "
                "or pass a floating dtype"
            )
        is_clip = isinstance(input, str) and "T" in input
        self.input, _ = checked_layouts(input or "HWC", "TCHW" if is_clip else "CHW", function)
        self.options = _core.PatchOptions(
            sizes=checked_sizes(function, patch_size, merge=merge, **sizes),
            merge=merge,
            temporal=checked_integer(temporal, f"{function}: temporal", 1, 32),
            pad_to=positive_integer(pad_to, f"{function}: pad_to", 2**31) or 0,
        )
        kind = checked_choice(interpolation, get_args(Interpolation), f"{function}: interpolation")
        self.augment = _core.AugmentOptions(
            **geometry or {}, interpolation=kind, in_floats=False, may_be_small=True
        )
        self.constants = Normalization(mean, std, scale, function)
        self.format = self.constants.format(
            self.input.replace("T", ""), order, name, is_guess=input is None
        )
        self.channels = self.constants.channels or (3 if "C" in self.input else 1)

    def batch(
        self,
        images: Any,
        indices: Any,
        frames: Any,
        target: Any,
        name: str,
        key: int = 0,
        samples: npt.NDArray[np.int64] | None = None,
    ) -> tuple[Any, Any]:
        """Returns the patches of images or clips, and their grid.

        Args:
            images: Images, or the frames of all clips.
            indices: Indices of the images to use; None uses all.
            frames: Number of frames of each clip; None for images.
            target: Memory for the batch.
            name: Name in messages.
            key: Key of the random draws.
            samples: Sample number of each image, for the random draws.
        """
        if isinstance(images, list | tuple) and not images:
            # No image has a shape. Its sides are longer than its channels, to be no guessed layout's.
            sides = {"C": self.channels}
            shape = [sides.get(axis, self.channels + 1) for axis in self.input.replace("T", "")]
            images = torch.zeros((0, *shape), dtype=torch.uint8, device="cpu")
        if samples is None:
            samples = np.zeros(len(images if indices is None else indices), np.int64)
        options = self.format, self.options, self.augment
        arguments = images, indices, frames, *options, target, name, get_num_threads()
        return _core.patch_images(*arguments, key=key, samples=samples)

    def frames_of(self, clip: Any) -> Sequence[Any]:
        """Returns the frames of a clip, or a list with the image."""
        if "T" not in self.input or getattr(clip, "ndim", 0) != len(self.input):
            return [clip]
        axis = self.input.index("T")
        return list(
            np.moveaxis(clip, axis, 0) if isinstance(clip, np.ndarray) else clip.movedim(axis, 0)
        )


def checked_sizes(
    function: str,
    patch_size: int,
    merge: int = 1,
    multiple_of: int | None = None,
    min_pixels: float | None = None,
    max_pixels: float | None = None,
    max_patches: int | None = None,
    min_side: int = 1,
) -> _core.PatchSizes:
    """Returns the rule for sizes in native form."""
    merge = checked_integer(merge, f"{function}: merge", 1, 2**15)
    multiple = merge if multiple_of is None else multiple_of
    multiple = checked_integer(multiple, f"{function}: multiple_of", 1, 2**15)
    if multiple % merge != 0:
        raise ValueError(
            f"{function}: multiple_of must be a multiple of merge, got {multiple_of} and merge={merge}"
        )
    if (min_pixels is None) != (max_pixels is None):
        raise ValueError(
            f"{function}: min_pixels and max_pixels must be passed together; pass both, or neither"
        )
    sizes: dict[str, Any] = {}
    if min_pixels is not None and max_pixels is not None:
        sizes["min_pixels"] = checked_number(min_pixels, f"{function}: min_pixels", 1, 2.0**52)
        sizes["max_pixels"] = checked_number(max_pixels, f"{function}: max_pixels", 1, 2.0**52)
        if min_pixels > max_pixels:
            raise ValueError(
                f"{function}: min_pixels must be at most max_pixels, got {min_pixels} and {max_pixels}"
            )
    if max_patches is not None:
        if sizes or multiple > 1:
            raise ValueError(
                f"{function}: max_patches can't be combined with merge, multiple_of, min_pixels or "
                "max_pixels; leave one of them out"
            )
        sizes["max_patches"] = checked_integer(max_patches, f"{function}: max_patches", 1, 2**31)
    return _core.PatchSizes(
        patch=checked_integer(patch_size, f"{function}: patch_size", 1, 2**15),
        multiple=multiple,
        min_side=checked_integer(min_side, f"{function}: min_side", 1, 2**31),
        **sizes,
    )


def grid_of(height: Any, width: Any, sizes: _core.PatchSizes, function: str) -> tuple[Any, Any]:
    """Returns the rows and columns of patches, for one height and width or for arrays of them."""
    heights, widths = np.broadcast_arrays(height, width)
    if heights.dtype.kind not in "iu" or widths.dtype.kind not in "iu":
        raise TypeError(f"{function}: height and width must be integers, got {height!r}, {width!r}")
    pairs = np.stack([heights.reshape(-1), widths.reshape(-1)], axis=1).astype(np.int64)
    is_single = heights.ndim == 0
    rows, columns = _core.patch_grids(pairs, sizes, function, is_single).T
    if is_single:
        return int(rows[0]), int(columns[0])
    return rows.reshape(heights.shape), columns.reshape(heights.shape)


def patch_grid(
    height: Any,
    width: Any,
    patch_size: int,
    *,
    merge: int = 1,
    multiple_of: int | None = None,
    min_pixels: float | None = None,
    max_pixels: float | None = None,
    max_patches: int | None = None,
    min_side: int = 1,
) -> tuple[Any, Any]:
    """Returns the number of rows and columns of patches into which `Patches` cuts an image.

    A model that merges patches gets ``rows * columns // merge**2`` tokens per image.

    Args:
        height: Height in pixels: an integer or an array.
        width: Width in pixels: an integer or an array.
        patch_size: Rows and columns of a patch, in pixels.
        merge: Number of patches along each side of a merged block, as in `Patches`.
        multiple_of: Number that divides rows and columns. None: ``merge``.
        min_pixels: Minimum number of pixels after the resize; requires ``max_pixels``.
        max_pixels: Maximum number of pixels after the resize, as in `Patches`.
        max_patches: Maximum number of patches after the resize, as in `Patches`.
        min_side: Minimum length of a side in pixels; images with a shorter side raise ValueError.

    Returns:
        Two integers, or two int64 arrays.

    Raises:
        TypeError: If an argument is not an integer.
        ValueError: If an argument is out of range, or a size can't be cut into patches; the message
            names the image.

    Example:
        >>> pinfeed.functional.patch_grid(
        ...     480, 640, 14, merge=2, min_pixels=56 * 56, max_pixels=1280 * 28 * 28
        ... )
        (34, 46)
        >>> pinfeed.functional.patch_grid(
        ...     np.array([480, 600]), np.array([640, 400]), 16, max_patches=256
        ... )
        (array([14, 19]), array([18, 13]))
    """
    rule = merge, multiple_of, min_pixels, max_pixels, max_patches, min_side
    sizes = checked_sizes("patch_grid", patch_size, *rule)
    return grid_of(height, width, sizes, "patch_grid")


def patchify(
    images: Any,
    patch_size: int,
    mean: PerChannel = None,
    std: PerChannel = None,
    *,
    scale: float | None = None,
    input: Literal["HWC", "CHW", "HW", "THWC", "TCHW", "CTHW", "THW"] | None = None,
    order: Literal["CHW", "HWC"] = "CHW",
    dtype: Any = torch.float32,
    merge: int = 1,
    temporal: int = 1,
    interpolation: Interpolation = "bicubic",
    multiple_of: int | None = None,
    min_pixels: float | None = None,
    max_pixels: float | None = None,
    max_patches: int | None = None,
    min_side: int = 1,
    out: Any = None,
) -> tuple[Any, npt.NDArray[np.int64] | torch.Tensor]:
    """Resizes, normalizes and cuts images into patches, in one pass.

    `pinfeed.Patches` does the same in a `Collate`.

    Args:
        images: List of ndarrays or CPU tensors of shape (H, W, C), of any size, or in the layout
            ``input``; or one array of images of one size.
        patch_size: Rows and columns of a patch, in pixels.
        mean: Number or one per channel, as in `normalize`.
        std: Number or one per channel, as in `normalize`.
        scale: Factor applied first, as in `normalize`.
        input: Layout of an image or clip, as in `Image`. None: ``"HWC"``.
        order: Order of the axes within a patch, as in `Patches`.
        dtype: Dtype of the patches: float32, float16 or bfloat16; or uint8, without mean, std and scale.
        merge: Number of patches along each side of a merged block, as in `Patches`.
        temporal: Number of frames per patch, as in `Patches`.
        interpolation: Resampling, as in `Patches`.
        multiple_of: Number that divides the grid's rows and columns. None: ``merge``.
        min_pixels: Minimum number of pixels per frame after the resize; requires ``max_pixels``.
        max_pixels: Maximum number of pixels per frame after the resize, as in `Patches`.
        max_patches: Maximum number of patches per image, as in `Patches`. Without it and ``max_pixels``,
            images aren't resized.
        min_side: Minimum length of a side in pixels; images with a shorter side raise ValueError.
        out: Array for the patches, of their shape and dtype, C-contiguous.

    Returns:
        The patches of all images, concatenated to shape (N, C · temporal · patch_size²); and each image's
        number of patches in time, height and width, int64 of shape (images, 3). An empty list gives
        tensors of shape (0, C · temporal · patch_size²) and (0, 3), with the channels of mean and std, or 3.

    Raises:
        TypeError: If an argument or an image has the wrong type.
        ValueError: If an argument is invalid, or an image doesn't fit; the message names it.

    Example:
        >>> images = np.arange(2 * 4 * 4, dtype=np.uint8).reshape(2, 4, 4, 1)
        >>> values, grid = pinfeed.functional.patchify(images, 2, scale=1)
        >>> values[:2].tolist(), grid.tolist()
        ([[0.0, 1.0, 4.0, 5.0], [2.0, 3.0, 6.0, 7.0]], [[1, 2, 2], [1, 2, 2]])
    """
    patching = Patching(
        "patchify",
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
        multiple_of=multiple_of,
        min_pixels=min_pixels,
        max_pixels=max_pixels,
        max_patches=max_patches,
        min_side=min_side,
    )
    if not hasattr(images, "__len__") or isinstance(images, str | bytes | Mapping):
        raise TypeError(
            f"patchify: images must be a list of images, or one array of them, got {type(images).__name__}"
        )
    if patching.constants.is_doubtful and isinstance(images, (*ARRAYS, list, tuple)):
        patching.constants.warn_of_units(images, "patchify: images")
    if "T" not in patching.input:
        return patching.batch(images, None, None, out, "patchify: images")
    clips = [patching.frames_of(clip) for clip in images]
    frames = np.array([len(clip) for clip in clips], np.int64)
    if (frames == 0).any():
        empty = Problem("patchify: images", "a clip of at least one frame", "none")
        empty.sample = int(frames.argmin())
        raise ValueError(empty)
    frames_of_all: Any = [image for clip in clips for image in clip]
    if isinstance(images, ARRAYS) and not clips:
        sizes = zip("N" + patching.input, images.shape, strict=False)
        frames_of_all = images.reshape([size for axis, size in sizes if axis != "T"])
    try:
        return patching.batch(frames_of_all, None, frames, out, "patchify: images")
    except (TypeError, ValueError) as error:
        problem = Problem.of(error)
        if problem is not None and problem.sample is not None:  # from frame number to clip number
            problem.sample = int(np.searchsorted(frames.cumsum(), problem.sample, "right"))
        raise
