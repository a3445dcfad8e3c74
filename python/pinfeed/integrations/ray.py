"""Ray Data: `pinfeed.Collate` as a ``collate_fn`` of ``iter_torch_batches``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed.arguments import Problem
from pinfeed.collation.checked_fields import checked_fields
from pinfeed.collation.collate import Collate
from pinfeed.fields.field import Field
from pinfeed.imports import import_extra
from pinfeed.sources.arrow import column_array
from pinfeed.sources.arrow_lists import dense_values, is_dense, is_lists
from pinfeed.sources.concat import ConcatArray
from pinfeed.sources.dataset import Rows
from pinfeed.sources.source import ArraySource, ObjectColumn, Source

__all__ = ["RayCollate"]

_types = import_extra("pyarrow.types", "ray")
_ArrowBatchCollateFn: Any = import_extra("ray.data.collate_fn", "ray").ArrowBatchCollateFn

# Ray's extension types of Arrow for tensors, over lists of numbers.
_ONE_SHAPE = ("ray.data.arrow_tensor", "ray.data.arrow_tensor_v2")
_MANY_SHAPES = "ray.data.arrow_variable_shaped_tensor"


class RayCollate(_ArrowBatchCollateFn):  # type: ignore[misc] # Any, where Ray is missing
    """`pinfeed.Collate` for Ray Data: a ``collate_fn`` of ``iter_torch_batches``.

    The fields read the memory of Ray's Arrow tables directly. Only bools, and lists of a batch that spans
    several blocks, are copied first.

    Args:
        fields: Fields by column name. Columns without a field are stacked. None: all are stacked.

    | column | as samples |
    |---|---|
    | numbers, bools | scalars |
    | lists of numbers | sequences for `Pad`, `Jagged`, or `Stack` if all have one length |
    | tensors | arrays for any field |
    | anything else, such as strings | Python objects: `Keep`, or a list as from ``default_collate`` |

    Values keep the column's dtype. The batch is the dict that `Collate` returns for the same rows.

    Ray concatenates the parts of a tuple, so fields must not return NamedTuples. Name the parts instead:
    ``Pad(lengths="n")``, ``Jagged(offsets="starts")``. Ray moves only dicts of tensors to the device. If a
    batch has strings, put a `DeviceLoader` around the iteration.

    Raises:
        TypeError: If ``fields`` is not a dict of fields. When batches are collated: if a column has
            structs.
        ValueError: If a field returns a NamedTuple. When batches are collated: if ``fields`` names a
            missing column, a value is null, or `Collate` raises.

    Example:
        >>> collate = RayCollate({"tokens": pinfeed.Pad(multiple_of=4, lengths="lengths")})

        For ``dataset.iter_torch_batches(batch_size=2, collate_fn=collate)``, Ray calls it with
        tables such as this:

        >>> import pyarrow
        >>> collate(pyarrow.table({"tokens": [[1, 2], [3]], "label": [0, 1]}))
        {'tokens': tensor([[1, 2, 0, 0],
                [3, 0, 0, 0]]), 'lengths': tensor([2, 1]), 'label': tensor([0, 1])}
    """

    def __init__(self, fields: Mapping[str, Any] | None = None) -> None:
        if fields is not None and not isinstance(fields, Mapping):
            expected, got = "a dict of fields by column, or None", type(fields).__name__
            raise TypeError(Problem("RayCollate: fields", expected, got))
        checked_fields(fields, "RayCollate: fields", _require_tensor)
        self._collate = Collate(fields)

    def __call__(self, batch: Any) -> dict[str, Any]:
        """Collates a batch.

        Args:
            batch: pyarrow.Table with at least one column and one row.
        """
        names = getattr(batch, "column_names", None)
        if names is None:
            expected = "a pyarrow.Table, as iter_torch_batches passes to collate_fn"
            hint = (
                "use pinfeed.Collate for samples, and pyarrow.table(batch) for a dict of 1-D arrays"
            )
            raise TypeError(Problem("RayCollate", expected, type(batch).__name__, hint))
        sources = {
            name: _source(column, f"RayCollate: column {name!r}")
            for name, column in zip(names, batch.columns, strict=True)
        }
        return self._collate(Rows(sources, np.arange(batch.num_rows)))

    def __repr__(self) -> str:
        return repr(self._collate).replace("Collate", "RayCollate", 1)


def _require_tensor(field: Field, name: str) -> None:
    """Raises if the field returns a NamedTuple, whose parts Ray concatenates like pieces of a tensor."""
    for part in ("offsets", "lengths", "sizes", "mask"):
        option = getattr(field, part, False)
        if option is True or (option is None and part == "offsets"):
            raise ValueError(
                f"{name} must not return a NamedTuple, because Ray concatenates its parts; store "
                f"the {part} under a key: {type(field).__name__}({part}={part!r})"
            )


def _source(column: Any, name: str) -> Any:
    """Returns a source for `Rows` that views the memory of a pyarrow.ChunkedArray."""
    kind = column.type
    if getattr(kind, "extension_name", None) in (*_ONE_SHAPE, _MANY_SHAPES):
        return _tensor_source(column, name)
    if _types.is_struct(kind):
        hint = "make a column per field: Dataset.map_batches(pyarrow.Table.flatten, batch_format='pyarrow')"
        raise TypeError(Problem(name, "numbers, lists, tensors or strings", str(kind), hint))
    if is_dense(kind) or (is_lists(kind) and is_dense(kind.value_type)):
        if column.num_chunks > 1 and (is_lists(kind) or _types.is_primitive(kind)):
            column = column.combine_chunks()  # one copy is cheaper than a view per row
        values = column_array(column, name)
        return values if isinstance(values, Source) else ArraySource(values, name)
    return ObjectColumn(column.to_pylist())


def _tensor_source(column: Any, name: str) -> Source:
    """Returns views of a column's tensors; only bools, which are bits in Arrow, are copied.

    Tensors of one shape become one array per chunk; tensors of several shapes become a list of views.
    """
    if column.null_count:
        wrong = f"{column.null_count} of {len(column)} tensors are null"
        raise ValueError(Problem(name, wrong, hint="drop these rows with Dataset.filter()"))
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    if column.type.extension_name == _MANY_SHAPES:
        return ObjectColumn([tensor for chunk in chunks for tensor in _views(chunk, name)])
    arrays = [
        _numbers(chunk.storage, name).reshape(len(chunk), *chunk.type.shape) for chunk in chunks
    ]
    return ArraySource(arrays[0], name) if len(arrays) == 1 else ConcatArray(arrays)


def _views(chunk: Any, name: str) -> list[npt.NDArray[Any]]:
    values = _numbers(chunk.storage.field("data"), name)
    shapes = chunk.storage.field("shape").flatten().to_numpy()
    views, start = [], 0
    for shape in shapes.reshape(len(chunk), -1).tolist():  # equally many axes within a chunk
        end = start + math.prod(shape)
        views.append(values[start:end].reshape(shape))
        start = end
    return views


def _numbers(lists: Any, name: str) -> npt.NDArray[Any]:
    """Returns the concatenated numbers of lists; of a slice, only its part."""
    return dense_values(lists.flatten(), name)
