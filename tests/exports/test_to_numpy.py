"""to_numpy: every structure, dtype and kind of entry, from loaders of every kind."""

import itertools
import mmap
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, TensorDataset

import pinfeed
from arrays import NUMPY_DTYPES, random_array, views
from messages import check
from pinfeed import Collate, Jagged, JaggedBatch, Pad, Padded, RaggedArray, to_numpy
from pinfeed.exports.to_numpy import batch_writer
from pinfeed.exports.to_numpy.to_numpy import planned_batches
from pinfeed.structure import map_entries
from samples import STRUCTURES, MarkedTensor, assert_same

# The definition.


def joined(parts, most=None):
    """Returns the samples of all batches, or of the first ones; a list if lengths can differ."""
    first = parts[0]
    if isinstance(first, dict):
        return {key: joined([part[key] for part in parts], most) for key in first}
    if isinstance(first, RaggedArray | JaggedBatch | Padded):
        return [row for part in parts for row in rows_of(part)][:most]
    if isinstance(first, list | tuple) and isinstance(first[:1], type(first)) and has_arrays(first):
        return type(first)(joined(list(column), most) for column in zip(*parts, strict=True))
    if first is None:
        return None
    if isinstance(first, list | tuple) or getattr(first.dtype, "kind", "f") in "OU":
        lists = [part.tolist() if isinstance(part, np.ndarray) else list(part) for part in parts]
        return list(itertools.chain(*lists))[:most]
    arrays = [numpy(part) for part in parts]
    return np.concatenate(arrays, dtype=arrays[0].dtype)[:most]


def has_arrays(node):
    return any(isinstance(one, np.ndarray | torch.Tensor) for one in node)


def rows_of(part):
    if isinstance(part, RaggedArray):
        return [numpy(row) for row in part]
    if isinstance(part, JaggedBatch):
        values, offsets = map(numpy, part)
        return [values[a:b] for a, b in itertools.pairwise(offsets)]
    values, lengths = numpy(part.values), numpy(part.lengths)
    masks = np.arange(values.shape[1]) < lengths[:, None] if part.mask is None else numpy(part.mask)
    return [row[mask] for row, mask in zip(values, masks, strict=True)]


def numpy(array):
    if isinstance(array, np.ndarray):
        return array
    array = array.detach().resolve_conj().resolve_neg()
    return np.asarray(array.float() if array.dtype == torch.bfloat16 else array)


def comparable(result):
    """Returns the result with lists for RaggedArrays, and arrays in memory for files."""
    is_entry = lambda node: isinstance(node, RaggedArray)
    plain = lambda entry: list(entry) if is_entry(entry) else to_memory(entry)
    return map_entries(plain, result, is_entry)


def to_memory(entry):
    return np.array(entry) if isinstance(entry, np.memmap) else entry


# Batches.

VALUES = torch.randn(4, 3, dtype=torch.complex64, requires_grad=True)
PLAIN = VALUES.detach()
HALVES = torch.tensor([[1, -0.0, 3e38], [1e-38, torch.inf, torch.nan]]).bfloat16()
X, Y = torch.arange(10.0).reshape(5, 2), np.arange(5, dtype=np.int8)
SEQUENCES = [np.arange(n, dtype=np.float32) + 1 for n in (3, 1, 0, 2, 5, 5, 4, 0, 1)]
FRAMES = [random_array((n, 2, 3), "i4", n) for n in (2, 4, 1)]
RAGGED = RaggedArray(torch.arange(9.0), torch.tensor([1, 3, 3, 8], dtype=torch.int32))
OBJECT = object()


def cut(rows, size):
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def collated(field, samples, size=4):
    return [Collate(field)(part) for part in cut(samples, size)]


