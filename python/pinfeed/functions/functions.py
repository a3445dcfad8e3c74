"""Functions over NumPy arrays and torch tensors; the kind of the input is the kind of the output.

Tensors on CUDA devices, and those that torch.compile traces, go by way of ``torch.ops.pinfeed``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.arguments import checked_interpolation, checked_size, dtype_name
from pinfeed.functions.jagged import JaggedBatch, pad_sequences
from pinfeed.functions.normalization import (
    Normalization,
    PerChannel,
    check_layouts,
    normalization,
    require_channels_last,
)
from pinfeed.functions.padded import Padded
from pinfeed.functions.padding import Axes, MultipleOf, Padding, Side, unpadded
from pinfeed.functions.torch_ops.tensors import (
    by_ops,
    normalize_tensor,
    permute_tensor,
    traced_normalize,
    traced_permute,
)
from pinfeed.runtime import get_num_threads
from pinfeed.sources.dataset import Rows
from pinfeed.sources.ragged import RaggedArray
from pinfeed.sources.source import Source
from pinfeed.structure import children, is_dataclass, rebuild

Array = TypeVar("Array", npt.NDArray[Any], torch.Tensor)

_IMAGE_DTYPES = ("float32", "float16", "bfloat16")
_PARTS = (np.ndarray, torch.Tensor, Mapping, tuple)  # which a list of them may be a structure of


def normalize(
    images: Array,
    mean: PerChannel = None,
    std: PerChannel = None,
    *,
    scale: float | None = None,
    input: str | None = None,
    output: str = "NCHW",
    dtype: Any = torch.float32,
    windows: Any = None,
    size: Sequence[int] | None = None,
    interpolation: Literal["bilinear", "bicubic", "nearest"] = "bilinear",
    resize_dtype: Any = None,
    out: Array | None = None,
) -> Array:
    """Converts, normalizes and permutes a batch of images or clips in one pass.

    Every value becomes ``(x * scale - mean) / std``, computed as
    ``fma(float(x), scale / std, -mean / std)`` with constants rounded to float32 once; 16-bit
    results round that float32 to nearest even. The bits are the same on every machine.

    Args:
        images: uint8, uint16, int16, float16, bfloat16 or float32, of the shape that ``input`` names;
            any strides, read-only too. A CUDA tensor of uint8 is normalized there, on the current
            stream. Other dtypes, and clips: on the CPU, and not while torch.compile traces.
        mean: Number or one per channel, in units of ``x * scale``. None is 0.
        std: The same. None is 1.
        scale: Factor applied first. None: one over the largest value of an integer dtype, so that
            bytes become 0..1; 1 for floats, which then must not go beyond 16 in some rows of the first
            image if there is a mean or std: 0..255 takes ``scale=1/255``.
        input: ``"NHWC"``, ``"NCHW"`` or ``"NHW"`` (grey). None is ``"NHWC"``, but refuses images that
            look like (N, C, H, W): with more than 4 channels, and no fewer than rows or columns. Clips
            have a T for their frames: ``"NTHWC"``, ``"NTCHW"``, ``"NCTHW"`` or ``"NTHW"``.
        output: ``"NCHW"`` or ``"NHWC"``. Of clips ``"NCTHW"``, ``"NTCHW"`` or ``"NTHWC"``. Without the
            C, what has no channels gets none: ``"NHW"``, ``"NTHW"``.
        dtype: float32, float16 or bfloat16, from NumPy or torch (bfloat16: tensors only).
        windows: What is seen of each image or clip: (N, 6) of top, left, height, width, and 1 or 0 for
            mirrored top to bottom and left to right, as ``Image(windows=)`` tells them. They are in
            whole pixels and don't leave the image. CPU only.
        size: With ``windows``: the height and width of the result, to which windows of other sizes
            are resized, and then mirrored.
        interpolation: How they are resized, as `Image` does it.
        resize_dtype: float32: bytes are resized without being rounded, as by `Image`.
        out: Where to write: same kind as ``images``, of the result's shape and dtype, C-contiguous
            or, for ``"NCHW"``, in channels_last memory. It must not overlap ``images``.

    Returns:
        ``out``, or a new array of the shape that ``output`` names, in a pooled buffer.

    Raises:
        TypeError: ``images`` is no such array on the CPU or on CUDA, or a dtype does not fit.
        ValueError: A shape, a length, a layout or a constant does not fit.

    Example:
        >>> images = np.full((2, 4, 4, 3), 255, np.uint8)
        >>> batch = pinfeed.normalize(images, mean=[0.5] * 3, std=[0.25] * 3)
        >>> batch.shape, round(float(batch[0, 0, 0, 0]), 6)
        ((2, 3, 4, 4), 2.0)
    """
    if input is None:
        require_channels_last(getattr(images, "shape", ()), "normalize: images", "N")
        input = "NHWC"
    if (windows is None) != (size is None):
        raise ValueError("normalize: windows and size go together; give both, or neither")
    if windows is not None and (torch.compiler.is_compiling() or by_ops(images)):
        raise TypeError("normalize: windows are for images on the CPU, outside of torch.compile")
    if torch.compiler.is_compiling() and isinstance(images, torch.Tensor):
        options = {"scale": scale, "input": input, "output": output, "dtype": dtype}
        return traced_normalize(images, mean, std, out, **options)
    name = dtype_name(dtype, "normalize")
    if name not in _IMAGE_DTYPES:
        raise TypeError(f"normalize: dtype must be one of {_IMAGE_DTYPES}, got {name}")
    if name == "bfloat16" and not isinstance(images, torch.Tensor):
        raise TypeError(
            "normalize: NumPy has no bfloat16; pass a tensor (torch.from_numpy(images)), "
            "or ask for float16 or float32"
        )
    check_layouts(input, output, "normalize", "N")
    _check_kind(out, images, "normalize")
    constants: Normalization = normalization(mean, std, scale, "normalize")
    if by_ops(images):
        given = {"output": output, "dtype": getattr(torch, name), "out": out}
        return normalize_tensor(images, constants, input=input, name="normalize: images", **given)
    array = _array(images, "normalize: images")
    format = constants.format(input[1:], output[1:], name)
    asked = ("normalize", get_num_threads(), "images")
    if windows is None:
        batch = _core.normalize_images(array, None, format, out, *asked)
    else:
        kind, in_floats = checked_interpolation(interpolation, resize_dtype, name, "normalize")
        batch = _core.normalize_windows(
            array,
            format,
            out,
            *asked,
            windows=_windows(windows, len(array)),
            size=checked_size(size, "normalize"),
            interpolation=kind,
            in_floats=in_floats,
        )
    return _written(batch, out)


def permute(
    images: Array, input: str = "NHWC", output: str = "NCHW", *, out: Array | None = None
) -> Array:
    """Copies an array with its axes in another order, into contiguous memory.

    Args:
        images: Any numeric dtype or bool, any strides, on the CPU or on CUDA; one axis per letter of
            ``input``.
        input: A letter for each axis, for instance ``"NHWC"`` or ``"NTHWC"``.
        output: The same letters in the order wanted.
        out: Where to write: same kind and dtype as ``images``, C-contiguous, of the result's
            shape, not overlapping ``images``.

    Returns:
        ``out``, or a new array in a pooled buffer.

    Raises:
        TypeError: ``images`` is no numeric array on the CPU or on CUDA.
        ValueError: The letters or a shape don't fit.

    Example:
        >>> pinfeed.permute(np.zeros((2, 4, 5, 3), np.float32)).shape
        (2, 3, 4, 5)
    """
    if torch.compiler.is_compiling() and isinstance(images, torch.Tensor):
        return traced_permute(images, input, output, out)
    if not isinstance(input, str) or not isinstance(output, str):
        raise TypeError(f"permute: input and output must be strings, got {input!r} and {output!r}")
    if len(set(input)) != len(input) or sorted(input) != sorted(output):
        raise ValueError(
            "permute: input and output must have the same letters, each once, "
            f"got {input!r} and {output!r}"
        )
    _check_kind(out, images, "permute")
    axes = [input.index(letter) for letter in output]
    if by_ops(images):
        return permute_tensor(_array(images, "permute: images"), axes, out)
    array = _array(images, "permute: images")
    threads = get_num_threads()
    is_bytes = array.dtype in (np.uint8, torch.uint8)
    if is_bytes and array.ndim == 4 and len(array) and {input, output} == {"NHWC", "NCHW"}:
        # The image kernels shuffle bytes with vectors.
        format = normalization(None, None, None, "permute").format(input[1:], output[1:], "uint8")
        planes = _core.normalize_images(array, None, format, out, "permute", threads, "images")
        return _written(planes, out)
    permuted = _core.permute(array, axes, out, "permute", threads, "images")
    return _written(permuted, out)


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
    threads = get_num_threads()
    return _core.gather(rows, checked, None, None, out, "gather", threads, "array")


def pad(
    sequences: Any,
    value: Any = 0,
    *,
    side: Side = "right",
    axes: Axes = None,
    max_length: int | None = None,
    multiple_of: MultipleOf = None,
    dtype: Any = None,
    scale: float | None = None,
    lengths: bool = True,
    mask: bool = False,
    time_major: bool = False,
    out: npt.NDArray[Any] | torch.Tensor | None = None,
) -> Any:
    """Puts samples of different sizes into one array, padded to the longest, in one pass.

    Args:
        sequences: A list of ndarrays, CPU tensors or lists of numbers (as tokenizers give), all of
            one rank, (L, ...), and one dtype; or a `RaggedArray`, `Rows` of one, or a
            `JaggedBatch`. Lists of integers count as int64, of floats as float32. A `JaggedBatch` may
            be on CUDA; if its offsets are there too, this waits for the device once.
        value: What padding is made of: a number that the batch's dtype can hold.
        side: ``"right"``: data at the beginning of every axis, padding at its end; ``"left"``: the
            other way round.
        axes: The axes of a sample that may differ, an integer or a tuple of them: ``axes=(1, 2)``
            for images of shape (C, H, W). None: all may, and the keywords below are about axis 0.
        max_length: Samples that are longer along ``axes`` are cut, on the side where padding goes.
        multiple_of: The sizes along ``axes`` are rounded up to a multiple of it, at least one; a tuple
            has a number for each of ``axes``.
        dtype: Cast to it in the same pass, where ``torch.can_cast`` allows it; samples of several
            dtypes are welcome then. Integers that don't fit are an error; on CUDA they
            wrap, as with ``Tensor.to``.
        scale: Multiply integers with it in the same pass: ``scale=2**-15`` maps int16 to -1..1. They
            become float32 if ``dtype`` is None, else float32, float16 or bfloat16. The product
            ``float32(x) * float32(scale)`` is rounded as float32, then to the dtype. Padding is
            not scaled.
        lengths: Whether to return how much of each sample is data.
        mask: Whether to return where data is.
        time_major: Return values and mask as (L, B, ...).
        out: Where to write the values: of the result's shape and dtype, C-contiguous. It may be
            longer along ``axes`` than needed; what is beyond is padding, too.

    Returns:
        `Padded`: ``values`` of shape (B, L, ...) in a pooled buffer or ``out``; ``lengths``, int64
        of shape (B,), or (B, n) if ``axes`` is a tuple of n; ``mask``, bool of shape (B, L) or with
        an axis for each of ``axes``, False also in what ``multiple_of`` added. Without lengths and
        mask, the values alone. ndarrays if the first sample is one, else tensors.

    Raises:
        TypeError: A sample is no array of numbers on the CPU, or dtypes differ without ``dtype``.
        ValueError: No samples, a 0-d sample, ranks that differ, axes that may not differ but do, a
            value or an integer that the dtype can't hold, an ``out`` that does not fit.

    Example:
        >>> tokens, lengths = pinfeed.pad([[5, 6, 7], [8]], value=-1)
        >>> tokens
        tensor([[ 5,  6,  7],
                [ 8, -1, -1]])
        >>> pinfeed.pad([np.arange(3), np.arange(1)], side="left", lengths=False)
        array([[0, 1, 2],
               [0, 0, 0]])
    """
    padding = Padding(value, side, axes, max_length, multiple_of, dtype, scale, time_major, "pad")
    if out is not None:
        _array(out, "pad: out")
    source, offsets, indices = _sequences(sequences)
    if by_ops(source):
        _check_kind(out, source, "pad")
    asked: Any = {"lengths": lengths, "mask": mask, "argument": "sequences", "out": out}
    return _written(pad_sequences(padding, source, offsets, indices, **asked), out)


def unpad(
    padded: Any,
    lengths: Any = None,
    *,
    side: Side | None = None,
    axes: Axes = None,
    time_major: bool = False,
) -> list[Any]:
    """The data of each sample of a padded batch, as views: the way back from `pad`.

    Args:
        padded: (B, L, ...) ndarray or tensor on any device, or a `Padded` that has lengths. That of
            `Image` knows its axes, that of `pad` and `Pad` its side.
        lengths: (B,) integers, or (B, n) for n axes of the samples; not needed for a `Padded`.
        side: Where the padding is. None: where a `Padded` says, else ``"right"``; one that you made
            yourself doesn't know.
        axes: The axes that were padded: an integer or a tuple, as for `pad`. They have to be said
            again. None: height and width for images, else the first ones, as many as there are
            lengths of a sample.
        time_major: Whether ``padded`` is (L, B, ...).

    Returns:
        B arrays of shape (length, ...), which share the memory of ``padded``; gradients flow.

    Raises:
        TypeError: ``padded`` is no array, or lengths are no integers.
        ValueError: There are not B lengths, or one is not from 0 to the size of its axis.

    Example:
        >>> pinfeed.unpad(np.array([[5, 6, 7], [8, 0, 0]]), [3, 1])
        [array([5, 6, 7]), array([8])]
    """
    if isinstance(padded, Padded):
        lengths = getattr(padded, "lengths", None) if lengths is None else lengths
        side = padded.side if side is None else side
        axes = padded.axes if axes is None else axes
        padded = padded.values
    if lengths is None:
        raise TypeError("unpad: expected lengths, or a Padded that has them")
    if isinstance(padded, np.ma.MaskedArray) or not isinstance(padded, np.ndarray | torch.Tensor):
        raise TypeError(
            "unpad: padded must be a NumPy array, a torch tensor or a Padded, "
            f"got {type(padded).__name__}"
        )
    if isinstance(padded, np.ndarray):
        padded = np.asarray(padded)  # a matrix has two axes whatever one takes of it
    return unpadded(padded, lengths, "right" if side is None else side, axes, time_major, "unpad")


def unbind(batch: Any) -> list[Any]:
    """The samples of a batch, in its structure: of a dict a list of dicts, as detection models take.

    Args:
        batch: Dicts, tuples, NamedTuples and lists of leaves with as many samples each: `JaggedBatch`,
            `Padded` with lengths, tensors and ndarrays with a batch axis. Other lists have an item for
            each sample, such as those of `Keep`; lists of arrays do if they are as long as the leaves
            beside them have samples, else they are a structure too.

    Returns:
        B structures, whose arrays share the memory of the batch.

    Raises:
        TypeError: A leaf has no samples.
        ValueError: Leaves don't have as many samples as others; or a list may be both, a leaf and a
            structure.

    Example:
        >>> collate = pinfeed.Collate({"boxes": pinfeed.Jagged(), "labels": pinfeed.Jagged()})
        >>> batch = collate([
        ...     {"boxes": np.zeros((2, 4)), "labels": np.array([3, 5])},
        ...     {"boxes": np.zeros((1, 4)), "labels": np.array([7])},
        ... ])
        >>> targets = pinfeed.unbind(batch)
        >>> [target["labels"].tolist() for target in targets], targets[0]["boxes"].shape
        ([[3, 5], [7]], torch.Size([2, 4]))
    """
    return _samples(batch, "")


def _samples(node: Any, path: str, count: int | None = None) -> list[Any]:
    """The samples of a batch or a part of one; ``count``: how many the parts beside it have."""
    if isinstance(node, JaggedBatch | Padded):
        return node.unbind()
    is_list = isinstance(node, list)
    holds_parts = is_list and node and isinstance(node[0], _PARTS)
    if holds_parts and count is not None and _is_of_objects(node, path, count):
        return list(node)
    if holds_parts or (not is_list and isinstance(node, Mapping | tuple)) or is_dataclass(node):
        below: list[tuple[str, list[Any]]] = []
        # What lists of arrays are, an item for each sample or the parts of one, the others tell.
        for step, child in sorted(children(node), key=lambda part: isinstance(part[1], list)):
            known = len(below[0][1]) if below else count
            below.append((path + step, _samples(child, path + step, known)))
            if len(below[-1][1]) != len(below[0][1]):
                raise ValueError(
                    f"unbind: leaf {below[-1][0]} has {len(below[-1][1])} samples, but leaf "
                    f"{below[0][0]} has {len(below[0][1])}; leave one of them out"
                )
        found = dict(below)
        in_order = [found[path + step] for step, _ in children(node)]
        return [rebuild(node, [*sample]) for sample in zip(*in_order, strict=True)]
    if is_list or (isinstance(node, np.ndarray | torch.Tensor) and node.ndim > 0):
        return list(node)
    raise TypeError(
        f"unbind: {f'leaf {path}' if path else 'batch'} must be an array with a batch axis, a "
        f"JaggedBatch, a Padded or a list, got {type(node).__name__}; leave it out"
    )


def _is_of_objects(node: list[Any], path: str, count: int) -> bool:
    """Whether a list has an item for each of ``count`` samples, as `Keep` makes it, and no parts."""
    try:
        have_samples = all(len(_samples(child, path)) == count for child in node)
    except (TypeError, ValueError):
        have_samples = False
    if have_samples and len(node) == count:
        raise ValueError(
            f"unbind: leaf {path} is a list of {count} parts of {count} items each, which may be one "
            "part for each sample or parts of all samples; leave it out"
        )
    return len(node) == count


def _sequences(sequences: Any) -> tuple[Any, Any, Any]:
    """What `Padding.pad` takes: samples or an array that holds them, offsets, indices."""
    if isinstance(sequences, list):
        return sequences, None, None
    if isinstance(sequences, JaggedBatch | RaggedArray):
        return sequences.values, sequences.offsets, None
    if isinstance(sequences, Source):
        return tuple(sequences.select(np.arange(len(sequences))))
    if isinstance(sequences, Rows) and isinstance(sequences.sources, Source):
        return tuple(sequences.sources.select(sequences.indices))
    if isinstance(sequences, tuple | np.ndarray | torch.Tensor):
        return sequences, None, None
    if isinstance(sequences, Sequence) and not isinstance(sequences, str | bytes):
        return list(sequences), None, None
    raise TypeError(
        "pad: sequences must be a list of arrays, a RaggedArray or a JaggedBatch, "
        f"got {type(sequences).__name__}"
    )


def _array(array: Any, name: str) -> Any:
    if not isinstance(array, np.ndarray | torch.Tensor):
        raise TypeError(
            f"{name}: expected a NumPy array or a torch tensor, got {type(array).__name__}"
        )
    if isinstance(array, torch.Tensor) and array.requires_grad:
        raise TypeError(f"{name}: expected a tensor without gradients; call .detach() first")
    return array


def _windows(windows: Any, count: int) -> npt.NDArray[np.float64]:
    given = windows.cpu() if isinstance(windows, torch.Tensor) else windows
    array = np.asarray(given, np.float64, order="C")
    if array.shape != (count, 6):
        raise ValueError(
            f"normalize: windows must be of shape (N, 6), here ({count}, 6), got {array.shape}"
        )
    return array


def _written(result: Any, out: Any) -> Any:
    if isinstance(out, torch.Tensor):
        # As torch's own out=: autograd has to notice if it saved this tensor for a backward pass.
        torch.autograd.graph.increment_version(out)
    return result


def _check_kind(out: Any, array: Any, function: str) -> None:
    if out is not None and isinstance(out, torch.Tensor) != isinstance(array, torch.Tensor):
        raise TypeError(
            f"{function}: out must be of the same kind as the input, "
            f"a {type(array).__name__}, got {type(out).__name__}"
        )
    if out is not None:
        _array(out, f"{function}: out")
