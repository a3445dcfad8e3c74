"""Samples of different lengths as one array without padding."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import torch

from pinfeed import _core
from pinfeed.functions.padded import Padded, padded_batch
from pinfeed.functions.padding import (
    Axes,
    MultipleOf,
    Padding,
    Side,
    check_side,
    checked_lengths,
    flag,
)
from pinfeed.functions.torch_ops.tensors import by_ops, longest_sample, pad_tensor, unpad_tensor
from pinfeed.runtime import get_num_threads


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

    def filter(self, keep: Any) -> JaggedBatch:
        """The samples without some of their items.

        Args:
            keep: bool of shape (total,), of the kind of ``values``; False drops an item.

        Raises:
            TypeError: ``keep`` is not bool.
            ValueError: ``keep`` has another shape.

        Example:
            >>> labels = pinfeed.Collate(pinfeed.Jagged())([[1, 2, 3], [4]])
            >>> labels.filter(labels.values != 2).unbind()
            [tensor([1, 3]), tensor([4])]
        """
        if getattr(keep, "dtype", None) not in (torch.bool, np.bool_):
            raise TypeError(f"filter: keep must be an array of bool, got {keep!r}")
        if keep.shape != self.values.shape[:1]:
            raise ValueError(
                f"filter: keep must have one bool for each of {len(self.values)} items, got shape "
                f"{tuple(keep.shape)}"
            )
        kept: Any  # how many of the items before each one
        if isinstance(keep, torch.Tensor):
            kept = torch.nn.functional.pad(keep.cumsum(0), (1, 0))
        else:
            kept = np.append(0, keep.cumsum())
        return JaggedBatch(self.values[keep], kept[self.offsets])

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

    def to_padded(
        self,
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
    ) -> Any:
        """The same batch padded to its longest sample; the keywords and result of `pinfeed.pad`."""
        padding = Padding(
            value, side, axes, max_length, multiple_of, dtype, scale, time_major, "to_padded"
        )
        return pad_sequences(padding, *self, lengths=lengths, mask=mask, argument="values")

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
        if isinstance(padded, Padded):
            lengths = getattr(padded, "lengths", None) if lengths is None else lengths
            side = padded.side if side is None else side
            padded = padded.values
        side = "right" if side is None else side
        if lengths is None:
            raise TypeError("from_padded: expected lengths, or a Padded that has them")
        check_side(side, "from_padded")
        if not isinstance(padded, np.ndarray | torch.Tensor) or padded.ndim < 2:
            raise TypeError(
                "from_padded: padded must be an array of shape (B, L, ...), "
                f"got {type(padded).__name__} {tuple(getattr(padded, 'shape', ()))}"
            )
        counts = np.array(
            checked_lengths(lengths, tuple(padded.shape[:2]), "from_padded"), np.int64
        ).reshape(-1)
        if by_ops(padded):
            return cls(*unpad_tensor(padded, counts, side))
        return cls(
            *_core.join(
                padded,
                None,
                None,
                None,
                "from_padded",
                get_num_threads(),
                argument="padded",
                side=side,
                lengths=counts,
            )
        )


def pad_sequences(
    padding: Padding,
    source: Any,
    offsets: Any = None,
    indices: Any = None,
    *,
    lengths: bool,
    mask: bool,
    argument: str,
    out: Any = None,
) -> Any:
    """`pinfeed.pad` of what `Padding.pad` takes, or of a jagged batch on a device.

    Offsets there are waited for, because the longest sample decides the size of the result.
    """
    function = padding.function
    flag(lengths, f"{function}: lengths")
    flag(mask, f"{function}: mask")
    if offsets is not None and by_ops(source):
        longest = longest_sample(offsets, function)
        starts = offsets.to(source.device, non_blocking=True)
        asked: Any = {"lengths": lengths, "mask": mask, "name": function, "out": out}
        parts = pad_tensor(padding, source, starts, longest, **asked)
    else:
        asked = {"lengths": lengths, "mask": mask, "name": function, "target": out}
        parts = padding.pad(source, offsets, indices, **asked, argument=argument)
    return padded_batch(*parts, False, padding.side) if lengths or mask else parts[0]
