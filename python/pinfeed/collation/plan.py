"""The plan of a batch: a tree of entries and groups, compiled from the fields and the first samples.

An `Entry` is a node in the structure of samples or batches; a `Group` holds the entries of a container.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.arguments import ARRAYS, Problem, add_hint, conversion_hint, nearest
from pinfeed.augment.random_state import BatchRandomState
from pinfeed.batches import Packing, SampleBatch
from pinfeed.collation.graphs import warn_of_edges
from pinfeed.collation.lengths import comparisons
from pinfeed.collation.objects import ImageGroup, image_groups, name_field, with_labels
from pinfeed.collation.untransformed import (
    SAMPLES,
    field_entries,
    require_transformed,
    warn_of_blended,
)
from pinfeed.fields.field import ABSENT, EntryWithExtras, Field, FieldContext, Objects
from pinfeed.fields.image import Image
from pinfeed.fields.mask import Mask
from pinfeed.fields.stack import TAKE_ANY_LENGTH, Stack
from pinfeed.fields.targets import Target
from pinfeed.functional.padding import warn_of_stacked_row
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
WITHOUT_NONE = (
    "leave out samples that are None: collate_fn=lambda samples: collate([sample for sample in "
    "samples if sample is not None])"
)


#: The structure that fields mirror, by the owner of the plan.
_MIRRORED = {"Collate": "samples", "DeviceLoader": "batches"}

#: The last attributes of a `FieldContext`: ``random_state``, ``packing``, ``epoch``, ``has_dependents``, ``objects``.
Context = tuple[BatchRandomState | None, Packing | None, int | None, bool, Objects | None]
UNKNOWN: Context = (None, None, None, False, None)


class Entry:
    """A node in the structure of samples or batches.

    It caches the structure of samples for the next batch. Threads can do that concurrently, because
    all store equal values.

    Args:
        owner: Owner of the plan: ``"Collate"`` or ``"DeviceLoader"``.
        fields: Field of this node, or the fields of its parts; None: the samples decide.
        path: Path from the sample to this node, such as ``"['image']"``.
        pin: Whether to pin batches, unless this is a worker.
    """

    def __init__(self, owner: str, fields: Any, path: str = "", pin: Pin = False) -> None:
        self.field_context = FieldContext(f"{owner}: entry {path}" if path else owner, path, pin)
        self.fields = fields
        self.field = fields if isinstance(fields, Field) else None
        self._owner = owner
        self._kinds: set[type] = set()  # types of samples and sources that are not containers
        self._groups: dict[type, Group] = {}

    def collate(self, samples: Sequence[Any], context: Context) -> Any:
        """Returns the batch of this node in all samples."""
        field, field_context = self.field, self.field_context
        if field is None:
            first = samples[0]
            if type(first) not in self._kinds:
                if type(first) in self._groups or is_container(first):
                    if isinstance(first, JaggedBatch):
                        hint = "pinfeed.functional.unbind(batch) returns its samples"
                        raise TypeError(
                            Problem(field_context.name, "samples", "a JaggedBatch", hint)
                        )
                    return self._group(first, samples).collate(samples, context)
                self._require_no_fields("single value")
                self._kinds.add(type(first))
            field = _STACK
        elif field.is_optional and self._are_absent(samples):
            return ABSENT
        else:
            field_context = self._context_in(context)
        try:
            return field.collate(samples, field_context)
        except TypeError as error:
            if hint := _samples_hint(field, samples, field_context):
                add_hint(error, hint)
            raise

    def gather(self, sources: Any, indices: npt.NDArray[np.int64], context: Context) -> Any:
        """Returns the batch of rows of a dataset's arrays at this node."""
        field = self.field
        if type(sources) in self._kinds:
            if field is None:
                return _STACK.gather(sources, indices, self.field_context)
            return field.gather(sources, indices, self._context_in(context))
        if type(sources) in self._groups:
            return self._group(sources, indices=indices).gather(sources, indices, context)
        if isinstance(sources, ObjectColumn):
            return self.collate([sources[index] for index in indices.tolist()], context)
        if isinstance(sources, Source):
            self._require_no_fields("single value")
            self._kinds.add(type(sources))
            return self.gather(sources, indices, context)
        if field is not None:
            return self.collate(list(Rows(sources, indices)), context)
        return self._group(sources, indices=indices).gather(sources, indices, context)

    def apply(self, node: Any, host: Any) -> Any:
        """Applies the fields to a batch; ``host`` is the batch before the transfer."""
        if self.fields is None:
            return node
        if self.field is None:
            if not is_container(node):
                self._require_no_fields(type(node).__name__)
            return self._group(node).apply(node, host)
        try:
            return self.field.apply(node, host, self.field_context)
        except TypeError as error:
            if isinstance(node, Mapping) or type(node) in (tuple, list):
                add_hint(error, _mirror_hint(self.field, node, "batches"))
            raise

    def _context_in(self, context: Context) -> FieldContext:
        field_context = self.field_context
        random_state, packing, epoch, has_dependents, _ = context
        if random_state is None and packing is None and not has_dependents:
            if epoch != field_context.epoch:  # cached: the next batch usually has the same epoch
                self.field_context = field_context = field_context._replace(epoch=epoch)
            return field_context
        return FieldContext(field_context.name, field_context.path, field_context.pin, *context)

    def _are_absent(self, samples: Sequence[Any]) -> bool:
        """Whether all samples of an optional entry are None."""
        present = [i for i, sample in enumerate(samples) if sample is not None]
        assert self.field is not None
        if present and len(present) < len(samples) and not self.field.takes_none:
            position = present[0] or next(i for i, sample in enumerate(samples) if sample is None)
            expected, got = ("None", "an entry") if present[0] else ("an entry", "None")
            hint = "with allow_missing(), either all samples of a batch have the entry or none"
            raise ValueError(
                Problem(
                    self.field_context.name,
                    f"{expected} as in sample 0",
                    got,
                    hint,
                    sample=position,
                )
            )
        return not present

    def _require_no_fields(self, got: str) -> None:
        """Raises ValueError if there are fields for the parts of a node that has no parts."""
        if self.fields is not self.field:
            mirrored, kind = _MIRRORED[self._owner], type(self.fields).__name__
            wrong = f"{self._owner}: fields{self.field_context.path} must be a field for the {got} in {mirrored}, got a {kind}"
            hint = f"fields must mirror the structure of {mirrored}"
            raise ValueError(Problem("", wrong, hint=hint))

    def _group(self, node: Any, samples: Sequence[Any] = (), indices: Any = None) -> Group:
        """Returns the group of a container, cached if it has the same keys as before.

        For a container of sources, ``indices`` are the sample indices.
        """
        cached = self._groups.get(type(node))
        if cached is not None and cached.keys == _keys(node):
            if cached.left_to_check > 0:
                rows = samples if indices is None else Rows(node, indices)
                cached.left = require_transformed(self.fields, rows, cached.left)
                cached.left_to_check -= SAMPLES if cached.left == set() else len(rows)
            return cached
        if isinstance(node, SampleBatch):
            hint = "pass it to the DataLoader with batch_size=None"
            raise TypeError(Problem("Collate", "samples", "batches of a PackedStream", hint))
        left_to_check, left = 0, None
        if not self.field_context.path:
            rows = samples if indices is None else Rows(node, indices)
            left = require_transformed(self.fields, rows)
            if left != set():
                left_to_check = SAMPLES - len(rows)
            warn_of_blended(self.fields, rows)
            warn_of_edges(self.fields, rows)
            if not self._groups and len(rows):
                for entry in field_entries(self.fields, rows[0], "", "", ""):
                    if not entry.fields and warn_of_stacked_row(entry.value, entry.path):
                        break
        group = self._groups[type(node)] = Group(self._owner, self.fields, node, self.field_context)
        group.left_to_check, group.left = left_to_check, left
        return group


