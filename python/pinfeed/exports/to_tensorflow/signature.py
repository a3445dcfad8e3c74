"""What the batches look like: what the first one says of all, and how each is taken apart by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from pinfeed.exports.to_tensorflow.leaves import Leaf, is_plain, leaf_of, moved, spec_of
from pinfeed.fields import Image, Pad
from pinfeed.fields.collate import Collate
from pinfeed.functions.jagged import JaggedBatch
from pinfeed.functions.padded import Padded
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.optional import import_extra
from pinfeed.sources.ragged import RaggedArray
from pinfeed.structure import children, is_container, is_dataclass, is_namedtuple, rebuild

tf: Any = import_extra("tensorflow", "tensorflow")

_NONE_SPEC = type(tf.type_spec_from_value(None))
_ARRAYS = (torch.Tensor, np.ndarray)

#: From a batch to a leaf: keys, names and positions.
Steps = tuple[Any, ...]


def signature_of(batch: Any, varying: Mapping[Steps, set[int]]) -> Any:
    """The structure of an element of the dataset, of ``tf.TypeSpec``, its channels not yet moved.

    Args:
        batch: The first one.
        varying: Of some leaves, which axes differ between batches, axis 0 aside.

    Raises:
        TypeError: A leaf is nothing that TensorFlow could have.
    """
    specs = [
        None if leaf is None else spec_of(leaf, {0} | varying.get(steps, set()), _where(steps, 0))
        for steps, leaf in leaves(batch)
    ]
    return _rebuilder(batch)(iter(specs))


def varying_axes(loader: Any, batch: Any) -> dict[Steps, set[int]]:
    """The axes that vary, by leaf; axis 0, which always may, need not be among them.

    Args:
        loader: A list or tuple of batches shows them by itself. For another loader, pinfeed's own
            fields know them, if its batches are made of them.
        batch: The first one.
    """
    found: dict[Steps, set[int]] = {}
    nodes = dict(leaves(batch, (Padded,)))
    collate = getattr(loader, "collate_fn", None)
    fields: dict[Steps, Any] = {}
    for spec in (
        collate.spec if isinstance(collate, Collate) else None,
        loader.fields if isinstance(loader, DeviceLoader) else None,
    ):
        padded = {steps: one for steps, one in leaves(spec) if isinstance(one, Pad | Image)}
        fields |= {steps: field for steps, field in padded.items() if steps in nodes}
        for steps, field in padded.items():
            beside = (*steps[:-1], getattr(field, "mask", None))
            if steps and beside in nodes:
                found[beside] = set(range(1, nodes[beside].ndim))
    for steps, node in nodes.items():
        values = node.values if isinstance(node, Padded) else node
        at = (*steps, 0) if isinstance(node, Padded) else steps
        if steps in fields:
            found[at] = _axes(fields[steps], values.ndim)
        elif isinstance(node, Padded):
            lengths = getattr(node, "lengths", None)
            has_one_axis = lengths is not None and lengths.ndim == 1
            found[at] = {1} if has_one_axis else set(range(1, values.ndim))
        if isinstance(node, Padded) and hasattr(node, "mask"):
            mask = 2 if hasattr(node, "lengths") else 1
            found[(*steps, mask)] = set(range(1, node.mask.ndim))
    if isinstance(loader, list | tuple):
        first = _shapes(batch)
        for steps, shape in (item for other in loader for item in _shapes(other).items()):
            if len(first.get(steps, ())) == len(shape):
                sizes = enumerate(zip(shape, first[steps], strict=True))
                found.setdefault(steps, set()).update(i for i, (a, b) in sizes if a != b)
    return found


def _axes(field: Pad | Image, rank: int) -> set[int]:
    """The axes of a batch of this rank that the field pads."""
    if isinstance(field, Image):
        if field.pad_value is None:
            return set()
        return {2, 3} if field.output == "CHW" else {1, 2}
    padding = field._padding
    axes = padding.axes if isinstance(padding.axes, tuple) else (padding.axes or 0,)
    varying = {1 + axis % (rank - 1) for axis in axes}
    return varying | {1} if padding.time_major else varying  # axis 1 counts samples then


def _shapes(batch: Any) -> dict[Steps, tuple[int, ...]]:
    return {steps: tuple(leaf.shape) for steps, leaf in leaves(batch) if isinstance(leaf, _ARRAYS)}


class Layout:
    """How a batch becomes plain tensors, its parts, and these an element of the dataset.

    Args:
        signature: The structure of an element, of ``tf.TypeSpec``.
        channels_last: Which leaves have their channels moved, see `pinfeed.to_tensorflow`.
        is_guess: Whether the signature is that of the first batch, in which they haven't moved yet.

    Attributes:
        part_specs: Of the plain tensors that carry an element.

    Raises:
        TypeError, ValueError: No batch could be like this, or the channels don't fit to it.
    """

    def __init__(
        self, signature: Any, channels_last: bool | str | Iterable[str], is_guess: bool
    ) -> None:
        self._rebuilt = _rebuilder(signature)
        names = {steps: ".".join(map(str, steps)) for steps, _ in leaves(signature)}
        specs = {
            names[steps]: spec
            for steps, spec in leaves(signature)
            if not isinstance(spec, _NONE_SPEC | None)
        }
        if not specs:
            raise ValueError("to_tensorflow: expected at least one array in a batch, got none")
        moves = moved(channels_last, specs)
        self._leaves: dict[Steps, Leaf] = {
            steps: leaf_of(specs.get(name), name in moves, is_guess, f"signature{_path(steps)}")
            for steps, name in names.items()
        }
        self.part_specs = [spec for leaf in self._leaves.values() for spec in leaf.part_specs]

    def parts(self, batch: Any, number: int, limit: int | None = None) -> tuple[list[Any], int]:
        """The tensors of a batch, or of its first samples.

        Args:
            batch: What the loader yielded.
            number: Which batch that is, for messages.
            limit: The most samples to take.

        Returns:
            The tensors, and how many samples they are; 0 without a limit.

        Raises:
            TypeError, ValueError: The batch doesn't fit to the signature, or with a limit its leaves
                don't agree on how many samples there are.
        """
        values = dict(leaves(batch))
        if values.keys() != self._leaves.keys():
            raise ValueError(
                f"{_where((), number)}: expected the leaves {_listed(self._leaves)}, "
                f"got {_listed(values)}"
            )
        parts = {
            steps: leaf.parts(values[steps], _where(steps, number))
            for steps, leaf in self._leaves.items()
        }
        count = 0
        if limit is not None:
            counts = {steps: leaf.count(parts[steps]) for steps, leaf in self._leaves.items()}
            known = {_path(steps): count for steps, count in counts.items() if count is not None}
            if len(set(known.values())) != 1:
                raise ValueError(
                    f"{_where((), number)}: with max_samples, the first axis of every leaf must "
                    f"count the same samples, got {known}"
                )
            count = min(limit, *known.values())
            parts = {steps: leaf.first(parts[steps], count) for steps, leaf in self._leaves.items()}
        return [part for own in parts.values() for part in own], count

    def element(self, *parts: Any) -> Any:
        """What the tensors of all leaves, in a graph or not, are together."""
        values, start = [], 0
        for leaf in self._leaves.values():
            stop = start + len(leaf.part_specs)
            values.append(leaf.element(parts[start:stop]))
            start = stop
        return self._rebuilt(iter(values))


def leaves(
    node: Any, atoms: tuple[type, ...] = (), steps: Steps = ()
) -> Iterator[tuple[Steps, Any]]:
    """The leaves of a batch or of a signature, each behind the steps that lead to it.

    A batch and its signature have the same steps: keys of dicts and names of dataclasses, which
    become dicts, and positions in all else.

    Args:
        node: The structure.
        atoms: Types that are leaves, too.
        steps: Those to the node.
    """
    if isinstance(node, _ARRAYS) or _is_leaf(node, atoms):
        yield steps, node
    else:
        for step, child in _items(node):
            yield from leaves(child, atoms, (*steps, step))


def _items(node: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(node, Mapping):
        return node.items()
    if is_dataclass(node):
        return [(step[1:], child) for step, child in children(node)]
    return enumerate(node)


def _is_leaf(node: Any, atoms: tuple[type, ...]) -> bool:
    if type(node) is dict:  # most structures; the questions below take longer
        return not node
    if type(node) in (tuple, list):
        return not node or is_plain(node)
    is_atom = isinstance(node, (JaggedBatch, RaggedArray, *atoms)) or is_plain(node)
    return is_atom or not is_container(node) or len(children(node)) == 0


def _rebuilder(node: Any) -> Callable[[Iterator[Any]], Any]:
    """A function that makes the structure of a node, as tf.data knows it, of its leaves.

    Raises:
        TypeError: It has a dict that tf.data can't have.
    """
    if isinstance(node, _ARRAYS) or _is_leaf(node, ()):
        return next
    below = [_rebuilder(child) for _, child in _items(node)]
    if is_namedtuple(node):
        return lambda values: rebuild(node, [part(values) for part in below])
    if not (isinstance(node, Mapping) or is_dataclass(node)):
        return lambda values: tuple([part(values) for part in below])
    names = [name for name, _ in _items(node)]
    try:
        sorted(names)
    except TypeError as error:
        raise TypeError(
            f"to_tensorflow: batches have a dict with the keys {names}; "
            "TensorFlow takes only keys that can be sorted"
        ) from error
    parts = dict(zip(names, below, strict=True))
    return lambda values: {name: part(values) for name, part in parts.items()}


def _where(steps: Steps, batch: int) -> str:
    leaf = f"leaf {_path(steps)} of " if steps else ""
    return f"to_tensorflow: {leaf}batch {batch}"


def _path(steps: Steps) -> str:
    return "".join(f"[{step!r}]" for step in steps)


def _listed(leaves: Iterable[Steps]) -> str:
    return "[" + ", ".join(_path(steps) or "the batch itself" for steps in leaves) + "]"
