"""What the ops return, without computing it: shapes for torch.compile, torch.export and "meta".

In Python, because the stable ABI knows no symbolic sizes.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch

_INPUT_AXES = {"NHWC": (1, 2, 3), "NCHW": (2, 3, 1), "NHW": (1, 2, None)}  # of H, W, C
_SCALE = 1 / 255  # the ops' default
_PIXEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)

Sizes = tuple[int, ...]


def register() -> None:
    """Registers all fakes."""
    fakes: dict[str, Callable[..., Any]] = {
        "normalize_images": _normalize_images,
        "normalize_images.out": _normalize_images_out,
        "permute": _permute,
        "permute.out": _permute_out,
        "pad_jagged": _pad_jagged,
        "pad_jagged.out": _pad_jagged_out,
        "pad_jagged_with_mask": _pad_jagged_with_mask,
        "pad_jagged_with_mask.out": _pad_jagged_with_mask_out,
        "unpad_to_jagged": _unpad_to_jagged,
        "unpad_to_jagged.out": _unpad_to_jagged_out,
    }
    # torch notes where each comes from and asks `inspect`, which looks through all modules for the
    # one of this file, unless it has been told: half of the time that importing the ops takes.
    inspect.modulesbyfile[__file__] = __name__
    for name, fake in fakes.items():
        torch.library.register_fake(f"pinfeed::{name}", fake)


def _normalize_images(
    images: torch.Tensor,
    mean: Any = None,
    std: Any = None,
    *,
    dtype: torch.dtype | None = None,
    channels_last: bool = False,
    output: str = "NCHW",
    **options: Any,
) -> torch.Tensor:
    if channels_last and output == "NHWC":
        raise ValueError(
            "normalize_images: channels_last is for output NCHW; NHWC lies like that anyway"
        )
    dtype = _pixel_dtype(dtype)
    shape = _image_batch(images, mean, std, dtype, output, **options)
    if channels_last:
        count, channels, height, width = shape
        return images.new_empty((count, height, width, channels), dtype=dtype).permute(0, 3, 1, 2)
    return images.new_empty(shape, dtype=dtype)


def _normalize_images_out(
    images: torch.Tensor,
    mean: Any = None,
    std: Any = None,
    *,
    dtype: torch.dtype | None = None,
    output: str = "NCHW",
    out: torch.Tensor,
    **options: Any,
) -> None:
    dtype = _pixel_dtype(dtype)
    shape = _image_batch(images, mean, std, dtype, output, **options)
    _check_out(out, images, shape, dtype, "normalize_images: out")


def _image_batch(
    images: torch.Tensor, mean: Any, std: Any, dtype: torch.dtype, output: str, **options: Any
) -> Sizes:
    """The shape of the batch."""
    count, channels, height, width = _places(images, output, **options)
    _check_constants(mean, std, options.get("scale", _SCALE), dtype, channels)
    in_order = (height, width, channels) if output == "NHWC" else (channels, height, width)
    return _checked((count, *in_order), dtype, "normalize_images")


def _places(
    images: torch.Tensor,
    output: str,
    *,
    input: str = "NHWC",
    indices: torch.Tensor | None = None,
    sizes: torch.Tensor | None = None,
    height: int | None = None,
    width: int | None = None,
    scale: float = _SCALE,
    pad_value: float | None = None,
) -> tuple[int, int, int, int]:
    """Number, channels, height and width of the places in the batch."""
    if input not in _INPUT_AXES or output not in ("NCHW", "NHWC"):
        raise ValueError(
            f"normalize_images: input must be one of {tuple(_INPUT_AXES)}, output NCHW or NHWC, "
            f"got {input!r} and {output!r}"
        )
    if images.dtype != torch.uint8 or images.ndim != len(input):
        raise ValueError(
            f"normalize_images: images must be uint8 with shape ({', '.join(input)}), "
            f"got {images.dtype} {tuple(images.shape)}"
        )
    count = images.shape[0]
    if indices is not None:
        _check_integers(indices, 1, images, "normalize_images: indices")
        count = indices.shape[0]
    if sizes is not None:
        _check_integers(sizes, 2, images, "normalize_images: sizes")
    row, column, channel = _INPUT_AXES[input]
    return (
        count,
        1 if channel is None else images.shape[channel],
        images.shape[row] if height is None else height,
        images.shape[column] if width is None else width,
    )


def _pixel_dtype(dtype: torch.dtype | None) -> torch.dtype:
    if dtype is not None and dtype not in _PIXEL_DTYPES:
        raise ValueError(f"normalize_images: dtype must be one of {_PIXEL_DTYPES}, got {dtype}")
    return dtype or torch.float32


def _check_constants(
    mean: list[float] | None,
    std: list[float] | None,
    scale: float,
    dtype: torch.dtype,
    channels: int,
) -> None:
    if dtype == torch.uint8:
        if mean is not None or std is not None or scale != _SCALE:
            raise ValueError(
                "normalize_images: dtype uint8 only permutes, so mean, std and scale must be left "
                "out"
            )
        return
    for name, values in (("mean", mean), ("std", std)):
        if values is None or len(values) == 1:
            continue
        _check(
            channels == len(values),
            f"normalize_images: {name} must have one value, or one for each of the channels, "
            f"got {len(values)}",
        )


def _permute(images: torch.Tensor, input: str = "NHWC", output: str = "NCHW") -> torch.Tensor:
    return images.new_empty(_permuted(images, input, output))


def _permute_out(
    images: torch.Tensor, input: str = "NHWC", output: str = "NCHW", *, out: torch.Tensor
) -> None:
    _check_out(out, images, _permuted(images, input, output), images.dtype, "permute: out")


def _permuted(images: torch.Tensor, input: str, output: str) -> Sizes:
    if sorted(input) != sorted(output) or len(set(input)) != len(input):
        raise ValueError(
            "permute: input and output must have the same letters, each once, "
            f"got {input!r} and {output!r}"
        )
    if images.ndim != len(input):
        raise ValueError(
            f"permute: images must have an axis for each of the letters {input!r}, "
            f"got shape {tuple(images.shape)}"
        )
    shape = tuple(images.shape[input.index(letter)] for letter in output)
    return _checked(shape, images.dtype, "permute")


def _pad_jagged(
    values: torch.Tensor, offsets: torch.Tensor, length: int, **options: Any
) -> torch.Tensor:
    return values.new_empty(_padded(values, offsets, length, "pad_jagged", **options)[1])


def _pad_jagged_out(
    values: torch.Tensor, offsets: torch.Tensor, length: int, *, out: torch.Tensor, **options: Any
) -> None:
    _, shape = _padded(values, offsets, length, "pad_jagged", **options)
    _check_out(out, values, shape, values.dtype, "pad_jagged: out")


def _pad_jagged_with_mask(
    values: torch.Tensor, offsets: torch.Tensor, length: int, **options: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    boxes, shape = _padded(values, offsets, length, "pad_jagged_with_mask", **options)
    return (
        values.new_empty(shape),
        offsets.new_empty((offsets.shape[0] - 1,)),
        values.new_empty(boxes, dtype=torch.bool),
    )


def _pad_jagged_with_mask_out(
    values: torch.Tensor,
    offsets: torch.Tensor,
    length: int,
    *,
    out: torch.Tensor,
    lengths: torch.Tensor,
    mask: torch.Tensor,
    **options: Any,
) -> None:
    name = "pad_jagged_with_mask"
    boxes, shape = _padded(values, offsets, length, name, **options)
    _check_out(out, values, shape, values.dtype, f"{name}: out")
    _check_out(lengths, values, (offsets.shape[0] - 1,), torch.int64, f"{name}: lengths")
    _check_out(mask, values, boxes, torch.bool, f"{name}: mask")


def _padded(
    values: torch.Tensor, offsets: torch.Tensor, length: int, function: str, **options: Any
) -> tuple[Sizes, Sizes]:
    """The shapes of a padded batch's mask and of its values."""
    if values.ndim == 0:
        raise ValueError(f"{function}: values must have shape (total, ...), got ()")
    boxes = _boxes(values, offsets, length, function, **options)
    return boxes, _checked((*boxes, *values.shape[1:]), values.dtype, function)


