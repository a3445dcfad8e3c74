"""The containers that a batch may have, and those that an element of a dataset may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pinfeed.structure import children, is_container, is_dataclass, is_namedtuple


def keys(node: Any) -> list[Any]:
    """The key of each child of a container: that of a dict, the name of a field, or a position."""
    if isinstance(node, Mapping):
        return list(node)
    if is_dataclass(node) or is_namedtuple(node):
        return [step.removeprefix(".") for step, _ in children(node)]
    return list(range(len(node)))


def known_to_tensorflow(node: Any, values: list[Any], path: str) -> Any:
    """The dict, tuple or NamedTuple that stands for a container.

    Args:
        node: The container.
        values: What it holds there instead of its children.
        path: Where it is in the batch.

    Raises:
        TypeError: tf.data can't have it.
    """
    if is_namedtuple(node):
        return type(node)(*values)
    if not (isinstance(node, Mapping) or is_dataclass(node)):
        return tuple(values)
    names = keys(node)
    try:
        sorted(names)
    except TypeError as error:
        raise TypeError(
            f"to_tensorflow: batch{path} is a dict with the keys {names}; "
            "TensorFlow takes only keys that can be sorted"
        ) from error
    return dict(zip(names, values, strict=True))


def children_as(container: Any, node: Any) -> list[Any] | None:
    """The children of what stands in a batch in the place of a container, in the container's order.

    Args:
        container: As `known_to_tensorflow` returned it.
        node: Of the batch.

    Returns:
        None if the node is no container of that kind, or has other keys.
    """
    if isinstance(container, dict):
        if isinstance(node, Mapping):
            return [node[key] for key in container] if node.keys() == container.keys() else None
        if is_dataclass(node) and set(keys(node)) == container.keys():
            return [getattr(node, key) for key in container]
        return None
    is_plain = type(node) in (list, tuple)  # of which the questions below are many
    if not is_plain and (not is_container(node) or isinstance(node, Mapping) or is_dataclass(node)):
        return None
    if (
        not is_plain
        and is_namedtuple(node)
        and is_namedtuple(container)
        and keys(node) != keys(container)
    ):
        return None
    return list(node) if len(node) == len(container) else None
