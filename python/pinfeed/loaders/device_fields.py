"""Fields for the leaves of whole batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pinfeed.fields import Field
from pinfeed.fields.field import Beside
from pinfeed.fields.spec import placed, rebuild_with_siblings
from pinfeed.loaders.apply_field import APPLICABLE, apply_field
from pinfeed.structure import children, is_container, is_dataclass, is_namedtuple, rebuild


class BatchSpec:
    """What becomes of the leaves of a batch, wherever the batch is.

    Args:
        spec: Fields in the structure of a batch; leaves without one stay as they are. A tuple
            stands for a list, too, as which ``default_collate`` returns it.

    Raises:
        TypeError: The spec holds something that is no field, or a field of samples only.
        ValueError: Two leaves would have one key of a dict.
    """

    def __init__(self, spec: Any) -> None:
        self._spec = placed(spec, "DeviceLoader: fields", _require_applicable)

    def __bool__(self) -> bool:
        return self._spec is not None

    def apply(self, batch: Any, host: Any) -> Any:
        """The batch with all fields applied.

        Args:
            batch: Where the fields are to be applied.
            host: The same batch before it was moved there.

        Raises:
            TypeError, ValueError: The batch has another structure than the spec, or a leaf that its
                field can't take.
        """
        if self._spec is None:
            return batch
        return _applied(self._spec, batch, host, "")


def _name(path: str) -> str:
    return f"DeviceLoader: leaf {path} of the batch" if path else "DeviceLoader: the batch"


def _require_applicable(field: Field, name: str) -> None:
    if not isinstance(field, APPLICABLE):
        names = " and ".join(f"{kind.__name__}()" for kind in APPLICABLE)
        raise TypeError(
            f"{name} must be one of those that take whole batches, {names}, got {field!r}; "
            "give it to Collate"
        )


def _applied(spec: Any, node: Any, host: Any, path: str) -> Any:
    if spec is None:
        return node
    if isinstance(spec, Field):
        return apply_field(spec, node, host, _name(path))
    if not is_container(node):
        raise ValueError(
            f"DeviceLoader: fields{path} is a {type(spec).__name__}, but batches have a "
            f"{type(node).__name__} there; fields mirror the batch"
        )
    fields = dict(children(spec))
    parts = children(node)
    steps = [step for step, _ in parts]
    is_named = isinstance(node, Mapping) or is_dataclass(node) or is_namedtuple(node)
    if not fields.keys() <= set(steps) or (not is_named and len(fields) != len(steps)):
        raise ValueError(
            f"DeviceLoader: fields{path} has {list(fields)}, but batches have {steps} there; "
            "fields mirror the batch"
        )
    values = [
        _applied(fields.get(step), child, before, path + step)
        for (step, child), (_, before) in zip(parts, children(host), strict=True)
    ]
    if isinstance(node, Mapping) and any(isinstance(value, Beside) for value in values):
        return rebuild_with_siblings(node, values, lambda step: _name(path + step), "batches")
    return rebuild(node, values)
