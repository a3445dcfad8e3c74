"""Ray Data: `pinfeed.Collate` as a ``collate_fn`` of ``iter_torch_batches``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pinfeed.fields.collate import Collate
from pinfeed.fields.field import Field
from pinfeed.fields.placed import placed
from pinfeed.optional import import_extra
from pinfeed.sources.arrow import column_array
from pinfeed.sources.arrow_lists import dense_values, is_dense, is_lists
from pinfeed.sources.concat import ConcatArray
from pinfeed.sources.dataset import Rows
from pinfeed.sources.ragged import RaggedArray
from pinfeed.sources.source import ArraySource, ObjectColumn, Source

__all__ = ["RayCollate"]

_compute = import_extra("pyarrow.compute", "ray")
_types = import_extra("pyarrow.types", "ray")
_ArrowBatchCollateFn: Any = import_extra("ray.data.collate_fn", "ray").ArrowBatchCollateFn

# Ray's extension types of Arrow for tensors, over lists of numbers.
_ONE_SHAPE = ("ray.data.arrow_tensor", "ray.data.arrow_tensor_v2")
_MANY_SHAPES = "ray.data.arrow_variable_shaped_tensor"


class RayCollate(_ArrowBatchCollateFn):  # type: ignore[misc] # Any, where Ray is missing
    """`pinfeed.Collate` for the batches of Ray Data: a ``collate_fn`` of ``iter_torch_batches``.

    Ray hands it each batch as an Arrow table, and the fields read that memory, which may be the
    object store's. Tensors, of one shape or of several, and lists of numbers become no Python
    objects on the way, and are not copied before the one pass that writes the batch; but for bools,
    which Arrow keeps eight to a byte, and for lists of a batch that spans several blocks.

    Args:
        fields: A field for each column that is not to be stacked, by name. None: all are stacked.

    | column | as samples |
    |---|---|
    | numbers, bools | scalars |
    | lists of numbers | sequences for `Pad`, `Jagged`, or `Stack` if all are of one length |
    | tensors | arrays for any field |
    | structs | dicts, and in ``fields`` a dict of fields |
    | anything else, such as strings | Python objects: `Keep`, or a list as of ``default_collate`` |

    Values keep the column's dtype. The batch is the dict that `Collate` makes of the same rows.

    Ray moves a dict of tensors to the device, and leaves any other batch where it is: one with
    strings, or with the dict of a struct. Those take a `DeviceLoader` around the iteration. What
    would stand in a NamedTuple must go under a key of its own, because Ray joins
    the parts of a tuple: ``Pad(lengths="n")``, ``Jagged(offsets="starts")``.

    Raises:
        TypeError: ``fields`` is no dict, or holds something that is no field.
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
        return _struct_sources(column, name)
    if is_dense(kind) or (is_lists(kind) and is_dense(kind.value_type)):
        if column.num_chunks > 1 and (is_lists(kind) or _types.is_primitive(kind)):
            column = column.combine_chunks()  # a short copy, instead of a view for each row
        values = column_array(column, name)
        return values if isinstance(values, Source) else ArraySource(values, name)
    return ObjectColumn(column.to_pylist())


def _struct_sources(column: Any, name: str) -> dict[str, Any]:
    _require_no_nulls(column, "structs", name)
    return {
        field.name: _source(_compute.struct_field(column, i), f"{name}[{field.name!r}]")
        for i, field in enumerate(column.type.fields)
    }


def _tensor_source(column: Any, name: str) -> Source:
    """The tensors of a column as views of its memory; only bools, bits in Arrow, are copied.

    They are arrays, if each chunk has tensors of one shape; a RaggedArray, if the column is one chunk of
    tensors that differ along axis 0 alone; otherwise a list of views.
    """
    _require_no_nulls(column, "tensors", name)
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    if column.type.extension_name in _ONE_SHAPE:
        arrays = [
            _numbers(chunk.storage, name).reshape(len(chunk), *chunk.type.shape) for chunk in chunks
        ]
        return ArraySource(arrays[0], name) if len(arrays) == 1 else ConcatArray(arrays)
    if len(chunks) > 1:
        return ObjectColumn([tensor for chunk in chunks for tensor in _views(chunk, name)])
    (chunk,) = chunks
    shapes = _shapes(chunk)
    if (shapes[:, 1:] != shapes[0, 1:]).any():
        return ObjectColumn(_views(chunk, name))
    values = _numbers(chunk.storage.field("data"), name)
    if (shapes[:, 0] == shapes[0, 0]).all():
        return ArraySource(values.reshape(len(chunk), *shapes[0]), name)
    offsets = np.append(0, np.cumsum(shapes[:, 0]))
    return RaggedArray(values.reshape(int(offsets[-1]), *shapes[0, 1:]), offsets)


def _views(chunk: Any, name: str) -> list[npt.NDArray[Any]]:
    values = _numbers(chunk.storage.field("data"), name)
    views, start = [], 0
    for shape in _shapes(chunk).tolist():
        end = start + math.prod(shape)
        views.append(values[start:end].reshape(shape))
        start = end
    return views


def _shapes(chunk: Any) -> npt.NDArray[np.int64]:
    """The shape of each tensor; Ray sees to it that all of a chunk have as many axes."""
    shapes: npt.NDArray[np.int64] = chunk.storage.field("shape").flatten().to_numpy()
    return shapes.reshape(len(chunk), -1)


def _numbers(lists: Any, name: str) -> npt.NDArray[Any]:
    """What is in lists, one after the other; of a slice only its part."""
    return dense_values(lists.flatten(), name)


def _require_no_nulls(column: Any, kind: str, name: str) -> None:
    if column.null_count:
        raise ValueError(
            f"{name}: {column.null_count} of {len(column)} {kind} are null; leave such rows out "
            "with Dataset.filter()"
        )
