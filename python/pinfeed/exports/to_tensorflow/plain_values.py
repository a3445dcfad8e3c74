"""Leaves that are Python's own values: numbers and strings, alone or in lists."""

from __future__ import annotations

from typing import Any

import numpy as np

_NUMBERS = (bool, int, float, complex, np.number, np.bool)
_INTEGERS = (bool, int, np.integer, np.bool)
_STRINGS = (str, bytes)
_DTYPES = {"b": np.bool, "i": np.int64, "f": np.float32, "c": np.complex64}


def is_plain(node: Any) -> bool:
    """Whether a node of a batch is a number or a string, or a list or tuple of them."""
    if isinstance(node, list | tuple) and not hasattr(node, "_fields"):
        return len(node) > 0 and all(isinstance(item, _NUMBERS + _STRINGS) for item in node)
    return isinstance(node, _NUMBERS + _STRINGS)


def is_text(node: Any) -> bool:
    """Whether the node is a string, or a list, a tuple or an ndarray that can hold some."""
    if isinstance(node, np.ndarray):
        return node.dtype.kind in "OUST"
    if isinstance(node, list | tuple):
        return len(node) > 0 and isinstance(node[0], _STRINGS)
    return isinstance(node, _STRINGS)


def text_shape(node: Any) -> tuple[int, ...]:
    """The shape of the tensor that the node becomes, if `is_text` holds for it."""
    if isinstance(node, np.ndarray):
        return node.shape
    return (len(node),) if isinstance(node, list | tuple) else ()


def text_list(node: Any, where: str) -> Any:
    """A string, or nested lists of strings.

    Args:
        node: For which `is_text` holds.
        where: What messages call it.

    Raises:
        TypeError: Something else is among them.
    """
    items = node.ravel().tolist() if isinstance(node, np.ndarray) else node
    if not isinstance(items, _STRINGS):
        for item in items:
            if not isinstance(item, _STRINGS):
                raise TypeError(
                    f"{where}: expected strings, got a {type(item).__name__} among them"
                )
    return node.tolist() if isinstance(node, np.ndarray) else items


def number_array(node: Any, where: str) -> Any:
    """Numbers as an ndarray: Python's own as int64, float32, complex64 or bool.

    Args:
        node: What is nothing of the kind is returned as it is.
        where: What messages call it.

    Raises:
        TypeError: There are strings among them, or integers beyond int64.
        ValueError: float32 can't hold one.
    """
    if isinstance(node, np.generic):
        return np.asarray(node)
    if not is_plain(node):
        return node
    array = np.asarray(node)
    items = node if isinstance(node, list | tuple) else (node,)
    if array.dtype.kind not in "bi" and all(isinstance(item, _INTEGERS) for item in items):
        # NumPy takes signed and unsigned ones together for floats, which would round them.
        try:
            array = np.array([int(item) for item in items], np.int64).reshape(array.shape)
        except OverflowError as error:
            raise TypeError(
                f"{where}: expected integers that int64 can hold, got {node!r}"
            ) from error
    if array.dtype.kind not in _DTYPES:
        raise TypeError(f"{where}: expected numbers of 64 bits, got {node!r}")
    try:
        with np.errstate(over="raise"):
            return array.astype(_DTYPES[array.dtype.kind], copy=False)
    except FloatingPointError as error:
        raise ValueError(
            f"{where}: expected numbers that float32 can hold, got {node!r}"
        ) from error
