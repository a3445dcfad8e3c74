"""The plan of a batch: a tree of entries and groups, compiled from the fields and the first samples.

An `Entry` is a node in the structure of samples or batches; a `Group` holds the entries of a container.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed import _core
from pinfeed.arguments import ARRAYS, Problem, add_hint, conversion_hint, nearest
from pinfeed.batches import SampleBatch
from pinfeed.collation.lengths import Comparisons
from pinfeed.collation.objects import explain_difference, image_groups, with_labels
from pinfeed.collation.untransformed import FirstSamples, Left
from pinfeed.fields.field import ABSENT, EntryWithExtras, Field, FieldContext, Shared, sharing
from pinfeed.fields.image import Image
from pinfeed.fields.mask import Mask
from pinfeed.fields.stack import Stack
from pinfeed.fields.targets import Target
from pinfeed.functional.sequences import JaggedBatch
from pinfeed.memory.outputs import Pin, batch_allocator
from pinfeed.runtime import get_num_threads
from pinfeed.sources.dataset import Rows
from pinfeed.sources.source import ArraySource, ObjectColumn, Source
from pinfeed.structure import (
    children,
    is_container,
    is_dataclass,
    is_namedtuple,
    parts,
    rebuild,
    rebuild_mapping,
    step_name,
)

_STACK = Stack()

#: The hint where samples as a whole are None.
_WITHOUT_NONE = (
    "leave out samples that are None: collate_fn=lambda samples: collate([sample for sample in "
    "samples if sample is not None])"
)

#: The structure that fields mirror, by the owner of the plan.
_MIRRORED = {"Collate": "samples", "DeviceLoader": "batches"}


class Entry:
    """A node in the structure of samples or batches.

    It caches the structure of samples for the next batch. Threads can do that concurrently, because
    all store equal values. Methods take the context of the batch, whose name, path and pin don't matter.

    Args:
        owner: Owner of the plan: ``"Collate"`` or ``"DeviceLoader"``.
        fields: Field of this node, or the fields of its parts; None: the samples decide.
        path: Path from the sample to this node, such as ``"['image']"``.
        pin: Whether to pin batches, unless this is a worker.
    """

    def __init__(self, owner: str, fields: Any, path: str = "", pin: Pin = False) -> None:
        self.context = FieldContext(f"{owner}: entry {path}" if path else owner, path, pin)
        self.fields = fields
        self.field = fields if isinstance(fields, Field) else None
        self._owner = owner
        self._kinds: set[type] = set()  # types of samples and sources that are not containers
        self._groups: dict[type, Group] = {}
        self._first = None if path or owner != "Collate" else FirstSamples(fields)

    def collate(self, samples: Sequence[Any], batch: FieldContext) -> Any:
        """Returns the batch of this node in all samples."""
        field, context = self.field, self.context
        if field is None:
            first = samples[0]
            if type(first) not in self._kinds:
                if type(first) in self._groups or is_container(first):
                    return self._group(first, samples).collate(samples, batch)
                self._require_no_fields("single value")
                self._kinds.add(type(first))
            field = _STACK
        elif field.is_optional and self._are_absent(samples):
            return ABSENT
        else:
            context = self._context_in(batch)
        try:
            return field.collate(samples, context)
        except TypeError as error:
            if hint := _samples_hint(field, samples, context):
                add_hint(error, hint)
            raise

    def gather(self, sources: Any, indices: npt.NDArray[np.int64], batch: FieldContext) -> Any:
        """Returns the batch of rows of a dataset's arrays at this node."""
        field = self.field
        if type(sources) in self._kinds:
            if field is None:
                return _STACK.gather(sources, indices, self.context)
            return field.gather(sources, indices, self._context_in(batch))
        if type(sources) not in self._groups:
            if isinstance(sources, ObjectColumn):
                return self.collate([sources[index] for index in indices.tolist()], batch)
            if isinstance(sources, Source):
                self._require_no_fields("single value")
                self._kinds.add(type(sources))
                return self.gather(sources, indices, batch)
            if field is not None:
                return self.collate(list(Rows(sources, indices)), batch)
        return self._group(sources, indices=indices).gather(sources, indices, batch)

    def make(self, column: Any, indices: npt.NDArray[np.int64] | None, batch: FieldContext) -> Any:
        """Returns the batch of a column of samples, or of sources if there are indices."""
        if indices is None:
            return self.collate(column, batch)
        return self.gather(column, indices, batch)

    def apply(self, node: Any, host: Any) -> Any:
        """Applies the fields to a batch; ``host`` is the batch before the transfer."""
        if self.fields is None:
            return node
        if self.field is None:
            if not is_container(node):
                self._require_no_fields(type(node).__name__)
            return self._group(node).apply(node, host)
        try:
            return self.field.apply(node, host, self.context)
        except TypeError as error:
            if isinstance(node, Mapping) or type(node) in (tuple, list):
                add_hint(error, _mirror_hint(self.field, node, "batches"))
            raise

    def _context_in(self, batch: FieldContext) -> FieldContext:
        context = self.context
        _, _, _, random_state, packing, epoch, shared = batch
        if random_state is None and packing is None and shared is None:
            if epoch != context.epoch:  # cached: the next batch usually has the same epoch
                self.context = context = context._replace(epoch=epoch)
            return context
        return FieldContext(*context[:3], random_state, packing, epoch, shared)

    def _are_absent(self, samples: Sequence[Any]) -> bool:
        """Whether all samples of an optional entry are None."""
        present = [i for i, sample in enumerate(samples) if sample is not None]
        assert self.field is not None
        if present and len(present) < len(samples) and not self.field.takes_none:
            position = present[0] or next(i for i, sample in enumerate(samples) if sample is None)
            expected, got = ("None", "an entry") if present[0] else ("an entry", "None")
            hint = "with allow_missing(), either all samples of a batch have the entry or none"
            raise ValueError(
                Problem(self.context.name, f"{expected} as in sample 0", got, hint, position)
            )
        return not present

    def _require_no_fields(self, got: str) -> None:
        """Raises ValueError if there are fields for the parts of a node that has no parts."""
        if self.fields is not self.field:
            mirrored, kind = _MIRRORED[self._owner], type(self.fields).__name__
            wrong = f"{self._owner}: fields{self.context.path} must be a field for the {got} in {mirrored}, got a {kind}"
            hint = f"fields must mirror the structure of {mirrored}"
            raise ValueError(Problem("", wrong, hint=hint))

    def _group(self, node: Any, samples: Sequence[Any] = (), indices: Any = None) -> Group:
        """Returns the group of a container, cached if it has the same keys as before.

        ``samples`` are the samples of this node; for a container of sources, ``indices`` are their indices.
        """
        cached = self._groups.get(type(node))
        is_known = cached is not None and cached.keys == _keys(node)
        if cached is not None and is_known and cached.left is None:
            return cached
        if samples and isinstance(node, SampleBatch | JaggedBatch):
            got, hint = "a JaggedBatch", "pinfeed.functional.unbind(batch) returns its samples"
            if isinstance(node, SampleBatch):
                got = "batches of a PackedStream"
                hint = "pass it to the DataLoader with batch_size=None"
            raise TypeError(Problem(self.context.name, "samples", got, hint))
        left = None
        if self._first is not None:
            rows = samples if indices is None else Rows(node, indices)
            left = self._first.check(rows, cached.left if cached and is_known else None)
        if cached is None or not is_known:
            cached = Group(self._owner, self.fields, node, self.context)
        cached.left = left
        self._groups[type(node)] = cached
        return cached


