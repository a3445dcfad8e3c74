"""Nested structures: tuples, lists, dicts, NamedTuples, dataclasses and types like them."""

from __future__ import annotations

import array
import ast
import copy
import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any


def is_dataclass(node: Any) -> bool:
    """Whether ``node`` is an instance of a dataclass, but not an array that is one, as zarr's are."""
    if not dataclasses.is_dataclass(node) or isinstance(node, type):
        return False
    return not all(hasattr(type(node), name) for name in ("__array__", "shape", "dtype"))


def is_namedtuple(node: Any) -> bool:
    """Whether ``node`` is a NamedTuple."""
    return isinstance(node, tuple) and hasattr(node, "_fields")


def is_container(node: Any) -> bool:
    """Whether ``node`` holds other nodes; strings and arrays are entries."""
    if isinstance(node, str | bytes | array.array):
        return False
    return isinstance(node, Mapping | Sequence) or is_dataclass(node)


def children(node: Any) -> list[tuple[str, Any]]:
    """The nodes in a container, each with the step that leads to it: ``"['image']"``, ``".x"``."""
    if isinstance(node, Mapping):
        return [(f"[{key!r}]", child) for key, child in node.items()]
    if is_dataclass(node):
        return [(f".{field.name}", getattr(node, field.name)) for field in dataclasses.fields(node)]
    if is_namedtuple(node):
        return [(f".{name}", child) for name, child in zip(node._fields, node, strict=True)]
    return [(f"[{i}]", child) for i, child in enumerate(node)]


def parts(node: Any) -> list[Any]:
    """The nodes in a container, as `children` has them, without the steps."""
    if isinstance(node, Mapping):
        return list(node.values())
    if is_dataclass(node):
        return [getattr(node, field.name) for field in dataclasses.fields(node)]
    return list(node)


def _is_not_entry(node: Any) -> bool:
    return False


def entries(
    node: Any, is_entry: Callable[[Any], bool] = _is_not_entry, steps: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The entries of a structure, each behind the steps that lead to it from where ``steps`` lead.

    All that is no container is an entry, and so are the containers of which ``is_leaf`` says so.
    """
    if is_entry(node) or not is_container(node):
        yield steps, node
    else:
        for step, child in children(node):
            yield from entries(child, is_entry, (*steps, step))


def map_entries(
    function: Callable[[Any], Any], node: Any, is_entry: Callable[[Any], bool] = _is_not_entry
) -> Any:
    """The structure with ``function(entry)`` for each entry, in the order of `entries`.

    A container in which nothing has changed stays the object that it is.
    """
    if is_entry(node) or not is_container(node):
        return function(node)
    before = parts(node)
    after = [map_entries(function, child, is_entry) for child in before]
    if all(map(operator.is_, before, after)):
        return node
    return rebuild(node, after)


def step_name(step: str) -> str:
    """A step as people write it: ``image`` for ``['image']``, ``0`` for ``[0]``, ``x`` for ``.x``."""
    text = step[1:] if step.startswith(".") else step[1:-1]
    return str(ast.literal_eval(text)) if text[0] in "'\"" else text


def rebuild(node: Any, values: list[Any]) -> Any:
    """A container like ``node`` that holds ``values`` instead of its children."""
    if type(node) is dict:
        return dict(zip(node, values, strict=True))
    if type(node) is tuple:
        return tuple(values)
    if type(node) is list:
        return values
    if isinstance(node, Mapping):
        return rebuild_mapping(node, dict(zip(node, values, strict=True)))
    if is_dataclass(node):
        return _rebuild_dataclass(node, values)
    if is_namedtuple(node):
        return type(node)(*values)
    return _rebuild_sequence(node, values)


def rebuild_mapping(node: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """A mapping like ``node`` with these ``items``."""
    if type(node) is dict:
        return items
    # As torch's default_collate: a clone keeps whatever else the mapping carries; a type that can't
    # be made again becomes a dict.
    try:
        if isinstance(node, MutableMapping):
            clone = copy.copy(node)
            try:
                clone.update(items)
            except TypeError:
                return items
            except Exception:  # noqa: BLE001 # transformers' outputs forbid update(), and only that
                for key, value in items.items():
                    clone[key] = value
            for key in [key for key in clone if key not in items]:
                del clone[key]
            return clone
        return type(node)(items)  # type: ignore[call-arg]
    except TypeError:
        return items


def _rebuild_sequence(node: Sequence[Any], values: list[Any]) -> Any:
    try:
        if isinstance(node, MutableSequence):
            clone = copy.copy(node)
            for i, value in enumerate(values):
                clone[i] = value
            return clone
        return type(node)(values)  # type: ignore[call-arg]
    except TypeError:
        return values


def _rebuild_dataclass(node: Any, values: list[Any]) -> Any:
    # Not dataclasses.replace: it runs __post_init__, which may check for a single sample, and
    # refuses fields that are not arguments of __init__. object.__setattr__ serves frozen ones too.
    clone = copy.copy(node)
    for field, value in zip(dataclasses.fields(node), values, strict=True):
        object.__setattr__(clone, field.name, value)
    return clone
