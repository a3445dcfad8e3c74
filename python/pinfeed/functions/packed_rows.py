"""Documents in rows by torch's operations, on any device; `csrc/kernels/pack.h` is the CPU's way."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from pinfeed.functions.torch_ops.tensors import as_signed, fill
from pinfeed.packing import Packing


class Segments(NamedTuple):
    """Documents and what is left at the end of rows, in order; int64 of shape (N,) each.

    Attributes:
        sources: Where in the values a document begins.
        begins: Where it begins, over all rows end to end.
        sizes: How many places it takes.
        counts: How many of them have a token: the first ones.
        numbers: Which segment of its row it is; or of all rows.
    """

    sources: npt.NDArray[np.int64]
    begins: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]

    @classmethod
    def of(cls, lengths: npt.NDArray[np.int64], packing: Packing | None, through: bool) -> Segments:
        """Those of a batch.

        Args:
            lengths: Of its documents.
            packing: Where they lie. None: one after the other, without rows.
            through: Whether segments are numbered through all rows.
        """
        sources = np.cumsum(lengths) - lengths
        if packing is None:
            return cls(sources, sources, lengths, lengths, np.arange(len(lengths)))
        row_starts = np.arange(packing.rows) * packing.seq_length
        ends = packing.places + -(-lengths // packing.multiple_of) * packing.multiple_of
        filled = row_starts.copy()
        np.maximum.at(filled, packing.places // packing.seq_length, ends)
        tails = filled[filled < row_starts + packing.seq_length]
        order = np.argsort(np.concatenate((packing.places, tails)))
        none = np.zeros_like(tails)
        begins = np.concatenate((packing.places, tails))[order]
        rows = begins // packing.seq_length
        first_of_row = 0 if through else np.searchsorted(rows, rows)
        return cls(
            np.concatenate((sources, none))[order],
            begins,
            np.diff(begins, append=packing.rows * packing.seq_length),
            np.concatenate((lengths, none))[order],
            np.arange(len(begins)) - first_of_row,
        )

    def cu_seqlens(self, packing: Packing | None) -> torch.Tensor:
        """Where segments begin, and the end, which fills up the rest; int32."""
        count = len(self.begins)
        if packing is not None:
            most = min(packing.max_documents or 0, packing.seq_length)
            count = packing.rows * (1 + most) if most else _next_power_of_two(count)
        ends = torch.full((count + 1,), int(self.sizes.sum()), dtype=torch.int32)
        ends[: len(self.begins)] = torch.from_numpy(self.begins)
        return ends

    def max_seqlen(self, packing: Packing | None) -> int:
        """The longest segment, rounded up if it lies in rows."""
        longest = int(self.sizes.max())
        if packing is None:
            return longest
        return min(_next_power_of_two(longest), packing.seq_length)


class PackedPlaces:
    """For each place of all rows which token, if any, belongs there: tensors on one device.

    Args:
        segments: Those of the batch.
        device: The device.
    """

    def __init__(self, segments: Segments, device: torch.device) -> None:
        table = torch.from_numpy(np.stack(segments)).to(device, non_blocking=True)
        total = int(segments.sizes.sum())
        here = torch.arange(len(segments.sizes), device=device)
        # The size is known, so nothing waits for the device.
        here = here.repeat_interleave(table[2], output_size=total)
        sources, begins, _, counts, numbers = table[:, here]
        self.position = torch.arange(total, device=device) - begins
        self.has_token = self.position < counts
        self.number = numbers.to(torch.int32)
        self.document = torch.where(counts > 0, self.number, -1)
        self._sources = torch.where(self.has_token, sources + self.position, 0)

    def tokens(self, values: torch.Tensor, empty: Any, first: Any) -> torch.Tensor:
        """The values at their places.

        Args:
            values: (total, ...), the documents one after the other.
            empty: What stands where no token belongs.
            first: What overwrites the first token of each document, if anything.
        """
        if len(values) == 0:
            rows = values.new_empty((len(self._sources), *values.shape[1:]))
        else:
            rows = as_signed(values)[self._sources].view(values.dtype)
        fill(rows, self.has_token, empty)
        if first is not None:
            fill(rows, ~(self.has_token & (self.position == 0)), first)
        return rows


def _next_power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
