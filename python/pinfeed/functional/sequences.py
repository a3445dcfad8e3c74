"""Samples of different sizes, padded or concatenated, and the inverse operations."""

from __future__ import annotations

import itertools
import math
import reprlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.arguments import ARRAYS, Problem, check_plain, require_flags, with_hints
from pinfeed.batches import Selectable
from pinfeed.functional.arrays import require_out, written
from pinfeed.functional.padding import (
    PAD_HINTS,
    Axes,
    Padding,
    Side,
    check_side,
    checked_lengths,
    require_rows,
    unpadded,
)
from pinfeed.functional.torch_ops.tensors import (
    longest_sample,
    pad_tensor,
    unpad_tensor,
    uses_torch_ops,
)
from pinfeed.runtime import get_num_threads


class _Parts(NamedTuple):
    values: Any  # ndarrays or tensors, like the input
    lengths: Any = None
    mask: Any = None


class Padded(_Parts):
    """Padded samples with lengths and a mask: a NamedTuple ``(values, lengths, mask)``.

    Attributes:
        values: Padded samples, a tensor or ndarray of shape (B, L, ...).
        lengths: Lengths of the data, int64 of shape (B,), or (B, n) for n axes; None unless requested.
        mask: Mask of the data, bool of shape (B, L), or (B, L, ...) for n axes; None unless requested.

    Example:
        >>> padded = pinfeed.Padded(np.zeros((1, 2)), np.array([2]))
        >>> values, lengths, mask = padded
        >>> padded.lengths
        array([2])
    """

    __slots__ = ()

    #: The padded axes of a sample; None: the first ones.
    axes: ClassVar[tuple[int, ...] | None] = None

    #: The side of the padding.
    side: ClassVar[Side] = "right"

    def unbind(self, *, side: Side | None = None, axes: Axes = None) -> list[Any]:
        """Returns the data of each sample as views. The keywords are as in `pinfeed.functional.unpad`.

        Raises:
            TypeError: If lengths are missing.
            ValueError: If lengths don't match the values.

        Example:
            >>> pinfeed.functional.pad([[5, 6, 7], [8]]).unbind()
            [tensor([5, 6, 7]), tensor([8])]
        """
        return _unpad(self, None, side, axes, "unbind")


class LeftPadded(Padded):
    """A `Padded` with padding on the left."""

    __slots__ = ()
    side = "left"


class PaddedImages(Padded):
    """A `Padded` of images, (B, C, H, W), as from `Image` with ``sizes``."""

    __slots__ = ()
    axes = (1, 2)


