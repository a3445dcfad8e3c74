"""pinfeed.pad and Pad against their definition: any rank, dtype, strides, samples and keywords."""

import collections
import itertools
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
import reference
from arrays import assert_same_bits, random_array, unwritten
from pinfeed import Collate, Jagged, Pad
from samples import Bag, Point, Record, TaggedDict, assert_same
from sequences import assert_same_padded, batches

pytestmark = pytest.mark.kernels

TOKENS = [np.array([1, 2, 3]), np.array([4])]


@given(batches())
def test_every_keyword(isa, batch):
    assert_same_padded(pinfeed.pad(batch.samples, **batch.keywords), batch)


@given(batches(), st.data())
def test_out_gets_what_a_new_array_would_and_padding_beyond(batch, data):
    shape = list(batch.expected()[0].shape)
    axes = batch.keywords.get("axes")
    chosen = axes if isinstance(axes, tuple) else [0 if axes is None else axes]
    room = []
    for axis in chosen:
        axis %= len(shape) - 1
        position = 0 if axis == 0 and batch.keywords.get("time_major") else axis + 1
        shape[position] += data.draw(st.sampled_from([0, 0, 1, 20]))
        room.append(shape[position])
    kind = "tensor" if batch.dtype == torch.bfloat16 else data.draw(st.sampled_from(["", "tensor"]))
    out = unwritten(kind, shape, str(batch.dtype).removeprefix("torch."))
    result = pinfeed.pad(batch.samples, **batch.keywords, out=out)
    values = result if not isinstance(result, tuple) else result.values
    assert values is out
    assert_same_padded(result, batch._replace(is_tensor=kind == "tensor"), room)


# What the definition doesn't say, since it knows ndarrays only.


@pytest.mark.parametrize("convert", [list, tuple, np.array, torch.tensor])
def test_the_first_sample_says_what_the_result_is(convert):
    samples = [convert([1, 2]), np.array([3]), torch.tensor([4]), [5]]
    result = pinfeed.pad(samples, mask=True)
    kind = np.ndarray if convert is np.array else torch.Tensor
    assert [type(part) for part in result] == [kind] * 3
    np.testing.assert_array_equal(result.values, [[1, 2], [3, 0], [4, 0], [5, 0]])


class Samples(list):
    """A list that is more."""


@pytest.mark.parametrize("container", [list, tuple, Samples, pinfeed.ArrayDataset])
def test_any_sequence_of_samples(container):
    if container is pinfeed.ArrayDataset:
        ragged = pinfeed.RaggedArray.from_sequences(TOKENS)
        samples = container(ragged).__getitems__([0, 1])
    else:
        samples = container(TOKENS)
    values, lengths, _ = pinfeed.pad(samples, value=-1)
    np.testing.assert_array_equal(values, [[1, 2, 3], [4, -1, -1]])
    np.testing.assert_array_equal(lengths, [3, 1])


def joined(as_tensor, offsets_dtype):
    """Values and offsets with a gap in front and one behind, and the samples as a list."""
    values = random_array((40, 3), np.int16)
    offsets = np.array([2, 9, 9, 30, 38], offsets_dtype)
    samples = [values[start:end] for start, end in itertools.pairwise(offsets)]
    if as_tensor:
        values, offsets = torch.from_numpy(values), torch.from_numpy(offsets)
    return values, offsets, samples


