"""Ray Data: `pinfeed.Collate` as a ``collate_fn`` of ``iter_torch_batches``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed.arguments import Problem
from pinfeed.collation.collate import Collate
from pinfeed.collation.placed import placed
from pinfeed.fields.field import Field
from pinfeed.optional import import_extra
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
    """`pinfeed.Collate` for the batches of Ray Data: a ``collate_fn`` of ``iter_torch_batches``.

    Ray hands it each batch as an Arrow table, and the fields read that memory, which may be the
    object store's. Numbers, lists of them and tensors are not copied before the one pass that writes
    the batch; but for bools, which Arrow keeps eight to a byte, and for lists of a batch that spans
    several blocks.

    Args:
        fields: A field for each column that is not to be stacked, by name. None: all are stacked.

    | column | as samples |
    |---|---|
    | numbers, bools | scalars |
    | lists of numbers | sequences for `Pad`, `Jagged`, or `Stack` if all are of one length |
    | tensors | arrays for any field |
    | anything else, such as strings | Python objects: `Keep`, or a list as of ``default_collate`` |

    Values keep the column's dtype. The batch is the dict that `Collate` makes of the same rows.

    Ray moves a dict of tensors to the device, and leaves any other batch where it is: one with
    strings, which takes a `DeviceLoader` around the iteration. What would stand in a NamedTuple must
    go under a key of its own, because Ray joins the parts of a tuple: ``Pad(lengths="n")``,
    ``Jagged(offsets="starts")``.

    Raises:
        TypeError: ``fields`` is no dict, or holds something that is no field. When batches are
            collated: a column holds structs.
        ValueError: A field asks for a NamedTuple. When batches are collated: ``fields`` names a
            column that is not there; a value is null; or as with `Collate`.

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
            raise TypeError(
                "RayCollate: fields must be a dict of fields by column, or None, "
                f"got {type(fields).__name__}"
            )
        placed(fields, "RayCollate: fields", _require_tensor)
        self._collate = Collate(fields)

    def __call__(self, batch: Any) -> dict[str, Any]:
        """Collates a batch.

        Args:
            batch: pyarrow.Table of at least one column and one row, with a name for each column.
        """
        names = getattr(batch, "column_names", None)
        if names is None:
            raise TypeError(
                "RayCollate: expected a pyarrow.Table, as iter_torch_batches hands to collate_fn, "
                f"got {type(batch).__name__}; pinfeed.Collate takes samples, and "
                "pyarrow.table(batch) makes a table of a dict of 1-D arrays"
            )
        sources = {
            name: _source(column, f"RayCollate: column {name!r}")
            for name, column in zip(names, batch.columns, strict=True)
        }
        return self._collate(Rows(sources, np.arange(batch.num_rows)))

    def __repr__(self) -> str:
        return repr(self._collate).replace("Collate", "RayCollate", 1)


def _require_tensor(field: Field, name: str) -> None:
    """Raises if the field makes a NamedTuple.

    Ray takes one for pieces of a tensor: values and offsets, both int64, would become one.
    """
    for part in ("offsets", "lengths", "sizes", "mask"):
        asked = getattr(field, part, False)
        if asked is True or (asked is None and part == "offsets"):
            raise ValueError(
                f"{name} must name the key that its {part} go to, as in "
                f"{type(field).__name__}({part}={part!r}): in a NamedTuple, Ray would join them "
                "with the values"
            )


def _source(column: Any, name: str) -> Any:
    """A pyarrow.ChunkedArray as what `Rows` takes, looking at its memory."""
    kind = column.type
    if getattr(kind, "extension_name", None) in (*_ONE_SHAPE, _MANY_SHAPES):
        return _tensor_source(column, name)
    if _types.is_struct(kind):
        hint = (
            "Dataset.map_batches(pyarrow.Table.flatten, batch_format='pyarrow') makes a column of each "
            "field"
        )
        raise TypeError(Problem(name, "numbers, lists, tensors or strings", str(kind), hint))
    if is_dense(kind) or (is_lists(kind) and is_dense(kind.value_type)):
        if column.num_chunks > 1 and (is_lists(kind) or _types.is_primitive(kind)):
            column = column.combine_chunks()  # a short copy, instead of a view for each row
        values = column_array(column, name)
        return values if isinstance(values, Source) else ArraySource(values, name)
    return ObjectColumn(column.to_pylist())


def _tensor_source(column: Any, name: str) -> Source:
    """The tensors of a column as views of its memory; only bools, bits in Arrow, are copied.

    Those of one shape are an array, or one for each chunk; those of several shapes are a list of views.
    """
    if column.null_count:
        raise ValueError(
            f"{name}: {column.null_count} of {len(column)} tensors are null; leave such rows out "
            "with Dataset.filter()"
        )
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
    for shape in shapes.reshape(len(chunk), -1).tolist():  # all of a chunk have as many axes
        end = start + math.prod(shape)
        views.append(values[start:end].reshape(shape))
        start = end
    return views


def _numbers(lists: Any, name: str) -> npt.NDArray[Any]:
    """What is in lists, one after the other; of a slice only its part."""
    return dense_values(lists.flatten(), name)
