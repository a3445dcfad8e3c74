"""Collate without fields equals torch's default_collate, in types and bits."""

import collections
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import default_collate

import pinfeed
from arrays import NUMPY_DTYPES, TORCH_DTYPES, random_array
from samples import Bag, Couple, MarkedTensor, Point, TupleOfTwo, assert_same, random_tensor, tagged

collate = pinfeed.Collate()

SCALAR_DTYPES = [name for name in NUMPY_DTYPES if name != "u8"]  # torch lacks np.uint64
# (64, 400) makes batches large enough for the native path of tensors.
SHAPES = [(), (0,), (1,), (5,), (3, 4), (2, 0, 3), (2, 3, 4), (64, 400)]


def laid_out(array, layout):
    """Returns an equal array with another memory layout."""
    if array.ndim == 0 or layout == "C":
        return array
    if layout == "Fortran":
        return np.asfortranarray(array)
    return np.repeat(array, 2, axis=-1)[..., ::2]


@dataclasses.dataclass(frozen=True)
class Entry:
    """An entry of samples; ``make`` creates its value for each sample."""

    kind: str
    dtype: Any = None
    shape: tuple[int, ...] = ()
    layout: str = "C"

    def make(self, rng):
        if self.kind == "array":
            return laid_out(random_array(self.shape, self.dtype, rng), self.layout)
        if self.kind == "scalar":
            return np.dtype(self.dtype).type(rng.integers(0, 100))
        if self.kind in ("tensor", "parameter", "subclass"):
            return self.make_tensor(rng)
        number = int(rng.integers(-(2**40), 2**40))
        return {
            "int": number,
            "float": number / 7,
            "bool": number % 2 == 0,
            "str": str(number),
            "bytes": str(number).encode(),
        }[self.kind]

    def make_tensor(self, rng):
        tensor = random_tensor(rng, self.dtype, self.shape)
        if self.layout != "C":
            tensor = tensor.mT.contiguous().mT if tensor.ndim > 1 else tensor
        if self.kind == "subclass":
            return tensor.as_subclass(MarkedTensor)
        return tensor.requires_grad_() if self.kind == "parameter" else tensor


CONTAINERS = {
    "tuple": lambda x, y: (x, y),
    "list": lambda x, y: [x, y],
    "dict": lambda x, y: {"x": x, 5: y},
    "OrderedDict": lambda x, y: collections.OrderedDict(x=x, y=y),
    "NamedTuple": Point,
    "Mapping": lambda x, y: Bag({"x": x, "y": y}),
    "Sequence": lambda x, y: Couple([x, y]),
    "dict with more": tagged,
    "tuple subclass": lambda x, y: TupleOfTwo((x, y)),
    "empty": lambda *_: {"x": [], "y": {}, "z": ()},
}


def make(schema, rng):
    if isinstance(schema, Entry):
        return schema.make(rng)
    container, children = schema
    return CONTAINERS[container](*[make(child, rng) for child in children])


layouts = st.sampled_from(["C", "Fortran", "strided"])
shapes = st.sampled_from(SHAPES)
entries = st.one_of(
    st.builds(Entry, st.just("array"), st.sampled_from(NUMPY_DTYPES), shapes, layouts),
    st.builds(Entry, st.just("scalar"), st.sampled_from(SCALAR_DTYPES)),
    st.builds(Entry, st.sampled_from(["int", "float", "bool", "str", "bytes"])),
    st.builds(
        Entry,
        st.sampled_from(["tensor", "subclass"]),
        st.sampled_from(TORCH_DTYPES),
        shapes,
        layouts,
    ),
    st.builds(Entry, st.just("parameter"), st.sampled_from([torch.float16, torch.float64]), shapes),
)
schemas = st.recursive(
    entries,
    lambda child: st.tuples(st.sampled_from(sorted(CONTAINERS)), st.tuples(child, child)),
    max_leaves=6,
)


@given(schema=schemas, count=st.integers(1, 5), seed=st.integers(0, 99))
def test_nested_samples(schema, count, seed):
    rng = np.random.default_rng(seed)
    samples = [make(schema, rng) for _ in range(count)]
    assert_same(collate(samples), default_collate(samples))


