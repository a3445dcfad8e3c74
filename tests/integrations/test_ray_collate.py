"""`RayCollate` on tables as Ray Data hands them over, without a cluster."""

import gc
import itertools
import pickle

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

import pinfeed
import reference
from pinfeed.integrations.ray import RayCollate
from samples import assert_same, run_python

ROWS = 23
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
NUMBERS = ["uint8", "int64", "float16", "float32", "bool"]

rng = np.random.default_rng(0)


def numbers(dtype, shape):
    return rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)


def in_chunks(array, cuts):
    """The same rows in several chunks, some of them empty, each a slice of the whole."""
    bounds = [0, *sorted(cuts), len(array)]
    chunks = [array.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
    return pa.chunked_array(chunks, array.type)


@st.composite
def layouts(draw):
    """Which rows of a column are in the batch, and where its chunks end."""
    start = draw(st.integers(0, ROWS - 1))
    stop = draw(st.integers(start + 1, ROWS))
    return slice(start, stop), draw(st.lists(st.integers(0, stop - start), max_size=4))


def batch_of(array, layout, spec=None):
    rows, cuts = layout
    column = in_chunks(array.slice(rows.start, rows.stop - rows.start), cuts)
    return RayCollate(None if spec is None else {"x": spec})(pa.table({"x": column}))


WHOLE = (slice(0, ROWS), [])


@pytest.fixture(params=list(FixedShapeTensorFormat), ids=lambda tensors: tensors.name)
def tensor_format(request):
    context = DataContext.get_current()
    before = context.arrow_fixed_shape_tensor_format
    context.arrow_fixed_shape_tensor_format = request.param
    yield request.param
    context.arrow_fixed_shape_tensor_format = before


@pytest.mark.parametrize("dtype", NUMBERS)
def test_tensors_of_one_shape(dtype, tensor_format):
    tensors = numbers(dtype, (ROWS, 3, 2))
    column = ArrowTensorArray.from_numpy(tensors)

    @given(layouts())
    def check(layout):
        expected = {"x": torch.from_numpy(tensors[layout[0]])}
        assert_same(batch_of(column, layout), expected)

    check()


def test_images(tensor_format):
    images = numbers("uint8", (ROWS, 8, 6, 3))
    column = ArrowTensorArray.from_numpy(images)
    expected = torch.from_numpy(reference.images(images, MEAN, STD))

    @given(layouts())
    def check(layout):
        batch = batch_of(column, layout, pinfeed.Image(MEAN, STD))
        assert_same(batch, {"x": expected[layout[0]]})

    check()


@pytest.mark.parametrize("dtype", NUMBERS)
@given(layout=layouts())
def test_numbers(dtype, layout):
    values = numbers(dtype, ROWS)
    batch = batch_of(pa.array(values), layout)
    assert_same(batch, {"x": torch.from_numpy(values[layout[0]])})


@pytest.mark.parametrize("kind", ["list", "large list", "tensors"])
@pytest.mark.parametrize("dtype", ["int32", "float64", "bool"])
@pytest.mark.parametrize("shortest", [0, 2])
def test_sequences(kind, dtype, shortest):
    lengths = rng.integers(shortest, 9, ROWS)
    sequences = [numbers(dtype, length) for length in lengths]
    if kind == "tensors":
        column = ArrowVariableShapedTensorArray.from_numpy(sequences)
    else:
        make = pa.list_ if kind == "list" else pa.large_list
        column = pa.array(sequences, make(pa.from_numpy_dtype(dtype)))

    @given(layouts())
    def check(layout):
        samples = sequences[layout[0]]
        values, lengths, mask = map(torch.from_numpy, reference.pad(samples, 0))
        padded = pinfeed.Pad(lengths="lengths", mask="mask")
        batch = batch_of(column, layout, padded)
        assert_same(batch, {"x": values, "lengths": lengths, "mask": mask})

        values, offsets = map(torch.from_numpy, reference.jagged(samples))
        batch = batch_of(column, layout, pinfeed.Jagged(offsets="starts"))
        assert_same(batch, {"x": values, "starts": offsets})

    check()


def test_lists_of_one_length_stack():
    values = numbers("int64", (ROWS, 4))
    expected = {"x": torch.from_numpy(values)}
    assert_same(batch_of(pa.array(list(values)), WHOLE), expected)
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 4)
    assert_same(batch_of(fixed, WHOLE), expected)