class JaggedBatch(NamedTuple):
    """Concatenated samples of different lengths: sample i is ``values[offsets[i]:offsets[i + 1]]``.

    Attributes:
        values: Concatenated samples, a tensor or ndarray of shape (total, ...).
        offsets: Sample boundaries, int64 of shape (B + 1,), from 0 to total.

    Example:
        >>> batch = pinfeed.Collate(pinfeed.Jagged())([[1, 2, 3], [4]])
        >>> batch.values, batch.offsets
        (tensor([1, 2, 3, 4]), tensor([0, 3, 4]))
        >>> batch.to_padded().values
        tensor([[1, 2, 3],
                [4, 0, 0]])
    """

    values: Any
    offsets: Any

    @property
    def lengths(self) -> Any:
        """The length of each sample, int64 of shape (B,)."""
        return self.offsets[1:] - self.offsets[:-1]

    def unbind(self) -> list[Any]:
        """Returns the samples as views of ``values``. Offsets on a device are copied to the CPU first.

        Raises:
            ValueError: If offsets decrease, or lie outside of the values.

        Example:
            >>> pinfeed.Collate(pinfeed.Jagged())([[1, 2, 3], [4]]).unbind()
            [tensor([1, 2, 3]), tensor([4])]
        """
        offsets = self._offsets("unbind", len(self.values))
        return [self.values[i:j] for i, j in itertools.pairwise(offsets)]

    def _offsets(self, function: str, length: float) -> list[int]:
        """Returns the offsets as a list; raises unless they are non-decreasing integers, 0 to ``length``."""
        offsets = self.offsets.tolist() if hasattr(self.offsets, "tolist") else None
        if not isinstance(offsets, list) or {*map(type, offsets)} - {int}:
            kind = getattr(self.offsets, "dtype", type(self.offsets).__name__)
            expected = "an array of integers of shape (B + 1,)"
            got = f"{kind} {tuple(getattr(self.offsets, 'shape', ()))}"
            raise TypeError(Problem(f"{function}: offsets", expected, got))
        if offsets != sorted(offsets) or (offsets and not 0 <= offsets[0] <= offsets[-1] <= length):
            limit = " on" if length == math.inf else f" to {length}, the length of the values"
            wrong = f"offsets must not decrease and must be from 0{limit}"
            raise ValueError(Problem(function, f"{wrong}, got {reprlib.repr(offsets)}"))
        return offsets

    def cu_seqlens(self) -> Any:
        """Returns the offsets as int32, for variable-length attention kernels.

        Raises:
            ValueError: If the batch has 2**31 items or more.
        """
        total = (self._offsets("cu_seqlens", math.inf) or [0])[-1]
        if total >= 2**31:
            expected, hint = "numbers less than 2**31, for int32", "make smaller batches"
            raise ValueError(Problem("cu_seqlens: offsets", expected, str(total), hint))
        if isinstance(self.offsets, torch.Tensor):
            return self.offsets.to(torch.int32)
        return self.offsets.astype(np.int32)

    def to_nested(self) -> torch.Tensor:
        """Returns a nested tensor of torch's jagged layout, over the same memory."""
        values, offsets = (
            part if isinstance(part, torch.Tensor) else torch.as_tensor(part, device="cpu")
            for part in self
        )
        return torch.nested.nested_tensor_from_jagged(values, offsets)

    def to_padded(self, pad_value: Any = 0, **keywords: Any) -> Any:
        """Returns a `Padded` of the samples. Keywords are as in `pinfeed.functional.pad`."""
        return pad(self, pad_value, **keywords)

    @classmethod
    def from_padded(
        cls, padded: Any, lengths: Any = None, *, side: Side | None = None
    ) -> JaggedBatch:
        """Creates a JaggedBatch from a batch padded along axis 0 of its samples, in one pass.

        Args:
            padded: Padded batch (B, L, ...), an ndarray or a tensor on the CPU or on CUDA; or a `Padded`
                with lengths.
            lengths: Lengths of the samples, integers (B,) or (B, 1); not needed for a `Padded`.
            side: Side of the padding. None: the side of a `Padded`, else ``"right"``.

        Raises:
            TypeError: If ``padded`` is not an array, or lengths are not integers.
            ValueError: If there are not B lengths, or a length is not between 0 and L.

        Example:
            >>> padded = pinfeed.functional.pad([[5, 6, 7], [8]])
            >>> pinfeed.JaggedBatch.from_padded(padded)
            JaggedBatch(values=tensor([5, 6, 7, 8]), offsets=tensor([0, 3, 4]))
        """
        padded, lengths, side, _ = _padded_parts(padded, lengths, side, None, "from_padded")
        if not isinstance(padded, ARRAYS) or padded.ndim < 2:
            got = f"{type(padded).__name__} {tuple(getattr(padded, 'shape', ()))}"
            raise TypeError(Problem("from_padded: padded", "an array of shape (B, L, ...)", got))
        counts = np.array(
            checked_lengths(lengths, tuple(padded.shape[:2]), "from_padded"), np.int64
        ).reshape(-1)
        if uses_torch_ops(padded):
            return cls(*unpad_tensor(padded, counts, side))
        target, threads = None, get_num_threads()
        options: Any = {"argument": "padded", "side": side, "lengths": counts}
        return cls(*_core.join(padded, None, None, target, "from_padded", threads, **options))