DENSE = [
    *(Entry("array", dtype) for dtype in NUMPY_DTYPES),
    *(Entry("tensor", dtype) for dtype in (*TORCH_DTYPES, torch.float8_e4m3fn)),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("entry", DENSE, ids=lambda entry: f"{entry.kind} {entry.dtype}")
def test_every_dtype(entry, shape):
    rng = np.random.default_rng(0)
    samples = [dataclasses.replace(entry, shape=shape).make(rng) for _ in range(3)]
    assert_same(collate(samples), default_collate(samples))


@pytest.mark.parametrize("dtype", [*SCALAR_DTYPES, "g"])
def test_numpy_scalars(dtype):
    assert_agrees([np.dtype(dtype).type(i) for i in range(4)])


def test_unsigned_scalars_of_64_bits():
    """default_collate rejects them, but accepts arrays of them."""
    assert_same(
        collate([np.uint64(1), np.uint64(2**64 - 1)]),
        torch.tensor([1, 2**64 - 1], dtype=torch.uint64),
    )


def assert_agrees(samples):
    """Asserts that the batch equals default_collate's, or that both raise."""
    try:
        expected = default_collate(samples)
    except Exception as error:
        with pytest.raises((type(error), ValueError)):
            collate(samples)
    else:
        assert_same(collate(samples), expected)


SMALL, LARGE = (3,), (200, 500)


UNUSUAL = {
    "two precisions": lambda s: [torch.ones(s), torch.ones(s, dtype=torch.float64)],
    "integers and floats": lambda s: [torch.ones(s, dtype=torch.int32), torch.ones(s)],
    "complex": lambda s: [torch.ones(s, dtype=torch.complex64).conj() * 1j] * 2,
    "lazily conjugated": lambda s: [torch.full(s, 1 + 2j).conj()] * 2,
    "lazily negated": lambda s: [torch.full(s, 1 + 2j).conj().imag] * 2,
    "the second requires grad": lambda s: [torch.ones(s), torch.ones(s, requires_grad=True)],
    "the second is a subclass": lambda s: [torch.ones(s), torch.ones(s).as_subclass(MarkedTensor)],
    "the first is a subclass": lambda s: [torch.ones(s).as_subclass(MarkedTensor), torch.ones(s)],
    "parameters": lambda s: [torch.nn.Parameter(torch.ones(s))] * 2,
    "meta": lambda s: [torch.ones(s, device="meta")] * 2,
    "expanded": lambda s: [torch.ones(1).expand(s)] * 2,
    "a tensor, then an array": lambda s: [torch.ones(s), np.ones(s)],
}


@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("build", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_tensors_whatever_their_size(build, shape):
    samples = build(shape)
    if samples[0].is_meta:
        assert collate(samples).shape == default_collate(samples).shape
    else:
        assert_agrees(samples)


def test_gradients_flow():
    samples = [torch.full((200, 200), float(i), requires_grad=True) for i in range(3)]
    collate(samples).sum().backward()
    for sample in samples:
        assert torch.equal(sample.grad, torch.ones(200, 200))


@pytest.mark.parametrize(
    "samples",
    [
        [range(3), range(3, 6)],
        [[], []],
        [{}, {}],
        ["a", "b"],
        [b"a", b"b"],
        [("a", 1), ("b", 2)],
        [["a", b"x"], ["b", b"y"]],
        [Point("a", 1), Point("b", 2)],
        [Couple(["a", 1]), Couple(["b", 2])],
        [TupleOfTwo((1, 2)), TupleOfTwo((3, 4))],
        [{"name": "a"}, {"name": "b"}],
        [(1, 2.5), (2.5, 1)],
        [True, 2],
        [1, 2.0],
        [np.float64(1), 2.0],
        [np.ones((2, 2), np.float32).view(np.matrix), np.ones((2, 2), np.float32)],
        [(1, 2), [3, 4]],
        [Point(1, 2), (3, 4)],
        [collections.OrderedDict(x=1), {"x": 2}],
        [{"x": 1, "y": 2}, {"y": 4, "x": 3}],
        [collections.UserDict(x=1), collections.UserDict(x=2)],
        [collections.UserList([1, "a"]), collections.UserList([2, "b"])],
        [collections.defaultdict(list, x=1), collections.defaultdict(list, x=2)],
        [collections.deque([1, 2]), collections.deque([3, 4])],
    ],
    ids=repr,
)
def test_particular_samples(samples):
    assert_agrees(samples)


@pytest.mark.parametrize("sample", [None, object(), {1, 2}, 1j, np.array(["a"]), np.array([None])])
@pytest.mark.parametrize("nest", [lambda x: x, lambda x: {"a": [0, x]}])
def test_samples_that_torch_rejects(sample, nest):
    samples = [nest(sample)] * 2
    with pytest.raises(TypeError):
        default_collate(samples)
    with pytest.raises(TypeError, match=r"Collate: (entry \['a'\]\[1\])?"):
        collate(samples)


def test_a_mapping_that_only_its_class_can_build():
    class Fussy(dict):
        def __init__(self, *, size):
            super().__init__(size=size)

        def __setitem__(self, *_):
            raise TypeError("not like this")

    assert_same(collate([Fussy(size=1), Fussy(size=2)]), {"size": torch.tensor([1, 2])})


@pytest.mark.parametrize("number", [2**63, 2**70, -(2**70)])
def test_integers_of_more_than_64_bits(number):
    message = rf"entry \['a'\] of sample 1: expected 64-bit integers, got {number}"
    with pytest.raises(ValueError, match=message):
        pinfeed.Collate()([{"a": 2**63 - 1}, {"a": number}])


@pytest.mark.parametrize("first", [1, 2.5, np.int16(3), True, torch.tensor(4)], ids=repr)
@pytest.mark.parametrize("other", [{"x": 1}, [1, 2], ({"x": 1},)], ids=repr)
def test_a_container_among_numbers(first, other):
    kind = type(other).__name__
    with pytest.raises(
        TypeError, match=rf"of sample 2: expected {type(first).__name__} as in sample 0, got {kind}"
    ):
        pinfeed.Collate()([{"a": first}, {"a": first}, {"a": other}])
