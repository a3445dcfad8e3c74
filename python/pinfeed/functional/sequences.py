"""Samples of different sizes: padded into one array, or one after the other, and the ways back."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.arguments import ARRAYS, instead, require_flags
from pinfeed.functional.arrays import require_array, require_same_kind, written
from pinfeed.functional.padding import (
    Axes,
    Padding,
    Side,
    check_side,
    checked_lengths,
    unpadded,
)
from pinfeed.functional.torch_ops.tensors import by_ops, longest_sample, pad_tensor, unpad_tensor
from pinfeed.runtime import get_num_threads
from pinfeed.sources.dataset import Rows
from pinfeed.sources.ragged import RaggedArray
from pinfeed.sources.source import Source


class _Parts(NamedTuple):
    values: Any  # of the kind of the input: arrays of NumPy or tensors
    lengths: Any = None
    mask: Any = None


class Padded(_Parts):
    """Padded samples, and what says where the data is: a NamedTuple ``(values, lengths, mask)``.

    Attributes:
        values: (B, L, ...) tensor or ndarray, every sample in one box of the largest size.
        lengths: int64 of shape (B,), or (B, n) for n axes: how much of each sample is data. None
            where nobody asked for them.
        mask: bool of shape (B, L) or one axis for each that varies, True where data is; or None.

    Example:
        >>> padded = pinfeed.Padded(np.zeros((1, 2)), np.array([2]))
        >>> values, lengths, mask = padded
        >>> padded.lengths
        array([2])
    """

    __slots__ = ()

    #: The axes of a sample that lengths and mask are about; None: the first ones.
    axes: ClassVar[tuple[int, ...] | None] = None

    #: Where the padding is, as far as who made this said so.
    side: ClassVar[Side] = "right"

    def unbind(self, *, side: Side | None = None, axes: Axes = None) -> list[Any]:
        """The data of each sample, as views; `pinfeed.functional.unpad` says what the keywords mean.

        Raises:
            TypeError: There are no lengths.
            ValueError: They don't fit to the values.

        Example:
            >>> pinfeed.functional.pad([[5, 6, 7], [8]]).unbind()
            [tensor([5, 6, 7]), tensor([8])]
        """
        return _unpad(self, None, side, axes, "unbind")


class LeftPadded(Padded):
    """`Padded` on the left."""

    __slots__ = ()
    side = "left"


class PaddedImages(Padded):
    """A batch (B, C, H, W) of `Image` with sizes."""

    __slots__ = ()
    axes = (1, 2)


class JaggedBatch(NamedTuple):
    """Samples one after the other: sample i is ``values[offsets[i]:offsets[i + 1]]``.

    Attributes:
        values: (total, ...) tensor or ndarray.
        offsets: int64 of shape (B + 1,), from 0 to total.

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
        """int64 of shape (B,)."""
        return self.offsets[1:] - self.offsets[:-1]

    def unbind(self) -> list[Any]:
        """The samples, as views of ``values``; offsets on a device are waited for.

        Example:
            >>> pinfeed.Collate(pinfeed.Jagged())([[1, 2, 3], [4]]).unbind()
            [tensor([1, 2, 3]), tensor([4])]
        """
        return [self.values[i:j] for i, j in itertools.pairwise(self.offsets.tolist())]

    def cu_seqlens(self) -> Any:
        """The offsets as int32, as variable-length attention kernels take them.

        Raises:
            ValueError: The batch has 2**31 items or more.
        """
        total = int(self.offsets[-1])
        if total >= 2**31:
            raise ValueError(
                f"cu_seqlens: offsets must be less than 2**31 to be int32, got {total}; "
                "make smaller batches"
            )
        if isinstance(self.offsets, torch.Tensor):
            return self.offsets.to(torch.int32)
        return self.offsets.astype(np.int32)

    def to_nested(self) -> torch.Tensor:
        """A nested tensor of torch's jagged layout, over the same memory."""
        values, offsets = (
            part if isinstance(part, torch.Tensor) else torch.as_tensor(part, device="cpu")
            for part in self
        )
        return torch.nested.nested_tensor_from_jagged(values, offsets)

    def to_padded(self, pad_value: Any = 0, **keywords: Any) -> Any:
        """The same batch padded to its longest sample: `pinfeed.functional.pad` of it, with the same keywords."""
        return pad(self, pad_value, **keywords)

    @classmethod
    def from_padded(
        cls, padded: Any, lengths: Any = None, *, side: Side | None = None
    ) -> JaggedBatch:
        """The data of a batch padded along axis 0 of its samples, copied together in one pass.

        Args:
            padded: (B, L, ...) ndarray or tensor on the CPU or on CUDA, or a `Padded` that has lengths.
            lengths: (B,) or (B, 1) integers; not needed for a `Padded`.
            side: Where the padding is. None: where a `Padded` says, else ``"right"``.

        Raises:
            TypeError: ``padded`` is no array, or lengths are no integers.
            ValueError: There are not B lengths, or one is not from 0 to L.
        """
        padded, lengths, side, _ = _padded_parts(padded, lengths, side, None, "from_padded")
        if not isinstance(padded, ARRAYS) or padded.ndim < 2:
            raise TypeError(
                "from_padded: padded must be an array of shape (B, L, ...), "
                f"got {type(padded).__name__} {tuple(getattr(padded, 'shape', ()))}"
            )
        counts = np.array(
            checked_lengths(lengths, tuple(padded.shape[:2]), "from_padded"), np.int64
        ).reshape(-1)
        if by_ops(padded):
            return cls(*unpad_tensor(padded, counts, side))
        target, threads = None, get_num_threads()
        options: Any = {"argument": "padded", "side": side, "lengths": counts}
        return cls(*_core.join(padded, None, None, target, "from_padded", threads, **options))


