"""The collate function: samples in, one batch of the same structure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pinfeed.arena.trainer import offer_arena, want_arena
from pinfeed.arena.worker import accept_offer
from pinfeed.dataset import Rows
from pinfeed.fields import Field, Stack
from pinfeed.fields.field import Beside
from pinfeed.fields.stack import is_taught_to_torch
from pinfeed.object_column import ObjectColumn
from pinfeed.sources import Source
from pinfeed.structure import (
    children,
    is_container,
    is_dataclass,
    is_namedtuple,
    rebuild,
    rebuild_mapping,
)

_STACK = Stack()


class Collate:
    """A ``collate_fn`` for any DataLoader: one native pass per leaf, into reused buffers.

    Args:
        spec: What becomes of each leaf, in the structure of a sample: a bare `Field` for bare
            samples, a dict for dict samples, a tuple for tuple samples, nested as deep. Leaves
            without a field (left out of a dict, or None) get `Stack`. None: all of them.

    The batch has the structure of the samples, with the types that ``default_collate`` gives
    (tuples become lists), and without a spec the same contents. Samples that are `Rows` of an
    `ArrayDataset` are gathered natively; any other sequence of samples works too.

    A Collate pickles, and any number of workers and threads may call it. In a DataLoader worker
    it writes into memory that the trainer has mapped already (see `set_arena_limit`); elsewhere
    into buffers of a pool. Either way the memory is used again when the last tensor or array that
    views it is gone, never before.

    Raises:
        TypeError: The spec holds something that is no field; a leaf's kind or dtype does not fit.
        ValueError: The batch is empty; samples differ in shape or structure, or from the spec.

    Example:
        >>> collate = pinfeed.Collate({"image": pinfeed.Image(scale=1)})
        >>> samples = [{"image": np.ones((2, 2, 3), np.uint8), "label": i} for i in range(4)]
        >>> batch = collate(samples)
        >>> batch["image"].shape, batch["label"]
        (torch.Size([4, 3, 2, 2]), tensor([0, 1, 2, 3]))
    """

    def __init__(self, spec: Any = None) -> None:
        self.spec = spec
        self._fields = _placed(spec, "", in_dict=False)
        want_arena()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_arena": offer_arena()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        accept_offer(state.pop("_arena", None))
        self.__dict__ |= state
        want_arena()

    def __call__(self, samples: Sequence[Any]) -> Any:
        """Collates a batch.

        Args:
            samples: At least one sample.
        """
        if not isinstance(samples, Sequence) or isinstance(samples, str | bytes):
            raise TypeError(
                f"Collate: expected a sequence of samples, got {type(samples).__name__}; "
                "a DataLoader with batch_size=None hands over single samples"
            )
        if len(samples) == 0:
            raise ValueError("Collate: expected at least one sample, got an empty batch")
        if isinstance(samples, Rows):
            return _collate_rows(self._fields, samples.sources, samples, "")
        return _collate_samples(self._fields, list(samples), "")

    def __repr__(self) -> str:
        return f"Collate({'' if self.spec is None else repr(self.spec)})"


def _name(path: str) -> str:
    return f"Collate: leaf {path}" if path else "Collate: the leaf"


def _placed(spec: Any, path: str, in_dict: bool) -> Any:
    """The spec with each field as it behaves at its place; raises for what is no spec."""
    if spec is None:
        return None
    if isinstance(spec, Field):
        field = spec.placed(in_dict)
        if field.names() and not in_dict:
            raise ValueError(
                f"Collate: spec{path} names {list(field.names())}, keys of a dict, but stands in "
                "none; say True instead of a name to have it in the leaf"
            )
        return field
    if not is_container(spec):
        hint = "; create it with parentheses" if isinstance(spec, type) else ""
        raise TypeError(
            f"Collate: spec{path} must be a Field such as Image() or Stack(), or None, "
            f"got {spec!r}{hint}"
        )
    is_dict = isinstance(spec, Mapping)
    placed = [_placed(child, path + step, is_dict) for step, child in children(spec)]
    if is_dict:
        _check_names(spec, placed, path)
    return rebuild(spec, placed)


def _check_names(spec: Mapping[Any, Any], fields: list[Any], path: str) -> None:
    taken = set(spec)
    for field in fields:
        for name in field.names() if isinstance(field, Field) else ():
            if name in taken:
                raise ValueError(
                    f"Collate: spec{path} has two leaves for the key {name!r}; choose another name"
                )
            taken.add(name)


def _child_specs(spec: Any, node: Any, path: str) -> list[Any]:
    """The spec of each child of a sample's container, in the order of its children."""
    steps = [step for step, _ in children(node)]
    if spec is None:
        return [None] * len(steps)
    by_step = dict(children(spec))
    unknown = [step for step in by_step if step not in steps]
    named = isinstance(node, Mapping) or is_dataclass(node) or is_namedtuple(node)
    if unknown or (not named and len(by_step) != len(steps)):
        raise ValueError(
            f"Collate: spec{path} has {list(by_step)}, but samples have {steps} there; "
            "the spec mirrors the sample"
        )
    return [by_step.get(step) for step in steps]


