"""Functions on NumPy arrays and torch tensors. The output has the type of the input.

CUDA tensors, and tensors traced by torch.compile, go through ``torch.ops.pinfeed``.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.arguments import ARRAYS, DType, Problem, dtype_name, with_hints
from pinfeed.functional.normalization import (
    Normalization,
    PerChannel,
    checked_layouts,
    normalization,
    require_channels_last,
)
from pinfeed.functional.torch_ops.tensors import (
    normalize_tensor,
    permute_tensor,
    traced_normalize,
    traced_permute,
    uses_torch_ops,
)
from pinfeed.runtime import get_num_threads

Array = TypeVar("Array", npt.NDArray[Any], torch.Tensor)

_IMAGE_DTYPES = ("float32", "float16", "bfloat16")


@with_hints(
    'layouts have names: input="NHWC", output="NCHW"',
    size="Collate(Image(augment=...)) crops, flips and resizes a list of images",
)
def normalize(
    images: Array,
    mean: PerChannel = None,
    std: PerChannel = None,
    *,
    scale: float | None = None,
    input: str | None = None,
    output: str = "NCHW",
    dtype: Any = torch.float32,
    out: npt.NDArray[Any] | torch.Tensor | None = None,
) -> Array:
    """Converts, normalizes and permutes a batch of images or clips in one pass.

    Every value becomes ``(x * scale - mean) / std``, computed as
    ``fma(float(x), scale / std, -mean / std)`` with both constants rounded to float32; 16-bit
    results are rounded once more, to nearest even. Values are the same on every machine.

    Args:
        images: Array of uint8, uint16, int16, float16, bfloat16 or float32, in the layout ``input``,
            with any strides and any number of images, including 0. CUDA tensors of uint8 are
            normalized on the device, on the current stream. Other dtypes, and clips, must be on the
            CPU, and can't be traced by torch.compile.
        mean: Number or one per channel, in units of ``x * scale``. None is 0.
        std: Number or one per channel, in units of ``x * scale``. None is 1.
        scale: Factor applied first. None: for integers 1 / dtype maximum, so bytes become 0..1; for
            floats 1. Floats that look like 0..255 together with a mean or std raise ValueError; pass
            ``scale=1/255``. If the constants make images black or far too bright, it warns.
            Values on a CUDA device are not checked.
        input: Layout of ``images``: ``"NHWC"``, ``"NCHW"`` or ``"NHW"`` (grayscale); for clips
            ``"NTHWC"``, ``"NTCHW"``, ``"NCTHW"`` or ``"NTHW"``. None is ``"NHWC"``, but images that look
            channels-first raise ValueError.
        output: Layout of the result: ``"NCHW"`` or ``"NHWC"``; for clips ``"NCTHW"``, ``"NTCHW"`` or
            ``"NTHWC"``; ``"NHW"`` and ``"NTHW"`` for images without channels.
        dtype: Dtype of the result: float32, float16 or bfloat16, from NumPy or torch (bfloat16: tensors
            only). Values beyond float16's range become infinite, except integers that are only
            converted (``scale=1``, no mean and std), which raise an error.
        out: Array for the result, of its shape and dtype: a tensor or an ndarray, C-contiguous or, for
            ``"NCHW"``, in channels_last memory. It must not overlap ``images``. For CUDA tensors
            the result is copied into it.

    Returns:
        ``out``, or a new array in the layout ``output``, in a reused buffer.

    Raises:
        TypeError: If ``images`` isn't a supported array on CPU or CUDA, or a dtype is unsupported.
        ValueError: If a shape, a length, a layout or a constant is invalid.

    Example:
        >>> images = np.full((2, 4, 4, 3), 255, np.uint8)
        >>> batch = pinfeed.functional.normalize(images, mean=[0.5] * 3, std=[0.25] * 3)
        >>> batch.shape, round(float(batch[0, 0, 0, 0]), 6)
        ((2, 3, 4, 4), 2.0)
    """
    if input is None:
        require_channels_last(getattr(images, "shape", ()), "normalize: images", "N")
        input = "NHWC"
    if (input, output) != ("NHWC", "NCHW"):  # skip the check for the defaults
        input, output = checked_layouts(input, output, "normalize", "N")
    if torch.compiler.is_compiling() and isinstance(images, torch.Tensor):
        options = {"scale": scale, "input": input, "output": output, "dtype": dtype}
        target: Any = out
        return traced_normalize(images, mean, std, target, **options)
    name = dtype_name(dtype, "normalize")
    if name not in _IMAGE_DTYPES:
        raise TypeError(f"normalize: dtype must be one of {_IMAGE_DTYPES}, got {name}")
    require_out(out, "normalize")
    constants: Normalization = normalization(mean, std, scale, "normalize")
    if uses_torch_ops(images):
        options = {"output": output, "dtype": getattr(torch, name), "out": out}
        return normalize_tensor(images, constants, input=input, name="normalize: images", **options)
    array = require_array(images, "normalize: images")
    if constants.is_doubtful and array.ndim:
        constants.warn_of_units(array, "normalize: images")
    format = constants.format(input[1:], output[1:], name)
    threads = get_num_threads()
    result = _core.normalize_images(array, None, format, out, "normalize", threads, "images")
    return written(result[0], out)


def permute(
    images: Array,
    input: str = "NHWC",
    output: str = "NCHW",
    *,
    out: npt.NDArray[Any] | torch.Tensor | None = None,
) -> Array:
    """Permutes the axes of an array and copies it into contiguous memory.

    Args:
        images: Array of any numeric dtype or bool, with any strides, on the CPU or on CUDA; one axis per
            letter of ``input``.
        input: Letters of the axes, such as ``"NHWC"`` or ``"NTHWC"``.
        output: The same letters in the new order.
        out: Array for the result, of its shape and dtype: a tensor or an ndarray, C-contiguous, not
            overlapping ``images``. For CUDA tensors the result is copied into it.

    Returns:
        ``out``, or a new array in a reused buffer.

    Raises:
        TypeError: If ``images`` is not a numeric array on the CPU or on CUDA.
        ValueError: If the letters or a shape don't match.

    Example:
        >>> pinfeed.functional.permute(np.zeros((2, 4, 5, 3), np.float32)).shape
        (2, 3, 4, 5)
    """
    if torch.compiler.is_compiling() and isinstance(images, torch.Tensor):
        target: Any = out
        return traced_permute(images, input, output, target)
    if not isinstance(input, str) or not isinstance(output, str):
        raise TypeError(f"permute: input and output must be strings, got {input!r} and {output!r}")
    if len(set(input)) != len(input) or sorted(input) != sorted(output):
        raise ValueError(
            "permute: input and output must have the same letters, each once, "
            f"got {input!r} and {output!r}"
        )
    require_out(out, "permute")
    array = require_array(images, "permute: images")
    if uses_torch_ops(array):
        return permute_tensor(array, input, output, out)
    threads = get_num_threads()
    is_bytes = array.dtype in (np.uint8, torch.uint8)
    if is_bytes and array.ndim == 4 and {input, output} == {"NHWC", "NCHW"}:
        # The image kernels shuffle bytes with vectors.
        format = normalization(None, None, None, "permute").format(input[1:], output[1:], "uint8")
        result = _core.normalize_images(array, None, format, out, "permute", threads, "images")
        return written(result[0], out)
    axes = [input.index(letter) for letter in output]
    permuted = _core.permute(array, axes, out, "permute", threads, "images")
    return written(permuted, out)


@with_hints()
def gather(
    array: Array,
    indices: Any,
    *,
    dtype: DType | None = None,
    out: npt.NDArray[Any] | torch.Tensor | None = None,
) -> Array:
    """Copies the rows ``array[indices]``.

    Args:
        array: Array of any numeric dtype or bool, with any strides, at least 1-D; rows are along axis 0.
        indices: Row indices, 1-D (list, ndarray or CPU tensor); negative ones count from the end.
        dtype: Dtype of the result, from NumPy or torch; values are cast as in `Stack`. None: the dtype
            of ``array``.
        out: Array for the result: a tensor or an ndarray of that dtype, C-contiguous, of shape
            (len(indices), *array.shape[1:]), not overlapping ``array``.

    Returns:
        ``out``, or a new array in a reused buffer.

    Raises:
        TypeError: If ``array`` is not a numeric array on the CPU, the indices are not integers, or the
            cast would lose fractions.
        IndexError: If an index is out of range.
        ValueError: If ``out`` has another shape.

    Example:
        >>> pinfeed.functional.gather(np.arange(5) * 10, [3, -1])
        array([30, 40])

        Windows of tokens:

        >>> tokens = np.arange(100, dtype=np.uint16)
        >>> windows = np.lib.stride_tricks.sliding_window_view(tokens, 4)
        >>> torch.from_numpy(pinfeed.functional.gather(windows, [7, 20], dtype=torch.int64))
        tensor([[ 7,  8,  9, 10],
                [20, 21, 22, 23]])
    """
    cast = None if dtype is None else dtype_name(dtype, "gather")
    require_out(out, "gather")
    rows = require_array(array, "gather: array")
    if rows.ndim == 0:
        raise ValueError("gather: array must have at least one axis, got a 0-d array")
    if isinstance(indices, ARRAYS) and "bool" in str(indices.dtype):
        hint = "np.flatnonzero(mask) returns the indices of True"
        raise TypeError(Problem("gather: indices", "integers", "bools", hint))
    checked = _core.as_indices(indices, len(rows), "gather: indices")
    threads = get_num_threads()
    return written(_core.gather(rows, checked, cast, None, out, "gather", threads, "array"), out)


def require_array(array: Any, name: str) -> Any:
    """Returns the array; raises TypeError for other types, and for tensors with gradients."""
    if not isinstance(array, ARRAYS):
        hint = "np.stack(...) makes one from a list of arrays" if isinstance(array, list) else ""
        if hasattr(array, "is_ragged"):
            hint = "ragged[indices] selects samples of a RaggedArray or a ConcatArray"
        if hasattr(array, "__array_interface__"):  # PIL images
            hint = "np.asarray(...) converts it"
        kind = type(array).__name__
        raise TypeError(Problem(name, "a NumPy array or a torch tensor", kind, hint))
    if isinstance(array, torch.Tensor) and array.requires_grad:
        expected, got = "a tensor without gradients", "one with requires_grad=True"
        raise TypeError(Problem(name, expected, got, "call .detach() first"))
    return array


def require_out(out: Any, function: str) -> None:
    """Raises TypeError unless ``out`` is None, an array or a tensor."""
    if out is not None:
        require_array(out, f"{function}: out")


def written(result: Any, out: Any) -> Any:
    """Returns ``out`` or the result, and tells autograd that a tensor ``out`` was modified in place."""
    if isinstance(out, torch.Tensor):
        torch.autograd.graph.increment_version(out)
    return result if out is None else out