def batch_of(n):
    """Returns a batch with every kind of entry; values depend on a number."""
    return {
        "x": torch.full((2, 3), n, dtype=torch.float16),
        "mixed": np.full((2, 1), n),
        "half": torch.full((2,), n).to(torch.bfloat16),
        "names": [str(n), "-"],
        "mask": torch.full((2, 0, 2), n % 2 == 0),
        "tokens": JaggedBatch(torch.full((n,), n), torch.tensor([0, n // 2, n])),
        "padded": Padded(torch.full((2, n), n), np.array([n // 3, n])),
    }


CASES = {
    f"{count} of every kind": [batch_of(n) for n in (7, 3, 12, 1, 0, 30, 2, 5, 6)[:count]]
    for count in (1, 2, 9)
}
# Array subclasses, and dtypes that only NumPy has.
ARRAYS = {
    "complex": VALUES,
    "conjugate": VALUES.conj(),
    "imaginary": VALUES.imag,
    "negative": VALUES.conj().imag,
    "a subclass": PLAIN.as_subclass(MarkedTensor),
    "transposed": VALUES.t(),
    "a parameter": torch.nn.Parameter(PLAIN),
    "expanded": PLAIN[0, 0].expand(4, 3),
    "dates": np.array(["2024-02-29", "2024-03-01"], "M8[D]"),
    "times": np.array([3, 4], "m8[ms]"),
    "records": np.array([(1, 2.5), (3, 4.5)], [("a", "i4"), ("b", "f8", (2,))]),
    "big-endian": np.arange(6, dtype=">f4").reshape(2, 3)[:, ::2],
    "bfloat16": HALVES,
    "bfloat16, transposed": HALVES.t(),
}
CASES |= {name: [batch, batch[:1]] for name, batch in ARRAYS.items()}
CASES |= {
    "bfloat16, jagged": [JaggedBatch(HALVES, torch.tensor([0, 1, 2]))],
    "bfloat16, padded": [Padded(HALVES, torch.full((2,), 3))],
    # Batches in a list, joined at once.
    "in a tuple": [(X[:2], Y[:2]), (X[2:], Y[2:])],
    "in a list": [{"x": X[:2], "y": [Y[:2]]}, {"y": [Y[2:]], "x": X[2:]}],
    "with gradients": [X[:3], X[3:].double().float().requires_grad_()],
    "empty ones": [X[:0], X.numpy(), X[:0]],
    "an empty one": [X[:0]],
    "large": [np.full((1 << 18, 2), i, np.float32) for i in range(3)],
    "other order of keys": [
        {"x": np.zeros(2), "y": np.ones(2), "s": {"a": ["a"] * 2, "b": ["b"] * 2}},
        {"s": {"b": ["b"], "a": ["a"]}, "y": np.ones(1), "x": np.zeros(1)},
    ],
    # Sequences.
    "frames, padded": collated(Pad(axes=0), FRAMES, 2),
    "frames, jagged": collated(Jagged(), FRAMES, 2),
    "ragged arrays": [RAGGED[:1], RAGGED[1:]],
    "values that are not used": [JaggedBatch(np.arange(9), np.array([2, 5, 7]))],
}
# Batches without strings before others.
for number, strings in enumerate((["a", "ä"], [b"a", b"\xff"], [])):
    for empty in ([], np.zeros(0, "U1"), np.zeros(0, object)):
        name = f"strings {number} after {type(empty).__name__}"
        CASES[name] = [empty, empty, strings, empty, strings[:1]]
        keys = [{"name": batch, "x": np.ones(len(batch))} for batch in CASES[name]]
        CASES[f"{name}, beside an array"] = keys
# Batches that match the previous ones use the fast path, others the slow one.
OTHER_ROWS = {
    "requires_grad": torch.ones(2, 3, requires_grad=True),
    "ndarray": np.full((1, 3), 2, np.float32),
    "no samples": torch.ones(0, 3),
    "strided": torch.arange(12.0).reshape(2, 6)[:, ::2],
    "negative": torch.ones(2, 3, dtype=torch.complex64).conj().imag,
    "parameter": torch.nn.Parameter(torch.ones(2, 3)),
}
MAKE = [lambda x: x, lambda x: (x, x), lambda x: [x, x], lambda x: {"a": x, "b": {"c": x}}]
for name, other in OTHER_ROWS.items():
    parts = [torch.full((i % 3 + 1, 3), float(i)) for i in range(9)]
    parts.insert(5, other)
    for number, make in enumerate(MAKE):
        CASES[f"plain, then {name}, {number}"] = [make(part) for part in parts]
# Values that can't be stored in files.
OBJECTS = {
    "names": ("a", "bc"),
    "objects": [OBJECT, None],
    "dicts": [{"w": 1}, {"h": 2}],
    "lists": [[1, 2], [3]],
    "strings": np.array(["u", "vw"]),
    "any": np.array([{}, 1.5], object),
    "none": None,
}
IN_MEMORY = {
    "objects": [OBJECTS] * 2,
    "strings": [["a", "b"], ("c",)],
    "arrays as objects": [{"x": np.zeros(3), "raw": np.fromiter(map(np.arange, (1, 5, 2)), object)}] * 2,
}  # fmt: skip
CASES |= IN_MEMORY


@pytest.mark.parametrize("way", ["list", "iterator", "remote", "files"])
@pytest.mark.parametrize("name", CASES)
def test_every_batch(name, way, tmp_path, monkeypatch):
    batches = CASES[name]
    if way == "files" and name in IN_MEMORY:
        return
    if way == "remote":  # as if on a device, so they are copied first
        monkeypatch.setattr(batch_writer, "is_remote", torch.is_tensor)
    out = tmp_path / "out" if way == "files" else None
    for most in (None, 1, 6):
        loader = batches if way == "list" else iter(batches)
        result = to_numpy(loader, out, max_samples=most, overwrite=True)
        assert_same(comparable(result), joined(batches, most))


@pytest.mark.parametrize("is_remote", [False, True])
def test_memory_that_a_loader_reuses(is_remote, monkeypatch):
    monkeypatch.setattr(batch_writer, "is_remote", lambda part: is_remote and torch.is_tensor(part))
    tensor, array, lengths = torch.zeros(2, 3), np.zeros((2, 1)), np.zeros(2, np.int64)

    def batches():
        for i in range(4):
            array[:] = lengths[:] = i
            yield tensor.fill_(i), array, (tensor[:, 0], Padded(tensor, lengths))

    result = to_numpy(batches())
    rows = np.repeat(np.arange(4), 2)
    assert result[0][:, 0].tolist() == result[1][:, 0].tolist() == rows.tolist()
    assert result[2][0].tolist() == rows.tolist()
    assert [row.tolist() for row in result[2][1]] == [[i] * i for i in rows]


# Loaders.


class Numbers:
    """A sampler that can yield fewer or more samples than its length."""

    def __init__(self, count, length):
        self.count, self.length = count, length

    def __iter__(self):
        return iter(range(self.count))

    def __len__(self):
        return self.length


# The length that a loader reports, from the number of samples.
REPORTED_LENGTHS = {"exact": lambda n: n, "too few": lambda n: 1, "too many": lambda n: 2 * n + 3}


def make_loader(kind, batches, count, size):
    """Returns a loader of some kind that yields these batches."""
    if kind == "list":
        return batches
    if kind == "generator":
        return (batch for batch in batches)
    left = iter(batches)
    sampler = Numbers(count, REPORTED_LENGTHS[kind](count))
    return DataLoader(range(count), size, sampler=sampler, collate_fn=lambda _: next(left))


@given(
    st.data(),
    st.sampled_from(sorted(STRUCTURES)),
    st.sampled_from(["list", "generator", *REPORTED_LENGTHS]),
)
def test_structures_shapes_dtypes_and_loaders(data, structure, loader):
    count, size = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 5))
    most = data.draw(st.none() | st.integers(1, 15))
    columns = []
    for _ in "xy":
        shape = (count, *data.draw(st.lists(st.integers(0, 3), max_size=2)))
        array = data.draw(views(shape, data.draw(st.sampled_from(NUMPY_DTYPES))))
        as_tensor = min(array.strides) >= 0 and data.draw(st.booleans())
        columns.append(torch.from_numpy(array) if as_tensor else array)
    make = STRUCTURES[structure]
    batches = [make(x, y) for x, y in zip(*(cut(column, size) for column in columns), strict=True)]
    result = to_numpy(make_loader(loader, batches, count, size), max_samples=most)
    assert_same(result, make(*(np.asarray(column)[:most].copy() for column in columns)))


def test_collate_bucketed_batches_and_workers():
    sequences = [np.arange(i % 23) for i in range(200)]
    ragged = RaggedArray.from_sequences(sequences)
    sampler = pinfeed.samplers.LengthBucketSampler(ragged.lengths, max_tokens=64, seed=1)
    order = np.concatenate(list(sampler))
    sampler.set_epoch(0)
    loader = DataLoader(
        pinfeed.ArrayDataset({"tokens": ragged, "id": np.arange(200)}),
        batch_sampler=sampler,
        collate_fn=Collate({"tokens": Pad(pad_value=-1, lengths=True)}),
        num_workers=2,
    )
    result = to_numpy(loader)
    assert_same(result["id"], order)
    assert_same(list(result["tokens"]), [sequences[i] for i in order])


def test_max_samples_stops_an_infinite_loader_at_the_batch_that_reaches_it():
    drawn = []

    def forever():
        while True:
            drawn.append(len(drawn))
            yield JaggedBatch(torch.arange(4), torch.tensor([0, 1, 4]))

    result = to_numpy(forever(), max_samples=5)
    assert_same(list(result), [np.arange(1), np.arange(1, 4)] * 2 + [np.arange(1)])
    assert len(drawn) == 3


class Stream(IterableDataset):
    """Yields consecutive numbers."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return iter(range(self.count))


class Unsure(BatchSampler):
    """A loader of batches of any size, without a reliable length."""

    def __len__(self):
        raise NotImplementedError


BUCKETS = pinfeed.samplers.LengthBucketSampler([1] * 4, 2)


@pytest.mark.parametrize(
    ("loader", "planned"),
    [
        (DataLoader(range(10), 4), 3),
        (DataLoader(range(10), 4, drop_last=True), 2),
        (DataLoader(range(10), 4, sampler=range(3, 9)), 2),
        (DataLoader(range(10), batch_sampler=BatchSampler(range(7), 3, True)), 2),
        (DataLoader(range(9), batch_sampler=pinfeed.samplers.ShuffleSampler(9, 2)), 5),
        (pinfeed.DeviceLoader(DataLoader(range(10), 4)), 3),
        (DataLoader(Stream(3), 2), None),
        (DataLoader(range(4), None), None),
        (DataLoader(range(4), 2, sampler=iter([1, 2])), None),
        (DataLoader(range(4), batch_sampler=BUCKETS), None),
        (DataLoader(range(10), batch_sampler=Unsure(range(10), 3, False)), None),
        (DataLoader(range(4), batch_sampler=[[1], [2, 3]]), None),
        (iter([]), None),
        (3, None),
    ],
)
def test_planned_batches(loader, planned):
    assert planned_batches(loader) == planned


def test_a_collate_function_that_drops_samples():
    loader = DataLoader(range(20), 4, collate_fn=lambda rows: np.array([i for i in rows if i % 3]))
    assert_same(to_numpy(loader), np.array([i for i in range(20) if i % 3]))


class NeverMoved(mmap.mmap):
    """Memory on a system that can't move pages, with Python 3.15."""

    def __getattribute__(self, name):
        if name == "resize":
            raise AttributeError(name)
        return super().__getattribute__(name)


def test_arrays_grow_where_pages_cannot_be_moved(monkeypatch):
    monkeypatch.setattr(mmap, "mmap", NeverMoved)
    batches = random_array((40, 4, 3))
    np.testing.assert_array_equal(to_numpy(iter(batches)), batches.reshape(160, 3))


def test_dtypes(tmp_path):
    rows = JaggedBatch(np.arange(3), np.array([0, 1, 3]))
    batch = {
        "x": torch.ones(2, 3).bfloat16(),
        "target": (np.arange(2), rows),
        "when": np.zeros(2, "M8[s]"),
        "name": ["a", "b"],
        "flag": np.ones(2, bool),
    }
    half = {
        "x": np.ones((4, 3), "f2"),
        "target": (np.array([0, 1] * 2, "f2"), [np.array([0], "f2"), np.array([1, 2], "f2")] * 2),
        "when": np.zeros(4, "M8[s]"),
        "name": ["a", "b"] * 2,
        "flag": np.ones(4, "f2"),
    }
    for out in (None, tmp_path / "all"):
        assert_same(comparable(to_numpy([batch, batch], out, dtype=torch.float16)), half)
    result = to_numpy(iter([batch]), dtype={"x": "f8", "target.1": np.uint8})
    dtypes = result["target"][0].dtype, result["flag"].dtype
    assert (result["x"].dtype, result["target"][1].dtype, *dtypes) == ("f8", "u1", "i8", "?")
    assert to_numpy([np.ones(2)] * 2, dtype="f4").dtype == np.float32


def test_lists_of_numbers_with_a_dtype(tmp_path):
    batches = [{"x": [1, 2], "y": ((1.5, 2),), "name": ["a", "b"]}, {"x": [3], "y": [[True, 4]], "name": ["c"]}]  # fmt: skip
    batches[0]["y"] *= 2
    for out in (None, tmp_path / "all"):
        result = to_numpy(batches, out, dtype=np.float16)
        assert_same(np.array(result["x"]), np.array([1, 2, 3], "f2"))
        assert_same(np.array(result["y"]), np.array([[1.5, 2], [1.5, 2], [1, 4]], "f2"))
        assert [*result["name"]] == ["a", "b", "c"]
    assert_same(to_numpy([[1, 2], []], dtype="i2"), np.array([1, 2], "i2"))
    assert_same(to_numpy([{"x": [1], "y": [2]}], dtype={"x": "u1"}), {"x": np.array([1], "u1"), "y": [2]})  # fmt: skip


@pytest.mark.slow  # transformers takes seconds to import
def test_outputs_of_transformers():
    outputs = pytest.importorskip("transformers.modeling_outputs")
    batch = outputs.SequenceClassifierOutput(logits=torch.ones(4, 2, requires_grad=True))
    result = to_numpy(iter([batch, batch]))
    assert type(result) is type(batch)
    assert_same(result.logits, np.ones((8, 2), np.float32))
    assert_same(result["logits"], result.logits)


def test_progress(capsys, monkeypatch, tmp_path):
    loader = DataLoader(TensorDataset(torch.zeros(20, 25)), 5)
    to_numpy(loader, progress=True)
    printed = capsys.readouterr().err
    for part in ("to_numpy: 100%", "20.0/20.0", "samples/s"):
        assert part in printed
    to_numpy((x for (x,) in loader), progress=True)
    assert "20.0/20.0" in capsys.readouterr().err

    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    unread = iter(loader)
    with pytest.raises(ImportError, match=r"tqdm is not installed: pip install '.\[progress\]'"):
        to_numpy(unread, tmp_path / "x.npy", progress=True)
    assert len(list(unread)) == 4
    assert list(tmp_path.iterdir()) == []


# Batches that can't be joined, and the fixes in the messages.


def test_a_list_of_arrays_is_structure():
    x = np.zeros(3)
    for raw in ([np.zeros(1), np.zeros(2)], [{"boxes": np.zeros((0, 4))}] * 3):
        words = "entry ['raw'][0]", "expected 3 samples", "np.fromiter"
        check(lambda: to_numpy([{"x": x, "raw": raw}]), ValueError, *words)  # noqa: B023
    message = "entry [1] of batch 0: expected 2 samples", "got 3"
    check(lambda: to_numpy([[np.zeros(2), ["a", "b", "c"]]]), ValueError, *message)


def test_batches_of_different_widths_suggest_lengths():
    batches = [torch.tensor([[1, 2], [3, 0]]), torch.tensor([[4, 5, 6]])]
    message = r"shape \(2,\) as in batch 0, got \(3,\); for .* pinfeed\.Padded with lengths"
    with pytest.raises(ValueError, match=message) as caught:
        to_numpy(batches)
    assert_same(caught.value.partial, batches[0].numpy())
    lengths = [torch.tensor([2, 1]), torch.tensor([3])]  # the suggested fix
    assert [row.tolist() for row in to_numpy(map(Padded, batches, lengths))] == [
        [1, 2],
        [3],
        [4, 5, 6],
    ]


def test_partial_results_exclude_a_batch_with_differing_entries():
    x = torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"expected 2 samples, as .* has, got 1") as caught:
        to_numpy(iter([(x, x), (x, x), (x, x[:1])]))
    assert [len(array) for array in caught.value.partial] == [4, 4]


# Sequences.


FIELDS = [
    Jagged(),
    *(Pad(side=side, mask=mask) for side in ("right", "left") for mask in (True, False)),
]


@pytest.mark.parametrize("as_ndarrays", [False, True])
@pytest.mark.parametrize("field", FIELDS, ids=repr)
def test_the_data_of_padded_and_jagged_batches(field, as_ndarrays):
    batches = collated(field, SEQUENCES)
    if as_ndarrays:
        batches = [type(b)(*(None if x is None else x.numpy() for x in b)) for b in batches]
    for most in (None, 1, 6):
        result = to_numpy(batches, max_samples=most)
        assert isinstance(result, RaggedArray)
        assert_same(list(result), SEQUENCES[:most])


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, [0, 3, 4]),
        ([[1, 0, 0], [1, 1, 0]], [0, 3, 4]),
        ([[0, 0, 1], [0, 1, 1]], [2, 4, 5]),
        ([[1, 0, 0], [1, 0, 1]], None),
    ],
)
def test_the_padding_side(mask, expected):
    mask = None if mask is None else torch.tensor(mask).bool()
    batch = Padded(torch.arange(6).reshape(2, 3), torch.tensor([1, 2]), mask)
    if expected is None:
        message = "batch 0: expected a mask that agrees with lengths, got another; leave it out: Padded(values, lengths)"
        check(lambda: to_numpy([batch]), ValueError, message)
    else:
        assert to_numpy([batch]).values.tolist() == expected


def test_lengths_of_two_axes_stay_with_the_values():
    boxes = [random_array((n, 3), "i4", n) for n in (2, 4, 4)]
    result = to_numpy(collated(Pad(axes=(0, 1)), boxes, 2))
    assert_same(result.lengths, np.array([[2, 3], [4, 3], [4, 3]]))
    assert_same(result.values[1], boxes[1])
