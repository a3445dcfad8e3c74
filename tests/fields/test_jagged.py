"""Jagged and JaggedBatch: concatenated samples, and conversions."""

import functools
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
import reference
from arrays import NUMPY_DTYPES, as_kind, assert_same_bits, views
from messages import check
from sequences import KINDS, LIST_DTYPES, samples_of, torch_dtype

pytestmark = pytest.mark.kernels

JAGGED = pinfeed.Collate(pinfeed.Jagged())
BOXES = [np.ones((2, 4), np.float32), np.zeros((0, 4), np.float32), np.ones((3, 4), np.float32)]


@st.composite
def batches(draw):
    """Draws samples that differ along axis 0, and the same samples as ndarrays."""
    rest = draw(st.lists(st.integers(0, 5), max_size=2))
    allowed = KINDS if rest == [] else [kind for kind in KINDS if kind != "list"]
    some = draw(st.lists(st.sampled_from(allowed), min_size=1, unique=True))
    dtype = draw(st.sampled_from(LIST_DTYPES if "list" in some else NUMPY_DTYPES))
    pairs = []
    for position in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(some))
        length = draw(st.one_of(st.integers(0, 4), st.integers(1, 60)))
        if kind == "list" and position == 0:
            length = max(length, 1)  # the first sample determines the dtype
        pairs.append(draw(samples_of((length, *rest), kind, dtype, False)))
    return [list(column) for column in zip(*pairs, strict=True)]


def assert_same_batch(batch, expected):
    values, offsets = expected
    assert type(batch) is pinfeed.JaggedBatch
    assert type(batch.values) is type(batch.offsets) is torch.Tensor
    assert batch.offsets.dtype == torch.int64
    assert batch.offsets.tolist() == offsets.tolist()
    assert batch.lengths.tolist() == np.diff(offsets).tolist()
    assert batch.values.dtype == torch_dtype(values.dtype)
    assert_same_bits(batch.values, values)


@given(batches(), st.none() | st.integers(1, 30), st.sampled_from(["right", "left"]))
def test_any_samples(batch, max_length, side):
    samples, arrays = batch
    collate = pinfeed.Collate(pinfeed.Jagged(max_length=max_length, side=side))
    expected = reference.jagged(arrays, max_length, side)
    assert_same_batch(collate(samples), expected)
    if all(array.dtype == arrays[0].dtype for array in arrays):
        rows = pinfeed.ArrayDataset(pinfeed.RaggedArray.from_sequences(arrays))
        assert_same_batch(collate(rows.__getitems__(range(len(rows)))), expected)


@given(batches(), st.sampled_from(["right", "left"]), st.integers(1, 4))
def test_to_padded_and_back(batch, side, multiple):
    samples, arrays = batch
    jagged = JAGGED(samples)
    padded = jagged.to_padded(1, side=side, multiple_of=multiple, mask=True)
    expected = reference.pad(arrays, 1, side, multiple_of=multiple)
    for part, expected_part in zip(padded, expected, strict=True):
        assert_same_bits(part, expected_part)
    for back in (
        pinfeed.JaggedBatch.from_padded(padded, side=side),
        pinfeed.JaggedBatch.from_padded(padded.values, padded.lengths.tolist(), side=side),
    ):
        assert_same_batch(back, reference.jagged(arrays))


@given(st.data())
def test_from_padded_with_any_strides(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=4)))
    kind = data.draw(st.sampled_from(["ndarray", "read-only", "tensor"]))
    array = data.draw(views(shape, np.int16, mirrored=kind != "tensor"))
    lengths = data.draw(st.lists(st.integers(0, shape[1]), min_size=shape[0], max_size=shape[0]))
    side = data.draw(st.sampled_from(["right", "left"]))
    batch = pinfeed.JaggedBatch.from_padded(as_kind(kind, array), np.array(lengths), side=side)
    rows = [
        row[len(row) - length :] if side == "left" else row[:length]
        for row, length in zip(array, lengths, strict=True)
    ]
    values, offsets = reference.jagged(rows)
    assert (
        type(batch.values)
        is type(batch.offsets)
        is (torch.Tensor if kind == "tensor" else np.ndarray)
    )
    assert_same_bits(batch.values, values)
    assert_same_bits(batch.offsets, offsets)


def test_lengths_of_one_axis_in_a_tuple():
    """Their shape is (B, 1)."""
    padded = pinfeed.functional.pad([np.arange(3), np.arange(1)], axes=(0,))
    assert pinfeed.JaggedBatch.from_padded(padded).values.tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize("dtype", ["float16", "float64", "complex64"])