def _boxes(
    first: torch.Tensor,
    offsets: torch.Tensor,
    length: int,
    function: str,
    *,
    max_length: int | None = None,
    value: float | None = None,
    side: str = "right",
    time_major: bool = False,
) -> tuple[int, int]:
    """The first two sizes of a padded batch."""
    _check_integers(offsets, 1, first, f"{function}: offsets")
    _check(offsets.shape[0] > 0, f"{function}: offsets must be int64 with shape (B + 1,), got (0,)")
    if side not in ("right", "left"):
        raise ValueError(f"{function}: side must be right or left, got {side!r}")
    if max_length is not None:
        _check(max_length >= 0, f"{function}: max_length must not be negative, got {max_length}")
    count = offsets.shape[0] - 1
    return (length, count) if time_major else (count, length)


def _unpad_to_jagged(
    padded: torch.Tensor, offsets: torch.Tensor, total: int, **options: Any
) -> torch.Tensor:
    return padded.new_empty(_jagged(padded, offsets, total, **options))


def _unpad_to_jagged_out(
    padded: torch.Tensor, offsets: torch.Tensor, total: int, *, out: torch.Tensor, **options: Any
) -> None:
    shape = _jagged(padded, offsets, total, **options)
    _check_out(out, padded, shape, padded.dtype, "unpad_to_jagged: out")