def test_tensors_that_differ_along_their_first_axis():
    boxes = [numbers("float32", (i % 4, 4)) for i in range(ROWS)]
    column = ArrowVariableShapedTensorArray.from_numpy(boxes)

    @given(layouts())
    def check(layout):
        values, offsets = map(torch.from_numpy, reference.jagged(boxes[layout[0]]))
        batch = batch_of(column, layout, pinfeed.Jagged(offsets="starts"))
        assert_same(batch, {"x": values, "starts": offsets})

    check()


def test_images_of_different_sizes():
    images = [numbers("uint8", (3 + i % 4, 5 + i % 3, 3)) for i in range(ROWS)]
    column = ArrowVariableShapedTensorArray.from_numpy(images)
    field = pinfeed.Image(MEAN, STD, pad_value=0, sizes="sizes", mask="mask")

    @given(layouts())
    def check(layout):
        samples = images[layout[0]]
        expected = reference.padded_images(samples, 0, mean=MEAN, std=STD)
        parts = dict(zip(("x", "sizes", "mask"), map(torch.from_numpy, expected), strict=True))
        assert_same(batch_of(column, layout, field), parts)

    check()


def test_tensors_of_various_shapes_that_happen_to_be_alike():
    tensors = [numbers("int16", (2, 3)) for _ in range(ROWS)]
    tensors[-1] = numbers("int16", (3, 2))
    column = ArrowVariableShapedTensorArray.from_numpy(tensors)
    expected = {"x": torch.from_numpy(np.stack(tensors[:-1]))}
    assert_same(batch_of(column, (slice(0, ROWS - 1), [])), expected)
    assert_same(batch_of(column, (slice(0, ROWS - 1), [4, 9])), expected)
    with pytest.raises(ValueError, match=r"leaf \['x'\] of sample 22 .*expected shape \(2, 3\)"):
        batch_of(column, WHOLE)


def test_everything_else_is_as_collate_takes_it():
    names = [f"photo {i}" for i in range(ROWS)]
    structs = [{"label": i, "box": [float(i), 0.5], "name": str(i)} for i in range(ROWS)]
    table = pa.table({"name": names, "target": structs, "kept": names})
    spec = {"kept": pinfeed.Keep(), "target": {"box": pinfeed.Stack(torch.float32)}}
    samples = [
        {"name": name, "target": {**struct, "box": np.array(struct["box"])}, "kept": name}
        for name, struct in zip(names, structs, strict=True)
    ]
    batch = RayCollate(spec)(table)
    assert_same(batch, pinfeed.Collate(spec)(samples))
    assert batch["target"]["box"].dtype == torch.float32
    assert batch["name"] == names
    assert not is_tensor_batch_type(batch)  # which Ray leaves as it is


def test_rows_are_read_where_they_lie(monkeypatch):
    """Numbers, lists and tensors reach the fields as views of Arrow's own buffers."""
    images = numbers("uint8", (ROWS, 4, 4, 3))
    sequences = [numbers("int64", 1 + i % 5) for i in range(ROWS)]
    boxes = [numbers("float32", (1 + i % 4, 4)) for i in range(ROWS)]
    table = pa.table(
        {
            "image": ArrowTensorArray.from_numpy(images),
            "tokens": pa.array(sequences),
            "boxes": ArrowVariableShapedTensorArray.from_numpy(boxes),
            "label": numbers("int64", ROWS),
        }
    ).slice(2)
    seen = {}
    for kind in (pinfeed.Stack, pinfeed.Pad):
        own = kind.gather

        def gather(self, source, indices, name, own=own):
            values = source.values if isinstance(source, pinfeed.RaggedArray) else source.array
            seen[name] = values.ctypes.data
            return own(self, source, indices, name)

        monkeypatch.setattr(kind, "gather", gather)
    RayCollate({"tokens": pinfeed.Pad(), "boxes": pinfeed.Pad()})(table)
    assert len(seen) == 4
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
    batch["x"] += 0  # and it is nobody else's memory
    del table
    gc.collect()
    assert_same(batch, {"x": torch.from_numpy(images)})


