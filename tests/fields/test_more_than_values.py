"""Types that carry more than their values: the meaning is used, or they raise."""

import dataclasses
import enum
import re
import tempfile
import warnings
from array import array as numbers
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
import torch
from torch.masked import masked_tensor
from torchvision import tv_tensors

from pinfeed import (
    ArrayDataset,
    Collate,
    Image,
    Jagged,
    Pad,
    RaggedArray,
    Stack,
    to_numpy,
    write_array,
)
from pinfeed.functional import gather, normalize, pad, permute, unbind, unpad
from pinfeed.samplers import LengthBucketSampler, WeightedSampler
from samples import MarkedTensor, assert_same


class Quantity(np.ndarray):
    """Numbers with a unit, like astropy's, unyt's and quantities'."""

    def __new__(cls, values, unit):
        array = np.asarray(values, np.float32).view(cls)
        array.unit = unit
        return array

    def __array_finalize__(self, parent):
        self.unit = getattr(parent, "unit", None)


class NamedArray(np.ndarray):
    """An array type known by name only."""


class Length(torch.Tensor):
    """A tensor with a unit, which torch functions drop."""


class Kept(torch.Tensor):
    """A tensor with a unit, which torch functions keep."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        result = super().__torch_function__(function, types, args, kwargs or {})
        if isinstance(result, cls) and function is torch.stack:
            result.unit = args[0][0].unit
        return result


class Meters(float):
    """A number with a unit."""


class ArrayLike:
    """An array that NumPy can convert, like xarray's, zarr's, dask's and jax's."""

    def __array__(self, dtype=None, copy=None):
        return np.ones((3, 2), np.float32)


class TorchLike:
    """An object that torch functions accept."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return torch.ones(3, 2)


class Labeled:
    """An array with coordinates, as xarray has it."""

    coords = ("x",)

    def __array__(self, dtype=None, copy=None):
        return np.ones(3)

    def to_numpy(self):
        return np.ones(3)


class Measured:
    """A number with a unit, as pint has it."""

    units = "m"

    def __array__(self, dtype=None, copy=None):
        return np.array(1.0)


@dataclasses.dataclass
class StoredArray:
    """An array with private parts, like zarr's."""

    store: dict
    shape = dtype = property(lambda self: None)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.store["values"], dtype)


def with_unit(kind, unit, shape=(3, 2)):
    tensor = torch.ones(shape).as_subclass(kind)
    tensor.unit = unit
    return tensor


