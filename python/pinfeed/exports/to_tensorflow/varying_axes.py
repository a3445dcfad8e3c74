"""Which axes differ from batch to batch, as far as that can be known before the batches are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pinfeed.exports.to_tensorflow.plain_values import is_plain
from pinfeed.fields import Image, Pad
from pinfeed.fields.collate import Collate
from pinfeed.functions.padded import Padded
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.structure import children, is_container

Varying = dict[str, set[int]]


def varying_axes(loader: Any, batch: Any) -> Varying:
    """The axes that vary, by the path of a leaf; axis 0, which always may, need not be among them.

    Args:
        loader: A list or tuple of batches tells all by itself; of another loader pinfeed's own
            fields tell, if its batches are made of them.
        batch: The first one.
    """
    found: Varying = {}
    _add_padded(batch, "", found)
    collate = getattr(loader, "collate_fn", None)
    if isinstance(collate, Collate):
        _add_fields(collate.spec, batch, "", found)
    if isinstance(loader, DeviceLoader):
        _add_fields(loader.fields, batch, "", found)
    if isinstance(loader, list | tuple):
        _add_differences(loader, found)
    return found


def _add_padded(node: Any, path: str, found: Varying) -> None:
    """A `Padded` may have any shape, unless its lengths are about a single axis."""
    if isinstance(node, Padded):
        lengths, mask = getattr(node, "lengths", None), getattr(node, "mask", None)
        has_one_axis = lengths is not None and lengths.ndim == 1
        found[f"{path}.values"] = {1} if has_one_axis else set(range(1, node.values.ndim))
        if mask is not None:
            found[f"{path}.mask"] = set(range(1, mask.ndim))
    elif is_container(node):
        for step, child in children(node):
            _add_padded(child, path + step, found)


def _add_fields(spec: Any, node: Any, path: str, found: Varying) -> None:
    """Fields know their axes.

    Args:
        spec: Fields in the structure of a batch.
        node: The batch.
        path: Where the two are in it.
        found: Where to add the axes.
    """
    if isinstance(spec, Pad | Image):
        is_padded = isinstance(node, Padded)
        values = node.values if is_padded else node
        found[f"{path}.values" if is_padded else path] = _axes(spec, values.ndim)
    elif is_container(spec) and is_container(node):
        below = dict(children(node))
        for step, field in children(spec):
            if step in below:
                _add_fields(field, below[step], path + step, found)
            mask = getattr(field, "mask", None)
            if isinstance(mask, str) and f"[{mask!r}]" in below:
                found[f"{path}[{mask!r}]"] = set(range(1, below[f"[{mask!r}]"].ndim))


def _axes(field: Pad | Image, rank: int) -> set[int]:
    """The axes of a batch, which has so many, that the field pads."""
    if isinstance(field, Image):
        if field.pad_value is None:
            return set()
        return {2, 3} if field.output == "CHW" else {1, 2}
    padding = field._padding
    axes = padding.axes if isinstance(padding.axes, tuple) else (padding.axes or 0,)
    varying = {1 + axis % (rank - 1) for axis in axes}
    return varying | {1} if padding.time_major else varying  # axis 1 counts samples then


def _add_differences(batches: Sequence[Any], found: Varying) -> None:
    """Batches that are all there can be compared."""
    first = dict(_shapes(batches[0], ""))
    for batch in batches:
        for path, shape in _shapes(batch, ""):
            if len(first.get(path, ())) == len(shape):
                pairs = zip(shape, first[path], strict=True)
                differences = {axis for axis, (one, other) in enumerate(pairs) if one != other}
                found.setdefault(path, set()).update(differences)


def _shapes(node: Any, path: str) -> list[tuple[str, tuple[int, ...]]]:
    """The path and the shape of every array."""
    if isinstance(node, np.ndarray | torch.Tensor):
        return [(path, tuple(node.shape))]
    if not is_container(node) or is_plain(node):
        return []
    return [shape for step, child in children(node) for shape in _shapes(child, path + step)]