def test_dtype(dtype):
    samples = [np.array([1, 2], np.int8), [0.5], [], torch.tensor([True])]
    for name in (dtype, np.dtype(dtype), getattr(torch, dtype)):
        batch = pinfeed.Collate(pinfeed.Jagged(name))(samples)
        assert batch.values.dtype == getattr(torch, dtype)
        assert batch.values.tolist() == [1, 2, 0.5, 1]
        assert batch.offsets.tolist() == [0, 2, 3, 3, 4]


def test_offsets_in_a_separate_entry():
    collate = pinfeed.Collate({"boxes": pinfeed.Jagged(offsets="first"), "label": None})
    batch = collate([{"boxes": boxes, "label": i} for i, boxes in enumerate(BOXES)])
    assert list(batch) == ["boxes", "first", "label"]
    parts = pinfeed.JaggedBatch(batch["boxes"], batch["first"])
    assert_same_batch(parts, reference.jagged(BOXES))
    cut = pinfeed.Jagged(max_length=3, side="left")
    assert repr(cut) == "Jagged(max_length=3, side='left')"
    assert (
        repr(pinfeed.Jagged("int32", offsets="first")) == "Jagged(dtype='int32', offsets='first')"
    )


NO_KEY = "Jagged: offsets must be None or the key of a dict"
BAD_ARGUMENTS = {
    "no dict": (lambda: pinfeed.Collate((pinfeed.Jagged(offsets="first"),)), ValueError, "which needs a dict"),
    "a key that is taken": (lambda: pinfeed.Collate({"boxes": pinfeed.Jagged(offsets="label"), "label": None}), ValueError, "two fields for the key 'label'"),
    "max_length": (lambda: pinfeed.Jagged(max_length=0), ValueError, "Jagged: max_length must be at least 1, got 0"),
    "side": (lambda: pinfeed.Jagged(side="end"), ValueError, "Jagged: side must be one of", "got 'end'"),
    **{f"offsets={wrong!r}": (lambda wrong=wrong: pinfeed.Jagged(offsets=wrong), TypeError, NO_KEY) for wrong in (True, "", 3)},
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_bad_arguments(case):
    check(*BAD_ARGUMENTS[case])


# Other forms.


def test_nested_tensors_share_the_memory():
    batch = JAGGED(BOXES)
    nested = batch.to_nested()
    assert nested.is_nested
    assert nested.layout == torch.jagged
    assert nested.values().data_ptr() == batch.values.data_ptr()
    assert nested.offsets().data_ptr() == batch.offsets.data_ptr()
    for got, expected in zip(nested.unbind(), BOXES, strict=True):
        assert_same_bits(got, expected)
    batch.values[0] = 5
    assert (nested.unbind()[0][0] == 5).all()
    values, offsets = np.arange(5.0), np.array([0, 2, 5])
    nested = pinfeed.JaggedBatch(values, offsets).to_nested()
    assert nested.values().data_ptr() == values.ctypes.data
    assert [part.tolist() for part in nested.unbind()] == [[0, 1], [2, 3, 4]]


def test_gradients_flow_through_nested_tensors():
    batch = JAGGED(BOXES)
    values = batch.values.requires_grad_()
    nested = batch._replace(values=values).to_nested()
    (nested * 3).values().sum().backward()
    assert (values.grad == 3).all()


@pytest.mark.parametrize("method", ["unbind", "cu_seqlens"])
@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_offsets_of_other_types_and_orders(method, kind):
    for offsets, error, words in [
        ([0.0, 3.0], TypeError, r"offsets: expected an array of integers .*float\d+ \(2,\)"),
        ([[0, 3]], TypeError, r"offsets: expected an array of integers .*int64 \(1, 2\)"),
        ([False, True], TypeError, "offsets: expected an array of integers .*bool"),
        ([3, 2, 0], ValueError, "offsets must not decrease"),
        ([-1, 3], ValueError, "must be from 0"),
    ]:
        with pytest.raises(error, match=f"^{method}: {words}|^{method}: .*{words}"):
            getattr(pinfeed.JaggedBatch(np.arange(3), kind(offsets)), method)()
    with pytest.raises(
        TypeError, match=f"^{method}: offsets: expected an array of integers .*got list"
    ):
        getattr(pinfeed.JaggedBatch(np.arange(3), [0, 3]), method)()


@pytest.mark.parametrize("convert", [np.array, torch.tensor])
def test_cu_seqlens(convert):
    ends = pinfeed.JaggedBatch(None, convert([0, 2, 2, 2**31 - 1])).cu_seqlens()
    assert type(ends) is type(convert([0]))
    assert ends.dtype in (np.int32, torch.int32)
    assert ends.tolist() == [0, 2, 2, 2**31 - 1]
    for total in (2**31, 2**40):
        with pytest.raises(ValueError, match=rf"cu_seqlens: .*less than 2\*\*31.*got {total}"):
            pinfeed.JaggedBatch(None, convert([0, total])).cu_seqlens()


def test_read_only_arrays_give_no_warning():
    values, offsets = np.arange(3), np.array([0, 1, 3])
    values.flags.writeable = offsets.flags.writeable = False
    batch = pinfeed.JaggedBatch(values, offsets)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert batch.to_padded(lengths=False).tolist() == [[0, 0], [1, 2]]


HUGE = np.broadcast_to(np.uint8(1), (2**62,))
BAD = {
    "other axes": ([*BOXES, np.ones((1, 5), np.float32)], ValueError, "sample 3", "(2, 4), got (1, 5)", "Pad()"),
    "axis 1 alone": ([np.zeros((2, 3)), np.zeros((2, 4))], ValueError, "transpose samples that differ along axis 1 only"),
    "ranks": ([np.ones(2), np.ones((2, 1))], ValueError, "sample 1", "1-D", "(2, 1)"),
    "0-d": ([np.array(1)], ValueError, "sample 0", "0-d"),
    "dtypes": ([np.ones(2), [1]], TypeError, "sample 1", "float64", "int64"),
    "no numbers": ([["a"]], TypeError, "sample 0", "str at position 0"),
    "gradients": ([torch.ones(2, requires_grad=True)], TypeError, "sample 0", "detach()"),
    "more than memory": ([HUGE, HUGE], ValueError, "too large for any memory"),
    "no memory": ([HUGE[: 2**50]], MemoryError, "(1125899906842624,)"),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_bad_samples(bad):
    samples, error, *words = bad
    check(lambda: JAGGED(samples), error, "Collate: ", *words)


PADDED = np.zeros((2, 3))
BAD_PADDED = {
    "no lengths": (PADDED, None, TypeError, "expected lengths, or a Padded with lengths"),
    "too long": (PADDED, [1, 4], ValueError, "sample 1: expected from 0 to 3, got 4"),
    "of two axes": (PADDED[..., None], [[1, 1]] * 2, ValueError, "1 axes, got 2"),
    "list": ([[1, 2]], [1], TypeError, "padded: expected an array", "list"),
    "1-D": (np.zeros(3), [1] * 3, TypeError, "(B, L, ...)", "(3,)"),
    "gradients": (torch.ones((1, 2), requires_grad=True), [1], TypeError, "detach()"),
    "meta": (torch.ones((1, 2), device="meta"), [1], TypeError, "CPU"),
    "none": (np.zeros((0, 3)), [], ValueError, "at least one sample"),
}


@pytest.mark.parametrize("bad", BAD_PADDED.values(), ids=BAD_PADDED.keys())
def test_bad_padded(bad):
    padded, lengths, error, *words = bad
    call = functools.partial(pinfeed.JaggedBatch.from_padded, padded, lengths)
    check(call, error, "from_padded: ", *words)
    with pytest.raises(ValueError, match="from_padded: side must be"):
        pinfeed.JaggedBatch.from_padded(PADDED, [1, 1], side="both")


@pytest.mark.parametrize(
    "key", ["edge_index", "adjacency", "edges", "edge_label_index", "ei", "links"]
)
@pytest.mark.parametrize("counts", [(7, 7), (7, 5)])
@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_edges_in_columns(counts, kind, key):
    edges = [np.arange(2 * count).reshape(2, count) for count in counts]
    collate = pinfeed.Collate({key: pinfeed.Jagged()})
    wrong = [{key: kind(some)} for some in edges]
    words = ["sample 0: expected edges of shape (E, 2)", "edges.T"]
    if counts[0] != counts[1]:
        words = ["transpose samples that differ along axis 1 only"]
    check(lambda: collate(wrong), ValueError, *words)
    batch = collate([{key: kind(some.T)} for some in edges])[key]
    assert torch.equal(batch.values, torch.from_numpy(np.concatenate(edges, 1).T))
    assert batch.lengths.tolist() == list(counts)


@pytest.mark.parametrize("key", ["edge_attr", "edge_feat", "pairs", "link_type"])
def test_two_rows_are_not_always_edges(key):
    """Each bond of a molecule is two edges, each with a row of features."""
    batch = pinfeed.Collate({key: pinfeed.Jagged()})([{key: np.ones((2, 3), int)}] * 2)
    assert batch[key].offsets.tolist() == [0, 2, 4]


def graphs(make_edges, node_counts, key="e"):
    draw = np.random.default_rng(0)
    return [
        {"x": draw.normal(size=(n, 4)).astype(np.float32), key: make_edges(draw, n)}
        for n in node_counts
    ]


def undirected(draw, n, count=5):
    one_way = draw.integers(0, n, (2, count))
    return np.concatenate([one_way, one_way[::-1]], 1)


EDGES = {
    "of graphs that differ in size": (lambda draw, n: draw.integers(0, n, (2, 30)), [9, 7, 12, 8]),
    "of graphs of one size": (lambda draw, n: draw.integers(0, n, (2, 40)), [10] * 4),
    "undirected": (undirected, [40, 40]),
    "undirected, of one graph": (undirected, [40]),
    "trees": (lambda draw, n: np.array([[draw.integers(0, i), i] for i in range(1, n)]).T, [9] * 3),
}


@pytest.mark.parametrize("key", ["e", "pairs"])
@pytest.mark.parametrize("kind", EDGES)
def test_edges_by_their_values(kind, key):
    samples = graphs(*EDGES[kind], key)
    fields = {"x": pinfeed.Jagged(), key: pinfeed.Jagged()}
    dataset = pinfeed.ArrayDataset(
        {name: pinfeed.RaggedArray.from_sequences([s[name] for s in samples]) for name in fields}
    )
    nested = [{"graph": sample} for sample in samples]
    for batch, of in (
        (samples, fields),
        (dataset.__getitems__(range(len(samples))), fields),
        (nested, {"graph": fields}),
    ):
        with pytest.warns(UserWarning, match=rf"\['{key}'\]: .* look like edges, .* edges\.T$"):
            pinfeed.Collate(of)(batch)
    right = [sample | {key: sample[key].T} for sample in samples]
    batch = pinfeed.Collate(fields)(right)[key]
    assert batch.values.tolist() == np.concatenate([sample[key] for sample in right]).tolist()


@pytest.mark.parametrize("key", ["edge_index", "adj", "coo"])
def test_edges_of_a_dataset(key):
    edges = np.arange(30).reshape(3, 2, 5)
    for source in (edges, pinfeed.RaggedArray.from_sequences(edges)):
        rows = pinfeed.ArrayDataset({key: source}).__getitems__([0, 2])
        with pytest.raises(ValueError, match=r"sample 0 .*: expected edges of shape .*edges\.T"):
            pinfeed.Collate({key: pinfeed.Jagged()})(rows)


NOT_EDGES = {
    "codes": lambda draw, n: draw.integers(0, 64, (2, 50)),
    "classes": lambda draw, n: draw.integers(0, 3, (2, 50)),
    "bits": lambda draw, n: draw.integers(0, 2, (2, 16)),
    "spans": lambda draw, n: np.array([[0, 5, 1], [6, n - 1, 0]]),
    "boxes": lambda draw, n: draw.integers(0, n, (2, 5)),
    "counts": lambda draw, n: np.stack([np.bincount(draw.integers(0, 8, n), minlength=8)] * 2),
    "positions": lambda draw, n: np.sort(draw.integers(0, n, (2, 8))),
    "orders": lambda draw, n: np.stack([draw.permutation(n)[:60] for _ in range(2)]),
    "zeros": lambda draw, n: np.zeros((2, 6), int),
    "one per node": lambda draw, n: draw.integers(0, 9, (2, n)),
    "floats": lambda draw, n: draw.random((2, 7)),
}


@pytest.mark.parametrize("kind", NOT_EDGES)
@pytest.mark.parametrize("count", [1, 2, 3, 16])
def test_two_rows_of_other_numbers(kind, count):
    fields = {"x": pinfeed.Jagged(), "e": pinfeed.Jagged()}
    for size in (64, 90):
        sizes = [size + (i if kind != "one per node" else 0) for i in range(count)]
        batch = pinfeed.Collate(fields)(graphs(NOT_EDGES[kind], sizes))["e"]
        assert batch.offsets.tolist() == [*range(0, 2 * count + 1, 2)]


@pytest.mark.parametrize("key", ["labels", "obj_classes", "tag"])
def test_classes_beside_equal_rows(key):
    samples = graphs(lambda draw, n: draw.integers(0, n, (2, 40)), [10] * 4, key)
    batch = pinfeed.Collate({"x": pinfeed.Jagged(), key: pinfeed.Jagged()})(samples)[key]
    assert batch.offsets.tolist() == [0, 2, 4, 6, 8]


def test_features_of_two_edges():
    """In jraph, "edges" are features of edges."""
    samples = [{"edges": np.full((2, 8), i, np.float32)} for i in range(3)]
    batch = pinfeed.Collate({"edges": pinfeed.Jagged()})(samples)["edges"]
    assert batch.offsets.tolist() == [0, 2, 4, 6]


def test_rows_of_source_target_and_type_are_joined():
    batch = pinfeed.Collate({"links": pinfeed.Jagged()})(
        [{"links": np.array([[0, 1, 2], [1, 2, 0]])}]
    )
    assert batch["links"].values.tolist() == [[0, 1, 2], [1, 2, 0]]
