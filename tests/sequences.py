"""Samples of different sizes for tests of padding, and their keywords."""

from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st

import pinfeed
import reference
from arrays import NUMPY_DTYPES, as_kind, assert_same_bits, views

KINDS = ["ndarray", "read-only", "tensor", "list"]
LIST_DTYPES = ["?", "i8", "f4"]  # dtypes of lists of bools, integers and floats
SCALED = (torch.float32, torch.float16, torch.bfloat16)  # dtypes that integers are scaled to
# Numbers that every dtype but bool can hold.
SMALL = {
    "?": st.booleans(),
    "i8": st.integers(0, 100),
    "f4": st.integers(0, 100).map(lambda n: n / 4),
}


class Batch(NamedTuple):
    """Arguments of `pinfeed.functional.pad`, and the expected result."""

    samples: list[Any]
    keywords: dict[str, Any]
    arrays: list[np.ndarray]  # the samples, in the dtype of the result
    dtype: Any  # of the result, as a torch dtype
    is_tensor: bool

    def expected(self, min_sizes=()):
        """Returns values, lengths and mask."""
        names = {"lengths", "mask", "dtype", "scale"}
        keywords = {k: v for k, v in self.keywords.items() if k not in names and v is not None}
        return reference.pad(self.arrays, min_sizes=min_sizes, **keywords)


def torch_dtype(dtype):
    """Returns torch's equivalent of a NumPy dtype."""
    return getattr(torch, np.dtype(dtype).name)


def cast(array, dtype):
    """Returns the array cast by torch to one of its dtypes; bfloat16 as float32."""
    tensor = torch.from_numpy(array.copy()).to(dtype)
    return (tensor.float() if dtype == torch.bfloat16 else tensor).numpy()


def padding_values(dtype):
    """Draws numbers that a torch dtype represents exactly."""
    if dtype == torch.bool:
        return st.booleans()
    if dtype == torch.bfloat16:
        return st.sampled_from([0, -100, 0.5, float("inf"), float("nan")])
    if dtype.is_floating_point or dtype.is_complex:
        width = 8 * dtype.itemsize
        numbers = st.complex_numbers if dtype.is_complex else st.floats
        some = numbers(width=width, allow_nan=False)
        return st.one_of(some, st.integers(-100, 100), st.sampled_from([0, float("nan")]))
    limits = torch.iinfo(dtype)
    return st.one_of(st.integers(limits.min, limits.max), st.sampled_from([0, 1, 2.0]))


@st.composite
def shapes(draw, rank, varying):
    """Draws shapes of the samples of a batch, which differ along those axes only."""
    max_size = {1: 70, 2: 20}.get(rank, 6)
    size = st.one_of(st.integers(0, 3), st.integers(1, max_size))
    common = [draw(size) for _ in range(rank)]
    return [
        tuple(draw(size) if axis in varying else common[axis] for axis in range(rank))
        for _ in range(draw(st.integers(1, 5)))
    ]


def multiples(axes):
    """Draws multiples of sizes: one number for all axes, or one per axis."""
    number = st.sampled_from([1, 2, 3, 8])
    count = len(axes) if isinstance(axes, tuple) else 1
    return st.one_of(st.none(), number, st.tuples(*[number] * count))


@st.composite
def shaping(draw, rank):
    """Draws the axes that differ between samples, and the keywords about axes."""
    varying = sorted(draw(st.sets(st.integers(0, rank - 1), min_size=1)))
    named = tuple(axis - rank * draw(st.booleans()) for axis in varying)
    choices = [named, *(named if len(named) == 1 else ())]
    if draw(st.integers(0, 3)) == 0:
        choices, varying = [None], varying if draw(st.booleans()) else [0]
    axes = draw(st.sampled_from(choices))
    keywords = {
        "axes": axes,
        "side": draw(st.sampled_from(["right", "left"])),
        "max_length": draw(st.one_of(st.none(), st.integers(1, 9))),
        "multiple_of": draw(multiples(axes)),
        "lengths": draw(st.booleans()),
        # A mask of axis 0 can't describe other axes.
        "mask": (axes is not None or varying == [0]) and draw(st.booleans()),
    }
    return varying, {k: v for k, v in keywords.items() if v is not None or draw(st.booleans())}