def without_warning(function, *arguments):
    """Returns the result of a deprecated or prototype torch function, without its warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments)


def quantized(shape):
    return without_warning(torch.quantize_per_tensor, torch.ones(shape), 0.1, 5, torch.quint8)


def boxes(format):
    return tv_tensors.BoundingBoxes(torch.ones(3, 4), format=format, canvas_size=(9, 9))


MASKED = np.ma.masked_array(np.ones((3, 2), np.float32), mask=[[0, 1]] * 3)
VALUES = np.ones((3, 2), np.float32)

# A rejected value, words of the message, and the fix in its hint.
ARRAYS = {
    "masked": (MASKED, "an array without a mask", lambda a: a.filled(0)),
    "masked, none": (np.ma.masked_array(VALUES), "an array without a mask", lambda a: a.filled(0)),
    "unit": (Quantity(VALUES, "m"), "a plain NumPy array, got Quantity", np.asarray),
    "class": (VALUES.view(NamedArray), "a plain NumPy array, got NamedArray", np.asarray),
    "records": (
        np.rec.array([(1, 2.0)], dtype=[("a", int), ("b", float)]),
        "make an entry of each of its fields",
        lambda a: {name: a[name] for name in a.dtype.names}["b"],
    ),
    "columns": (
        np.ones(3, [("a", int), ("b", float)]),
        "make an entry of each of its fields",
        lambda a: {name: a[name] for name in a.dtype.names}["a"],
    ),
    "dates": (np.array(["2020-01-01", "NaT"], "M8[D]"), ".view(np.int64) returns its numbers, -2**63 for NaT", lambda a: a.view(np.int64)),
    "durations": (np.ones(3, "m8[s]"), ".view(np.int64)", lambda a: a.view(np.int64)),
    "objects": (np.array([1, 2], object), "np.array(a.tolist())", lambda a: np.array(a.tolist())),
    "quantized": (
        quantized((3, 2)),
        "a quantized one; call .dequantize()",
        torch.Tensor.dequantize,
    ),
    "sparse tensor": (torch.eye(3).to_sparse(), "call .to_dense()", torch.Tensor.to_dense),
    "sparse rows": (without_warning(torch.eye(3).to_sparse_csr), "call .to_dense()", torch.Tensor.to_dense),
    "blocks": (torch.ones(3, 2).to_mkldnn(), "call .to_dense()", torch.Tensor.to_dense),
    "attribute": (
        with_unit(Length, "m"),
        "got Length with unit; .as_subclass(torch.Tensor)",
        lambda t: t.as_subclass(torch.Tensor),
    ),
    "boxes": (
        boxes("XYWH"),
        "got BoundingBoxes with format, canvas_size",
        lambda t: t.as_subclass(torch.Tensor),
    ),
}  # fmt: skip
OBJECTS = {
    "series": (pd.Series([1.0, 2.0]), ".to_numpy()", pd.Series.to_numpy),
    "categories": (pd.Categorical(["a", "b"]), ".codes has its codes", lambda c: c.codes),
    "array": (numbers("f", [1, 2]), "np.asarray(...)", np.asarray),
    "nullable": (pd.array([1, 2], dtype="Int64"), ".to_numpy()", lambda a: a.to_numpy()),
    "index": (pd.Index([1, 2]), ".to_numpy()", pd.Index.to_numpy),
    "frame": (pd.DataFrame({"a": [1, 2]}), ".to_numpy()", pd.DataFrame.to_numpy),
    "sparse": (scipy.sparse.csr_matrix(np.eye(2)), ".toarray()", lambda s: s.toarray()),
    "stored": (StoredArray({"values": [1, 2]}), "got StoredArray; np.asarray(...)", np.asarray),
    "array-like": (ArrayLike(), "np.asarray(...)", np.asarray),
    "torch-like": (TorchLike(), "Keep()", None),
    "decimal": (Decimal(1), "Keep()", None),
    "fraction": (Fraction(1, 2), "Keep()", None),
    "a moment": (np.datetime64("2020-01-01"), ".view(np.int64)", lambda d: d.view(np.int64)),
    "a duration": (np.timedelta64(3, "s"), ".view(np.int64)", lambda d: d.view(np.int64)),
    "long": (np.longdouble(1), ".astype(np.float64)", lambda x: x.astype(np.float64)),
    "a record": (
        np.ones(1, [("a", int)])[0],
        "make an entry of each",
        lambda r: {name: r[name] for name in r.dtype.names}["a"],
    ),
    "missing": (pd.NA, "Keep()", None),
    "masked": (np.ma.masked, "an array without a mask", lambda m: m.filled(0)),
}  # fmt: skip
every_array = pytest.mark.parametrize(("array", "words", "follow"), ARRAYS.values(), ids=ARRAYS)
FIELDS = [None, Stack(), Stack(torch.float64), Pad(), Jagged()]
every_field = pytest.mark.parametrize("field", FIELDS, ids=repr)


@every_array
@every_field
@pytest.mark.parametrize("position", [0, 1])
def test_samples(array, words, follow, field, position):
    plain = follow(array)
    samples = [{"x": plain}] * position + [{"x": array}]
    message = rf"entry \['x'\] of sample {position}: .*{re.escape(words)}"
    with pytest.raises(TypeError, match=message):
        Collate({"x": field})(samples)
    Collate({"x": field})([{"x": plain}] * (position + 1))


@every_array
def test_functions(array, words, follow):
    with pytest.raises(TypeError, match="expected "):
        ArrayDataset({"x": array})
    for function in (
        lambda a: gather(a, [0]),
        lambda a: pad([a]),
        lambda a: permute(a, "NC", "CN"),
    ):
        with pytest.raises(TypeError, match=re.escape(words)):
            function(array if array.ndim > 1 else array[None])


def written(samples):
    with tempfile.TemporaryDirectory() as folder:
        return np.array(write_array(f"{folder}/x.npy", samples))


READERS = {
    "to_numpy": lambda a: to_numpy([{"x": a}]),
    "to_numpy, later": lambda a: to_numpy([{"x": np.ones(a.shape, np.float32)}, {"x": a}]),
    "write_array": lambda a: written([a, a]),
    "write_array, of rows": written,
    "from_sequences": lambda a: RaggedArray.from_sequences([a]),
    "from_sequences, of rows": lambda a: RaggedArray.from_sequences(a),
}  # fmt: skip
MORE_ARRAYS = {
    name: (array, follow)
    for name, (array, _, follow) in ARRAYS.items()
    if name in ("masked", "unit", "class", "attribute", "boxes")
} | {"masked tensor": (without_warning(masked_tensor, torch.ones(3, 2), torch.eye(3, 2) > 0), lambda t: t.to_tensor(0))}  # fmt: skip


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize(("array", "follow"), MORE_ARRAYS.values(), ids=MORE_ARRAYS)
@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
def test_functions_that_read_arrays(read, array, follow):
    read(follow(array))
    with pytest.raises(TypeError, match=r"a plain (NumPy array|tensor), got|without a mask"):
        read(array)


COLUMNS = {
    "masked": np.ma.masked_array(np.ones(3), mask=[0, 1, 0]),
    "unit": Quantity(np.ones(3), "m"),
    "attribute": with_unit(Length, "m", 3),
    "masked tensor": without_warning(masked_tensor, torch.ones(3), torch.arange(3) > 0),
    "coordinates": Labeled(),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
def test_arguments(column):
    for use in (
        lambda: WeightedSampler(column, batch_size=1),
        lambda: WeightedSampler.balanced(column, batch_size=1),
        lambda: LengthBucketSampler(column, batch_size=1),
        lambda: Image(mean=column),
        lambda: normalize(np.zeros((1, 4, 4, 3), np.uint8), std=column),
    ):
        with pytest.raises(TypeError, match=r"(weights|labels|lengths|mean|std): expected an? "):
            use()


@pytest.mark.parametrize(
    "item",
    [Quantity(1, "m"), Measured(), Labeled()],
    ids=["a quantity", "measured", "labeled"],
)
@pytest.mark.parametrize(
    "read",
    [
        lambda item: RaggedArray.from_sequences([[item, item]]),
        lambda item: written([[item], [item]]),
        lambda item: WeightedSampler([item, item], batch_size=1),
        lambda item: LengthBucketSampler((item, item), batch_size=1),
    ],
    ids=["from_sequences", "write_array", "WeightedSampler", "LengthBucketSampler"],
)
def test_numbers_in_lists(read, item):
    with pytest.raises(TypeError, match=r"\[0\]: expected .* got (Quantity|Measured|Labeled)"):
        read(item)


def test_arrays_with_coordinates():
    assert_same(RaggedArray.from_sequences([Labeled().to_numpy()])[0], np.ones(3))
    for read in (
        lambda a: RaggedArray.from_sequences([a]),
        lambda a: RaggedArray.from_strings(a),
        lambda a: written([a]),
        lambda a: written(a),
    ):
        with pytest.raises(TypeError, match=r"got Labeled; \.to_numpy\(\) returns the values only"):
            read(Labeled())


NULLABLE = [pd.array([1, None, 3], dtype) for dtype in ("Int64", "Float64", "int64[pyarrow]")]


@pytest.mark.parametrize(
    ("column", "fill"),
    [
        (pa.array([1.0, None, 2.0]), "fill_null"),
        *((column, "fillna") for column in (*NULLABLE, pd.Series(NULLABLE[0]))),
    ],
    ids=["pyarrow", "Int64", "Float64", "pandas on pyarrow", "Series"],
)
def test_columns_with_nulls(column, fill):
    for read in (
        lambda column: RaggedArray.from_sequences([column]),
        lambda column: WeightedSampler(column, batch_size=1),
        lambda column: written([column]),
    ):
        with pytest.raises(TypeError, match=rf"got \w+; fill its 1 nulls with \.{fill}\(value\)$"):
            read(column)
        read(getattr(column, fill)(0))
    with pytest.raises(TypeError, match=rf"fill its 1 nulls with \.{fill}\(value\)$"):
        Collate()([column])


def test_padded_batches_and_their_lengths():
    lengths = np.array([1, 2, 0])
    for wrong in (
        np.ma.masked_array(lengths, mask=[0, 1, 0]),
        Quantity(lengths, "m"),
        [Measured()] * 3,
    ):
        with pytest.raises(
            TypeError, match=r"^(unpad|from_padded): lengths(\[0\])?: expected an? "
        ):
            unpad(VALUES, wrong)
    for padded in (Quantity(VALUES, "m"), with_unit(Length, "m")):
        with pytest.raises(TypeError, match=r"^unpad: padded: expected a plain"):
            unpad(padded, lengths)
    assert_same(unpad(VALUES, lengths)[0], np.ones(1, np.float32))


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
def test_unbinding():
    for batch in (VALUES.view(NamedArray), boxes("XYWH"), with_unit(Length, "m")):
        if isinstance(batch, np.ndarray):
            batch.unit = "m"
        with pytest.raises(TypeError, match="unbind: array: expected a plain"):
            unbind({"x": batch})
    assert [row["x"].unit for row in unbind({"x": Quantity(VALUES, "m")})] == ["m"] * 3
    masked = without_warning(masked_tensor, torch.ones(2, 2), torch.eye(2) > 0)
    assert [row.get_mask().tolist() for row in unbind(masked)] == torch.eye(2).bool().tolist()


def test_images():
    image = np.ones((4, 4, 3), np.uint8)
    for array in (image.view(NamedArray), np.ma.masked_array(image)):
        for use in (lambda a: normalize(a[None]), lambda a: Collate(Image())([a])):
            with pytest.raises(TypeError, match=r"a plain NumPy array|without a mask"):
                use(array)


@pytest.mark.parametrize(("thing", "words", "follow"), OBJECTS.values(), ids=OBJECTS)
@pytest.mark.parametrize("field", FIELDS[:3], ids=repr)
@pytest.mark.parametrize("position", [0, 1])
def test_objects_that_are_not_arrays(thing, words, follow, field, position):
    samples = [{"x": 1.5}] * position + [{"x": thing}]
    with pytest.raises(TypeError, match=rf"\['x'\] of sample {position}: .*{re.escape(words)}"):
        Collate({"x": field})(samples)
    if follow is not None:
        Collate({"x": field})([{"x": follow(thing)}])


@pytest.mark.parametrize("field", [Stack(), Stack().allow_missing()], ids=repr)
@pytest.mark.parametrize("thing", [MASKED, Quantity(VALUES, "m"), boxes("XYXY"), ArrayLike()])
def test_parts_of_a_list_under_a_stack(field, thing):
    with pytest.raises(TypeError, match=r"\['x'\] of sample 1: expected "):
        Collate({"x": field})([{"x": [1, VALUES]}, {"x": [1, thing]}])


@pytest.mark.parametrize("size", [(3,), (200, 500)], ids=["small", "large"])
@pytest.mark.parametrize("first", [np.ones, torch.ones])
def test_one_among_plain_samples_of_any_size(first, size):
    plain = first(size)
    for other in (
        np.ma.masked_array(np.ones(size), True),
        np.ones(size).view(NamedArray),
        quantized(size),
        with_unit(Length, "m", size),
    ):
        with pytest.raises(TypeError, match=r"^Collate: sample 2: "):
            Collate()([plain, plain, other])


def test_attributes_that_a_batch_keeps():
    samples = [with_unit(Kept, "m"), with_unit(Kept, "m")]
    assert Collate()(samples).unit == "m"
    with pytest.raises(TypeError, match=r"sample 1: .* got Kept with unit"):
        Collate()([with_unit(Kept, "m"), with_unit(Kept, "km")])


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
def test_a_class_that_stacks_its_own_attributes():
    mask = torch.tensor([True, False])
    batch = Collate()([masked_tensor(torch.ones(2), mask), masked_tensor(torch.ones(2), ~mask)])
    assert batch.get_mask().tolist() == [[True, False], [False, True]]


def test_numbers_of_other_classes():
    class Level(enum.IntEnum):
        LOW = 1
        HIGH = 2

    assert_same(Collate()([Level.LOW, Level.HIGH]), torch.tensor([1, 2]))
    meters = Meters(2)
    assert_same(Collate()([meters, 1.0]), torch.tensor([2.0, 1.0]).double())
    meters.unit = "m"
    for samples in ([meters], [1.5, meters], [1, meters]):
        with pytest.raises(TypeError, match=rf"sample {len(samples) - 1}: .*, got Meters"):
            Collate()(samples)


PLAIN = {
    "matrix": without_warning(np.matrix, np.ones((2, 2))),
    "record array of numbers": np.ones(3).view(np.recarray),
    "tensor class": torch.ones(3).as_subclass(MarkedTensor),
    "parameter": torch.nn.Parameter(torch.ones(3)),
    "image": tv_tensors.Image(torch.ones(3, 4, 4)),
    "mask": tv_tensors.Mask(torch.ones(1, 4, 4)),
}


@pytest.mark.parametrize("sample", PLAIN.values(), ids=PLAIN)
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_types_without_extra_meaning(sample):
    values = np.asarray(sample) if isinstance(sample, np.ndarray) else sample.detach().numpy()
    batch = Collate()([sample, sample])
    np.testing.assert_array_equal(batch.detach().numpy(), np.stack([values, values]))


def test_a_memory_mapped_array(tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert_same(Collate()([mapped, mapped]), torch.ones(2, 3, 2))


@pytest.mark.parametrize("make", [pa.array, lambda values: pa.chunked_array([values])])
@pytest.mark.parametrize("values", [[1, None], [True, None]], ids=repr)
@pytest.mark.parametrize("field", [Pad(), Stack(), None], ids=repr)
def test_hints_for_columns_of_pyarrow(field, values, make):
    collate, column = Collate({"x": field}), make(values)
    with pytest.raises(TypeError, match=r"fill its 1 nulls with \.fill_null\(value\)$"):
        collate([{"x": column}])
    filled = column.fill_null(values[0])
    with pytest.raises(
        TypeError, match=r"got \w+Array; np\.asarray\(\.\.\.\) returns the values only"
    ):
        collate([{"x": filled}])
    result = collate([{"x": np.asarray(filled)}])["x"]
    assert result.tolist() == [[values[0]] * 2]


@pytest.mark.parametrize("field", [Pad(), Jagged(), Stack(), Image(), None], ids=repr)
def test_fixes_for_objects_with_any_field(field):
    for values, words in (
        (pd.Series([1.0, 2.0]), ".to_numpy()"),
        (numbers("f", [1]), "np.asarray"),
    ):
        with pytest.raises(TypeError, match=re.escape(words)):
            Collate({"x": field})([{"x": values}] * 2)
