"""Nested structures: tuples, lists, dicts, NamedTuples, dataclasses and types like them."""

from __future__ import annotations

import array
import ast
import copy
import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

# A union would be created in each check; exact types are compared first.
_NOT_CONTAINERS = (str, bytes, array.array)
_CONTAINERS = (dict, list, tuple, Mapping, Sequence)


def is_dataclass(node: Any) -> bool:
    """Whether ``node`` is an instance of a dataclass, but not an array such as zarr's."""
    if not dataclasses.is_dataclass(node) or isinstance(node, type):
        return False
    return not all(hasattr(type(node), name) for name in ("__array__", "shape", "dtype"))


def is_namedtuple(node: Any) -> bool:
    """Whether ``node`` is a NamedTuple."""
    return isinstance(node, tuple) and hasattr(node, "_fields")


def is_container(node: Any) -> bool:
    """Whether ``node`` contains other nodes; strings and arrays are entries."""
    if isinstance(node, _NOT_CONTAINERS):
        return False
    return isinstance(node, _CONTAINERS) or is_dataclass(node)


def children(node: Any) -> list[tuple[str, Any]]:
    """Returns the nodes in a container, each with its step: ``"['image']"``, ``".x"``."""
    if isinstance(node, Mapping):
        return [(f"[{key!r}]", child) for key, child in node.items()]
    if is_dataclass(node):
        return [(f".{field.name}", getattr(node, field.name)) for field in dataclasses.fields(node)]
    if is_namedtuple(node):
        return [(f".{name}", child) for name, child in zip(node._fields, node, strict=True)]
    return [(f"[{i}]", child) for i, child in enumerate(node)]


def parts(node: Any) -> list[Any]:
    """Returns the nodes in a container in the order of `children`, without steps."""
    if type(node) is dict or isinstance(node, Mapping):
        return list(node.values())
    if is_dataclass(node):
        return [getattr(node, field.name) for field in dataclasses.fields(node)]
    return list(node)


def _is_not_entry(node: Any) -> bool:
    return False


def entries(
    node: Any, is_entry: Callable[[Any], bool] = _is_not_entry, steps: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields the entries of a structure, each with its steps, which begin with ``steps``.

    Entries are nodes that are not containers, and containers for which ``is_entry`` is true.
    """
    if is_entry(node) or not is_container(node):
        yield steps, node
    else:
        for step, child in children(node):
            yield from entries(child, is_entry, (*steps, step))


def map_entries(
    function: Callable[[Any], Any], node: Any, is_entry: Callable[[Any], bool] = _is_not_entry
) -> Any:
    """Returns the structure with ``function(entry)`` for each entry, in the order of `entries`.

    Unchanged containers are returned as the same object.
    """
    if is_entry(node) or not is_container(node):
        return function(node)
    before = parts(node)
    after = [map_entries(function, child, is_entry) for child in before]
    if all(map(operator.is_, before, after)):
        return node
    return rebuild(node, after)


def step_name(step: str) -> str:
    """Returns a step without its syntax: ``image`` for ``['image']``, ``0`` for ``[0]``, ``x`` for ``.x``."""
    text = step[1:] if step.startswith(".") else step[1:-1]
    if text[0] not in "'\"":
        return text
    # literal_eval fails in threads that parse at once, before Python 3.12, so only escapes need it.
    return str(ast.literal_eval(text)) if "\\" in text else text[1:-1]


def rebuild(node: Any, values: list[Any]) -> Any:
    """Returns a container like ``node`` with ``values`` instead of its children."""
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
    """Returns a mapping like ``node`` with these ``items``."""
    if type(node) is dict:
        return items
    # As in torch's default_collate: a clone keeps the mapping's attributes; a type that can't be
    # rebuilt becomes a dict.
    try:
        if isinstance(node, MutableMapping):
            clone = copy.copy(node)
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
    # dataclasses.replace would run __post_init__, which can check for single samples, and rejects
    # fields that are not arguments of __init__. object.__setattr__ also works on frozen classes.
    clone = copy.copy(node)
    for field, value in zip(dataclasses.fields(node), values, strict=True):
        object.__setattr__(clone, field.name, value)
    return clone
