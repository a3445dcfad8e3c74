"""Functions over NumPy arrays and torch tensors; the kind of the input is the kind of the output."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.dtypes import dtype_name
from pinfeed.normalization import DEFAULT_SCALE, PerChannel, normalization
from pinfeed.runtime import get_num_threads

Array = TypeVar("Array", npt.NDArray[Any], torch.Tensor)

_NO_CONSTANT = np.float32(0)
_IMAGE_DTYPES = ("float32", "float16", "bfloat16")


def normalize(
    images: Array,
    mean: PerChannel = None,
    std: PerChannel = None,
    *,
    scale: float = DEFAULT_SCALE,
    input: str = "NHWC",
    output: str = "NCHW",
    dtype: Any = torch.float32,
    out: Array | None = None,
) -> Array:
    """Converts, normalizes and permutes a batch of images in one pass.

    Every value becomes ``(x * scale - mean) / std``, computed as
    ``fma(float(x), scale / std, -mean / std)`` with constants rounded to float32 once; 16-bit
    results round that float32 to nearest even. The bits are the same on every machine.

    Args:
        images: uint8, of the shape that ``input`` names; any strides, read-only too.
        mean: Number or one per channel, in units of ``x * scale``. None is 0.
        std: The same. None is 1.
        scale: Factor applied first; 1/255 maps bytes to 0..1.
        input: ``"NHWC"``, ``"NCHW"`` or ``"NHW"`` (grey).
        output: ``"NCHW"`` or ``"NHWC"``.
        dtype: float32, float16 or bfloat16, from NumPy or torch (bfloat16: tensors only).
        out: Where to write: same kind as ``images``, of the result's shape and dtype, C-contiguous
            or, for ``"NCHW"``, in channels_last memory. It must not overlap ``images``.

    Returns:
        ``out``, or a new array of shape (N, C, H, W) or (N, H, W, C) in a pooled buffer.

    Raises:
        TypeError: ``images`` is no uint8 array on the CPU, or a dtype does not fit.
        ValueError: A shape, a length, a layout or a constant does not fit.

    Example:
        >>> images = np.full((2, 4, 4, 3), 255, np.uint8)
        >>> batch = pinfeed.normalize(images, mean=[0.5] * 3, std=[0.25] * 3)
        >>> batch.shape, round(float(batch[0, 0, 0, 0]), 6)
        ((2, 3, 4, 4), 2.0)
    """
    name = dtype_name(dtype, "normalize")
    if name not in _IMAGE_DTYPES:
        raise TypeError(f"normalize: dtype must be one of {_IMAGE_DTYPES}, got {name}")
    if name == "bfloat16" and not isinstance(images, torch.Tensor):
        raise TypeError(
            "normalize: NumPy has no bfloat16; pass a tensor (torch.from_numpy(images)), "
            "or ask for float16 or float32"
        )
    _check_layout("input", input, ("NHWC", "NCHW", "NHW"), "normalize")
    _check_layout("output", output, ("NCHW", "NHWC"), "normalize")
    _check_kind(out, images, "normalize")
    constants = normalization(mean, std, scale, "normalize")
    batch = _core.normalize_images(
        _array(images, "normalize: images"),
        None,
        constants.scale,
        constants.bias,
        input[1:],
        output[1:],
        name,
        out,
        None,
        "normalize",
        "normalize: images",
        get_num_threads(),
    )
    return _written(batch, out)


def permute(
    images: Array, input: str = "NHWC", output: str = "NCHW", *, out: Array | None = None
) -> Array:
    """Copies an array with its axes in another order, into contiguous memory.

    Args:
        images: Any numeric dtype or bool, any strides; one axis per letter of ``input``.
        input: A letter for each axis, for instance ``"NHWC"`` or ``"NTHWC"``.
        output: The same letters in the order wanted.
        out: Where to write: same kind and dtype as ``images``, C-contiguous, of the result's
            shape, not overlapping ``images``.

    Returns:
        ``out``, or a new array in a pooled buffer.

    Raises:
        TypeError: ``images`` is no numeric array on the CPU.
        ValueError: The letters or a shape don't fit.

    Example:
        >>> pinfeed.permute(np.zeros((2, 4, 5, 3), np.float32)).shape
        (2, 3, 4, 5)
    """
    if not isinstance(input, str) or not isinstance(output, str):
        raise TypeError(f"permute: input and output must be strings, got {input!r} and {output!r}")
    if len(set(input)) != len(input) or sorted(input) != sorted(output):
        raise ValueError(
            "permute: input and output must have the same letters, each once, "
            f"got {input!r} and {output!r}"
        )
    _check_kind(out, images, "permute")
    array = _array(images, "permute: images")
    threads = get_num_threads()
    is_bytes = array.dtype in (np.uint8, torch.uint8)
    if is_bytes and array.ndim == 4 and len(array) and {input, output} == {"NHWC", "NCHW"}:
        planes = _core.normalize_images(  # the image kernels shuffle bytes with vectors
            array,
            None,
            _NO_CONSTANT,
            _NO_CONSTANT,
            input[1:],
            output[1:],
            "uint8",
            out,
            None,
            "permute",
            "permute: images",
            threads,
        )
        return _written(planes, out)
    axes = [input.index(letter) for letter in output]
    return _written(_core.permute(array, axes, out, "permute", "permute: images", threads), out)


def gather(array: Array, indices: Any, *, out: Array | None = None) -> Array:
    """Copies the rows ``array[indices]``.

    Args:
        array: Any numeric dtype or bool, any strides, at least 1-D; rows are along axis 0.
        indices: 1-D integers (list, ndarray or CPU tensor); negative ones count from the end.
        out: Where to write: same kind and dtype as ``array``, C-contiguous, of shape
            (len(indices), *array.shape[1:]), not overlapping ``array``.

    Returns:
        ``out``, or a new array in a pooled buffer.

    Raises:
        TypeError: ``array`` is no numeric array on the CPU, or the indices are no integers.
        IndexError: An index is out of range.
        ValueError: ``out`` does not fit.

    Example:
        >>> pinfeed.gather(np.arange(5) * 10, [3, -1])
        array([30, 40])
    """
    _check_kind(out, array, "gather")
    rows = _array(array, "gather: array")
    if rows.ndim == 0:
        raise ValueError("gather: array must have at least one axis, got a 0-d array")
    checked = _core.as_indices(indices, len(rows), "gather: indices")
    return _core.gather(
        rows, checked, None, out, None, "gather", "gather: array", get_num_threads()
    )


def _array(array: Any, name: str) -> Any:
    if not isinstance(array, np.ndarray | torch.Tensor):
        raise TypeError(
            f"{name}: expected a NumPy array or a torch tensor, got {type(array).__name__}"
        )
    if isinstance(array, torch.Tensor) and array.requires_grad:
        raise TypeError(f"{name}: expected a tensor without gradients; call .detach() first")
    return array


def _written(result: Any, out: Any) -> Any:
    if isinstance(out, torch.Tensor):
        # As torch's own out=: autograd has to notice if it saved this tensor for a backward pass.
        torch.autograd.graph.increment_version(out)
    return result


def _check_layout(keyword: str, layout: str, allowed: tuple[str, ...], function: str) -> None:
    if layout not in allowed:
        raise ValueError(f"{function}: {keyword} must be one of {allowed}, got {layout!r}")


def _check_kind(out: Any, array: Any, function: str) -> None:
    if out is not None and isinstance(out, torch.Tensor) != isinstance(array, torch.Tensor):
        raise TypeError(
            f"{function}: out must be of the same kind as the input, "
            f"a {type(array).__name__}, got {type(out).__name__}"
        )
    if out is not None:
        _array(out, f"{function}: out")
