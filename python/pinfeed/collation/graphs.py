"""A check for edges of graphs that `Jagged` joins along the wrong axis."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed.collation.sample_entries import FieldEntry, as_numbers
from pinfeed.fields.jagged import Jagged

_FEW_EDGES = 5  # or fewer columns can be the columns of records, such as (begin, end, class)
_FEW_NODES = 8  # fewer can be the number of classes
_NODE_COUNT = re.compile("node|atom|vert", re.IGNORECASE)
_CLASSES = re.compile("label|class|categor|target|(?<![a-z])tags?(?![a-z])", re.IGNORECASE)


def warn_of_edges(samples: Iterable[list[FieldEntry]]) -> None:
    """Warns about entries of shape (2, E) that hold pairs of rows of another entry.

    `Jagged` joins samples along axis 0. If E is the same in all B samples, edges of shape (2, E) would
    become an array of shape (2 · B, E) without an error. Edges are recognized by their values, because their
    keys can be anything. Other arrays are hardly ever taken for edges. A few directed edges among many nodes
    are not recognized if all samples have the same number of nodes.

    ``samples`` has the entries of each sample.
    """
    rows: list[dict[str, FieldEntry]] = []
    for entries in samples:
        if not rows and not any(map(_is_jagged, entries)):
            return
        rows.append({entry.path: entry for entry in entries})
    for path, entry in rows[0].items():
        if not _is_jagged(entry) or _CLASSES.search(entry.key):
            continue
        pairs = [_pairs(row.get(path)) for row in rows]
        edges = [pair for pair in pairs if pair is not None]
        if len(edges) < len(pairs) or len({edge.shape for edge in edges}) > 1:
            continue
        for other, sibling in rows[0].items():
            if other == path or sibling.parent != entry.parent:
                continue
            counts = [_nodes(row.get(other)) for row in rows]
            if None not in counts and _are_edges(edges, np.array(counts), _is_jagged(sibling)):
                warnings.warn(
                    f"Collate: entry {path}: integers of shape {edges[0].shape} look like edges, because all "
                    f"are below the number of nodes in {other}; Jagged() joins samples along axis 0, so pass "
                    "edges of shape (E, 2): edges.T",
                    stacklevel=2,
                )
                break


def _is_jagged(entry: FieldEntry) -> bool:
    return any(isinstance(field, Jagged) for _, field in entry.fields)


def _pairs(entry: FieldEntry | None) -> npt.NDArray[Any] | None:
    """Returns integers of shape (2, E), where E is more than 2; None for anything else."""
    array = None if entry is None else as_numbers(entry.value)
    if array is None:
        return None
    is_pair = array.ndim == 2 and array.shape[0] == 2 and array.shape[1] > 2
    return array if is_pair and array.dtype.kind in "iu" else None


def _nodes(entry: FieldEntry | None) -> int | None:
    """Returns the number of nodes in an entry of a number, or of a row per node."""
    value = None if entry is None else entry.value
    if isinstance(value, int | np.integer) and entry is not None:
        return int(value) if _NODE_COUNT.search(entry.key) else None
    shape = [*(np.shape(value) if isinstance(value, list | tuple) else getattr(value, "shape", ()))]
    return int(shape[0]) if len(shape) in (1, 2) else None


def _are_edges(
    edges: Sequence[npt.NDArray[Any]], nodes: npt.NDArray[np.int64], is_jagged: bool
) -> bool:
    """Whether pairs of numbers join the nodes of their sample; ``nodes`` has each sample's node count."""
    last = np.array([edge.max() for edge in edges])
    if min(edge.min() for edge in edges) < 0 or (last >= nodes).any() or last.max() < 2:
        return False
    if _are_undirected(edges):
        return True
    columns, counts = edges[0].shape[1], {*nodes.tolist()}
    if len(edges) == 1 or counts == {columns} or not _are_unordered(edges):
        return False  # two rows of values of the nodes, or of positions
    if sum(len(np.unique(edge)) for edge in edges) >= 0.9 * nodes.sum():
        return sum(counts) >= _FEW_NODES and (is_jagged or len(counts) > 1)
    # Numbers of another kind don't follow the number of nodes.
    ends = nodes[last == nodes - 1]
    return columns > _FEW_EDGES and len({*ends.tolist()}) > 1 and 2 * len(ends) >= len(nodes)


def _are_undirected(edges: Sequence[npt.NDArray[Any]]) -> bool:
    """Whether each pair is there equally often in both directions."""
    two_ways = 0
    for edge in edges:
        pairs = [*zip(*edge.tolist(), strict=True)]
        if sorted(pairs) != sorted((j, i) for i, j in pairs):
            return False
        two_ways += sum(i != j for i, j in pairs)
    return two_ways >= max(_FEW_NODES, len(edges))


def _are_unordered(edges: Sequence[npt.NDArray[Any]]) -> bool:
    """Whether numbers repeat in a row, and rows aren't sorted."""
    rows = [row for edge in edges for row in edge]
    is_sorted = all((np.diff(row) >= 0).all() for row in rows)
    return not is_sorted and any(len(np.unique(row)) < len(row) for row in rows)