@pytest.mark.parametrize("keywords", [{}, {"side": "left", "max_length": 5, "multiple_of": 4}])
@pytest.mark.parametrize("offsets_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_samples_in_one_array(as_tensor, offsets_dtype, keywords):
    values, offsets, samples = joined(as_tensor, offsets_dtype)
    expected = reference.pad(samples, 7, **keywords)
    for kind in (pinfeed.JaggedBatch, pinfeed.RaggedArray):
        result = pinfeed.pad(kind(values, offsets), 7, mask=True, **keywords)
        for got, part in zip(result, expected, strict=True):
            assert type(got) is type(values)
            assert_same_bits(got, part)


def test_a_part_of_a_ragged_array():
    values, offsets, samples = joined(False, np.int64)
    ragged = pinfeed.RaggedArray(values, offsets)
    np.testing.assert_array_equal(
        pinfeed.pad(ragged[1:3], lengths=False), reference.pad(samples[1:3], 0)[0]
    )
    # Values in any order of memory.
    fortran = pinfeed.RaggedArray(np.asfortranarray(values), offsets)
    np.testing.assert_array_equal(pinfeed.pad(fortran, lengths=False), reference.pad(samples, 0)[0])


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
def test_rows_of_an_array(convert):
    array = random_array((5, 7, 3), np.float32)
    result = pinfeed.pad(convert(array), multiple_of=4, side="left")
    assert type(result.values) is type(convert(array))
    values, lengths, _ = reference.pad(list(array), 0, "left", multiple_of=4)
    assert_same_bits(result.values, values)
    assert_same_bits(result.lengths, lengths)


def test_memory_that_is_not_aligned_to_its_items():
    memory = random_array((1 + 8 * 21,))
    sample = np.ndarray((7, 3), np.float64, memory, offset=1)
    room = np.full(1 + 8 * 2 * 8 * 3, 0xA5, np.uint8)
    out = np.ndarray((2, 8, 3), np.float64, room, offset=1)
    pinfeed.pad([sample, sample[::-2]], 1.5, multiple_of=8, out=out)
    assert_same_bits(out, reference.pad([sample, sample[::-2]], 1.5, multiple_of=8)[0])
    assert room[0] == 0xA5


def test_many_axes():
    shapes = [(2, 1, 1, 3, 1, 1, 1, 1, 2, 1, 1, 1), (1, 1, 2, 3, 1, 1, 1, 1, 1, 1, 1, 2)]
    samples = [random_array(shape, np.int16) for shape in shapes]
    for side in ("right", "left"):
        assert_same_bits(
            pinfeed.pad(samples, 5, side=side, lengths=False), reference.pad(samples, 5, side)[0]
        )


def test_out_counts_as_changed_for_autograd():
    out = torch.zeros(2, 3)
    weight = torch.ones(2, 3, requires_grad=True)
    loss = (weight * out).sum()
    pinfeed.pad([torch.ones(3), torch.ones(1)], out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# Batches that are cut into parts for threads, and those that are written around the cache.

# Shapes of samples that make more than 16 MiB, with odd sizes; keywords.
LARGE = {
    "tokens": ([(8191,), (0,), (100,), (8190,)] * 70, "i8", {"multiple_of": 3}),
    "tokens, left": ([(8191,), (0,), (100,), (8190,)] * 70, "i8", {"side": "left"}),
    "bytes": ([(1_000_003,), (999_999,)] * 9, "u1", {"side": "left"}),
    "audio": ([(1_600_001,), (1,)], "c16", {"max_length": 1_500_001}),
    "features": ([(1201, 33), (1153, 31), (7, 33)] * 40, "f4", {"axes": (0, 1)}),
    "images": ([(3, 301, 403), (3, 299, 401)] * 9, "f4", {"axes": (1, 2), "side": "left"}),
    "time-major": ([(4093,), (511,), (0,)] * 180, "i8", {"time_major": True}),
    "time-major features": ([(61, 67), (59, 64)] * 600, "f4", {"axes": (0, 1), "time_major": True}),
}


@pytest.mark.parametrize("large", LARGE)
def test_large_batches(large):
    shapes, dtype, keywords = LARGE[large]
    samples = [random_array(shape, dtype, seed) for seed, shape in enumerate(shapes)]
    values, lengths, mask = reference.pad(samples, 3, **keywords)
    assert values.nbytes > 16 << 20
    result = pinfeed.pad(samples, 3, mask=True, **keywords)
    assert_same_bits(result.values, values)
    assert_same_bits(result.lengths, lengths)
    assert_same_bits(result.mask, mask)


@pytest.mark.parametrize("offset", [0, 1, 3, 60])
def test_large_batches_in_memory_that_is_not_aligned_to_items(offset):
    samples = [random_array((size,), np.float64, size) for size in (700_001, 900_000, 3)]
    memory = np.zeros(100 + 8 * 3 * 900_000, np.uint8)
    out = np.ndarray((3, 900_000), np.float64, memory, offset)
    pinfeed.pad(samples, 1.1, out=out)
    assert_same_bits(out, reference.pad(samples, 1.1)[0])
    assert not memory[:offset].any()
    assert not memory[offset + out.nbytes :].any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("view", [np.s_[..., ::-1], np.s_[:, 1:, 1:], "transposed"], ids=str)
def test_large_batches_of_views(view, dtype):
    rng = np.random.default_rng(0)
    arrays = [rng.random((3, size, size + 2), np.float32) for size in (1101, 1003)]
    samples = [array.T if view == "transposed" else array[view] for array in arrays]
    values, _, _ = reference.pad([sample.astype(dtype) for sample in samples], 3)
    assert_same_bits(pinfeed.pad(samples, 3, dtype=dtype, lengths=False), values)


@pytest.mark.parametrize("rest", [(), (5,)])
@pytest.mark.parametrize("time_major", [False, True])
def test_any_number_of_threads(num_threads, time_major, rest):
    rng = np.random.default_rng(0)
    samples = [random_array((length, *rest), np.int32) for length in rng.integers(0, 9000, 60)]
    expected = reference.pad(samples, -1, time_major=time_major)
    result = pinfeed.pad(samples, -1, mask=True, time_major=time_major)
    for got, part in zip(result, expected, strict=True):
        assert_same_bits(got, part)


# Pad in the specs of Collate.


SAMPLES = [[5, 6, 7], [8]]
VALUES, LENGTHS = torch.tensor([[5, 6, 7], [8, 0, 0]]), torch.tensor([3, 1])
MASK = torch.tensor([[True, True, True], [True, False, False]])


@given(batches())
def test_a_field_means_what_the_function_means(batch):
    result = Collate(Pad(**batch.keywords))(batch.samples)
    assert_same_padded(result, batch._replace(is_tensor=True))


# A leaf, with what stands in it.


@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: [x], lambda x: (x,), lambda x: Point(x, 1)]
)
def test_lengths_are_in_a_leaf_that_is_in_no_dict(wrap):
    spec = wrap(Pad())
    spec = spec._replace(y=None) if isinstance(spec, Point) else spec
    batch = Collate(spec)([wrap(sample) for sample in SAMPLES])
    leaf = batch if isinstance(batch, pinfeed.Padded) else batch[0]
    assert_same(leaf, pinfeed.Padded(VALUES, LENGTHS))


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, TaggedDict, Bag])
def test_in_a_dict_a_leaf_is_a_tensor(kind):
    batch = Collate(kind({"x": Pad()}))([kind({"x": sample, "y": 1}) for sample in SAMPLES])
    assert type(batch) is kind
    assert_same(batch["x"], VALUES)


