"""The signature of batches: derived from the first batch, and used to flatten every batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pinfeed import structure
from pinfeed.arguments import Problem
from pinfeed.collation.collate import Collate
from pinfeed.exports.to_tensorflow.entries import (
    PlainEntry,
    arrays_of,
    element_of,
    is_plain,
    parts_of,
    require_spec,
    spec_of,
    with_channels_last,
)
from pinfeed.fields.field import Field
from pinfeed.functional.sequences import JaggedBatch, Padded
from pinfeed.imports import import_extra
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.sources.ragged import RaggedArray
from pinfeed.structure import children, is_container, is_dataclass, is_namedtuple, step_name

tf: Any = import_extra("tensorflow", "tensorflow")

_NONE_SPEC = type(tf.type_spec_from_value(None))

#: From a batch to an entry: keys, names and positions.
Steps = tuple[str, ...]


class Signature:
    """Flattens batches to arrays, and rebuilds dataset elements from tensors.

    Args:
        template: The specs, nested like the dataset's elements.
        specs: Specs of the entries, after moving channels; None for an entry that is None.
        moves: Entries whose channels are moved.
        like: An object nested like the batches.

    Attributes:
        parts: Specs of the arrays.
        is_flat: Whether elements are tuples of just these arrays.
    """

    def __init__(
        self, template: Any, specs: dict[Steps, Any], moves: set[Steps], like: Any
    ) -> None:
        self._template, self._specs, self._moves = template, specs, moves
        self.parts = [part for spec in specs.values() for part in parts_of(spec)]
        self.is_flat = type(template) is tuple and [*template] == self.parts
        plain = (PlainEntry(spec, steps in moves) for steps, spec in specs.items())
        self._plain = structure.map_entries(lambda _: next(plain), like, _is_entry)

    @classmethod
    def of_batch(
        cls, batch: Any, varying: Mapping[Steps, set[int]], channels_last: Any
    ) -> Signature:
        """Derives the signature from a first batch; axis 0 and the axes in ``varying`` are variable."""
        specs = {
            steps: None
            if entry is None
            else spec_of(entry, {0} | varying.get(steps, set()), _where(steps, 0))
            for steps, entry in _entries(batch)
        }
        moves = _moved(channels_last, specs)
        for steps in moves:
            specs[steps] = with_channels_last(specs[steps])
        # A template without the batch's arrays, so that they can be freed.
        return cls(_element(batch, iter(specs.values())), specs, moves, batch)

    @classmethod
    def of_specs(cls, nested: Any, channels_last: Any) -> Signature:
        """Creates the signature from a user's nested ``tf.TypeSpec``."""
        specs = {
            steps: None if isinstance(spec, _NONE_SPEC) else spec
            for steps, spec in _entries(nested)
        }
        for steps, spec in specs.items():
            require_spec(spec, f"to_tensorflow: signature{_path(steps)}")
        return cls(nested, specs, _moved(channels_last, specs), nested)

    def arrays(self, batch: Any, number: int) -> tuple[Any, ...]:
        """Returns the arrays of a batch; raises if it doesn't fit, naming the batch's number."""
        plain: list[Any] = []
        if _add_plain_arrays(batch, self._plain, plain):
            return tuple(plain)
        values = dict(_entries(batch))
        if values.keys() != self._specs.keys():
            expected = f"the entries {_listed(self._specs)} of the signature"
            raise ValueError(Problem(_where((), number), expected, _listed(values)))
        results: list[Any] = []
        for steps, spec in self._specs.items():
            results += arrays_of(spec, steps in self._moves, values[steps], _where(steps, number))
        return tuple(results)

    def element(self, *arrays: Any) -> Any:
        """Rebuilds a dataset element from the tensors of all arrays."""
        left = iter(arrays)
        entries = (
            element_of(spec, [next(left) for _ in parts_of(spec)]) for spec in self._specs.values()
        )
        return _element(self._template, entries)


