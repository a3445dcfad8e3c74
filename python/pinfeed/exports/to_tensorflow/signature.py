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


def signature_of(batch: Any, varying: Mapping[str, set[int]]) -> Any:
    """The structure of an element of the dataset, of ``tf.TypeSpec``, its channels not yet moved.

    Args:
        batch: The first one.
        varying: By the path of a leaf, which axes differ between batches, axis 0 aside.

    Raises:
        TypeError: A leaf is nothing that TensorFlow could have.
    """
    specs = [
        None if leaf is None else spec_of(leaf, {0} | varying.get(path, set()), _where(path, 0))
        for path, _, leaf in leaves(batch)
    ]
    return _rebuilder(batch)(iter(specs))


def varying_axes(loader: Any, batch: Any) -> dict[str, set[int]]:
    """The axes that vary, by the path of a leaf; axis 0, which always may, need not be among them.

    Args:
        loader: A list or tuple of batches shows them by itself. For another loader, pinfeed's own
            fields know them, if its batches are made of them.
        batch: The first one.
    """
    found: dict[str, set[int]] = {}
    nodes = {path: node for path, _, node in leaves(batch, (Padded,))}
    collate = getattr(loader, "collate_fn", None)
    fields: dict[str, Any] = {}
    for spec in (
        collate.spec if isinstance(collate, Collate) else None,
        loader.fields if isinstance(loader, DeviceLoader) else None,
    ):
        padded = {path: one for path, _, one in leaves(spec) if isinstance(one, Pad | Image)}
        fields |= {path: field for path, field in padded.items() if path in nodes}
        for path, field in padded.items():
            beside = f"{path[: path.rfind('[')]}[{getattr(field, 'mask', None)!r}]"
            if beside in nodes:
                found[beside] = set(range(1, nodes[beside].ndim))
    for path, node in nodes.items():
        values = node.values if isinstance(node, Padded) else node
        at = f"{path}[0]" if isinstance(node, Padded) else path
        if path in fields:
            found[at] = _axes(fields[path], values.ndim)
        elif isinstance(node, Padded):
            lengths = getattr(node, "lengths", None)
            has_one_axis = lengths is not None and lengths.ndim == 1
            found[at] = {1} if has_one_axis else set(range(1, values.ndim))
        if isinstance(node, Padded) and hasattr(node, "mask"):
            mask = 2 if hasattr(node, "lengths") else 1
            found[f"{path}[{mask}]"] = set(range(1, node.mask.ndim))
    if isinstance(loader, list | tuple):
        first = _shapes(batch)
        for path, shape in (item for other in loader for item in _shapes(other).items()):
            if len(first.get(path, ())) == len(shape):
                sizes = enumerate(zip(shape, first[path], strict=True))
                found.setdefault(path, set()).update(i for i, (a, b) in sizes if a != b)
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


def _shapes(batch: Any) -> dict[str, tuple[int, ...]]:
    return {path: tuple(leaf.shape) for path, _, leaf in leaves(batch) if isinstance(leaf, _ARRAYS)}


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
        found = list(leaves(signature))
        self._rebuilt = _rebuilder(signature)
        specs = {name: spec for _, name, spec in found if not isinstance(spec, _NONE_SPEC | None)}
        if not specs:
            raise ValueError("to_tensorflow: expected at least one array in a batch, got none")
        moves = moved(channels_last, specs)
        self._leaves: dict[str, Leaf] = {
            path: leaf_of(specs.get(name), name in moves, is_guess, f"signature{path}")
            for path, name, spec in found
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
        values = {path: value for path, _, value in leaves(batch)}
        if values.keys() != self._leaves.keys():
            raise ValueError(
                f"{_where('', number)}: expected the leaves {_listed(self._leaves)}, "
                f"got {_listed(values)}"
            )
        parts = {
            path: leaf.parts(values[path], _where(path, number))
            for path, leaf in self._leaves.items()
        }
        count = 0
        if limit is not None:
            counts = {path: leaf.count(parts[path]) for path, leaf in self._leaves.items()}
            known = {path: samples for path, samples in counts.items() if samples is not None}
            if len(set(known.values())) != 1:
                raise ValueError(
                    f"{_where('', number)}: with max_samples, the first axis of every leaf must "
                    f"count the same samples, got {known}"
                )
            count = min(limit, *known.values())
            parts = {path: leaf.first(parts[path], count) for path, leaf in self._leaves.items()}
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
    node: Any, atoms: tuple[type, ...] = (), path: str = "", name: str = ""
) -> Iterator[tuple[str, str, Any]]:
    """The leaves of a batch or of a signature.

    A batch and its signature have the same paths: keys of dicts and names of dataclasses, which
    become dicts, and positions in all else.

    Args:
        node: The structure.
        atoms: Types that are leaves, too.
        path: Where the node is: ``"['views'][0]"``.
        name: The same as a user writes it: ``"views.0"``.

    Yields:
        Path, name and leaf.
    """
    if isinstance(node, _ARRAYS) or _is_leaf(node, atoms):
        yield path, name, node
        return
    if type(node) in (tuple, list):  # the same as below, faster
        for i, child in enumerate(node):
            yield from leaves(child, atoms, f"{path}[{i}]", f"{name}.{i}" if name else str(i))
        return
    is_dict = isinstance(node, Mapping) or is_dataclass(node)
    for i, (step, child) in enumerate(children(node)):
        key = step[1:] if step[0] == "." else step[1:-1].strip("'\"")
        if not is_dict:
            step = f"[{i}]"
        elif step[0] == ".":
            step = f"[{key!r}]"
        yield from leaves(child, atoms, path + step, f"{name}.{key}" if name else key)


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
    below = [_rebuilder(child) for _, child in children(node)]
    if is_namedtuple(node):
        return lambda values: rebuild(node, [part(values) for part in below])
    if not (isinstance(node, Mapping) or is_dataclass(node)):
        return lambda values: tuple([part(values) for part in below])
    names = list(node) if isinstance(node, Mapping) else [step[1:] for step, _ in children(node)]
    try:
        sorted(names)
    except TypeError as error:
        raise TypeError(
            f"to_tensorflow: batches have a dict with the keys {names}; "
            "TensorFlow takes only keys that can be sorted"
        ) from error
    parts = dict(zip(names, below, strict=True))
    return lambda values: {name: part(values) for name, part in parts.items()}


def _where(path: str, batch: int) -> str:
    leaf = f"leaf {path} of " if path else ""
    return f"to_tensorflow: {leaf}batch {batch}"


def _listed(paths: Iterable[str]) -> str:
    return "[" + ", ".join(path or "the batch itself" for path in paths) + "]"
