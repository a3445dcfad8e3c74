"""The `Jagged` field."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import Problem, dtype_name, positive_integer, with_hints
from pinfeed.fields.field import (
    EntryWithExtras,
    Field,
    FieldContext,
    checked_key,
    sequences_of,
)
from pinfeed.functional.padding import check_side, require_rows
from pinfeed.functional.sequences import JaggedBatch
from pinfeed.memory.outputs import batch_allocator
from pinfeed.runtime import get_num_threads
from pinfeed.sources.source import Source


class Jagged(Field):
    """Concatenates samples of different lengths, with offsets. Returns a `JaggedBatch`.

    Samples are ndarrays, CPU tensors or lists of numbers that differ along axis 0 only, such as
    tokens, frames or areas of objects; or strings, which become bytes (str as UTF-8). Edges of graphs
    must have shape (E, 2), not (2, E).

    Args:
        dtype: Dtype of the batch, if not the samples' own, as in `Pad`.
        max_length: Length to which longer samples are cut.
        side: Side to cut: ``"right"`` drops the end, ``"left"`` the beginning.
        offsets: Key of the dict batch for the offsets; the field's own key then holds the values alone.
            None: it holds a `JaggedBatch`.

    Raises:
        TypeError: If ``dtype`` is not a dtype, ``offsets`` not a key, or ``max_length`` not an integer.
            When samples are collated: if dtypes differ.
        ValueError: If ``side`` is invalid or ``max_length`` less than 1. When samples are collated: if shapes
            differ beyond axis 0, or edges have shape (2, E). `Jagged` recognizes edges by their key; `Collate`
            warns about other entries that look like edges.

    Example:
        >>> samples = [np.zeros((2, 4), np.float32), np.zeros((0, 4), np.float32)]
        >>> boxes = pinfeed.Collate(pinfeed.Jagged())(samples)
        >>> boxes.values.shape, boxes.offsets
        (torch.Size([2, 4]), tensor([0, 2, 2]))
    """

    @with_hints()
    def __init__(
        self,
        dtype: Any = None,
        *,
        max_length: int | None = None,
        side: Literal["right", "left"] = "right",
        offsets: str | None = None,
    ) -> None:
        self.dtype = None if dtype is None else dtype_name(dtype, "Jagged")
        if self.dtype is not None:
            _core.check_value(0, self.dtype, "Jagged", "value")
        check_side(side, "Jagged")
        self.max_length = positive_integer(max_length, "Jagged: max_length")
        self.side = side
        self.offsets = checked_key(offsets, "Jagged: offsets", None)
        options: dict[str, Any] = {"side": side, "max_length": self.max_length, "dtype": self.dtype}
        default = {"side": "right", "max_length": None, "dtype": None}
        self._options = {key: value for key, value in options.items() if value != default[key]}

    @override
    def extra_keys(self) -> tuple[str, ...]:
        return () if self.offsets is None else (self.offsets,)

    @override
    def collate(self, samples: Sequence[Any], context: FieldContext) -> Any:
        require_rows(samples, context.name, context.path)
        return self._join(*sequences_of(samples, context.name), None, context)

    @override
    def gather(self, source: Source, indices: npt.NDArray[np.int64], context: FieldContext) -> Any:
        return self._join(*source.select(indices), context)

    def _join(self, source: Any, offsets: Any, indices: Any, context: FieldContext) -> Any:
        arguments = batch_allocator(context.pin), context.name, get_num_threads()
        values, starts = _core.join(source, offsets, indices, *arguments, **self._options)
        if values.ndim == 2 and _EDGES.search(context.path) and not _OF_EDGES.search(context.path):
            _require_edges_in_rows(values, starts, context)
        if context.shared is not None:
            context.shared.lengths = starts.diff()
        if self.offsets is not None:
            return EntryWithExtras(values, {self.offsets: starts})
        return JaggedBatch(values, starts)


# Edges of graphs, but not the attributes of edges.
_EDGES = re.compile(
    "edge|adjacency|connectivity|(?<![a-z])(?:adj|coo|ei|links?)(?![a-z])", re.IGNORECASE
)
_OF_EDGES = re.compile("attr|feat|weight|type|label(?!_?ind)", re.IGNORECASE)


def _require_edges_in_rows(
    values: torch.Tensor, starts: torch.Tensor, context: FieldContext
) -> None:
    """Raises ValueError for graph edges of shape (2, E), because equal E was joined along axis 0."""
    columns = values.shape[1]
    if columns > 3 and not values.is_floating_point() and (starts.diff() == 2).all():
        expected, hint = "edges of shape (E, 2), to join along axis 0", "transpose them: edges.T"
        raise ValueError(Problem(context.name, expected, f"(2, {columns})", hint, sample=0))