class Group:
    """The entries of a container in samples or batches.

    Attributes:
        keys: Keys or length; equal for containers of the same type with the same entries.
        left_to_check: Number of samples in which entries without values so far can be untransformed.
    """

    def __init__(self, owner: str, fields: Any, node: Any, field_context: FieldContext) -> None:
        self._kind, self.keys, self.left_to_check = type(node), _keys(node), 0
        self.left: set[str] | None = set()
        self._owner, self._context = owner, field_context
        # default_collate turns plain tuples into lists, and existing code relies on it.
        is_tuple = isinstance(node, tuple) and not is_namedtuple(node)
        self._becomes_list = is_tuple and owner == "Collate"
        self._changes_keys = False
        self._images: list[ImageGroup] = []
        name, of = f"{owner}: fields{field_context.path}", _MIRRORED[owner]
        if not isinstance(node, Mapping):
            steps = [step for step, _ in children(node)]
            pairs = [*zip(steps, _child_fields(fields, node, name, of), strict=True)]
            self._entries = [self._entry(field, step) for step, field in pairs]
            self._plain = self._plain_names()
            self._names = tuple(map(step_name, steps))
            by_name = {step_name(step): field for step, field in pairs}
            self._compared = comparisons(by_name, in_dict=False)
            return
        self._sources, by_key = _mapping_fields(fields, node, name, of)
        all_fields = fields if isinstance(fields, Mapping) else {}
        by_key = with_labels(by_key, all_fields)
        self._entries = [self._entry(field, f"[{key!r}]") for key, field in by_key.items()]
        self._plain = self._plain_names()
        self._names = tuple(by_key)
        self._changes_keys = self._names != tuple(node) or any(
            isinstance(field, Field) and (field.extra_keys() or field.is_optional)
            for field in by_key.values()
        )
        contexts = {
            key: entry.field_context for key, entry in zip(by_key, self._entries, strict=True)
        }
        self._images = image_groups(by_key, all_fields, contexts, name)
        grouped = set().union(*(images.keys for images in self._images))
        others = {key: field for key, field in by_key.items() if key not in grouped}
        self._compared = comparisons(others, in_dict=True)

    def _plain_names(self) -> tuple[str, ...]:
        """Returns the names of all entries in messages; empty if an entry has a field."""
        is_plain = all(entry.fields is None for entry in self._entries)
        return tuple(entry.field_context.name for entry in self._entries) if is_plain else ()

    def _entry(self, field: Any, step: str) -> Entry:
        return Entry(self._owner, field, self._context.path + step, self._context.pin)

    def collate(self, samples: Sequence[Any], context: Context) -> Any:
        """Returns the batch of the containers of all samples."""
        columns = self._columns(samples)
        if self._images or self._compared:
            values = self._together(Entry.collate, columns, context)
        else:
            pairs = zip(self._entries, columns, strict=True)
            values = [entry.collate(column, context) for entry, column in pairs]
        return self._container(samples[0], values)

    def gather(self, sources: Any, indices: npt.NDArray[np.int64], context: Context) -> Any:
        """Returns the batch of rows of the arrays in a container."""
        is_dict = type(sources) is dict
        is_mapping = is_dict or isinstance(sources, Mapping)
        # Not every source has an entry: a field can read another key.
        columns = [sources[key] for key in self._sources] if is_mapping else parts(sources)
        if self._plain:
            rows = [source.rows for source in columns if type(source) is ArraySource]
            if len(rows) == len(columns):
                target, threads = batch_allocator(self._context.pin), get_num_threads()
                keys = self._names if is_dict else None
                batch = _core.gather_columns(rows, indices, target, self._plain, threads, keys)
                return batch if isinstance(batch, dict) else self._container(sources, batch)
        if self._images or self._compared:
            gather = lambda entry, column, context: entry.gather(column, indices, context)
            values = self._together(gather, columns, context, indices)
        else:
            pairs = zip(self._entries, columns, strict=True)
            values = [entry.gather(column, indices, context) for entry, column in pairs]
        return self._container(sources, values)

    def apply(self, node: Any, host: Any) -> Any:
        """Applies the fields of the entries to a batch."""
        if self._compared:
            pairs = zip(self._names, parts(host), strict=True)
            batches = {key: batch for key, batch in pairs if isinstance(batch, JaggedBatch)}
            self._compare({key: batch.offsets.diff() for key, batch in batches.items()})
        triples = zip(self._entries, parts(node), parts(host), strict=True)
        return self._container(node, [entry.apply(part, before) for entry, part, before in triples])

    def _together(
        self,
        make: Callable[[Entry, Any, Context], Any],
        columns: Sequence[Any],
        context: Context,
        indices: npt.NDArray[np.int64] | None = None,
    ) -> list[Any]:
        """Returns the batch of each entry, if entries depend on others: boxes on images, labels on tokens."""
        pairs = dict(zip(self._names, zip(self._entries, columns, strict=True), strict=True))

        def samples_of(key: Any) -> Sequence[Any]:
            column = pairs[key][1]
            return column if indices is None else Rows(column, indices)

        def batch_of(key: Any, has_dependents: bool = False, objects: Any = None) -> Any:
            entry, column = pairs[key]
            try:
                batch = make(entry, column, (*context[:3], has_dependents, objects))
                return (ABSENT, None) if has_dependents and batch is ABSENT else batch
            except ValueError as error:
                problem = Problem.of(error)
                if self._images and problem is not None and problem.hint == TAKE_ANY_LENGTH:
                    name_field(problem, key, column[0], self._images)
                raise

        # Images with dependent entries come first, because others can share their crops.
        grouped: dict[Any, Any] = {}
        with_boxes = []
        for images in self._images:
            batches, objects = images.collate(batch_of)
            grouped |= batches
            with_boxes += [] if objects is None else [(images, objects)]
        others = {}
        lengths: dict[Any, Any] = {}
        measured = {key for one in self._compared for key in (one.key, one.other)}
        for key in self._names:
            if key in measured:
                others[key], lengths[key] = batch_of(key, True)
            elif key not in grouped:
                others[key] = batch_of(key)
        lengths = {key: length for key, length in lengths.items() if length is not None}
        self._compare(lengths, samples_of)
        for images, objects in with_boxes:
            images.require_named(others, objects, samples_of)
        grouped |= others
        return [grouped[key] for key in self._names]

    def _compare(
        self,
        lengths: Mapping[Any, torch.Tensor],
        samples_of: Callable[[Any], Sequence[Any]] | None = None,
    ) -> None:
        """Compares the lengths of entries that go together; arguments are as in `Comparison.check`."""
        warned = set()
        for one in self._compared:
            key, other = one.key, one.other
            if key in lengths and other in lengths and key not in warned:
                name = self._entries[self._names.index(key)].field_context.name
                if one.check(lengths[key], lengths[other], name, samples_of):
                    warned.add(key)
        self._compared = [
            one for one in self._compared if not one.is_settled and one.key not in warned
        ]

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
                    wrong = f"{entry.field_context.name} adds the key {extra_key!r}, but {_MIRRORED[self._owner]} have an entry under that key"
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
            if not isinstance(sample, kind) or isinstance(sample, str | bytes):
                hint = WITHOUT_NONE if sample is None else ""
                raise self._differs(
                    position, f"a {self._kind.__name__}", type(sample).__name__, hint
                )
            if kind is Mapping and sample.keys() != first.keys():
                missing = [key for key in first if key not in sample]
                hint = f"it has no {missing[0]!r}" if missing else ""
                raise self._differs(position, f"keys {list(first)}", str(list(sample)), hint)
            if kind is Sequence and len(sample) != len(first):
                is_number = isinstance((*first, *sample)[0], int | float | np.generic)
                hint = TAKE_ANY_LENGTH if is_number else "Keep() leaves lists as they are"
                raise self._differs(position, f"{len(first)} items", str(len(sample)), hint)
        if kind is Mapping:
            return [[sample[key] for sample in samples] for key in self._sources]
        return list(zip(*(samples if kind is Sequence else map(parts, samples)), strict=True))

    def _differs(self, position: int, expected: str, got: str, hint: str = "") -> ValueError:
        expected = f"{expected} as in sample 0"
        return ValueError(Problem(self._context.name, expected, got, hint, sample=position))


