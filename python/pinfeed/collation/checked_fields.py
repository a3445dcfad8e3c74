"""Checks of fields in the structure of a sample, for `Collate`, or of a batch, for `DeviceLoader`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader

from pinfeed.arguments import ARRAYS, Problem
from pinfeed.augment.geometry import Transform
from pinfeed.collation.objects import dependency_of
from pinfeed.collation.plan import Entry
from pinfeed.fields.field import Field
from pinfeed.fields.image import Image
from pinfeed.fields.mask import with_image_settings
from pinfeed.fields.pad import Pad
from pinfeed.structure import children, entries, is_container, rebuild


def checked_fields(
    fields: Any,
    name: str,
    check: Callable[[Field, str], None] | None = None,
    *,
    in_dict: bool = False,
) -> Any:
    """Checks fields and returns them set up for their positions.

    Args:
        fields: Fields from the user; None means no field, at any position.
        name: Name of the fields in messages, such as ``"Collate: fields"``.
        check: Function of a field and its name that raises for unsupported fields.
        in_dict: Whether they are directly in a dict.
    """
    if fields is None:
        return None
    if isinstance(fields, Field):
        if check is not None:
            check(fields, name)
        if not in_dict and (wrong := _need_of_dict(fields)):
            raise ValueError(Problem("", f"{name}{wrong[0]}", hint=wrong[1]))
        return fields
    if not is_container(fields):
        got = repr(fields) if isinstance(fields, type) else type(fields).__name__
        text = f"{name} must be a Field such as Image(), or None, got {got}"
        raise TypeError(Problem("", text, hint=_field_for(fields)))
    is_dict = isinstance(fields, Mapping)
    parts = [
        checked_fields(child, name + step, check, in_dict=is_dict)
        for step, child in children(fields)
    ]
    if is_dict:
        _check_names(fields, parts, name)
        by_key = dict(zip(fields, parts, strict=True))
        parts = [
            part.in_dict(key, by_key, name) if isinstance(part, Pad) else part
            for key, part in by_key.items()
        ]
    parts = with_image_settings(fields, parts, name)
    return rebuild(fields, parts)


def _need_of_dict(field: Field) -> tuple[str, str] | None:
    """Returns why a field must be in a dict, with the hint; None if it needn't be."""
    hint, kind = "make the samples dicts", type(field).__name__
    if field.extra_keys():
        takes_true = isinstance(field, Image | Pad)
        instead = "pass True instead of a key" if takes_true else "leave the keys out"
        adds = f": {kind} adds the keys {list(field.extra_keys())}, which needs a dict"
        return adds, f"{hint}, or {instead}"
    if field.is_optional:
        return " has allow_missing(), which needs a dict", hint
    if field.source is not None:
        return " has from_key(), which needs a dict", hint
    if key := dependency_of(field):
        return f" depends on the key {key!r} of the same dict, but is not in a dict", hint
    return None


# The hints for objects that are not fields, by type.
_FIELD_FOR: tuple[tuple[Any, str], ...] = (
    (type, "create it with parentheses"),
    (ARRAYS, "to collate samples, create a Collate with parentheses: collate_fn=Collate()"),
    (torch.dtype, "Stack({0}) sets the dtype of batches"),
    (str, "Stack().from_key({0!r}) reads the entry under the key {0!r}"),
    (DataLoader, "pass the Collate to the loader: DataLoader(dataset, collate_fn=Collate(fields))"),
    (Transform, "Image(augment={0}) applies it"),
    (Callable, "call functions of one sample, such as transforms, in the dataset"),
)


def _field_for(value: Any) -> str:
    """Returns the hint for an object that is not a field."""
    if type(value).__name__ == "Collate":
        return "pass the fields as they are, without Collate(...)"
    hints = (hint.format(value) for kind, hint in _FIELD_FOR if isinstance(value, kind))
    return next(hints, "")


def _check_names(fields: Mapping[Any, Any], parts: list[Any], name: str) -> None:
    keys = set(fields)
    for field in parts:
        for key in field.extra_keys() if isinstance(field, Field) else ():
            if key in keys:
                raise ValueError(
                    f"{name} has two fields for the key {key!r}; leave one out, or choose another name"
                )
            keys.add(key)


def batch_plan(fields: Any) -> Entry:
    """Returns the plan of a `DeviceLoader`, whose fields have the structure of a batch.

    Entries without a field stay as they are. A tuple of fields also matches a list, because
    ``default_collate`` turns tuples into lists.
    """
    return Entry(
        "DeviceLoader", checked_fields(fields, "DeviceLoader: fields", _require_applicable)
    )


def require_same_padding(plan: Entry, collated: Any) -> None:
    """Raises ValueError if a field of a plan changes the padding of collated batches.

    Args:
        plan: Plan of a `DeviceLoader`.
        collated: Fields of the `Collate`.
    """
    is_field = lambda node: isinstance(node, Field)
    padded = dict(entries(collated, is_field))
    for steps, field in entries(plan.fields, is_field):
        if isinstance(field, Image):
            # An image with sizes is a Padded, so the path to its values has one more step.
            before = padded.get(steps) or padded.get(steps[:-1])
            if isinstance(before, Field):
                field.require_same_padding(before, f"DeviceLoader: fields{''.join(steps)}")


def _require_applicable(field: Field, name: str) -> None:
    if type(field).apply is Field.apply:
        raise TypeError(
            f"{name} must be a field that takes whole batches, Image(), Pad() "
            f"or Stack(), got {field!r}; pass it to Collate"
        )
    if field.source is not None or field.is_optional or dependency_of(field) is not None:
        raise TypeError(
            f"{name} must not have from_key(), allow_missing() or like=, got {field!r}; pass it to Collate"
        )