@pytest.mark.parametrize(
    ("keywords", "leaf"),
    [
        ({}, VALUES),
        ({"lengths": None}, VALUES),
        ({"lengths": False}, VALUES),
        ({"lengths": True}, pinfeed.Padded(VALUES, LENGTHS)),
        ({"mask": True}, pinfeed.Padded(VALUES, mask=MASK)),
        ({"mask": True, "lengths": True}, pinfeed.Padded(VALUES, LENGTHS, MASK)),
    ],
)
def test_what_a_leaf_of_a_dict_can_be_asked_for(keywords, leaf):
    batch = Collate({"x": Pad(**keywords)})([{"x": sample} for sample in SAMPLES])
    assert_same(batch, {"x": leaf})


def test_one_field_in_several_places():
    field = Pad()
    collate = Collate({"a": field, "b": (field, Record(field, {"c": field}))})
    batch = collate([{"a": s, "b": (s, Record(s, {"c": s}))} for s in SAMPLES])
    padded = pinfeed.Padded(VALUES, LENGTHS)
    assert_same(batch, {"a": VALUES, "b": [padded, Record(padded, {"c": VALUES})]})
    assert_same(Collate(field)(SAMPLES), padded)


# Keys beside a leaf.


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, TaggedDict, Bag])
def test_lengths_and_mask_beside_a_leaf(kind):
    spec = {"a": kind({"x": Pad(lengths="n", mask="where"), "y": Pad(lengths="m", mask=True)})}
    batch = Collate(spec)([{"a": kind({"x": s, "y": s, "z": 1})} for s in SAMPLES])["a"]
    assert type(batch) is kind
    assert set(batch) == {"x", "n", "where", "y", "m", "z"}
    assert_same([batch[key] for key in ("x", "n", "where")], [VALUES, LENGTHS, MASK])
    assert_same([batch[key] for key in ("y", "m")], [pinfeed.Padded(VALUES, mask=MASK), LENGTHS])


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.uint8, torch.bool])
@pytest.mark.parametrize("time_major", [False, True])
def test_dtypes_of_masks(dtype, time_major):
    field = Pad(mask="mask", mask_dtype=dtype, lengths=False, time_major=time_major)
    expected = (MASK.T if time_major else MASK).to(dtype)
    assert_same(Collate({"x": field})([{"x": sample} for sample in SAMPLES])["mask"], expected)
    jagged = Collate(Jagged())(SAMPLES)
    assert_same(field.apply(jagged, jagged, pinfeed.Leaf("leaf")).siblings["mask"], expected)
    assert f"mask_dtype={dtype}" in repr(field)


