"""The structure of the batches, which the elements of the dataset have too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pinfeed.exports.to_tensorflow.channels import Channels
from pinfeed.exports.to_tensorflow.containers import children_as, keys, known_to_tensorflow
from pinfeed.exports.to_tensorflow.leaves import Leaf, leaf_of
from pinfeed.optional import import_extra
from pinfeed.structure import children, is_container, rebuild

tf: Any = import_extra("tensorflow", "tensorflow")

Parts = list[list[Any]]  # the plain tensors of a batch, by leaf


class _Branch(NamedTuple):
    """A container in the signature.

    Attributes:
        empty: A dict, a tuple or a NamedTuple with None instead of its children.
        nodes: What its children are: branches, the numbers of leaves, or nothing.
        path: Where it is.
    """

    empty: Any
    nodes: list[Any]
    path: str


class _Nothing(NamedTuple):
    """Where batches have None."""

    path: str


class Layout:
    """Which leaves a batch has, and how they become an element of the dataset.

    Args:
        signature: The structure of an element, of ``tf.TypeSpec``.
        channels: Which leaves have their channels moved.

    Attributes:
        part_specs: Of the plain tensors that carry an element.

    Raises:
        TypeError, ValueError: No batch could be like this, or the channels don't fit to it.
    """

    def __init__(self, signature: Any, channels: Channels) -> None:
        self._channels = channels
        self._leaves: list[Leaf] = []
        self._paths: list[str] = []
        self._moves: dict[str, bool] = {}
        self._root = self._node(signature, "", ())
        if not self._leaves:
            raise ValueError("to_tensorflow: expected at least one array in a batch, got none")
        channels.check(self._moves)
        self.part_specs = [spec for leaf in self._leaves for spec in leaf.part_specs]

    def parts(self, batch: Any, number: int) -> Parts:
        """The tensors of a batch.

        Raises:
            TypeError, ValueError: It doesn't fit to the signature.
        """
        values: list[Any] = []
        _collect(self._root, batch, number, values)
        return [
            leaf.parts(value, _where(path, number))
            for leaf, path, value in zip(self._leaves, self._paths, values, strict=True)
        ]

    def element(self, *parts: Any) -> Any:
        """What the tensors of all leaves, in a graph or not, are together."""
        values, start = [], 0
        for leaf in self._leaves:
            stop = start + len(leaf.part_specs)
            values.append(leaf.element(parts[start:stop]))
            start = stop
        return _rebuilt(self._root, values)

    def count(self, parts: Parts, number: int) -> int:
        """How many samples a batch has.

        Raises:
            ValueError: Its leaves don't agree, or none of them tells.
        """
        counts = [leaf.count(own) for leaf, own in zip(self._leaves, parts, strict=True)]
        known = {
            path: count
            for path, count in zip(self._paths, counts, strict=True)
            if count is not None
        }
        if len(set(known.values())) != 1:
            raise ValueError(
                f"{_where('', number)}: with max_samples, the first axis of every leaf must count "
                f"the same samples, got {known}"
            )
        return next(iter(known.values()))

    def first(self, parts: Parts, count: int) -> Parts:
        """The tensors of the first samples of a batch."""
        return [leaf.first(own, count) for leaf, own in zip(self._leaves, parts, strict=True)]

    def _node(self, node: Any, path: str, names: tuple[str, ...]) -> Any:
        if node is None or isinstance(node, type(tf.type_spec_from_value(None))):
            return _Nothing(path)
        if not is_container(node):
            return self._add(node, path, ".".join(names))
        nodes = [
            self._node(child, path + step, (*names, str(key)))
            for key, (step, child) in zip(keys(node), children(node), strict=True)
        ]
        return _Branch(known_to_tensorflow(node, [None] * len(nodes), path), nodes, path)

    def _add(self, spec: Any, path: str, name: str) -> int:
        where = f"to_tensorflow: signature{path}"
        is_dense = isinstance(spec, tf.TensorSpec)
        moves = is_dense and self._channels.move(name, spec.dtype, spec.shape.rank)
        self._leaves.append(leaf_of(spec, moves, where))
        self._paths.append(path)
        self._moves[name] = moves
        return len(self._leaves) - 1


def _where(path: str, batch: int) -> str:
    return (
        f"to_tensorflow: leaf {path} of batch {batch}" if path else f"to_tensorflow: batch {batch}"
    )


def _collect(layout: Any, node: Any, batch: int, values: list[Any]) -> None:
    """Appends the values of the leaves; raises ValueError if the structure is another one."""
    if isinstance(layout, int):
        values.append(node)
    elif isinstance(layout, _Branch):
        below = children_as(layout.empty, node)
        if below is None:
            raise ValueError(
                f"{_where(layout.path, batch)}: expected a {_description(layout.empty)}, "
                f"got a {_description(node)}"
            )
        for child, value in zip(layout.nodes, below, strict=True):
            _collect(child, value, batch, values)
    elif node is not None:
        where = _where(layout.path, batch)
        raise ValueError(f"{where}: expected None, got a {_description(node)}")


def _description(node: Any) -> str:
    name = type(node).__name__
    return f"{name} of {keys(node)}" if is_container(node) else name


def _rebuilt(layout: Any, values: Sequence[Any]) -> Any:
    if isinstance(layout, int):
        return values[layout]
    if isinstance(layout, _Nothing):
        return None
    return rebuild(layout.empty, [_rebuilt(node, values) for node in layout.nodes])
