"""The collate function: samples in, one batch of the same structure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pinfeed.fields import Field, Stack
from pinfeed.fields.field import Beside, LeafName
from pinfeed.fields.spec import placed, rebuild_with_siblings
from pinfeed.fields.stack import is_taught_to_torch
from pinfeed.memory.pinned import Pin
from pinfeed.memory.trainer import offer_arena, want_arena
from pinfeed.memory.worker import accept_offer, is_worker, worker_arena
from pinfeed.sources.dataset import Rows
from pinfeed.sources.source import ObjectColumn, Source
from pinfeed.structure import children, is_container, is_dataclass, is_namedtuple, rebuild

_STACK = Stack()


class Collate:
    """A ``collate_fn`` for any DataLoader: one native pass per leaf, into reused buffers.

    Args:
        spec: What becomes of each leaf, in the structure of a sample: a bare `Field` for bare
            samples, a dict for dict samples, a tuple for tuple samples, nested as deep. Leaves
            without a field (left out of a dict, or None) get `Stack`. None: all of them.
        pin: Whether batches of this process lie in pinned memory, which devices copy from by
            themselves: a DataLoader's ``pin_memory=True`` has nothing to do then. ``"auto"``: if the
            process uses CUDA or XPU by the time that the batch is made; no device is initialized for
            it. Memory that can't be pinned is ordinary memory, with one warning.

    The batch has the structure of the samples, with the types that ``default_collate`` gives
    (tuples become lists), and without a spec the same contents. Samples that are `Rows` of an
    `ArrayDataset` are gathered natively; any other sequence of samples works too.

    A Collate pickles, and any number of workers and threads may call it. In a DataLoader worker
    it writes into memory that the trainer has mapped already (see `set_arena_limit`) and pins by
    itself, whatever ``pin`` says; elsewhere into pinned memory of torch, or buffers of a pool. In
    each case the memory is used again when the last tensor or array that views it is gone, never
    before.

    Raises:
        TypeError: The spec holds something that is no field; a leaf's kind or dtype does not fit.
        ValueError: The batch is empty; samples differ in shape or structure, or from the spec.
        RuntimeError: With ``pin=True``, when a batch is made: there is no accelerator.

    Example:
        >>> collate = pinfeed.Collate({"image": pinfeed.Image(scale=1)})
        >>> samples = [{"image": np.ones((2, 2, 3), np.uint8), "label": i} for i in range(4)]
        >>> batch = collate(samples)
        >>> batch["image"].shape, batch["label"]
        (torch.Size([4, 3, 2, 2]), tensor([0, 1, 2, 3]))
    """

    def __init__(self, spec: Any = None, *, pin: Pin = "auto") -> None:
        if not isinstance(pin, bool) and pin != "auto":
            raise ValueError(f"Collate: pin must be True, False or 'auto', got {pin!r}")
        self.spec = spec
        self.pin = pin
        self._fields = placed(spec, "Collate: spec")
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
        if is_worker():
            worker_arena()  # numbers are sent through it too, and tensors that Keep leaves alone
        if isinstance(samples, Rows):
            return _collate_rows(self._fields, samples.sources, samples, "", self.pin)
        return _collate_samples(self._fields, list(samples), "", self.pin)

    def __repr__(self) -> str:
        spec = [] if self.spec is None else [repr(self.spec)]
        pin = [] if self.pin == "auto" else [f"pin={self.pin}"]
        return f"Collate({', '.join(spec + pin)})"


def _name(path: str) -> str:
    return f"Collate: leaf {path}" if path else "Collate: the leaf"


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
        return rebuild_with_siblings(node, values, lambda step: _name(path + step), "samples")
    return rebuild(node, values)


def _collate_rows(spec: Any, sources: Any, rows: Rows, path: str, pin: Pin) -> Any:
    if isinstance(sources, ObjectColumn):
        samples = [sources[index] for index in rows.indices.tolist()]
        return _collate_samples(spec, samples, path, pin)
    if isinstance(sources, Source):
        field = _STACK if spec is None else _as_field(spec, path)
        return field.gather(sources, rows.indices, LeafName(_name(path), pin))
    if isinstance(spec, Field):
        return spec.collate(list(Rows(sources, rows.indices)), LeafName(_name(path), pin))
    specs = _child_specs(spec, sources, path)
    values = [
        _collate_rows(child_spec, child, rows, path + step, pin)
        for child_spec, (step, child) in zip(specs, children(sources), strict=True)
    ]
    return _collated(sources, values, path)


def _collate_samples(spec: Any, samples: Sequence[Any], path: str, pin: Pin) -> Any:
    if isinstance(spec, Field):
        return spec.collate(samples, LeafName(_name(path), pin))
    first = samples[0]
    if not is_container(first) or is_taught_to_torch(first):
        return _as_field(spec, path).collate(samples, LeafName(_name(path), pin))
    specs = _child_specs(spec, first, path)
    steps = [step for step, _ in children(first)]
    columns = _columns(samples, path)
    values = [
        _collate_samples(child_spec, column, path + step, pin)
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