def _jagged(padded: torch.Tensor, offsets: torch.Tensor, total: int, **options: Any) -> Sizes:
    if padded.ndim < 2:
        raise ValueError(
            "unpad_to_jagged: padded must have a batch axis and one more, "
            f"got shape {tuple(padded.shape)}"
        )
    boxes = _boxes(padded, offsets, 0, "unpad_to_jagged", **options)
    axis = 1 if options.get("time_major", False) else 0
    _check(
        padded.shape[axis] == boxes[axis],
        "unpad_to_jagged: padded must have as many samples as offsets say, one less than they are",
    )
    return _checked((total, *padded.shape[2:]), padded.dtype, "unpad_to_jagged")


def _check_integers(tensor: torch.Tensor, axes: int, first: torch.Tensor, name: str) -> None:
    _check_device(tensor, first, name)
    if tensor.dtype != torch.int64 or tensor.ndim != axes:
        raise ValueError(
            f"{name} must be int64 with {axes} axes, got {tensor.dtype} {tuple(tensor.shape)}"
        )


def _checked(shape: Sizes, dtype: torch.dtype, function: str) -> Sizes:
    """The shape of an output, if it can be one; of symbolic sizes nothing is known yet."""
    known = [size for size in shape if isinstance(size, int)]
    if math.prod(size or 1 for size in known) * dtype.itemsize >= 2**63:
        aside = ", sizes of 0 aside" if 0 in known else ""
        raise ValueError(
            f"{function}: an output of shape {tuple(shape)} is larger than memory can be{aside}"
        )
    return shape


def _check_out(
    out: torch.Tensor, first: torch.Tensor, shape: Sizes, dtype: torch.dtype, name: str
) -> None:
    _check_device(out, first, name)
    if out.dtype != dtype or out.ndim != len(shape):
        raise ValueError(
            f"{name} must be {dtype} with shape {tuple(shape)}, got {out.dtype} {tuple(out.shape)}"
        )
    for given, wanted in zip(out.shape, shape, strict=True):
        _check(given == wanted, f"{name} must have shape {tuple(shape)}")


def _check(holds: Any, message: str) -> None:
    """Raises ValueError unless it holds, for symbolic sizes too."""
    check: Callable[..., None] = torch._check_value
    check(holds, lambda: message)


def _check_device(tensor: torch.Tensor, first: torch.Tensor, name: str) -> None:
    if tensor.device != first.device:
        raise ValueError(
            f"{name} must be on {first.device} as the other tensors, got {tensor.device}"
        )
