"""Splits a batch into its samples."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from pinfeed.arguments import ARRAYS, PLAIN_ARRAYS, check_plain
from pinfeed.functional.sequences import JaggedBatch, Padded
from pinfeed.structure import children, is_container, parts, rebuild

#: The number of readings of a part of a batch, by its number of samples; None: any number of samples.
_Readings = dict[int | None, int]


def unbind(batch: Any) -> list[Any]:
    """Splits a batch into its samples: a dict of batched entries becomes a list of dicts, one per sample.

    Detection models expect their targets in this form.

    Args:
        batch: Batch of B samples: an array with a batch axis, a `JaggedBatch`, a `Padded` with lengths, or
            a dict, tuple, NamedTuple, dataclass or list of these. A list inside the batch either is part of
            its structure, or has one item per sample, such as the strings of `Keep`. The number of samples
            of the other entries decides which.

    Returns:
        List of B samples. Their arrays share the memory of the batch; tuples become lists.

    Raises:
        TypeError: If an entry is not a batch, such as a number.
        ValueError: If entries differ in the number of samples; if values and offsets have separate keys,
            as with ``Jagged(offsets=...)``; or if it is ambiguous whether a list has one item per sample.

    Example:
        >>> collate = pinfeed.Collate({"boxes": pinfeed.Jagged(), "labels": pinfeed.Jagged()})
        >>> batch = collate(
        ...     [
        ...         {"boxes": np.zeros((2, 4)), "labels": np.array([3, 5])},
        ...         {"boxes": np.zeros((1, 4)), "labels": np.array([7])},
        ...     ]
        ... )
        >>> targets = pinfeed.functional.unbind(batch)
        >>> [target["labels"].tolist() for target in targets], targets[0]["boxes"].shape
        ([[3, 5], [7]], torch.Size([2, 4]))
    """
    _refuse_offsets(batch, "", _OFFSETS)
    readings = _readings_of(batch)
    if isinstance(batch, list) and (as_structure := _readings_of_structure(batch)):
        readings = as_structure
    if not readings:
        _refuse(batch, "")
    (count, number), *others = readings.items()
    if others or number > 1:
        _refuse_ambiguity(batch, "", readings)
    if count is None:
        raise ValueError("unbind: batch must contain an array or a list of samples, got neither")
    return _samples(batch, count)


def _readings_of(node: Any) -> _Readings:
    """Returns the readings of a batch or a part: ways to take its lists, as samples or as structure."""
    if isinstance(node, JaggedBatch):
        return {len(node.offsets) - 1: 1}
    if isinstance(node, Padded):
        node = node.values
    if isinstance(node, ARRAYS):
        return {} if node.ndim == 0 else {len(node): 1}
    if not is_container(node):
        return {}
    readings = _readings_of_structure(node)
    if _may_be_of_items(node):
        readings[len(node)] = readings.get(len(node), 0) + 1
    return readings


def _readings_of_structure(node: Any) -> _Readings:
    """Returns the readings of a container taken as structure: each of its parts has all samples."""
    readings: _Readings = {None: 1}
    for part in parts(node):
        before, readings = readings, {}
        for count, number in _readings_of(part).items():
            for other, times in before.items():
                if count is None or other is None or count == other:
                    both = other if count is None else count
                    readings[both] = readings.get(both, 0) + number * times
        if not readings:
            break
    return readings


def _may_be_of_items(node: Any) -> bool:
    """Whether a container can have one item per sample. Collated strings of tuples are a tuple."""
    is_of_strings = type(node) is tuple and len(node) > 0 and isinstance(node[0], str | bytes)
    return is_of_strings or (isinstance(node, list) and len(node) > 0)


def _samples(node: Any, count: int) -> list[Any]:
    """Returns the ``count`` samples of a batch or a part of one."""
    if isinstance(node, JaggedBatch | Padded):
        return node.unbind()
    if isinstance(node, ARRAYS) and type(node) not in PLAIN_ARRAYS:
        rows = [node[i] for i in range(count)]
        for slice_ in [node[:1]] if isinstance(node, np.ndarray) else rows[:1]:
            if vars(node).keys() - getattr(slice_, "__dict__", {}).keys():
                check_plain(node, "unbind: array")  # rows lose attributes, such as a unit
        return rows
    if isinstance(node, ARRAYS) or not _readings_of_structure(node).keys() & {count, None}:
        return list(node)
    columns = [_samples(part, count) for part in parts(node)]
    return [rebuild(node, [column[i] for column in columns]) for i in range(count)]


# Names of keys for offsets, to distinguish them from one number per sample.
_OFFSETS = "offset|cu_|seqlens|starts?$|ptr|splits?$|bound"


def _refuse_offsets(node: Any, path: str, names: str) -> None:
    """Raises ValueError for offsets under a key that matches ``names``, with values under another key."""
    for step, part in children(node) if is_container(node) else ():
        _refuse_offsets(part, path + step, names)
    if not isinstance(node, Mapping):
        return
    arrays = {key: part for key, part in node.items() if isinstance(part, ARRAYS) and part.ndim > 0}
    for key, part in arrays.items():
        is_known = not (isinstance(part, torch.Tensor) and part.is_meta)
        are_integers = "int" in str(part.dtype) and part.ndim == 1 and len(part) > 1 and is_known
        if not (are_integers and re.search(names, str(key), re.IGNORECASE)):
            continue
        offsets = np.asarray(part.cpu() if isinstance(part, torch.Tensor) else part)
        if offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any():
            continue
        of = [k for k, values in arrays.items() if k != key and len(values) == offsets[-1]]
        if of:
            raise ValueError(
                f"unbind: entry {path}[{key!r}] has the offsets of entry {path}[{of[0]!r}]; put both under one "
                f"key: JaggedBatch(batch[{of[0]!r}], batch[{key!r}])"
            )


def _refuse(node: Any, path: str) -> None:
    """Raises the error for a batch without a reading."""
    by_path: dict[str, _Readings] = {}
    for step, part in children(node) if is_container(node) else ():
        readings = _readings_of(part)
        if not readings:
            _refuse(part, path + step)
        if None not in readings:
            by_path[path + step] = readings
    for other, readings in by_path.items():
        first = next(iter(by_path))
        if not readings.keys() & by_path[first].keys():
            _refuse_offsets(node, path, "")
            count, first_count = (
                " or ".join(map(str, counts)) for counts in (readings, by_path[first])
            )
            raise ValueError(
                f"unbind: entry {other} has {count} samples, but entry {first} has {first_count}; leave one of "
                "them out"
            )
    raise TypeError(
        f"unbind: {f'entry {path}' if path else 'batch'} must be an array with a batch axis, a "
        f"JaggedBatch, a Padded or a list, got {type(node).__name__}; leave it out"
    )


def _refuse_ambiguity(node: Any, path: str, possible: _Readings) -> None:
    """Raises for the first list with several readings that fit the whole batch."""
    for step, part in children(node) if is_container(node) else ():
        readings = {
            count: n
            for count, n in _readings_of(part).items()
            if count is None or count in possible
        }
        if sum(readings.values()) > 1 and _may_be_of_items(part):
            counts = " or ".join(str(count) for count in readings if count is not None)
            raise ValueError(
                f"unbind: entry {path + step} is a list of {len(part)} items, either one for each "
                f"sample or parts of all samples, and no other entry tells which (samples: {counts}); leave it out"
            )
        _refuse_ambiguity(part, path + step, possible)
