"""The structure of the batches, which the result has too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from pinfeed.exports.to_numpy.array_columns import ArrayColumn
from pinfeed.exports.to_numpy.batch_size import is_object_list
from pinfeed.exports.to_numpy.column import Column, Wishes
from pinfeed.exports.to_numpy.given_column import GivenColumn
from pinfeed.exports.to_numpy.object_column import ObjectColumn, is_object_array
from pinfeed.exports.to_numpy.padded_column import PaddedColumn, has_lengths
from pinfeed.exports.to_numpy.ragged_columns import JaggedColumn
from pinfeed.functions.jagged import JaggedBatch
from pinfeed.functions.padded import Padded
from pinfeed.sources.ragged import RaggedArray
from pinfeed.structure import children, is_container, rebuild


class _Branch(NamedTuple):
    """A container in the structure.

    Attributes:
        empty: The first batch's, with None instead of its children.
        nodes: What its children are, by the step to each: a container, the number of a column, or
            None where batches have None.
    """

    empty: Any
    nodes: dict[str, Any]


class Layout:
    """Which leaves a batch has, and a column for each.

    Args:
        batch: The first one; nothing of it is kept.
        size: Its number of samples, None if it holds no array.
        pad: A number, or numbers in the structure of the batch.
        out: Arrays in the structure of the batch, None where a new one is to be made.
        wishes: What else was asked for.

    Attributes:
        columns: In the order of `leaves`.

    Raises:
        TypeError, ValueError: A leaf can't be part of the result, or ``pad`` or ``out`` doesn't fit.
    """

    def __init__(self, batch: Any, size: int | None, pad: Any, out: Any, wishes: Wishes) -> None:
        self._size = size
        self._wishes = wishes
        self.columns: list[Column] = []
        self._paths: list[str] = []
        self._root = self._node(batch, pad, out, ())
        if not self.columns:
            raise ValueError("to_numpy: batch 0: expected at least one array or list, got none")

    def leaves(self, batch: Any, number: int) -> list[Any]:
        """The leaves of a batch.

        Raises:
            ValueError: It has another structure than the first one.
        """
        found: list[Any] = []
        _collect(self._root, batch, "", number, found)
        return found

    def where(self, column: int, batch: int) -> str:
        """What messages call a leaf of a batch."""
        return _where(self._paths[column], batch)

    def path(self, column: int) -> str:
        """Where a leaf is in a batch."""
        return self._paths[column] or "the batch"

    def rebuild(self, values: Sequence[Any]) -> Any:
        """A structure like the batches', with a value for each column."""
        return _rebuilt(self._root, values)

    def _node(self, node: Any, pad: Any, out: Any, steps: tuple[str, ...]) -> Any:
        path = "".join(steps)
        if node is None:
            return None
        column = self._column(node, pad, out, steps, _where(path, 0))
        if column is not None:
            self.columns.append(column)
            self._paths.append(path)
            return len(self.columns) - 1
        if not is_container(node):
            raise TypeError(
                f"{_where(path, 0)}: expected a tensor, an ndarray, or a list with an object for "
                f"each sample, got {type(node).__name__}"
            )
        nodes = {}
        pads, outs = _pads(pad, node, path), _outs(out, node, path)
        for (step, child), one_pad, one_out in zip(children(node), pads, outs, strict=True):
            nodes[step] = self._node(child, one_pad, one_out, (*steps, step))
        return _Branch(rebuild(node, [None] * len(nodes)), nodes)

    def _column(
        self, leaf: Any, pad: Any, out: Any, steps: Sequence[str], where: str
    ) -> Column | None:
        """The column of a leaf, None for a container."""
        wishes = self._wishes
        if isinstance(leaf, np.ndarray | torch.Tensor) and not is_object_array(leaf):
            number = _number(pad, where)
            if out is None:
                return ArrayColumn(leaf, wishes, number, wishes.output.name(steps, where), where)
            if not isinstance(out, np.ndarray):
                raise TypeError(
                    f"{where}: out must be an ndarray or None, got {type(out).__name__}"
                )
            column = GivenColumn(leaf, wishes, number, out, where)
            for other, path in zip(self.columns, self._paths, strict=True):
                if isinstance(other, GivenColumn) and column.shares_memory(other):
                    raise ValueError(f"{where}: out must not share memory with that of leaf {path}")
            return column
        is_jagged = isinstance(leaf, JaggedBatch | RaggedArray)
        if is_jagged or (has_lengths(leaf) and pad is None and out is None):
            _require_no_out(out, where)
            kind = JaggedColumn if is_jagged else PaddedColumn
            return kind(leaf, wishes, wishes.output.name(steps, where), where)
        if is_object_array(leaf) or is_object_list(leaf, self._size):
            _require_no_out(out, where)
            return ObjectColumn(wishes, where)
        return None