def test_keys_stand_after_their_leaf():
    batch = Collate({"x": Pad(lengths="n", mask="m")})([{"w": 1, "x": [1], "y": 2}])
    assert list(batch) == ["w", "x", "n", "m", "y"]


@pytest.mark.parametrize(
    "spec",
    [
        {"x": Pad(mask="y"), "y": None},
        {"x": Pad(mask="x")},
        {"x": Pad(mask="m", lengths="m")},
        {"x": Pad(mask="m"), "y": Pad(mask="m")},
        {"x": Pad(mask="m"), "y": Pad(lengths="m")},
        {"a": {"x": Pad(mask="m"), "m": Pad()}},
    ],
    ids=str,
)
def test_two_leaves_for_a_key(spec):
    with pytest.raises(
        ValueError, match=r"spec.* has two leaves for the key '[xym]'; choose another"
    ):
        Collate(spec)


@pytest.mark.parametrize(
    "spec", [Pad(mask="m"), (Pad(lengths="n"),), Point(Pad(mask="m"), None), {"a": [Pad(mask="m")]}]
)
def test_a_key_needs_a_dict(spec):
    with pytest.raises(ValueError, match=r"spec.* names keys \['[mn]'\], but is in no dict"):
        Collate(spec)


def test_a_key_that_samples_have():
    collate = Collate({"x": Pad(mask="y")})
    message = r"leaf \['x'\] goes with a 'y', but samples have a leaf under that key"
    with pytest.raises(ValueError, match=message):
        collate([{"x": [1], "y": 2}])
    rows = pinfeed.ArrayDataset({"x": np.ones((3, 2)), "y": np.ones(3)}).__getitems__([0])
    with pytest.raises(ValueError, match=message):
        collate(rows)
    # Elsewhere the key is free.
    assert list(Collate({"a": {"x": Pad(mask="y")}})([{"a": {"x": [1]}, "y": 2}])["a"]) == [
        "x",
        "y",
    ]