@with_hints(time_major="the result is (B, L, ...): .transpose(0, 1) puts time first", **PAD_HINTS)
def pad(
    sequences: Any,
    pad_value: Any = 0,
    *,
    side: Literal["right", "left"] = "right",
    axes: int | tuple[int, ...] | None = None,
    max_length: int | None = None,
    multiple_of: int | tuple[int, ...] | None = None,
    dtype: Any = None,
    scale: float | None = None,
    lengths: bool = True,
    mask: bool = False,
    out: npt.NDArray[Any] | torch.Tensor | None = None,
) -> Any:
    """Pads samples of different sizes into one array, in one pass.

    Args:
        sequences: Samples (L, ...) of one ndim and dtype: a list of ndarrays, CPU tensors or lists of
            numbers; a `RaggedArray`, `Rows` of one, or a `JaggedBatch`. Lists of integers count as
            int64, lists of floats as float32. A `JaggedBatch` can be on CUDA; if its offsets are there
            too, this waits for the device once.
        pad_value: Padding value; must fit the dtype.
        side: Side to pad, on every axis: ``"right"`` or ``"left"``.
        axes: Axes of a sample that can differ, an integer or a tuple: ``axes=(1, 2)`` for images of
            shape (C, H, W). None: all axes; ``max_length`` and ``multiple_of`` then apply to axis 0.
        max_length: Maximum length along ``axes``; longer samples are cut on the padded side.
        multiple_of: Number, or a tuple with one for each of ``axes``; sizes along ``axes`` are rounded
            up to multiples of it, but at least to one multiple.
        dtype: Dtype of the result, if ``torch.can_cast`` allows the cast; samples can then differ in
            dtype. Integers that don't fit raise an error; on CUDA they wrap, as with ``Tensor.to``.
        scale: Factor for integers: ``scale=2**-15`` maps int16 to -1..1. The result is float32 unless
            ``dtype`` is float16 or bfloat16. The product ``float32(x) * float32(scale)`` is rounded to
            float32, then to the dtype. Padding is not scaled.
        lengths: Whether to return the lengths of samples.
        mask: Whether to return a mask of the data.
        out: Array for the values, of their shape and dtype, C-contiguous. Along ``axes`` it can be
            longer; the rest is padded. For CUDA tensors the result is copied into it.

    Returns:
        `Padded` with ``values`` of shape (B, L, ...) in a reused buffer or ``out``; ``lengths``, int64
        of shape (B,), or (B, n) if ``axes`` is a tuple of n; and ``mask``, True for data, bool of shape
        (B, L), or (B, L1, ..., Ln) for a tuple. Parts that are not requested are None; without lengths
        and mask it returns the values alone. All are ndarrays if the first sample is one, else tensors.

    Raises:
        TypeError: If a sample is not a numeric array on the CPU, or dtypes differ without ``dtype``.
        ValueError: If the batch is empty, a sample is 0-d, samples differ in ndim or along an axis not in
            ``axes``, ``pad_value`` or an integer doesn't fit the dtype, or ``out`` has another shape.

    Example:
        >>> tokens, lengths, _ = pinfeed.functional.pad([[5, 6, 7], [8]], pad_value=-1)
        >>> tokens
        tensor([[ 5,  6,  7],
                [ 8, -1, -1]])
        >>> pinfeed.functional.pad([np.arange(3), np.arange(1)], side="left", lengths=False)
        array([[0, 1, 2],
               [0, 0, 0]])
    """
    require_flags("pad", lengths=lengths, mask=mask)
    padding = Padding(
        "pad",
        pad_value,
        side=side,
        axes=axes,
        max_length=max_length,
        multiple_of=multiple_of,
        dtype=dtype,
        scale=scale,
    )
    require_out(out, "pad")
    source, offsets, indices = _sequences(sequences)
    if axes is None and isinstance(source, list | tuple):
        require_rows(source, "pad: sequences", pads=True)
    outputs: Any = {"lengths": lengths, "mask": mask}
    if offsets is not None and uses_torch_ops(source):
        longest = longest_sample(offsets, "pad")  # waits for offsets on a device
        offsets = offsets.to(source.device, non_blocking=True)
        outputs |= {"name": "pad", "out": out}
        parts: Any = pad_tensor(padding, source, offsets, longest, **outputs)
    else:
        samples, threads = (source, offsets, indices), get_num_threads()
        outputs["mask"] = "bool" if mask else ""
        parts = _core.pad(*samples, padding.options, out, "pad", threads, "sequences", **outputs)
    values = written(parts[0], out)
    if not (lengths or mask):
        return values
    return (Padded if side == "right" else LeftPadded)(values, *parts[1:3])


