"""Specs: fields in the structure of a sample or of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pinfeed.fields import Field
from pinfeed.fields.field import Beside
from pinfeed.structure import children, is_container, rebuild, rebuild_mapping


def placed(spec: Any, name: str, check: Callable[[Field, str], None] | None = None) -> Any:
    """The spec with each field as it behaves at its place.

    Args:
        spec: What the user gave; None stands for no field, at any place.
        name: What messages call the spec, such as ``"Collate: spec"``.
        check: Raises for a field that may not stand there; it also takes what messages call it.

    Raises:
        TypeError: The spec holds something that is no field.
        ValueError: A field fills keys of a dict and stands in none, or two fill the same key.
    """
    return _placed(spec, name, check, in_dict=False)


def _placed(spec: Any, name: str, check: Callable[[Field, str], None] | None, in_dict: bool) -> Any:
    if spec is None:
        return None
    if isinstance(spec, Field):
        if check is not None:
            check(spec, name)
        field = spec.placed(in_dict)
        if field.names() and not in_dict:
            raise ValueError(
                f"{name} names {list(field.names())}, keys of a dict, but stands in none; "
                "say True instead of a name to have it in the leaf"
            )
        return field
    if not is_container(spec):
        hint = "; create it with parentheses" if isinstance(spec, type) else ""
        raise TypeError(f"{name} must be a Field such as Image(), or None, got {spec!r}{hint}")
    is_dict = isinstance(spec, Mapping)
    fields = [_placed(child, name + step, check, is_dict) for step, child in children(spec)]
    if is_dict:
        _check_names(spec, fields, name)
    return rebuild(spec, fields)


def _check_names(spec: Mapping[Any, Any], fields: list[Any], name: str) -> None:
    taken = set(spec)
    for field in fields:
        for key in field.names() if isinstance(field, Field) else ():
            if key in taken:
                raise ValueError(f"{name} has two leaves for the key {key!r}; choose another name")
            taken.add(key)


def rebuild_with_siblings(
    node: Mapping[Any, Any], values: list[Any], leaf_name: Callable[[str], str], owner: str
) -> Any:
    """A mapping like ``node`` that holds ``values``, and beside them what some bring along.

    Args:
        node: The mapping of a sample or batch.
        values: For each of its keys, a leaf or a `Beside`.
        leaf_name: What messages call the leaf at a step such as ``"['tokens']"``.
        owner: What has the keys: ``"samples"`` or ``"batches"``.

    Raises:
        ValueError: A key is taken.
    """
    items: dict[Any, Any] = {}
    for key, value in zip(node, values, strict=True):
        leaf, siblings = value if isinstance(value, Beside) else (value, {})
        items[key] = leaf
        for sibling_key, sibling in siblings.items():
            if sibling_key in node:
                raise ValueError(
                    f"{leaf_name(f'[{key!r}]')} goes with a {sibling_key!r}, but {owner} have a "
                    "leaf under that key; choose another name"
                )
            items[sibling_key] = sibling
    return rebuild_mapping(node, items)