def _keys(node: Any) -> Any:
    """Returns the keys or length of a container, which show whether a cached group fits."""
    if type(node) is dict or isinstance(node, Mapping):
        return tuple(node)
    return None if is_dataclass(node) else len(node)


def _mapping_fields(
    fields: Any, node: Mapping[Any, Any], name: str, owner: str
) -> tuple[list[Any], dict[Any, Any]]:
    """Returns the source key of each entry of the batch, and the field or fields by key.

    Arguments are as in `_child_fields`.
    """
    by_key = dict(fields) if isinstance(fields, Mapping) else {}
    renamed, absent = {}, set()
    for key, field in by_key.items():
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
    if isinstance(fields, Mapping):
        fields = {key: by_key[key] for key in by_key if key not in renamed and key not in absent}
    left_out = {*renamed, *absent, *({field.source for field in renamed.values()} - by_key.keys())}
    direct = dict(zip(node, _child_fields(fields, node, name, owner), strict=True))
    direct = {key: field for key, field in direct.items() if key not in left_out}
    return [*direct, *(field.source for field in renamed.values())], direct | renamed


def _child_fields(fields: Any, node: Any, name: str, owner: str) -> list[Any]:
    """Returns the field or fields of each child of a container, None if there are none.

    Args:
        fields: The part of the fields for this container, not a field itself.
        node: The container: a sample, a batch, or a part of one.
        name: Name of the node in messages, such as ``"Collate: fields['x']"``.
        owner: The structure that fields mirror: ``"samples"`` or ``"batches"``.
    """
    steps = [step for step, _ in children(node)]
    if fields is None:
        return [None] * len(steps)
    by_step = dict(children(fields))
    if not by_step.keys() <= set(steps) or (not _has_names(node) and len(by_step) != len(steps)):
        raise ValueError(_difference(fields, node, name, owner))
    return [by_step.get(step) for step in steps]


