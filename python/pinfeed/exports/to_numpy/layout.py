"""The structure of the batches, which the result has too."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from pinfeed.exports.to_numpy.array_columns import GivenArray, NewArray
from pinfeed.exports.to_numpy.column import Column, ObjectColumn, Options, is_object_array
from pinfeed.exports.to_numpy.ragged_columns import JaggedColumn, PaddedColumn, has_lengths
from pinfeed.functions.jagged import JaggedBatch
from pinfeed.functions.padded import Padded
from pinfeed.sources.ragged import RaggedArray
from pinfeed.structure import children, is_container, is_namedtuple, rebuild


class _Branch(NamedTuple):
    """A container in the structure."""

    empty: Any  # the first batch's, with None instead of its children
    nodes: dict[str, Any]  # by step: a container, the number of a column, or None for None


class Layout:
    """Which leaves a batch has, and a column for each.

    Args:
        batch: The first one; nothing of it is kept.
        planned: How many samples the loader says it has, if it does.
        pad: A number, or numbers in the structure of the batch.
        out: Arrays in the structure of the batch, None where a new one is to be made.
        options: How columns are made.

    Attributes:
        columns: In the order of `leaves`.

    Raises:
        TypeError, ValueError: A leaf can't be part of the result, or ``pad`` or ``out`` doesn't fit.
    """

    def __init__(
        self, batch: Any, planned: int | None, pad: Any, out: Any, options: Options
    ) -> None:
        self._options = options
        where = options.where("", 0)
        self._size = _batch_size(batch, planned, where)
        self.columns: list[Column] = []
        self._root = self._node(batch, pad, out, ())
        if not self.columns:
            raise ValueError(f"{where}: expected at least one array or list, got none")

    def leaves(self, batch: Any, number: int) -> list[Any]:
        """The leaves of a batch.

        Raises:
            ValueError: It has another structure than the first one.
        """
        found: list[Any] = []
        self._collect(self._root, batch, "", number, found)
        return found

    def rebuild(self, values: Sequence[Any]) -> Any:
        """A structure like the batches', with a value for each column."""
        return _rebuilt(self._root, values)

    def _node(self, node: Any, pad: Any, out: Any, steps: tuple[str, ...]) -> Any:
        if node is None:
            return None
        path = "".join(steps)
        column = self._column(node, pad, out, steps)
        if column is not None:
            self.columns.append(column)
            return len(self.columns) - 1
        if not is_container(node):
            raise TypeError(
                f"{self._options.where(path, 0)}: expected a tensor, an ndarray, or a list with an "
                f"object for each sample, got {type(node).__name__}"
            )
        nodes = {}
        pads, outs = _pads(pad, node, path), _outs(out, node, path)
        for (step, child), one_pad, one_out in zip(children(node), pads, outs, strict=True):
            nodes[step] = self._node(child, one_pad, one_out, (*steps, step))
        return _Branch(rebuild(node, [None] * len(nodes)), nodes)

    def _column(self, leaf: Any, pad: Any, out: Any, steps: Sequence[str]) -> Column | None:
        """The column of a leaf, None for a container."""
        options, where = self._options, self._options.where("".join(steps), 0)
        if isinstance(leaf, np.ndarray | torch.Tensor) and not is_object_array(leaf):
            number = _number(pad, where)
            if out is None:
                return NewArray(leaf, options, number, steps)
            if not isinstance(out, np.ndarray):
                raise TypeError(
                    f"{where}: out must be an ndarray or None, got {type(out).__name__}"
                )
            return GivenArray(leaf, options, number, steps, out)
        kind: Callable[[Options, Sequence[str]], Column]
        if isinstance(leaf, JaggedBatch | RaggedArray):
            kind = partial(JaggedColumn, leaf)
        elif has_lengths(leaf) and pad is None and out is None:
            kind = partial(PaddedColumn, leaf)
        elif is_object_array(leaf) or _is_object_list(leaf, self._size):
            kind = ObjectColumn
        else:
            return None
        if out is not None:
            raise TypeError(
                f"{where}: out must be None, for the leaf has no array whose size is known before; "
                f"got {type(out).__name__}"
            )
        return kind(options, steps)

    def _collect(self, layout: Any, node: Any, path: str, batch: int, found: list[Any]) -> None:
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
            raise ValueError(
                f"{self._options.where(path, batch)}: expected {expected} as before, got {got}"
            )
        if layout is not None:
            for step, child in layout.nodes.items():  # a later batch may have another order
                self._collect(child, below[step], path + step, batch, found)


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


def _rebuilt(layout: Any, values: Sequence[Any]) -> Any:
    if layout is None:
        return None
    if isinstance(layout, int):
        return values[layout]
    return rebuild(layout.empty, [_rebuilt(node, values) for node in layout.nodes.values()])


def _batch_size(batch: Any, planned: int | None, where: str) -> int | None:
    """The number of samples of the first batch.

    A list in a batch may be a part of its structure, as in ``[images, labels]``, or it may hold an
    object for each sample, as in ``["cat", "dog"]``. Nothing marks it as the one or the other.

    Returns:
        What the array nearest to the root says, or ``planned`` if only that is possible; None if
        there is no array.

    Raises:
        ValueError: Both are possible, for a list of arrays as long as the batch.
    """
    size = next(_sizes(batch), None)
    if size is None or planned in (None, size) or not _is_possible(batch, planned):
        return size
    if _is_possible(batch, size):
        raise ValueError(
            f"{where}: {planned} arrays in a list could be the {planned} samples that "
            f"the loader plans, or parts of {size} samples; return np.fromiter(list, object) from "
            "collate_fn for the former, hand over iter(loader) for the latter"
        )
    return planned


def _is_object_list(node: Any, size: int | None) -> bool:
    """Whether a list or tuple holds one object for each of ``size`` samples.

    So it does if no array is in it; or if the arrays in it have other sizes, and it has this one.
    """
    if not _is_list(node):
        return False
    sizes = set(_sizes(node))
    if sizes:
        possible = all(_is_possible(child, len(node)) for child in node)
        return len(node) == size and not possible and sizes != {size}
    if size is None or len(node) == size:
        return True
    return not (node and all(_is_list(child) and len(child) == size for child in node))


def _sizes(node: Any) -> Iterator[int]:
    """How many samples the arrays in a node have, those nearest to the root first."""
    waiting = deque([node])
    while waiting:
        node = waiting.popleft()
        size = _array_size(node)
        if size is not None:
            yield size
        elif is_container(node):
            waiting.extend(child for _, child in children(node))


def _is_possible(node: Any, size: int) -> bool:
    array_size = _array_size(node)
    if array_size is not None:
        return array_size == size
    if node is None or (_is_list(node) and len(node) == size):
        return True
    if isinstance(node, np.ndarray | torch.Tensor):
        return True  # 0-d: its own error says more
    return is_container(node) and all(_is_possible(child, size) for _, child in children(node))


def _array_size(node: Any) -> int | None:
    """The number of samples of a leaf that is made of arrays, None for anything else."""
    if isinstance(node, JaggedBatch):
        return len(node.offsets) - 1
    if isinstance(node, RaggedArray):
        return len(node)
    if isinstance(node, Padded) and hasattr(node, "lengths"):
        return len(node.lengths)
    if isinstance(node, np.ndarray | torch.Tensor):
        return len(node) if node.ndim > 0 else None
    return None


def _is_list(node: Any) -> bool:
    return isinstance(node, list | tuple) and not is_namedtuple(node)