@instead(
    padding_value="it is pad_value",
    padding_side="it is side",
    truncation="max_length=n cuts longer samples",
    padding="batches are padded to their longest sample; with max_length=n and multiple_of=n, to n",
    pad_token_id="it is pad_value",
    pad_to_multiple_of="it is multiple_of",
    time_major="the result is (B, L, ...): .transpose(0, 1)",
)
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
    """Puts samples of different sizes into one array, padded to the longest, in one pass.

    Args:
        sequences: A list of ndarrays, CPU tensors or lists of numbers (as tokenizers give), all of
            one rank, (L, ...), and one dtype; or a `RaggedArray`, `Rows` of one, or a
            `JaggedBatch`. Lists of integers count as int64, of floats as float32. A `JaggedBatch` may
            be on CUDA; if its offsets are there too, this waits for the device once.
        pad_value: What padding is made of: a number that the batch's dtype can hold.
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
        out: Where to write the values: of the result's shape and dtype, C-contiguous. It may be
            longer along ``axes`` than needed; what is beyond is padding, too. For CUDA tensors the result
            is copied into it.

    Returns:
        `Padded`: ``values`` of shape (B, L, ...) in a pooled buffer or ``out``; ``lengths``, int64
        of shape (B,), or (B, n) if ``axes`` is a tuple of n; ``mask``, bool of shape (B, L) or with
        an axis for each of ``axes``, False also in what ``multiple_of`` added. What was not asked
        for is None; without lengths and mask, the values alone. ndarrays if the first sample is
        one, else tensors.

    Raises:
        TypeError: A sample is no array of numbers on the CPU, or dtypes differ without ``dtype``.
        ValueError: No samples, a 0-d sample, ranks that differ, axes that may not differ but do, a
            ``pad_value`` or an integer that the dtype can't hold, an ``out`` that does not fit.

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
    if out is not None:
        require_array(out, "pad: out")
    source, offsets, indices = _sequences(sequences)
    asked: Any = {"lengths": lengths, "mask": mask}
    if offsets is not None and by_ops(source):
        require_same_kind(out, source, "pad")
        longest = longest_sample(offsets, "pad")  # which a device is waited for
        offsets = offsets.to(source.device, non_blocking=True)
        asked |= {"name": "pad", "out": out}
        parts: Any = pad_tensor(padding, source, offsets, longest, **asked)
    else:
        given, threads = (source, offsets, indices), get_num_threads()
        asked["mask"] = "bool" if mask else ""
        parts = _core.pad(*given, padding.options, out, "pad", threads, "sequences", **asked)
    values = written(parts[0], out)
    if not (lengths or mask):
        return values
    return (Padded if side == "right" else LeftPadded)(values, *parts[1:3])


@instead(time_major="transpose it first: padded.transpose(0, 1)")
def unpad(
    padded: Any,
    lengths: Any = None,
    *,
    side: Literal["right", "left"] | None = None,
    axes: int | tuple[int, ...] | None = None,
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

    Returns:
        B arrays of shape (length, ...), which share the memory of ``padded``; gradients flow.

    Raises:
        TypeError: ``padded`` is no array, or lengths are no integers.
        ValueError: There are not B lengths, or one is not from 0 to the size of its axis.

    Example:
        >>> pinfeed.functional.unpad(np.array([[5, 6, 7], [8, 0, 0]]), [3, 1])
        [array([5, 6, 7]), array([8])]
    """
    return _unpad(padded, lengths, side, axes, "unpad")


def _unpad(padded: Any, lengths: Any, side: Side | None, axes: Axes, function: str) -> list[Any]:
    padded, lengths, side, axes = _padded_parts(padded, lengths, side, axes, function)
    if isinstance(padded, np.ma.MaskedArray) or not isinstance(padded, ARRAYS):
        raise TypeError(
            f"{function}: padded must be a NumPy array, a torch tensor or a Padded, "
            f"got {type(padded).__name__}"
        )
    if isinstance(padded, np.ndarray):
        padded = np.asarray(padded)  # a matrix has two axes whatever one takes of it
    return unpadded(padded, lengths, side, axes, function)


def _padded_parts(
    padded: Any, lengths: Any, side: Side | None, axes: Axes, function: str
) -> tuple[Any, Any, Side, Axes]:
    """Values, lengths, side and axes: those that were said, else those that a `Padded` knows."""
    if isinstance(padded, Padded):
        lengths = padded.lengths if lengths is None else lengths
        side = padded.side if side is None else side
        axes = padded.axes if axes is None else axes
        padded = padded.values
    if lengths is None:
        raise TypeError(
            f"{function}: expected lengths, or a Padded that has them: lengths=True, of Image sizes=True"
        )
    side = "right" if side is None else side
    check_side(side, function)
    return padded, lengths, side, axes


def _sequences(sequences: Any) -> tuple[Any, Any, Any]:
    """What native code takes: samples or an array that holds them, offsets, indices."""
    if isinstance(sequences, list):  # mostly
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