def _collated(node: Any, values: list[Any], path: str) -> Any:
    # default_collate makes lists of plain tuples, and code in the wild relies on it.
    if isinstance(node, tuple) and not is_namedtuple(node):
        return values
    if isinstance(node, Mapping) and any(isinstance(value, Beside) for value in values):
        return rebuild_mapping(node, _with_siblings(node, values, path))
    return rebuild(node, values)


def _with_siblings(node: Mapping[Any, Any], values: list[Any], path: str) -> dict[Any, Any]:
    items: dict[Any, Any] = {}
    for key, value in zip(node, values, strict=True):
        leaf, siblings = value if isinstance(value, Beside) else (value, {})
        items[key] = leaf
        for name, sibling in siblings.items():
            if name in node:
                raise ValueError(
                    f"{_name(f'{path}[{key!r}]')} goes with a {name!r}, "
                    "but samples have a leaf under that key; choose another name"
                )
            items[name] = sibling
    return items


def _collate_rows(spec: Any, sources: Any, rows: Rows, path: str) -> Any:
    if isinstance(sources, ObjectColumn):
        samples = [sources[index] for index in rows.indices.tolist()]
        return _collate_samples(spec, samples, path)
    if isinstance(sources, Source):
        field = _STACK if spec is None else _as_field(spec, path)
        return field.gather(sources, rows.indices, _name(path))
    if isinstance(spec, Field):
        return spec.collate(list(Rows(sources, rows.indices)), _name(path))
    specs = _child_specs(spec, sources, path)
    values = [
        _collate_rows(child_spec, child, rows, path + step)
        for child_spec, (step, child) in zip(specs, children(sources), strict=True)
    ]
    return _collated(sources, values, path)


def _collate_samples(spec: Any, samples: Sequence[Any], path: str) -> Any:
    if isinstance(spec, Field):
        return spec.collate(samples, _name(path))
    first = samples[0]
    if not is_container(first) or is_taught_to_torch(first):
        return _as_field(spec, path).collate(samples, _name(path))
    specs = _child_specs(spec, first, path)
    steps = [step for step, _ in children(first)]
    columns = _columns(samples, path)
    values = [
        _collate_samples(child_spec, column, path + step)
        for child_spec, step, column in zip(specs, steps, columns, strict=True)
    ]
    return _collated(first, values, path)


def _as_field(spec: Any, path: str) -> Field:
    if spec is None:
        return _STACK
    if isinstance(spec, Field):
        return spec
    raise ValueError(
        f"Collate: spec{path} is a {type(spec).__name__}, but samples have a single leaf there; "
        "the spec mirrors the sample"
    )


def _columns(samples: Sequence[Any], path: str) -> list[Sequence[Any]]:
    """For each child of the samples' containers, that child of every sample."""
    first = samples[0]
    if isinstance(first, Mapping):
        for position, sample in enumerate(samples):
            if not isinstance(sample, Mapping):
                raise _differs(path, position, first, sample)
            if sample.keys() != first.keys():
                raise ValueError(
                    f"{_name(path)} of sample {position}: expected keys {list(first)} "
                    f"as in sample 0, got {list(sample)}"
                )
        return [[sample[key] for sample in samples] for key in first]
    if is_dataclass(first):
        for position, sample in enumerate(samples):
            if type(sample) is not type(first):
                raise _differs(path, position, first, sample)
        rows: Sequence[Any] = [[child for _, child in children(sample)] for sample in samples]
    else:
        for position, sample in enumerate(samples):
            if not isinstance(sample, Sequence) or isinstance(sample, str | bytes):
                raise _differs(path, position, first, sample)
            if len(sample) != len(first):
                raise ValueError(
                    f"{_name(path)} of sample {position}: expected {len(first)} items "
                    f"as in sample 0, got {len(sample)}"
                )
        rows = samples
    return list(zip(*rows, strict=True))


def _differs(path: str, position: int, first: Any, sample: Any) -> ValueError:
    return ValueError(
        f"{_name(path)} of sample {position}: expected a {type(first).__name__} as in sample 0, "
        f"got {type(sample).__name__}"
    )