@st.composite
def samples_of(draw, shape, kind, dtype, fits_all, target=None):
    """Draws a sample whose integers fit ``target``, and its ndarray."""
    if kind == "list":
        numbers = draw(st.lists(SMALL[dtype], min_size=shape[0], max_size=shape[0]))
        if dtype == "i8" and not fits_all and numbers and draw(st.booleans()):
            numbers[0] = draw(st.integers(-(2**63), 2**63 - 1))
        return draw(st.sampled_from([list, tuple]))(numbers), np.array(numbers, dtype)
    array = draw(views(shape, dtype, mirrored=kind != "tensor", target=target))
    return as_kind(kind, array), array


@st.composite
def batches(draw, kinds=KINDS):
    """Draws samples of any rank, dtype, strides and type, with any keywords: a `Batch`."""
    rank = draw(st.integers(1, 4))
    varying, keywords = draw(shaping(rank))
    all_shapes = draw(shapes(rank, varying))
    allowed = kinds if rank == 1 else [kind for kind in kinds if kind != "list"]
    some = draw(st.lists(st.sampled_from(allowed), min_size=1, max_size=len(allowed), unique=True))
    dtypes = LIST_DTYPES if "list" in some else NUMPY_DTYPES
    dtype = draw(st.sampled_from(dtypes))
    target = torch_dtype(dtype)
    is_cast = draw(st.booleans())
    first = draw(st.sampled_from(some))
    if is_cast:
        every = {torch_dtype(name) for name in NUMPY_DTYPES}
        if first in ("tensor", "list"):
            every.add(torch.bfloat16)
        castable = [to for to in every if torch.can_cast(target, to)]
        target = draw(st.sampled_from(sorted(castable, key=str)))
        named = draw(st.booleans()) or target == torch.bfloat16
        keywords["dtype"] = target if named else str(target).removeprefix("torch.")
        if np.dtype(dtype).kind in "iu" and target in SCALED and draw(st.booleans()):
            keywords["scale"] = draw(st.sampled_from([2**-15, 0.1, -3]))
            if target == torch.float32 and draw(st.booleans()):
                del keywords["dtype"]
    samples, arrays = [], []
    for position, shape in enumerate(all_shapes):
        kind = first if position == 0 else draw(st.sampled_from(some))
        if kind == "list" and shape == (0,) and "dtype" not in keywords and position == 0:
            shape = (1,)  # at least one sample determines the dtype
        sample, array = draw(samples_of(shape, kind, dtype, is_cast, target))
        samples.append(sample)
        if "scale" in keywords:
            array = array.astype(np.float32) * np.float32(keywords["scale"])
        arrays.append(cast(array, target) if is_cast else array)
    keywords["pad_value"] = draw(padding_values(target))
    return Batch(samples, keywords, arrays, target, first in ("tensor", "list"))


def assert_same_padded(result, batch, min_sizes=()):
    """Compares the requested outputs: types, and every bit."""
    keywords = batch.keywords
    values, lengths, mask = batch.expected(min_sizes)
    outputs = {"lengths": lengths, "mask": mask}
    if not any(keywords[name] for name in outputs):
        assert_same_part(result, values, batch)
        return
    assert isinstance(result, pinfeed.Padded)
    assert_same_part(result.values, values, batch)
    for name, expected in outputs.items():
        actual = getattr(result, name)
        if keywords[name]:
            assert type(actual) is (torch.Tensor if batch.is_tensor else np.ndarray)
            assert np.asarray(actual).dtype == expected.dtype
            np.testing.assert_array_equal(actual, expected)
        else:
            assert actual is None


def assert_same_part(actual, expected, batch):
    """Compares values: all bits, or equal numbers after a cast."""
    assert type(actual) is (torch.Tensor if batch.is_tensor else np.ndarray)
    if batch.dtype == torch.bfloat16:
        assert actual.dtype == torch.bfloat16
        actual = actual.float()
    assert np.asarray(actual).dtype == expected.dtype
    assert np.asarray(actual).flags.c_contiguous
    if "dtype" not in batch.keywords:
        assert_same_bits(actual, expected)
        return
    assert tuple(actual.shape) == expected.shape
    np.testing.assert_array_equal(actual, expected)  # NaNs with any payload are equal