class Group:
    """The entries of a container in samples or batches.

    Attributes:
        keys: Keys or length; equal for containers of the same type with the same entries.
        left: What `FirstSamples` has left to check; None: nothing.
    """

    def __init__(self, owner: str, fields: Any, node: Any, context: FieldContext) -> None:
        self._kind, self.keys = type(node), _keys(node)
        self.left: Left | None = None
        self._owner, self._context = owner, context
        name, of = f"{owner}: fields{context.path}", _MIRRORED[owner]
        all_fields = fields if isinstance(fields, Mapping) else {}
        self._sources, by_key = _fields_of(fields, node, name, of)
        by_key = with_labels(by_key, all_fields)
        self._is_mapping = is_mapping = isinstance(node, Mapping)
        steps = [f"[{key!r}]" for key in by_key] if is_mapping else [s for s, _ in children(node)]
        self._names = tuple(by_key)
        self._entries = [
            Entry(owner, field, context.path + step, context.pin)
            for step, field in zip(steps, by_key.values(), strict=True)
        ]
        # The names of all entries in messages, if no entry has a field.
        is_plain = all(field is None for field in by_key.values())
        self._plain = tuple(entry.context.name for entry in self._entries if is_plain)
        # default_collate turns plain tuples into lists, and existing code relies on it.
        is_tuple = isinstance(node, tuple) and not is_namedtuple(node)
        self._becomes_list = is_tuple and owner == "Collate"
        self._changes_keys = is_mapping and (
            self._names != tuple(node)
            or any(
                isinstance(field, Field) and (field.extra_keys() or field.is_optional)
                for field in by_key.values()
            )
        )
        entries = dict(zip(by_key, self._entries, strict=True))
        self._images = image_groups(entries, all_fields, name)
        grouped = set().union(*(images.keys for images in self._images))
        self._others = {key: entry for key, entry in entries.items() if key not in grouped}
        fields = {key: entry.fields for key, entry in self._others.items()}
        names = {key: entry.context.name for key, entry in self._others.items()}
        self._compared = Comparisons(fields, names, in_dict=is_mapping)

    def collate(self, samples: Sequence[Any], batch: FieldContext) -> Any:
        """Returns the batch of the containers of all samples."""
        columns = self._columns(samples)
        if self._images or self._compared.keys:
            values = self._together(columns, None, batch)
        else:
            pairs = zip(self._entries, columns, strict=True)
            values = [entry.collate(column, batch) for entry, column in pairs]
        return self._container(samples[0], values)

    def gather(self, sources: Any, indices: npt.NDArray[np.int64], batch: FieldContext) -> Any:
        """Returns the batch of rows of the arrays in a container."""
        # Not every source has an entry: a field can read another key.
        is_mapping = self._is_mapping
        columns = [sources[key] for key in self._sources] if is_mapping else parts(sources)
        if self._plain:
            rows = [source.rows for source in columns if type(source) is ArraySource]
            if len(rows) == len(columns):
                target, threads = batch_allocator(self._context.pin), get_num_threads()
                keys = self._names if self._kind is dict else None
                values = _core.gather_columns(rows, indices, target, self._plain, threads, keys)
                return values if isinstance(values, dict) else self._container(sources, values)
        if self._images or self._compared.keys:
            values = self._together(columns, indices, batch)
        else:
            pairs = zip(self._entries, columns, strict=True)
            values = [entry.gather(column, indices, batch) for entry, column in pairs]
        return self._container(sources, values)

    def apply(self, node: Any, host: Any) -> Any:
        """Applies the fields of the entries to a batch."""
        if self._compared.keys:
            pairs = zip(self._names, parts(host), strict=True)
            self._compared.check(
                {key: part.offsets.diff() for key, part in pairs if isinstance(part, JaggedBatch)}
            )
        triples = zip(self._entries, parts(node), parts(host), strict=True)
        return self._container(node, [entry.apply(part, before) for entry, part, before in triples])

    def _together(self, columns: Sequence[Any], indices: Any, batch: FieldContext) -> list[Any]:
        """Returns the batch of each entry, if entries depend on others: boxes on images, labels on tokens."""
        by_key = dict(zip(self._names, columns, strict=True))
        samples_of = lambda key: by_key[key] if indices is None else Rows(by_key[key], indices)
        batches: dict[Any, Any] = {}
        # Images with dependent entries come first, because others can share their crops.
        objects = [images.add_batches(batches, by_key, indices, batch) for images in self._images]
        others, lengths = {}, {}
        for key, entry in self._others.items():
            shared = Shared() if key in self._compared.keys else None
            context = batch if shared is None else sharing(batch, shared)
            try:
                others[key] = entry.make(by_key[key], indices, context)
            except ValueError as error:
                explain_difference(error, key, by_key[key], self._images)
                raise
            if shared is not None and shared.lengths is not None:
                lengths[key] = shared.lengths
        self._compared.check(lengths, samples_of)
        for images, boxes in zip(self._images, objects, strict=True):
            images.require_named(others, boxes, samples_of)
        batches |= others
        return [batches[key] for key in self._names]

    def _container(self, node: Any, values: list[Any]) -> Any:
        """Returns a container like ``node`` with the batches of its entries and their extra entries."""
        if self._becomes_list:
            return values
        if not self._changes_keys:
            return rebuild(node, values)
        items: dict[Any, Any] = {}
        for entry, key, value in zip(self._entries, self._names, values, strict=True):
            if value is ABSENT:
                continue
            items[key], extras = value if isinstance(value, EntryWithExtras) else (value, {})
            for extra_key, part in extras.items():
                if extra_key in self._names:
                    wrong = f"{entry.context.name} adds the key {extra_key!r}, but {_MIRRORED[self._owner]} have an entry under that key"
                    raise ValueError(Problem("", wrong, hint="choose another name"))
                items[extra_key] = part
        return rebuild_mapping(node, items)

    def _columns(self, samples: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Returns the column of each entry: its values in all samples."""
        if {*map(type, samples)} == {self._kind}:
            if self._kind is dict and {*map(len, samples)} == {len(self.keys)}:
                try:
                    return [[sample[key] for sample in samples] for key in self._sources]
                except KeyError:
                    pass  # _checked_columns raises
            elif issubclass(self._kind, tuple | list) and {*map(len, samples)} == {self.keys}:
                return list(zip(*samples, strict=True))
        return self._checked_columns(samples)

    def _checked_columns(self, samples: Sequence[Any]) -> Sequence[Sequence[Any]]:
        first: Any = samples[0]
        kind: Any = Mapping if isinstance(first, Mapping) else Sequence
        if is_dataclass(first):
            kind = self._kind
        for position, sample in enumerate(samples):
            expected = got = hint = ""
            differs = False
            if not isinstance(sample, kind) or isinstance(sample, str | bytes):
                expected, got = f"a {self._kind.__name__}", type(sample).__name__
                hint = _WITHOUT_NONE if sample is None else ""
            elif kind is Mapping and sample.keys() != first.keys():
                expected, got = f"keys {list(first)}", str(list(sample))
                missing = [key for key in first if key not in sample]
                hint = f"it has no {missing[0]!r}" if missing else ""
            elif kind is Sequence and len(sample) != len(first):
                expected, got = f"{len(first)} items", str(len(sample))
                differs = isinstance((*first, *sample)[0], int | float | np.generic)
                hint = "Keep() leaves lists as they are"
            if expected:
                expected += " as in sample 0"
                raise ValueError(
                    Problem(self._context.name, expected, got, hint, position, differs)
                )
        if kind is Mapping:
            return [[sample[key] for sample in samples] for key in self._sources]
        return list(zip(*(samples if kind is Sequence else map(parts, samples)), strict=True))


def _keys(node: Any) -> Any:
    """Returns the keys or length of a container, which show whether a cached group fits."""
    if type(node) is dict or isinstance(node, Mapping):
        return tuple(node)
    return None if is_dataclass(node) else len(node)


def _fields_of(fields: Any, node: Any, name: str, owner: str) -> tuple[list[Any], dict[Any, Any]]:
    """Returns the source key of each entry of the batch, and the field or fields by key; None if there are none.

    Args:
        fields: The part of the fields for this container, not a field itself.
        node: The container: a sample, a batch, or a part of one.
        name: Name of the node in messages, such as ``"Collate: fields['x']"``.
        owner: The structure that fields mirror: ``"samples"`` or ``"batches"``.
    """
    if not isinstance(node, Mapping):
        names = [step_name(step) for step, _ in children(node)]
        return [], dict(zip(names, _child_fields(fields, node, name, owner), strict=True))
    renamed, absent = {}, set()
    for key, field in fields.items() if isinstance(fields, Mapping) else ():
        if not isinstance(field, Field):
            continue
        source = key if field.source is None else field.source
        if source not in node and field.is_optional:
            absent.add(key)
        elif field.source is not None:
            if source not in node:
                text = f"is read from {source!r}, but samples have {list(node)}"
                hint = (
                    nearest(source, node)
                    or "if they may lack it, add .allow_missing() to the field"
                )
                raise ValueError(Problem("", f"{name}[{key!r}] {text}", hint=hint))
            renamed[key] = field
    read = {field.source for field in renamed.values()}
    if isinstance(fields, Mapping):
        read -= {*fields}
        fields = {key: fields[key] for key in fields if key not in renamed and key not in absent}
    direct = dict(zip(node, _child_fields(fields, node, name, owner), strict=True))
    direct = {k: f for k, f in direct.items() if k not in {*renamed, *absent, *read}}
    return [*direct, *(field.source for field in renamed.values())], direct | renamed


def _child_fields(fields: Any, node: Any, name: str, owner: str) -> list[Any]:
    """Returns the field or fields of each child of a container; arguments are as in `_fields_of`."""
    steps = [step for step, _ in children(node)]
    by_step = {} if fields is None else dict(children(fields))
    is_short = fields is not None and not _has_names(node) and len(by_step) != len(steps)
    if is_short or not by_step.keys() <= {*steps}:
        raise ValueError(_difference(fields, node, name, owner))
    return [by_step.get(step) for step in steps]


def _has_names(node: Any) -> bool:
    """Whether a container has keys or attributes."""
    return isinstance(node, Mapping) or is_dataclass(node) or is_namedtuple(node)


def _difference(fields: Any, node: Any, name: str, owner: str) -> Problem:
    """Returns the difference between fields and their container; arguments are as in `_fields_of`."""
    mirrors = f"fields must mirror the structure of {owner}"
    field_steps, steps = ([step for step, _ in children(container)] for container in (fields, node))
    is_one_a_dict = isinstance(fields, Mapping) != isinstance(node, Mapping)
    if is_one_a_dict or _has_names(fields) != _has_names(node):
        kinds = [f"a {type(container).__name__}" for container in (node, fields)]
        return Problem(name, f"{kinds[0]} as in {owner}", kinds[1], mirrors)
    if not _has_names(node):
        expected = f"{len(steps)} entries, as in {owner}"
        return Problem(name, expected, str(len(field_steps)), f"{mirrors}; None means no field")
    names = [step_name(step) for step in steps]
    wrong = next(step_name(step) for step in field_steps if step not in steps)
    hint = nearest(wrong, names) or mirrors
    return Problem(name, f"keys of {owner}, {names}", repr(wrong), hint)


# The hints for None among samples, by the field; Keep() would not transform others with their images.
_WITH_NONE = (
    (Target, "pass an empty list instead of None for an image without any"),
    (Mask, "pass a mask of the ignored value instead of None"),
    (Image, "leave out samples without an image, or pass an image of zeros instead of None"),
    (Field, "Keep() leaves None, and the other values of the entry, as they are"),
)


def _samples_hint(field: Field, samples: Sequence[Any], context: FieldContext) -> str:
    """Returns the hint for samples that a field doesn't support; empty if there is none."""
    first, kind = samples[0], type(field).__name__
    if any(sample is None for sample in samples):
        has_field = context.path.endswith("']") and field is not _STACK
        if has_field and all(sample is None for sample in samples):
            return f"{kind}(...).allow_missing() leaves out an entry that all samples lack"
        kinds, hint = next(row for row in _WITH_NONE if isinstance(field, row[0]))
        return hint if context.path or kinds is not Field else _WITHOUT_NONE
    if isinstance(first, Mapping | tuple):
        return _mirror_hint(field, first, "samples")
    is_for_images = isinstance(field, Image) or kind == "Patches"
    if type(first).__module__.startswith("PIL.") and not is_for_images:
        return "use Image() for PIL images, Mask() if their pixels are classes"
    if isinstance(first, str | bytes) and kind in ("Image", "Patches"):
        file = "path" if isinstance(first, str) else "io.BytesIO(data)"
        return f"open files in the dataset's __getitem__: PIL.Image.open({file}).convert('RGB')"
    if isinstance(first, list) and any(isinstance(part, str) for part in first):
        return "Keep() leaves lists of strings as they are, also as labels of Boxes()"
    if isinstance(first, int | float) and field.pads:
        return "single numbers need no field: leave it out"
    if isinstance(first, (*ARRAYS, str, list, int, float)) or isinstance(field, Stack):
        return ""  # the field's own message is clear
    if isinstance(first, range | Iterator):
        return "list(x) converts it"
    return conversion_hint(first, "")


def _mirror_hint(field: Field, node: Any, owner: str) -> str:
    """Returns the hint for one field in place of several: for a dict, a tuple or a list."""
    text = f"{type(field).__name__}(...)"
    example = (
        f"{{{next(iter(node), '')!r}: {text}}}" if isinstance(node, Mapping) else f"({text}, None)"
    )
    return f"fields mirror the structure of {owner}, such as {example}"
