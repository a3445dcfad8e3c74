"""The entries of a sample, with the fields that read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pinfeed.arguments import ARRAYS, host_array
from pinfeed.fields.field import Field
from pinfeed.structure import children, is_container

# Keys of numbers that are a box or a point together, and the format.
SPREAD = {
    ("xmin", "ymin", "xmax", "ymax"): "xyxy",
    ("x_min", "y_min", "x_max", "y_max"): "xyxy",
    ("x1", "y1", "x2", "y2"): "xyxy",
    ("left", "top", "right", "bottom"): "xyxy",
    ("x", "y", "w", "h"): "xywh",
    ("x", "y", "width", "height"): "xywh",
    ("left", "top", "width", "height"): "xywh",
    ("cx", "cy", "w", "h"): "cxcywh",
    ("x", "y"): "",
}


class FieldEntry(NamedTuple):
    """An entry of a sample."""

    path: str  # steps from the sample to the entry, such as ``"['image']"``
    parent: str  # path of the container that it is in
    key: str  # last string key on the path; empty if there is none
    fields: tuple[tuple[Any, Field], ...]  # keys and fields that read the entry
    value: Any  # value in the sample


def sample_entries(fields: Any, sample: Any) -> list[FieldEntry]:
    """Returns the entries of a sample, each with those ``fields`` of a `Collate` that read it."""
    return list(_entries(fields, sample, "", "", ""))


def _entries(
    fields: Any, node: Any, path: str, parent: str, key: str, from_key: Sequence[Any] = ()
) -> Iterator[FieldEntry]:
    """Yields the entries of a node; ``from_key`` has the `Field.from_key` fields that read it."""
    if isinstance(fields, Field):
        yield FieldEntry(path, parent, key, ((key, fields), *from_key), node)
    elif from_key or not is_container(node) or as_numbers(node) is not None:
        yield FieldEntry(path, parent, key, (*from_key,), node)
    else:
        if fields is None and (isinstance(node, list | tuple) or is_encoded(node)):
            yield FieldEntry(path, parent, key, (), node)  # can be one thing, such as polygons
        elif names := spread_names(node, fields):
            yield FieldEntry(path or str([*names]), parent, key, (), node)
        by_step = dict(children(fields)) if is_container(fields) else {}
        below = list(fields.items()) if isinstance(fields, Mapping) else []
        keys = list(node) if isinstance(node, Mapping) else [None] * len(children(node))
        for name, (step, child) in zip(keys, children(node), strict=True):
            of = [(k, f) for k, f in below if isinstance(f, Field) and f.source == name is not None]
            name = name if isinstance(name, str) else step[1:] if step[0] == "." else key
            yield from _entries(by_step.get(step), child, path + step, path, name, of)


def as_numbers(value: Any) -> Any:
    """Returns an array or a list of numbers as an ndarray; None for anything else."""
    if isinstance(value, ARRAYS):
        array = host_array(value)
        return array if array is not None and array.dtype.kind in "biuf" else None
    first = value
    while isinstance(first, list | tuple) and first:
        first = first[0]
    if not isinstance(value, list | tuple) or not isinstance(
        first, list | tuple | int | float | np.number
    ):
        return None
    try:
        array = np.array(value)
    except (RuntimeError, TypeError, ValueError):  # different lengths, or tensors among numbers
        return None
    return array if array.dtype.kind in "iuf" else None


def is_encoded(node: Any) -> bool:
    """Whether a node is a mask in COCO's run-length encoding."""
    return (
        isinstance(node, Mapping) and {*node} == {"counts", "size"} and is_container(node["size"])
    )


def spread_names(node: Any, fields: Any) -> tuple[str, ...]:
    """Returns the keys of a dict's numbers that are a box or a point together; empty if there are none."""
    known = {*node} if isinstance(node, Mapping) else set()
    known -= {*fields} if isinstance(fields, Mapping) else set()
    for names in SPREAD:
        if known.issuperset(names) and all(np.ndim(as_numbers([node[n]])) == 1 for n in names):
            return names
    return ()