@pytest.mark.parametrize("keyword", ["lengths", "mask"])
@pytest.mark.parametrize("request_", ["", 1, b"m", ("m",)])
def test_requests_that_are_none(keyword, request_):
    with pytest.raises(TypeError, match=f"Pad: {keyword} must be True, False or the key of a dict"):
        Pad(**{keyword: request_})


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"side": "top"}, ValueError),
        ({"max_length": 0}, ValueError),
        ({"multiple_of": -8}, ValueError),
        ({"multiple_of": 8.0}, TypeError),
        ({"axes": ()}, TypeError),
        ({"value": "0"}, TypeError),
        ({"value": 256, "dtype": np.uint8}, ValueError),
        ({"mask_dtype": "int64", "mask": True}, TypeError),
        ({"mask_dtype": torch.int64}, ValueError),
    ],
)
def test_keywords_are_checked_early(keywords, error):
    with pytest.raises(error, match=rf"^Pad: {next(iter(keywords))}"):
        Pad(**keywords)


def test_messages_name_leaf_and_sample():
    collate = Collate({"a": [Pad()]})
    for bad, error in [([[1]], TypeError), (np.ones(1), TypeError), (np.ones((1, 1)), ValueError)]:
        with pytest.raises(error, match=r"^Collate: leaf \['a'\]\[0\] of sample 1: expected"):
            collate([{"a": [[1]]}, {"a": [bad]}])


# Rows of datasets, which are read where they lie.


@given(st.data())
def test_rows_of_a_ragged_array(data):
    lengths = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=6))
    offsets = np.cumsum([data.draw(st.integers(0, 3)), *lengths])
    rest = data.draw(st.sampled_from([(), (3,), (2, 2)]))
    values = random_array((offsets[-1] + 2, *rest), data.draw(st.sampled_from(["i2", "f4", "c16"])))
    if data.draw(st.booleans()):
        values = values[::-1]
    source = pinfeed.RaggedArray(values, offsets.astype(data.draw(st.sampled_from(["i4", "i8"]))))
    order = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1))
    keywords = {
        "side": data.draw(st.sampled_from(["right", "left"])),
        "max_length": data.draw(st.sampled_from([None, 1, 5])),
        "multiple_of": data.draw(st.sampled_from([1, 4])),
        "time_major": data.draw(st.booleans()),
    }
    rows = pinfeed.ArrayDataset({"x": source}).__getitems__(order)
    batch = Collate({"x": Pad(3, lengths="n", mask="m", **keywords)})(rows)
    samples = [values[offsets[i] : offsets[i + 1]] for i in order]
    expected = reference.pad(samples, 3, **keywords)
    for key, part in zip(batch, expected, strict=True):
        assert_same_bits(batch[key], part)


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
def test_rows_of_arrays(convert):
    array = random_array((5, 7, 3), np.float32)
    dataset = pinfeed.ArrayDataset((convert(array), np.arange(5)))
    batch = Collate((Pad(multiple_of=4, mask=True), None))(dataset.__getitems__([3, 1, 1]))
    for part, expected in zip(
        [batch[0].values, batch[0].lengths, batch[0].mask],
        reference.pad(list(array[[3, 1, 1]]), 0, multiple_of=4),
        strict=True,
    ):
        assert_same_bits(part, expected)


def test_rows_of_single_values():
    rows = pinfeed.ArrayDataset(np.arange(3)).__getitems__([0, 1])
    with pytest.raises(ValueError, match="expected samples with at least one axis"):
        Collate(Pad())(rows)


def test_fields_pickle():
    field = Pad(1.5, side="left", axes=(0, 1), max_length=3, mask="m", dtype=np.float32)
    collate = Collate({"x": field})
    again = pickle.loads(pickle.dumps(collate))
    assert repr(again) == repr(collate)
    samples = [{"x": np.ones((2, 3))}, {"x": np.zeros((4, 3))}]
    assert_same(again(samples), collate(samples))
