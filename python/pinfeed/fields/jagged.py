"""Leaves of different lengths, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed import _core
from pinfeed.concat_array import ConcatArray
from pinfeed.dtypes import dtype_name
from pinfeed.fields.field import Field
from pinfeed.jagged import JaggedBatch
from pinfeed.outputs import batch_allocator
from pinfeed.ragged_array import RaggedArray
from pinfeed.runtime import get_num_threads
from pinfeed.sources import ArraySource, Source


class Jagged(Field):
    """Samples of different lengths one after the other, with offsets: a `JaggedBatch`.

    Samples are ndarrays, CPU tensors or lists of numbers that differ along axis 0 only: tokens,
    boxes of a detection dataset, frames.

    Args:
        dtype: The batch's dtype, if not the samples' own, as in `Pad`.

    Raises:
        TypeError: ``dtype`` is none. When samples are collated: dtypes differ.
        ValueError: When samples are collated: shapes differ beyond axis 0.

    Example:
        >>> samples = [np.zeros((2, 4), np.float32), np.zeros((0, 4), np.float32)]
        >>> boxes = pinfeed.Collate(pinfeed.Jagged())(samples)
        >>> boxes.values.shape, boxes.offsets
        (torch.Size([2, 4]), tensor([0, 2, 2]))
    """

    def __init__(self, dtype: Any = None) -> None:
        self.dtype = None if dtype is None else dtype_name(dtype, "Jagged")
        if self.dtype is not None:
            _core.check_value(0, self.dtype, "Jagged", "value")

    def collate(self, samples: Sequence[Any], name: str) -> JaggedBatch:
        """See `Field.collate`."""
        return self._join(list(samples), None, None, name)

    def gather(self, source: Source, indices: npt.NDArray[np.int64], name: str) -> JaggedBatch:
        """See `Field.gather`."""
        if isinstance(source, RaggedArray):
            return self._join(source.rows, source.offsets, indices, name)
        if isinstance(source, ConcatArray) and source.rows is None:
            return self.collate(source.views(indices), name)
        assert isinstance(source, ArraySource | ConcatArray)
        return self._join(source.rows, None, indices, name)

    def _join(self, source: Any, offsets: Any, indices: Any, name: str) -> JaggedBatch:
        values, starts = _core.join(
            source,
            offsets,
            indices,
            None,
            "right",
            self.dtype,
            batch_allocator(),
            True,
            name,
            name,
            get_num_threads(),
        )
        return JaggedBatch(values, starts)

    def __repr__(self) -> str:
        return f"Jagged({'' if self.dtype is None else repr(self.dtype)})"