def _difference(fields: Any, node: Any, name: str, owner: str) -> Problem:
    """Returns the difference between fields and their container; arguments are as in `_child_fields`."""
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


def _has_names(node: Any) -> bool:
    """Whether a container has keys or attributes."""
    return isinstance(node, Mapping) or is_dataclass(node) or is_namedtuple(node)


def _samples_hint(field: Field, samples: Sequence[Any], field_context: FieldContext) -> str:
    """Returns the hint for samples that a field doesn't support; empty if there is none."""
    first = samples[0]
    has_field = field_context.path.endswith("']") and field is not _STACK
    if has_field and all(sample is None for sample in samples):
        return (
            f"{type(field).__name__}(...).allow_missing() leaves out an entry that all samples lack"
        )
    if any(sample is None for sample in samples):
        if isinstance(field, Target):
            return "pass an empty list instead of None for an image without any"
        if isinstance(field, Mask):  # Keep() would not transform the others with their images
            return "pass a mask of the ignored value instead of None"
        if isinstance(field, Image):
            return "leave out samples without an image, or pass an image of zeros instead of None"
        return (
            "Keep() leaves None, and the other values of the entry, as they are"
            if field_context.path
            else WITHOUT_NONE
        )
    if isinstance(first, Mapping | tuple):
        return _mirror_hint(field, first, "samples")
    is_for_images = isinstance(field, Image) or type(field).__name__ == "Patches"
    if type(first).__module__.startswith("PIL.") and not is_for_images:
        return "use Image() for PIL images, Mask() if their pixels are classes"
    is_file = isinstance(first, str | bytes) and not field.pads
    if is_file and type(field).__name__ in ("Image", "Patches"):
        file = "path" if isinstance(first, str) else "io.BytesIO(data)"
        return f"open files in the dataset's __getitem__: PIL.Image.open({file}).convert('RGB')"
    if any(isinstance(part, str) for part in (first if isinstance(first, list) else ())):
        return "Keep() leaves lists of strings as they are, also as labels of Boxes()"
    if isinstance(first, int | float) and field.pads:
        return "single numbers need no field: leave it out"
    if isinstance(first, (*ARRAYS, str, list, int, float)) or isinstance(field, Stack):
        return ""  # the field's own message is clear
    if isinstance(first, range | Iterator):
        return "list(x) converts it"
    hint = conversion_hint(first)
    return "" if hint.startswith("Keep") else hint


def _mirror_hint(field: Field, node: Any, owner: str) -> str:
    """Returns the hint for one field in place of several: for a dict, a tuple or a list."""
    text = f"{type(field).__name__}(...)"
    example = (
        f"{{{next(iter(node), '')!r}: {text}}}" if isinstance(node, Mapping) else f"({text}, None)"
    )
    return f"fields mirror the structure of {owner}, such as {example}"
