"""`RayCollate` on tables like Ray Data's, without a cluster."""

import gc
import itertools
import pickle
import warnings

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ray.data import DataContext
from ray.data.collate_fn import ArrowBatchCollateFn, is_tensor_batch_type
from ray.data.extensions import (
    ArrowTensorArray,
    ArrowVariableShapedTensorArray,
    FixedShapeTensorFormat,
)

import reference
from messages import check
from pinfeed import Collate, Image, Jagged, Keep, Pad, RaggedArray, Stack
from pinfeed.integrations.ray import RayCollate
from programs import run_program
from samples import assert_same

ROWS = 23
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
NUMBERS = ["uint8", "int64", "float16", "float32", "bool"]

rng = np.random.default_rng(0)


def numbers(dtype, shape):
    return rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)


def in_chunks(array, cuts):
    """Returns the rows in several chunks, some of them empty, each a slice of a larger array."""
    bounds = [0, *sorted(cuts), len(array)]
    chunks = [array.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
    return pa.chunked_array(chunks, array.type)


@st.composite
def layouts(draw):
    """Draws the rows of a column in the batch, and its chunk boundaries."""
    start = draw(st.integers(0, ROWS - 1))
    stop = draw(st.integers(start + 1, ROWS))
    return slice(start, stop), draw(st.lists(st.integers(0, stop - start), max_size=4))


def batch_of(array, layout, fields=None):
    rows, cuts = layout
    column = in_chunks(array.slice(rows.start, rows.stop - rows.start), cuts)
    return RayCollate(None if fields is None else {"x": fields})(pa.table({"x": column}))


WHOLE = (slice(0, ROWS), [])
VARIOUS = ArrowVariableShapedTensorArray.from_numpy


def of_one_shape(tensors, form):
    """Returns a column in one of Ray's tensor formats."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # Ray's own warning about itself
        patch.setattr(DataContext.get_current(), "arrow_fixed_shape_tensor_format", form)
        return ArrowTensorArray.from_numpy(tensors)


def columns():
    """Yields name, column, field, and a function that returns the expected batch of rows."""
    images = numbers("uint8", (ROWS, 8, 6, 3))
    normalized = reference.images(images, MEAN, STD)
    for dtype in NUMBERS:
        values, tensors = numbers(dtype, ROWS), numbers(dtype, (ROWS, 3, 2))
        yield dtype, pa.array(values), None, lambda rows, x=values: {"x": x[rows]}
        for form in FixedShapeTensorFormat:
            column = of_one_shape(tensors, form)
            yield f"{dtype} {form}", column, None, lambda rows, x=tensors: {"x": x[rows]}
    for form in FixedShapeTensorFormat:
        column = of_one_shape(images, form)
        yield (f"image {form}", column, Image(MEAN, STD), lambda rows: {"x": normalized[rows]})
    for dtype, shortest in itertools.product(["int32", "float64", "bool"], [0, 2]):
        sequences = [numbers(dtype, length) for length in rng.integers(shortest, 9, ROWS)]
        number = pa.from_numpy_dtype(dtype)
        for kind, column in (
            ("list", pa.array(sequences, pa.list_(number))),
            ("large list", pa.array(sequences, pa.large_list(number))),
            ("tensors", VARIOUS(sequences)),
        ):
            name = f"{kind} of {dtype} from {shortest}"
            yield f"{name}, padded", column, PAD, padded(sequences)
            yield f"{name}, jagged", column, JAGGED, jagged(sequences)
    boxes = [numbers("float32", (i % 4, 4)) for i in range(ROWS)]
    yield "boxes", VARIOUS(boxes), JAGGED, jagged(boxes)
    pairs = numbers("int64", (ROWS, 4))
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(pairs.ravel()), 4)
    for column in (pa.array(list(pairs)), fixed):
        yield f"of one length, {column.type}", column, None, lambda rows: {"x": pairs[rows]}
    mixed = [numbers("uint8", (3 + i % 4, 5 + i % 3, 3)) for i in range(ROWS)]
    field = Image(MEAN, STD, pad_value=0, sizes="sizes", mask="mask")
    yield (
        "images of different sizes",
        VARIOUS(mixed),
        field,
        lambda rows: named(
            "x sizes mask", reference.padded_images(mixed[rows], 0, mean=MEAN, std=STD)
        ),
    )


PAD, JAGGED = Pad(lengths="lengths", mask="mask"), Jagged(offsets="starts")


def padded(sequences):
    return lambda rows: named("x lengths mask", reference.pad(sequences[rows], 0))


def jagged(sequences):
    return lambda rows: named("x starts", reference.jagged(sequences[rows]))


def named(names, arrays):
    return dict(zip(names.split(), arrays, strict=True))


@pytest.mark.parametrize(
    ("column", "field", "expected"), [pytest.param(*case, id=name) for name, *case in columns()]
)
def test_columns(column, field, expected):
    @given(layouts())
    def check(layout):
        arrays = {key: torch.from_numpy(array) for key, array in expected(layout[0]).items()}
        assert_same(batch_of(column, layout, field), arrays)

    check()


def test_tensors_of_variable_shape_with_equal_shapes():
    tensors = [numbers("int16", (2, 3)) for _ in range(ROWS)]
    tensors[-1] = numbers("int16", (3, 2))
    column = ArrowVariableShapedTensorArray.from_numpy(tensors)
    expected = {"x": torch.from_numpy(np.stack(tensors[:-1]))}
    assert_same(batch_of(column, (slice(0, ROWS - 1), [])), expected)
    with pytest.raises(ValueError, match=r"entry \['x'\] of sample 22 .*expected shape \(2, 3\)"):
        batch_of(column, WHOLE)


def test_other_inputs_equal_collate():
    names = [f"photo {i}" for i in range(ROWS)]
    table = pa.table({"name": names, "kept": names})
    fields = {"kept": Keep()}
    samples = [{"name": name, "kept": name} for name in names]
    batch = RayCollate(fields)(table)
    assert_same(batch, Collate(fields)(samples))
    assert batch["name"] == names
    assert not is_tensor_batch_type(batch)  # which Ray leaves unchanged


def test_rows_are_read_in_place(monkeypatch):
    """Fields receive numbers, lists and tensors as views of Arrow's buffers."""
    images = numbers("uint8", (ROWS, 4, 4, 3))
    sequences = [numbers("int64", 1 + i % 5) for i in range(ROWS)]
    table = pa.table(
        {
            "image": ArrowTensorArray.from_numpy(images),
            "tokens": pa.array(sequences),
            "label": numbers("int64", ROWS),
        }
    ).slice(2)
    seen = {}
    for kind in (Stack, Pad):
        own = kind.gather

        def gather(self, source, indices, name, own=own):
            values = source.values if isinstance(source, RaggedArray) else source.array
            seen[name] = values.ctypes.data
            return own(self, source, indices, name)

        monkeypatch.setattr(kind, "gather", gather)
    RayCollate({"tokens": Pad()})(table)
    assert len(seen) == 3
    ranges = [
        (buffer.address, buffer.address + buffer.size)
        for column in table.columns
        for chunk in column.chunks
        for buffer in (chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk).buffers()
        if buffer is not None
    ]
    for name, address in seen.items():
        assert any(start <= address < end for start, end in ranges), name


def test_a_batch_outlives_its_table():
    images = numbers("uint8", (ROWS, 8, 8, 3))
    table = pa.table({"x": ArrowTensorArray.from_numpy(images.copy())})
    batch = RayCollate()(table)
    batch["x"] += 0  # in memory of its own
    del table
    gc.collect()
    assert_same(batch, {"x": torch.from_numpy(images)})


def null_tensor():
    return ArrowTensorArray.from_numpy(np.zeros((2, 3))).take(pa.array([0, None]))


X = pa.table({"x": [1, 2], "y": [[1], [2, 3]]})
STRUCT = pa.table({"x": pa.array([{"a": 1}, {"a": 2}])})
TUPLE = "fields['x'] must not return a NamedTuple"
# The fields, a function that makes the table, the error, and words of its message.
BAD = {
    "a missing column": ({"z": Stack()}, lambda: X, ValueError, "Collate: fields: expected keys ", "'x', 'y'", "got 'z'"),
    "lengths that differ": (None, lambda: X, ValueError, "entry ['y'] of sample 1 ", "expected length 1"),
    "no rows": (None, lambda: X.slice(0, 0), ValueError, "at least one sample"),
    "no columns": (None, lambda: pa.table({}), ValueError, "must hold at least one array"),
    "a struct": (None, lambda: STRUCT, TypeError, "column 'x': expected numbers", "got struct", "Table.flatten"),
    "a null": (None, lambda: pa.table({"x": [1, None]}), ValueError, "RayCollate: column 'x'", "1 of 2 rows are null"),
    "a null list": (None, lambda: pa.table({"x": [[1], None]}), ValueError, "RayCollate: column 'x'", "1 of 2 rows are null"),
    "a null in a list": (None, lambda: pa.table({"x": [[1], [None]]}), ValueError, "RayCollate: column 'x'", "1 values are null"),
    "a null tensor": (None, lambda: pa.table({"x": null_tensor()}), ValueError, "RayCollate: column 'x'", "1 of 2 tensors are null"),
    "no dict": (Image(), None, TypeError, "fields: expected a dict of fields by column, or None"),
    "no field": ({"x": torch.float32}, None, TypeError, "fields['x'] must be a Field"),
    "no table": (None, lambda: {"x": np.zeros(3)}, TypeError, "RayCollate: expected a pyarrow.Table", "got dict"),
    "nested": ({"s": {"x": Jagged()}}, None, ValueError, "fields['s']['x'] must not"),
} | {
    repr(field): ({"x": field}, None, ValueError, TUPLE, repr(fixed))
    for field, fixed in (
        (Jagged(), Jagged(offsets="offsets")),
        (Pad(lengths=True), Pad(lengths="lengths")),
        (Pad(mask=True), Pad(mask="mask")),
    )
} | {
    f"Image({part}=True)": ({"x": Image(pad_value=0, **{part: True})}, None, ValueError, TUPLE, f"Image({part}='{part}')")
    for part in ("sizes", "mask")
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_fields_and_tables(case):
    fields, table, error, *words = BAD[case]
    check(lambda: RayCollate(fields)(None if table is None else table()), error, *words)


def test_the_hint_for_a_struct_works():
    assert_same(RayCollate()(pa.Table.flatten(STRUCT)), {"x.a": torch.tensor([1, 2])})


def test_without_ray():
    message = run_program("missing_library", "ray", "pinfeed.integrations.ray")
    assert "ray is not installed: pip install '.[ray]' in a checkout" in message


def test_ray_knows_it_and_it_pickles():
    collate = RayCollate({"x": Pad(pad_value=-1, multiple_of=4)})
    assert isinstance(collate, ArrowBatchCollateFn)
    table = pa.table({"x": [[1], [2, 3]]})
    other = pickle.loads(pickle.dumps(collate))
    assert_same(other(table), collate(table))
    assert is_tensor_batch_type(collate(table))
    assert repr(collate) == "RayCollate({'x': Pad(pad_value=-1, multiple_of=4)})"
