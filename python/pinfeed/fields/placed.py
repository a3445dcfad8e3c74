"""Fields in the structure of a sample, for `Collate`, or of a batch, for `DeviceLoader`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from pinfeed.arguments import ARRAYS, Problem, nearest
from pinfeed.augment.geometry import Geometry
from pinfeed.fields.field import ABSENT, Beside, Field, Leaf
from pinfeed.fields.image import Image
from pinfeed.fields.mask import masks_placed
from pinfeed.fields.pad import padded_alike
from pinfeed.structure import (
    children,
    is_container,
    is_dataclass,
    is_namedtuple,
    leaves,
    rebuild,
    rebuild_mapping,
    step_name,
)


def placed(
    fields: Any,
    name: str,
    check: Callable[[Field, str], None] | None = None,
    *,
    in_dict: bool = False,
) -> Any:
    """The given fields, each as it behaves where it stands.

    Args:
        fields: What the user gave; None stands for no field, at any place.
        name: What messages call the fields, such as ``"Collate: fields"``.
        check: Raises for a field that may not stand there; it also takes what messages call it.
        in_dict: Whether they stand directly in a dict.
    """
    if fields is None:
        return None
    if isinstance(fields, Field):
        if check is not None:
            check(fields, name)
        field = fields.placed(in_dict)
        if field.names() and not in_dict:
            raise ValueError(
                f"{name}: {type(field).__name__} names keys {list(field.names())}, but is in no dict; "
                "make the samples dicts, or leave the keys out (Pad, Image: say True)"
            )
        if (field.source is not None or field.is_optional) and not in_dict:
            raise ValueError(
                f"{name} has {'optional()' if field.is_optional else 'of()'}, which is for fields "
                "in a dict, but stands in none; make the samples dicts"
            )
        if field.follows is not None and not in_dict:
            raise ValueError(
                f"{name} follows {field.follows!r} of the same dict, but stands in none; make the "
                "samples dicts"
            )
        return field
    if not is_container(fields):
        given = repr(fields) if isinstance(fields, type) else type(fields).__name__
        text = f"{name} must be a Field such as Image(), or None, got {given}"
        raise TypeError(Problem("", text, hint=_field_for(fields)))
    is_dict = isinstance(fields, Mapping)
    parts = [placed(child, name + step, check, in_dict=is_dict) for step, child in children(fields)]
    if is_dict:
        _check_names(fields, parts, name)
        parts = padded_alike(dict(zip(fields, parts, strict=True)), name)
    parts = masks_placed(fields, parts, name)
    return rebuild(fields, parts)


def _field_for(given: Any) -> str:
    """What to write instead of something that is no field."""
    if isinstance(given, type):
        return "create it with parentheses"
    if isinstance(given, ARRAYS):
        return "for samples create it with parentheses: collate_fn=Collate()"
    if isinstance(given, torch.dtype):
        return f"Stack({given}) makes batches of a dtype"
    if isinstance(given, Geometry):
        return f"Image(augment={given}) makes batches of what it shows"
    if type(given).__name__ == "Collate":
        return "pass the fields as they are, without Collate(...)"
    if callable(given):
        return "a function of one sample, such as a transform, is called by the dataset"
    return ""


def _check_names(fields: Mapping[Any, Any], parts: list[Any], name: str) -> None:
    taken = set(fields)
    for field in parts:
        for key in field.names() if isinstance(field, Field) else ():
            if key in taken:
                raise ValueError(
                    f"{name} has two fields for the key {key!r}; leave one out, or choose another name"
                )
            taken.add(key)


def child_fields(fields: Any, node: Any, name: str, owner: str) -> list[Any]:
    """What ``fields`` has for each child of a container, None where there is none.

    Args:
        fields: What stands for the container in the given fields: no field itself.
        node: The container: a sample, a batch, or a part of one.
        name: What messages call that place, such as ``"Collate: fields['x']"``.
        owner: What they mirror: ``"samples"`` or ``"batches"``.
    """
    steps = [step for step, _ in children(node)]
    if fields is None:
        return [None] * len(steps)
    by_step = dict(children(fields))
    if not by_step.keys() <= set(steps) or (not _has_names(node) and len(by_step) != len(steps)):
        raise ValueError(_difference(fields, node, name, owner))
    return [by_step.get(step) for step in steps]


def _difference(fields: Any, node: Any, name: str, owner: str) -> Problem:
    """How a fields differs from the container that it stands for; arguments as above."""
    mirrors = f"fields must mirror the structure of {owner}"
    asked, steps = ([step for step, _ in children(container)] for container in (fields, node))
    is_one_a_dict = isinstance(fields, Mapping) != isinstance(node, Mapping)
    if is_one_a_dict or _has_names(fields) != _has_names(node):
        kinds = [f"a {type(container).__name__}" for container in (node, fields)]
        return Problem(name, f"{kinds[0]} as {owner} have there", kinds[1], mirrors)
    if not _has_names(node):
        expected = f"{len(steps)} entries, as {owner} have there"
        return Problem(
            name, expected, str(len(asked)), f"{mirrors}; None is for what needs no field"
        )
    names = [step_name(step) for step in steps]
    wrong = next(step_name(step) for step in asked if step not in steps)
    hint = nearest(wrong, names) or mirrors
    return Problem(name, f"keys that {owner} have there, {names}", repr(wrong), hint)


def _has_names(node: Any) -> bool:
    """Whether a container has keys or attributes, and not only an order."""
    return isinstance(node, Mapping) or is_dataclass(node) or is_namedtuple(node)


#: The hint where samples as a whole are None.
WITHOUT_NONE = (
    "leave out samples that are None: collate_fn=lambda samples: collate([sample for sample in "
    "samples if sample is not None])"
)


def samples_hint(field: Field, samples: Sequence[Any], leaf: Leaf) -> str:
    """What to do about samples that are nothing for a field; empty if nobody knows."""
    first = samples[0]
    if any(sample is None for sample in samples):
        return (
            "Keep() leaves None and what stands beside it as it is" if leaf.path else WITHOUT_NONE
        )
    if isinstance(first, Mapping | tuple):
        return _mirror_hint(field, first, "samples")
    if type(first).__module__.startswith("PIL.") and not field.shows_images:
        return "Image() takes PIL images, Mask() those whose pixels are classes"
    if isinstance(first, str) and not field.pads and type(field).__name__ in ("Image", "Patches"):
        return "open files in the dataset's __getitem__: PIL.Image.open(path).convert('RGB')"
    if isinstance(first, int | float) and field.pads:
        return "single numbers need no field: leave it out"
    return ""


def _mirror_hint(field: Field, node: Any, owner: str) -> str:
    """What to do about a field that stands where there are several leaves: a dict, a tuple or a list."""
    text = f"{type(field).__name__}(...)"
    example = (
        f"{{{next(iter(node), '')!r}: {text}}}" if isinstance(node, Mapping) else f"({text}, None)"
    )
    return f"fields mirror the structure of {owner}, such as {example}"


def mapping_fields(fields: Any, node: Mapping[Any, Any], name: str) -> list[tuple[Any, Any, Any]]:
    """Of each leaf that becomes of a mapping: its key, the key of what it is made of, its field or fields.

    Arguments are those of `child_fields`.
    """
    by_key = dict(fields) if isinstance(fields, Mapping) else {}
    made, absent = {}, set()
    for key, field in by_key.items():
        if not isinstance(field, Field):
            continue
        source = key if field.source is None else field.source
        if source not in node and field.is_optional:
            absent.add(key)
        elif field.source is not None:
            if source not in node:
                text = f"is made of {source!r}, but samples have {list(node)}"
                hint = nearest(source, node) or "if they may lack it, add .optional() to the field"
                raise ValueError(Problem("", f"{name}[{key!r}] {text}", hint=hint))
            made[key] = field
    if isinstance(fields, Mapping):
        fields = {key: by_key[key] for key in by_key if key not in made and key not in absent}
    taken = {field.source for field in made.values()} - by_key.keys()
    return [
        (key, key, child)
        for key, child in zip(node, child_fields(fields, node, name, "samples"), strict=True)
        if key not in made and key not in absent and key not in taken
    ] + [(key, field.source, field) for key, field in made.items()]


def rebuild_with_siblings(
    node: Mapping[Any, Any],
    keys: Collection[Any],
    values: list[Any],
    leaf_name: Callable[[str], str],
    owner: str,
) -> Any:
    """A mapping like ``node`` that holds ``values``, and beside them what some bring along.

    For each of the new ``keys``, which may be others than the node's, a value is a leaf, a `Beside` or
    `ABSENT`. ``leaf_name`` is what messages call the leaf at a step such as ``"['tokens']"``.
    """
    items: dict[Any, Any] = {}
    for key, value in zip(keys, values, strict=True):
        if value is ABSENT:
            continue
        leaf, siblings = value if isinstance(value, Beside) else (value, {})
        items[key] = leaf
        for sibling_key, sibling in siblings.items():
            if sibling_key in keys:
                raise ValueError(
                    f"{leaf_name(f'[{key!r}]')} goes with a {sibling_key!r}, but {owner} have a "
                    "leaf under that key; choose another name"
                )
            items[sibling_key] = sibling
    return rebuild_mapping(node, items)


class BatchFields:
    """The fields of a `DeviceLoader`: they convert the leaves of a batch, wherever it is.

    They have the structure of a batch; leaves without one stay as they are. A tuple stands for a
    list, too, as which ``default_collate`` returns it.
    """

    def __init__(self, fields: Any) -> None:
        self._fields = placed(fields, "DeviceLoader: fields", _require_applicable)

    def __bool__(self) -> bool:
        return self._fields is not None

    def require_same_padding(self, collated: Any) -> None:
        """Raises ValueError if a field changes the padding of batches that have been collated.

        Args:
            collated: The fields of the `Collate`.
        """
        is_field = lambda node: isinstance(node, Field)
        padded = dict(leaves(collated, is_field))
        for steps, field in leaves(self._fields, is_field):
            if isinstance(field, Image):
                # An image with sizes is a Padded, whose values have a step of their own.
                before = padded.get(steps) or padded.get(steps[:-1])
                if isinstance(before, Field):
                    field.require_same_padding(before, f"DeviceLoader: fields{''.join(steps)}")

    def apply(self, batch: Any, host: Any) -> Any:
        """The batch with all fields applied; ``host`` is the same before it was moved there."""
        return _applied(self._fields, batch, host, "")


def _batch_leaf(path: str) -> str:
    return f"DeviceLoader: leaf {path} of the batch" if path else "DeviceLoader: the batch"


def _require_applicable(field: Field, name: str) -> None:
    if type(field).apply is Field.apply:
        raise TypeError(
            f"{name} must be one of those that take whole batches, Image(), Pad() "
            f"and Stack(), got {field!r}; give it to Collate"
        )
    if field.source is not None or field.is_optional or field.follows is not None:
        raise TypeError(f"{name}: fields with of(), optional() or like= are for Collate")


def _applied(fields: Any, node: Any, host: Any, path: str) -> Any:
    if fields is None:
        return node
    if isinstance(fields, Field):
        try:
            return fields.apply(node, host, Leaf(_batch_leaf(path), path))
        except TypeError as error:
            if isinstance(node, Mapping) or type(node) in (tuple, list):
                Problem.of(error).add_hint(_mirror_hint(fields, node, "batches"))
            raise
    name = f"DeviceLoader: fields{path}"
    if not is_container(node):
        raise ValueError(
            f"{name} is a {type(fields).__name__}, but batches have a {type(node).__name__} there; "
            "fields must mirror the structure of batches"
        )
    values = [
        _applied(child_field, child, before, path + step)
        for child_field, (step, child), (_, before) in zip(
            child_fields(fields, node, name, "batches"), children(node), children(host), strict=True
        )
    ]
    if isinstance(node, Mapping) and any(isinstance(value, Beside) for value in values):
        leaf_name = lambda step: _batch_leaf(path + step)
        return rebuild_with_siblings(node, node.keys(), values, leaf_name, "batches")
    return rebuild(node, values)