@with_hints(time_major="transpose it first: padded.transpose(0, 1)")
def unpad(
    padded: Any,
    lengths: Any = None,
    *,
    side: Literal["right", "left"] | None = None,
    axes: int | tuple[int, ...] | None = None,
) -> list[Any]:
    """Returns views of the data of each sample in a padded batch, the inverse of `pad`.

    Args:
        padded: Padded batch (B, L, ...), an ndarray or a tensor on any device; or a `Padded` with
            lengths. A `Padded` from `pad` or `Pad` knows its ``side``, and one from `Image` its ``axes``.
        lengths: Lengths of the samples, integers (B,), or (B, n) for n axes; not needed for a `Padded`.
        side: Side of the padding. None: the side of a `Padded` (``"right"`` if you created it), else
            ``"right"``.
        axes: Padded axes, an integer or a tuple, the same as for `pad`. None: height and width
            for a `Padded` from `Image`, else the first axes, one for each column of ``lengths``.

    Returns:
        B arrays of shape (length, ...), which share the memory of ``padded``; gradients flow through them.

    Raises:
        TypeError: If ``padded`` is not an array, or lengths are not integers.
        ValueError: If there are not B lengths, or a length is not between 0 and the size of its axis.

    Example:
        >>> pinfeed.functional.unpad(np.array([[5, 6, 7], [8, 0, 0]]), [3, 1])
        [array([5, 6, 7]), array([8])]
    """
    return _unpad(padded, lengths, side, axes, "unpad")


def _unpad(padded: Any, lengths: Any, side: Side | None, axes: Axes, function: str) -> list[Any]:
    padded, lengths, side, axes = _padded_parts(padded, lengths, side, axes, function)
    if isinstance(padded, np.ma.MaskedArray) or not isinstance(padded, ARRAYS):
        expected = "a NumPy array, a torch tensor or a Padded"
        raise TypeError(Problem(f"{function}: padded", expected, type(padded).__name__))
    check_plain(padded, f"{function}: padded")
    if isinstance(padded, np.ndarray):
        padded = np.asarray(padded)  # rows of an np.matrix would have two axes
    return unpadded(padded, lengths, side, axes, function)


def _padded_parts(
    padded: Any, lengths: Any, side: Side | None, axes: Axes, function: str
) -> tuple[Any, Any, Side, Axes]:
    """Returns values, lengths, side and axes: the arguments, or else the parts of a `Padded`."""
    if isinstance(padded, Padded):
        lengths = padded.lengths if lengths is None else lengths
        side = padded.side if side is None else side
        axes = padded.axes if axes is None else axes
        padded = padded.values
    if lengths is None:
        expected = "lengths, or a Padded with lengths"
        hint = "pass lengths, or create the batch with Pad(lengths=True) or Image(sizes=True)"
        raise TypeError(Problem(function, expected, "neither", hint))
    side = "right" if side is None else side
    check_side(side, function)
    return padded, lengths, side, axes


def _sequences(sequences: Any) -> tuple[Any, Any, Any]:
    """Returns samples in native form: samples or an array that holds them, offsets, indices."""
    if isinstance(sequences, list):  # the common case
        return sequences, None, None
    if isinstance(sequences, JaggedBatch):
        return sequences.values, sequences.offsets, None
    if isinstance(sequences, Selectable):  # a RaggedArray, or Rows of one
        return sequences.selection()
    if isinstance(sequences, np.ndarray) and sequences.dtype == object:
        expected, hint = "a list of arrays", "sequences.tolist() is a list of them"
        raise TypeError(Problem("pad: sequences", expected, "an array of objects", hint))
    if isinstance(sequences, tuple | np.ndarray | torch.Tensor):
        return sequences, None, None
    if isinstance(sequences, Sequence) and not isinstance(sequences, str | bytes):
        return list(sequences), None, None
    expected = "a list of arrays, a RaggedArray or a JaggedBatch"
    hint = "pass list(sequences)" if isinstance(sequences, Iterator) else ""
    raise TypeError(Problem("pad: sequences", expected, type(sequences).__name__, hint))