def _where(path: str, batch: int) -> str:
    return f"to_numpy: leaf {path} of batch {batch}" if path else f"to_numpy: batch {batch}"


def _require_no_out(out: Any, where: str) -> None:
    if out is not None:
        raise TypeError(
            f"{where}: out must be None, for the leaf has no array whose size is known before; "
            f"got {type(out).__name__}"
        )


def _number(pad: Any, where: str) -> Any:
    if isinstance(pad, np.generic):
        pad = pad.item()
    if pad is not None and not isinstance(pad, bool | int | float | complex):
        raise TypeError(f"{where}: pad must be a number or None, got {pad!r}")
    return pad


def _pads(pad: Any, node: Any, path: str) -> list[Any]:
    """What ``pad`` says for each child of a container."""
    steps = [step for step, _ in children(node)]
    if isinstance(node, Padded) and not is_container(pad):
        own = {".values": pad, ".mask": None if pad is None else False}
        return [own.get(step) for step in steps]
    if not is_container(pad):
        return [pad] * len(steps)
    by_step = dict(children(pad))
    unknown = [step for step in by_step if step not in steps]
    if unknown:
        raise ValueError(
            f"to_numpy: pad{path} has {unknown}, but batches have {steps} there; it is a number, "
            "or has the structure of a batch"
        )
    return [by_step.get(step) for step in steps]


def _outs(out: Any, node: Any, path: str) -> list[Any]:
    """What ``out`` has for each child of a container."""
    steps = [step for step, _ in children(node)]
    if out is None:
        return [None] * len(steps)
    by_step = dict(children(out)) if is_container(out) else {}
    if by_step.keys() != set(steps):
        found = list(by_step) if is_container(out) else type(out).__name__
        raise ValueError(
            f"to_numpy: out{path} has {found}, but batches have {steps} there; it has the "
            "structure of a batch, with None for an array that is to be made"
        )
    return [by_step[step] for step in steps]


def _collect(layout: Any, node: Any, path: str, batch: int, found: list[Any]) -> None:
    if isinstance(layout, int):
        found.append(node)
        return
    below = dict(children(node)) if is_container(node) else {}
    if layout is None:
        fits, expected = node is None, "None"
    else:
        fits = is_container(node) and below.keys() == layout.nodes.keys()
        expected = f"{type(layout.empty).__name__} of {list(layout.nodes)}"
    if not fits:
        got = f"{type(node).__name__} of {list(below)}" if below else type(node).__name__
        raise ValueError(f"{_where(path, batch)}: expected {expected} as before, got {got}")
    if layout is not None:
        for step, child in layout.nodes.items():  # a later batch may have its keys in another order
            _collect(child, below[step], path + step, batch, found)


def _rebuilt(layout: Any, values: Sequence[Any]) -> Any:
    if layout is None:
        return None
    if isinstance(layout, int):
        return values[layout]
    return rebuild(layout.empty, [_rebuilt(node, values) for node in layout.nodes.values()])