def varying_axes(loader: Any, batch: Any) -> dict[Steps, set[int]]:
    """Returns the variable axes by entry, except axis 0, which always is.

    They come from `Padded` batches and from the fields of the loader.
    """
    axes: dict[Steps, set[int]] = {}
    for path, node in structure.entries(batch, lambda node: isinstance(node, Padded)):
        if isinstance(node, Padded):
            steps = tuple(map(step_name, path))
            has_one_axis = getattr(node.lengths, "ndim", 0) == 1
            axes[(*steps, "values")] = {1} if has_one_axis else set(range(1, node.values.ndim))
            axes[(*steps, "mask")] = set(range(1, node.values.ndim))
    collate = getattr(loader, "collate_fn", None)
    for spec in (
        collate.fields if isinstance(collate, Collate) else None,
        loader.fields if isinstance(loader, DeviceLoader) else None,
    ):
        for path, field in structure.entries(spec):
            steps = tuple(map(step_name, path))
            if isinstance(field, Field) and field.varying_axes:
                axes[steps] = axes[(*steps, "values")] = {*field.varying_axes}
                axes |= {(*steps[:-1], name): {1, 2} for name in field.extra_keys()}
    return axes


def _moved(channels_last: bool | str | Iterable[str], specs: Mapping[Steps, Any]) -> set[Steps]:
    """Returns the entries whose channels move from axis 1 to the end: all images, named ones, or none."""
    by_name = {".".join(steps): steps for steps, spec in specs.items() if spec is not None}
    if not by_name:
        raise ValueError(Problem("to_tensorflow", "at least one array in a batch", "none"))
    ranks = {
        steps: (spec.shape.rank or 0) if isinstance(spec, tf.TensorSpec) else 0
        for steps, spec in specs.items()
    }
    subject = "to_tensorflow: channels_last"
    if channels_last is True:
        images = {
            steps
            for steps, spec in specs.items()
            if ranks[steps] == 4 and (spec.dtype.is_floating or spec.dtype == tf.uint8)
        }
        if not images:
            expected = "an entry of uint8 or floats with 4 axes"
            hint = "pass names of entries, or leave it out"
            raise ValueError(Problem(f"{subject}=True", expected, "none", hint))
        return images
    names = [channels_last] if isinstance(channels_last, str) else channels_last or []
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        raise TypeError(Problem(subject, "True, False, or names of entries", repr(channels_last)))
    for name in names:
        if name not in by_name:
            raise ValueError(Problem(subject, f"entries of a batch, {list(by_name)}", repr(name)))
        if ranks[by_name[name]] < 3:
            expected, hint = "entries of at least 3 axes, (N, C, ...)", "leave it out"
            got = f"{name!r} with {ranks[by_name[name]]}"
            raise ValueError(Problem(subject, expected, got, hint))
    return {by_name[name] for name in names}


def _entries(node: Any) -> Iterator[tuple[Steps, Any]]:
    """Yields the entries of a batch or a signature, with the names of the steps to each."""
    for path, entry in structure.entries(node, _is_entry):
        yield tuple(map(step_name, path)), entry


def _add_plain_arrays(node: Any, like: Any, found: list[Any]) -> bool:
    """Adds the arrays of a batch of plain tensors and ndarrays that fit; False for any other batch.

    With the slower `arrays_of`, four entries took 105 µs of the 620 that a batch takes in all.
    """
    if type(like) is PlainEntry:
        array = like.array(node)
        found.append(array)
        return array is not None
    if type(node) is not type(like):
        return False
    if type(node) is dict:
        return node.keys() == like.keys() and all(
            _add_plain_arrays(node[key], one, found) for key, one in like.items()
        )
    if type(node) is tuple or type(node) is list:
        return len(node) == len(like) and all(
            _add_plain_arrays(a, b, found) for a, b in zip(node, like, strict=True)
        )
    return False


def _is_entry(node: Any) -> bool:
    is_empty = is_container(node) and len(children(node)) == 0
    return isinstance(node, JaggedBatch | RaggedArray) or is_empty or is_plain(node)


def _element(node: Any, values: Iterator[Any]) -> Any:
    """Rebuilds a node with other entries, in containers that tf.data supports."""
    if _is_entry(node) or not is_container(node):
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
    entry = f"entry {_path(steps)} of " if steps else ""
    return f"to_tensorflow: {entry}batch {batch}"


def _path(steps: Steps) -> str:
    return "".join(f"[{step}]" if step.isdigit() else f"[{step!r}]" for step in steps)


def _listed(entries: Iterable[Steps]) -> str:
    return "[" + ", ".join(_path(steps) or "the batch itself" for steps in entries) + "]"
