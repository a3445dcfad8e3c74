"""Structures of samples, and bitwise comparison of them.

A separate module, so that workers can import the classes.
"""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from arrays import random_array


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Record:
    x: Any
    y: Any


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenRecord:
    x: Any
    y: Any


class Bag(Mapping[str, Any]):
    """A Mapping that is not a dict and can't be changed."""

    def __init__(self, items):
        self._items = dict(items)

    def __getitem__(self, key):
        return self._items[key]

    def __iter__(self):
        return iter(self._items)

    def __len__(self):
        return len(self._items)


class TaggedDict(dict):
    """A dict with an attribute that a batch must keep."""

    tag = "none"


class Couple(Sequence[Any]):
    """A Sequence that is not a list."""

    def __init__(self, items):
        self._items = list(items)

    def __getitem__(self, index):
        return self._items[index]

    def __len__(self):
        return len(self._items)

    def __repr__(self):
        return f"Couple({self._items})"


class TupleOfTwo(tuple):
    """A tuple subclass without names."""

    __slots__ = ()


class MarkedTensor(torch.Tensor):
    """A tensor subclass that torch's operations preserve."""


def tagged(x, y):
    result = TaggedDict(x=x, y=y)
    result.tag = "kept"
    return result


# Builders of a sample from two entries, by name.
STRUCTURES = {
    "plain": lambda x, _: x,
    "tuple": lambda x, y: (x, y),
    "list": lambda x, y: [x, y],
    "dict": lambda x, y: {"x": x, "y": y},
    "NamedTuple": Point,
    "dataclass": Record,
    "frozen dataclass": FrozenRecord,
    "OrderedDict": lambda x, y: collections.OrderedDict(x=x, y=y),
    "dict with more": tagged,
    "Mapping": lambda x, y: Bag({"x": x, "y": y}),
    "Sequence": lambda x, y: Couple([x, y]),
    "nested": lambda x, y: {"a": (x, [y, Point(x, y)]), "b": Record({"c": x}, FrozenRecord(y, x))},
}

# Structures that work as datasets; a list of arrays is ambiguous.
DATASETS = {name: build for name, build in STRUCTURES.items() if name != "list"}


def assert_same(actual, expected, path=""):
    """Asserts equal types of containers and entries, dtypes, shapes and bits."""
    assert type(actual) is type(expected), f"{path}: {type(actual)} is not {type(expected)}"
    if isinstance(expected, torch.Tensor):
        assert actual.dtype == expected.dtype, path
        assert actual.shape == expected.shape, path
        assert actual.requires_grad == expected.requires_grad, path
        assert bits(actual) == bits(expected), path
    elif isinstance(expected, np.ndarray | np.generic):
        assert actual.dtype == expected.dtype, path
        assert actual.shape == expected.shape, path
        assert actual.tobytes() == expected.tobytes(), path
    elif isinstance(expected, Mapping):
        assert list(actual) == list(expected), path
        assert getattr(actual, "tag", None) == getattr(expected, "tag", None), path
        for key in expected:
            assert_same(actual[key], expected[key], f"{path}[{key!r}]")
    elif dataclasses.is_dataclass(expected):
        for field in dataclasses.fields(expected):
            name = field.name
            assert_same(getattr(actual, name), getattr(expected, name), f"{path}.{name}")
    elif isinstance(expected, Sequence) and not isinstance(expected, str | bytes):
        assert len(actual) == len(expected), path
        for i, (one, other) in enumerate(zip(actual, expected, strict=True)):
            assert_same(one, other, f"{path}[{i}]")
    else:
        assert actual == expected, path


def bits(tensor):
    """Returns the tensor's values as bytes, in the order of its axes."""
    plain = tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()
    if plain.numel() == 0:
        return b""
    return plain.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def random_tensor(rng, dtype, shape):
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    if dtype == torch.bool:
        return torch.from_numpy(random_array(shape, bool, rng))
    raw = random_array((*shape, dtype.itemsize), np.uint8, rng)
    return torch.from_numpy(raw).view(dtype).reshape(shape)


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    """An error that rejects attributes, and therefore notes."""

    code: int