def test_columns_are_collate_s_leaves():
    table = pa.table({"x": [1, 2], "y": [[1], [2, 3]]})
    with pytest.raises(ValueError, match=r"Collate: spec has .*'z'.*'x'.*'y'"):
        RayCollate({"z": pinfeed.Stack()})(table)
    with pytest.raises(ValueError, match=r"leaf \['y'\] of sample 1 .*expected length 1"):
        RayCollate()(table)
    with pytest.raises(ValueError, match="at least one sample"):
        RayCollate()(table.slice(0, 0))


def test_a_struct_without_fields():
    table = pa.table({"x": pa.array([{}, {}], pa.struct([]))})
    with pytest.raises(ValueError, match=r"must hold at least one array, got \{'x': \{\}\}"):
        RayCollate()(table)
    assert_same(
        RayCollate()(table.append_column("y", [[1, 2]])), {"x": {}, "y": torch.tensor([1, 2])}
    )


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1, None]), "1 of 2 rows are null"),
        (pa.array([[1], None]), "1 of 2 rows are null"),
        (pa.array([[1], [None]]), "1 values are null"),
        (pa.array([{"a": 1}, None]), "1 of 2 structs are null"),
        ("tensors", "1 of 2 tensors are null"),
    ],
    ids=["number", "list", "in a list", "struct", "tensor"],
)
def test_nulls(column, message):
    if isinstance(column, str):
        column = ArrowTensorArray.from_numpy(np.zeros((2, 3))).take(pa.array([0, None]))
    with pytest.raises(ValueError, match=rf"RayCollate: column 'x'.*{message}"):
        RayCollate()(pa.table({"x": column}))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (pinfeed.Jagged(), r"spec\['x'\].*Jagged\(offsets='offsets'\)"),
        (pinfeed.Pad(lengths=True), r"spec\['x'\].*Pad\(lengths='lengths'\)"),
        (pinfeed.Pad(mask=True), r"spec\['x'\].*Pad\(mask='mask'\)"),
        (pinfeed.Image(pad_value=0, sizes=True), r"spec\['x'\].*Image\(sizes='sizes'\)"),
        (pinfeed.Image(pad_value=0, mask=True), r"spec\['x'\].*Image\(mask='mask'\)"),
    ],
)
def test_what_ray_would_join_is_refused(field, message):
    with pytest.raises(ValueError, match=message):
        RayCollate({"x": field})
    with pytest.raises(ValueError, match=r"spec\['s'\]\['x'\]"):
        RayCollate({"s": {"x": field}})


def test_without_ray():
    message = run_python(
        "import sys; sys.modules['ray'] = None\n"
        "try: import pinfeed.integrations.ray\n"
        "except ImportError as error: print(error)"
    )
    assert message.strip() == "ray is not installed: pip install pinfeed[ray]"


def test_ray_knows_it_and_it_pickles():
    collate = RayCollate({"x": pinfeed.Pad(-1, multiple_of=4)})
    assert isinstance(collate, ArrowBatchCollateFn)
    table = pa.table({"x": [[1], [2, 3]]})
    other = pickle.loads(pickle.dumps(collate))
    assert_same(other(table), collate(table))
    assert is_tensor_batch_type(collate(table))
    assert repr(collate).startswith("RayCollate({'x': Pad(-1,")


TWICE = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])


@pytest.mark.parametrize(
    ("spec", "table", "error", "message"),
    [
        (pinfeed.Image(), None, TypeError, "spec must be a dict of fields by column, or None"),
        ({"x": torch.float32}, None, TypeError, r"spec\['x'\] must be a Field"),
        (None, pa.table({}), ValueError, "RayCollate: expected a table with at least one column"),
        (None, TWICE, ValueError, "RayCollate: column 'x' is there 2 times"),
        (None, {"x": np.zeros(3)}, TypeError, r"RayCollate: expected a pyarrow\.Table.*got dict"),
    ],
)
def test_what_is_no_spec_and_no_table(spec, table, error, message):
    with pytest.raises(error, match=message):
        RayCollate(spec)(table)
