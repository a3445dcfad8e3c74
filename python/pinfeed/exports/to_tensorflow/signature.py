"""What the batches look like: what the first one says of all, and how each is taken apart by it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pinfeed import structure
from pinfeed.exports.to_tensorflow.leaves import Leaf, is_plain, leaf_of, moved, spec_of
from pinfeed.fields import Field, Image
from pinfeed.fields.collate import Collate
from pinfeed.functions.sequences import JaggedBatch, Padded
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.optional import import_extra
from pinfeed.sources.ragged import RaggedArray
from pinfeed.structure import children, is_container, is_dataclass, is_namedtuple, step_name

tf: Any = import_extra("tensorflow", "tensorflow")

_NONE_SPEC = type(tf.type_spec_from_value(None))

#: From a batch to a leaf: keys, names and positions.
Steps = tuple[str, ...]


def signature_of(batch: Any, varying: Mapping[Steps, set[int]]) -> Any:
    """The structure of an element of the dataset, of ``tf.TypeSpec``, its channels not yet moved.

    Args:
        batch: The first one.
        varying: Of some leaves, which axes differ between batches, axis 0 aside.

    Raises:
        TypeError: A leaf is nothing that TensorFlow could have.
    """
    specs = (
        None if leaf is None else spec_of(leaf, {0} | varying.get(steps, set()), _where(steps, 0))
        for steps, leaf in _leaves(batch)
    )
    return _element(batch, specs)


def varying_axes(loader: Any, batch: Any) -> dict[Steps, set[int]]:
    """The axes that vary, by leaf; axis 0, which always may, need not be among them.

    Args:
        loader: pinfeed's own fields know them, if its batches are made of them.
        batch: The first one.
    """
    found: dict[Steps, set[int]] = {}
    for path, node in structure.leaves(batch, lambda node: isinstance(node, Padded)):
        if isinstance(node, Padded):
            steps = tuple(map(step_name, path))
            has_one_axis = getattr(getattr(node, "lengths", None), "ndim", 0) == 1
            found[(*steps, "values")] = {1} if has_one_axis else set(range(1, node.values.ndim))
            found[(*steps, "mask")] = set(range(1, node.values.ndim))
    collate = getattr(loader, "collate_fn", None)
    for spec in (
        collate.spec if isinstance(collate, Collate) else None,
        loader.fields if isinstance(loader, DeviceLoader) else None,
    ):
        for path, field in structure.leaves(spec):
            steps = tuple(map(step_name, path))
            if isinstance(field, Field) and (axes := _axes(field)):
                found[steps] = found[(*steps, "values")] = axes
                found |= {(*steps[:-1], name): {1, 2} for name in field.names()}
    return found


def _axes(field: Field) -> set[int]:
    """The axes of a batch that the field pads."""
    if isinstance(field, Image) and field.pad_value is not None:
        return {2, 3} if field.output == "CHW" else {1, 2}
    return {1} if field.pads else set()


class Layout:
    """How a batch becomes plain arrays, and these an element of the dataset.

    Args:
        signature: The structure of an element, of ``tf.TypeSpec``.
        channels_last: Which leaves have their channels moved, see `pinfeed.to_tensorflow`.
        is_guess: Whether the signature is that of the first batch, in which they haven't moved yet.

    Attributes:
        specs: Of the plain arrays.

    Raises:
        TypeError, ValueError: No batch could be like this, or the channels don't fit to it.
    """

    def __init__(
        self, signature: Any, channels_last: bool | str | Iterable[str], is_guess: bool
    ) -> None:
        self._signature = signature
        found = {
            steps: None if isinstance(spec, _NONE_SPEC) else spec
            for steps, spec in _leaves(signature)
        }
        named = {".".join(steps): spec for steps, spec in found.items() if spec is not None}
        if not named:
            raise ValueError("to_tensorflow: expected at least one array in a batch, got none")
        moves = moved(channels_last, named)
        self._leaves: dict[Steps, Leaf] = {
            steps: leaf_of(spec, ".".join(steps) in moves, is_guess, f"signature{_path(steps)}")
            for steps, spec in found.items()
        }
        self.specs = [spec for leaf in self._leaves.values() for spec in leaf.specs]

    def arrays(self, batch: Any, number: int) -> tuple[Any, ...]:
        """The arrays of a batch.

        Args:
            batch: What the loader yielded.
            number: Which batch that is, for messages.

        Raises:
            TypeError, ValueError: The batch doesn't fit to the signature.
        """
        values = dict(_leaves(batch))
        if values.keys() != self._leaves.keys():
            raise ValueError(
                f"{_where((), number)}: expected the leaves {_listed(self._leaves)}, "
                f"got {_listed(values)}"
            )
        found: list[Any] = []
        for steps, leaf in self._leaves.items():
            found += leaf.arrays(values[steps], _where(steps, number))
        return tuple(found)

    def element(self, *arrays: Any) -> Any:
        """What the arrays of all leaves, as tensors in a graph or not, are together."""
        left = iter(arrays)
        values = [leaf.element([next(left) for _ in leaf.specs]) for leaf in self._leaves.values()]
        return _element(self._signature, iter(values))


def _leaves(node: Any) -> Iterator[tuple[Steps, Any]]:
    """The leaves of a batch or of a signature, each behind the names of the steps to it."""
    for path, leaf in structure.leaves(node, _is_leaf):
        yield tuple(map(step_name, path)), leaf


def _is_leaf(node: Any) -> bool:
    is_empty = is_container(node) and len(children(node)) == 0
    return isinstance(node, JaggedBatch | RaggedArray) or is_empty or is_plain(node)


def _element(node: Any, values: Iterator[Any]) -> Any:
    """The structure of a node, as tf.data knows it, with other leaves."""
    if _is_leaf(node) or not is_container(node):
        return next(values)
    below = {step: _element(child, values) for step, child in children(node)}
    if is_namedtuple(node):
        return type(node)(*below.values())
    if isinstance(node, Mapping):
        return dict(zip(node, below.values(), strict=True))
    if is_dataclass(node):
        return {step_name(step): value for step, value in below.items()}
    return tuple(below.values())


def _where(steps: Steps, batch: int) -> str:
    leaf = f"leaf {_path(steps)} of " if steps else ""
    return f"to_tensorflow: {leaf}batch {batch}"


def _path(steps: Steps) -> str:
    return "".join(f"[{step}]" if step.isdigit() else f"[{step!r}]" for step in steps)


def _listed(leaves: Iterable[Steps]) -> str:
    return "[" + ", ".join(_path(steps) or "the batch itself" for steps in leaves) + "]"
