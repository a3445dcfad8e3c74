"""to_numpy: every structure, dtype and kind of entry, from loaders of every kind."""

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
from pinfeed.exports.loader import planned_batches
from pinfeed.exports.to_numpy import to_numpy
from samples import STRUCTURES, MarkedTensor, assert_same


class Numbers:
    """A sampler that may yield fewer or more samples than it says."""

    def __init__(self, count, said):
        self.count, self.said = count, said

    def __iter__(self):
        return iter(range(self.count))

    def __len__(self):
        return self.said


def cut(rows, size):
    return [rows[start : start + size] for start in range(0, len(rows), size)]


# What a loader says about its length, from the number of samples.
SAID = {"exact": lambda n: n, "too few": lambda n: 1, "too many": lambda n: 2 * n + 3}


class NeverMoved(mmap.mmap):
    """Memory on a system that can't move pages, on Python 3.15."""

    def __getattribute__(self, name):
        if name == "resize":
            raise AttributeError(name)
        return super().__getattribute__(name)


def test_arrays_grow_where_pages_can_not_be_moved(monkeypatch):
    monkeypatch.setattr(mmap, "mmap", NeverMoved)
    batches = random_array((40, 4, 3))
    np.testing.assert_array_equal(to_numpy(iter(batches)), batches.reshape(160, 3))


def make_loader(kind, batches, count, size):
    """A loader of some kind that yields these batches."""
    if kind == "list":
        return batches
    if kind == "generator":
        return (batch for batch in batches)
    left = iter(batches)
    sampler = Numbers(count, SAID[kind](count))
    return DataLoader(range(count), size, sampler=sampler, collate_fn=lambda _: next(left))


@given(
    st.data(), st.sampled_from(sorted(STRUCTURES)), st.sampled_from(["list", "generator", *SAID])
)
def test_structures_shapes_dtypes_and_loaders(data, structure, loader):
    count, size = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 5))
    columns = []
    for _ in "xy":
        shape = (count, *data.draw(st.lists(st.integers(0, 3), max_size=2)))
        array = data.draw(views(shape, data.draw(st.sampled_from(NUMPY_DTYPES))))
        as_tensor = min(array.strides) >= 0 and data.draw(st.booleans())
        columns.append(torch.from_numpy(array) if as_tensor else array)
    make = STRUCTURES[structure]
    batches = [make(x, y) for x, y in zip(*(cut(column, size) for column in columns), strict=True)]
    result = to_numpy(make_loader(loader, batches, count, size))
    assert_same(result, make(*(np.asarray(column).copy() for column in columns)))


def test_collate_bucketed_batches_and_workers():
    sequences = [np.arange(i % 23) for i in range(200)]
    ragged = pinfeed.RaggedArray.from_sequences(sequences)
    sampler = pinfeed.samplers.LengthBucketSampler(ragged.lengths, max_tokens=64, seed=1)
    order = np.concatenate(list(sampler))
    sampler.set_epoch(0)
    loader = DataLoader(
        pinfeed.ArrayDataset({"tokens": ragged, "id": np.arange(200)}),
        batch_sampler=sampler,
        collate_fn=pinfeed.Collate({"tokens": pinfeed.Pad(pad_value=-1, lengths=True)}),
        num_workers=2,
    )
    result = to_numpy(loader)
    assert_same(result["id"], order)
    assert_same(list(result["tokens"]), [sequences[i] for i in order])


@given(st.integers(1, 20), st.integers(1, 6), st.integers(1, 25), st.sampled_from(["list", *SAID]))
def test_max_samples(count, size, most, loader):
    rows = np.arange(count)
    batches = [{"x": part, "s": [str(i) for i in part]} for part in cut(rows, size)]
    result = to_numpy(make_loader(loader, batches, count, size), max_samples=most)
    assert_same(result, {"x": rows[:most], "s": [str(i) for i in rows[:most]]})


def test_max_samples_ends_an_infinite_loader_at_the_batch_that_fills_it():
    drawn = []

    def forever():
        while True:
            drawn.append(len(drawn))
            yield pinfeed.JaggedBatch(torch.arange(4), torch.tensor([0, 1, 4]))

    result = to_numpy(forever(), max_samples=5)
    assert_same(list(result), [np.arange(1), np.arange(1, 4)] * 2 + [np.arange(1)])
    assert len(drawn) == 3


VALUES = torch.randn(4, 3, dtype=torch.complex64, requires_grad=True)
PLAIN = VALUES.detach().numpy()


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (VALUES, PLAIN),
        (VALUES.conj(), PLAIN.conj()),
        (VALUES.imag, PLAIN.imag),
        (VALUES.conj().imag, PLAIN.conj().imag),
        (VALUES.detach().as_subclass(MarkedTensor), PLAIN),
        (VALUES.t(), PLAIN.T),
        (torch.nn.Parameter(VALUES.detach()), PLAIN),
        (VALUES[0, 0].detach().expand(4, 3), np.full((4, 3), PLAIN[0, 0])),
        # Dtypes that only NumPy has.
        (dates := np.array(["2024-02-29", "2024-03-01"], "M8[D]"), dates),
        (times := np.array([3, 4], "m8[ms]"), times),
        (pair := np.array([(1, 2.5), (3, 4.5)], [("a", "i4"), ("b", "f8", (2,))]), pair),
        (big := np.arange(6, dtype=">f4").reshape(2, 3)[:, ::2], big),
    ],
)
def test_arrays_that_are_more_than_memory(batch, expected):
    assert_same(
        to_numpy([batch, batch[:1]]),
        np.concatenate([expected, expected[:1]], axis=0, dtype=expected.dtype),
    )


@pytest.mark.parametrize("kind", ["dense", "transposed", "jagged", "padded"])
def test_bfloat16(kind):
    values = torch.randn(6, 5).to(torch.bfloat16)
    batch = values.t() if kind == "transposed" else values
    if kind == "jagged":
        batch = pinfeed.JaggedBatch(values, torch.tensor([0, 4, 6]))
    if kind == "padded":
        batch = pinfeed.Padded(values, torch.full((6,), 5))
    result = to_numpy([batch])
    result = result.values if isinstance(result, pinfeed.RaggedArray) else result
    wanted = values.float().t() if kind == "transposed" else values.float()
    assert_same(result.ravel(), wanted.numpy().ravel())


def test_dtypes(tmp_path):
    rows = pinfeed.JaggedBatch(np.arange(3), np.array([0, 1, 3]))
    batch = {
        "x": torch.ones(2, 3).bfloat16(),
        "target": (np.arange(2), rows),
        "when": np.zeros(2, "M8[s]"),
        "name": ["a", "b"],
        "flag": np.ones(2, bool),
    }
    for out in (None, tmp_path / "all"):
        result = to_numpy([batch, batch], out, dtype=torch.float16)
        assert {*(entry.dtype for entry in (result["x"], result["flag"]))} == {np.dtype("f2")}
        assert result["target"][0].tolist() == [0, 1, 0, 1]
        assert result["target"][1].values.dtype == np.float16
        assert [row.tolist() for row in result["target"][1]] == [[0], [1, 2]] * 2
        assert result["when"].dtype == "M8[s]"
        assert list(result["name"]) == ["a", "b"] * 2
        assert np.array_equal(result["x"], np.ones((4, 3)))
    result = to_numpy(iter([batch]), dtype={"x": "f8", "target.1": np.uint8})
    kept = result["target"][0].dtype, result["flag"].dtype
    assert (result["x"].dtype, result["target"][1].dtype, *kept) == ("f8", "u1", "i8", "?")
    assert to_numpy([np.ones(2)] * 2, dtype="f4").dtype == np.float32


def test_keys_may_come_in_another_order():
    batches = [
        {"x": np.zeros(2), "y": np.ones(2), "s": {"a": ["a"] * 2, "b": ["b"] * 2}},
        {"s": {"b": ["b"], "a": ["a"]}, "y": np.ones(1), "x": np.zeros(1)},
    ]
    expected = {"x": np.zeros(3), "y": np.ones(3), "s": {"a": ["a"] * 3, "b": ["b"] * 3}}
    assert_same(to_numpy(batches), expected)


def test_objects_and_strings_are_lists_and_none_stays_none():
    picture = object()
    batches = [
        {
            "names": ("a", "bc"),
            "objects": [picture, None],
            "dicts": [{"w": 1}, {"h": 2}],
            "lists": [[1, 2], [3]],
            "strings": np.array(["u", "vw"]),
            "any": np.array([{}, 1.5], object),
            "none": None,
        }
    ] * 2
    assert to_numpy(batches) == {
        "names": ["a", "bc"] * 2,
        "objects": [picture, None] * 2,
        "dicts": [{"w": 1}, {"h": 2}] * 2,
        "lists": [[1, 2], [3]] * 2,
        "strings": ["u", "vw"] * 2,
        "any": [{}, 1.5] * 2,
        "none": None,
    }
    assert to_numpy([["a", "b"], ("c",)]) == ["a", "b", "c"]


def test_a_list_with_arrays_in_it_is_part_of_the_structure():
    x = np.zeros(3)
    assert_same(to_numpy([{"x": x, "two": [np.arange(3), np.ones(3)]}])["two"][0], np.arange(3))
    for raw in ([np.zeros(1), np.zeros(2)], [{"boxes": np.zeros((0, 4))}] * 3):
        with pytest.raises(
            ValueError, match=r"entry \['raw'\]\[0\].*expected 3 samples.*np\.fromiter"
        ):
            to_numpy([{"x": x, "raw": raw}])
    # What the message says.
    raw = np.fromiter([np.arange(n) for n in (1, 5, 2)], object)
    assert_same(to_numpy([{"x": x, "raw": raw}] * 2)["raw"], [np.arange(n) for n in (1, 5, 2)] * 2)
    with pytest.raises(ValueError, match=r"entry \[1\] of batch 0: expected 2 samples.*got 3"):
        to_numpy([[np.zeros(2), ["a", "b", "c"]]])


def test_lists_of_batches_that_can_be_joined_at_once_and_those_that_can_not():
    x, y = torch.arange(10.0).reshape(5, 2), np.arange(5, dtype=np.int8)
    for batches, expected in (
        ([(x[:2], y[:2]), (x[2:], y[2:])], (x.numpy(), y)),
        ([{"x": x[:2], "y": [y[:2]]}, {"y": [y[2:]], "x": x[2:]}], {"x": x.numpy(), "y": [y]}),
        ([x[:3], x[3:].double().float().requires_grad_()], x.numpy()),
        ([x[:0], x.numpy(), x[:0]], x.numpy()),
        ([x[:0]], x[:0].numpy()),
    ):
        assert_same(to_numpy(batches), expected)
        assert_same(to_numpy(iter(batches)), expected)
    for batches, error in (
        ([(x[:2], y[:3]), (x[2:], y[3:])], ValueError),  # equal totals, but not per batch
        ([x, x.double()], TypeError),
        ([y, y.astype(">i2")], TypeError),
        ([x, x[:, :1, None]], ValueError),
        ([(x, y), (x,)], ValueError),
        ([{"x": x}, {"y": x}], ValueError),
    ):
        for loader in (batches, iter(batches)):
            with pytest.raises(error, match=r"batch [01]: "):
                to_numpy(loader)
    # More than is joined by one thread.
    large = [np.full((1 << 18, 2), i, np.float32) for i in range(3)]
    assert_same(to_numpy(large), np.concatenate(large))


class Stream(IterableDataset):
    """Numbers one after the other."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return iter(range(self.count))


class Unsure(BatchSampler):
    """Batches of any size."""

    def __len__(self):
        raise NotImplementedError


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
        (
            DataLoader(range(4), batch_sampler=pinfeed.samplers.LengthBucketSampler([1] * 4, 2)),
            None,
        ),
        (DataLoader(range(10), batch_sampler=Unsure(range(10), 3, False)), None),
        (DataLoader(range(4), batch_sampler=[[1], [2, 3]]), None),
        (iter([]), None),
        (3, None),
    ],
)
def test_planned_batches(loader, planned):
    assert planned_batches(loader) == planned


def test_a_collate_function_that_leaves_samples_out():
    loader = DataLoader(range(20), 4, collate_fn=lambda rows: np.array([i for i in rows if i % 3]))
    expected = np.array([i for i in range(20) if i % 3])
    assert_same(to_numpy(loader), expected)


def test_batches_whose_memory_is_used_again():
    buffer = np.zeros((2, 3))

    def batches():
        for i in range(5):
            buffer[:] = i
            yield buffer

    assert_same(to_numpy(batches()), np.repeat(np.arange(5.0), 2)[:, np.newaxis] * np.ones(3))


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
    shown = capsys.readouterr().err
    for part in ("to_numpy: 100%", "20.0/20.0", "samples/s"):
        assert part in shown
    to_numpy((x for (x,) in loader), progress=True)
    assert "20.0/20.0" in capsys.readouterr().err

    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    unread = iter(loader)
    with pytest.raises(ImportError, match=r"tqdm is not installed: pip install '.\[progress\]'"):
        to_numpy(unread, tmp_path / "x.npy", progress=True)
    assert len(list(unread)) == 4
    assert list(tmp_path.iterdir()) == []


# Of samples that differ in length.


def test_batches_of_different_widths_say_how_long_their_samples_are():
    batches = [torch.tensor([[1, 2], [3, 0]]), torch.tensor([[4, 5, 6]])]
    message = r"shape \(2,\) as before, got \(3,\); for .* pinfeed\.Padded with lengths"
    with pytest.raises(ValueError, match=message) as caught:
        to_numpy(batches)
    assert_same(caught.value.partial, batches[0].numpy())
    lengths = [torch.tensor([2, 1]), torch.tensor([3])]  # what the message says
    padded = map(pinfeed.Padded, batches, lengths)
    assert [row.tolist() for row in to_numpy(padded)] == [[1, 2], [3], [4, 5, 6]]


SEQUENCES = [np.arange(n, dtype=np.float32) + 1 for n in (3, 1, 0, 2, 5, 5, 4, 0, 1)]


@pytest.mark.parametrize("as_ndarrays", [False, True])
@pytest.mark.parametrize(
    "field",
    [
        pinfeed.Jagged(),
        pinfeed.Pad(),
        pinfeed.Pad(mask=True),
        pinfeed.Pad(side="left"),
        pinfeed.Pad(side="left", mask=True),
    ],
    ids=repr,
)
def test_the_data_of_padded_and_jagged_batches(field, as_ndarrays):
    batches = [pinfeed.Collate(field)(part) for part in cut(SEQUENCES, 4)]
    if as_ndarrays:
        batches = [type(b)(*(None if x is None else x.numpy() for x in b)) for b in batches]
    for most in (None, 1, 6):
        result = to_numpy(batches, max_samples=most)
        assert isinstance(result, pinfeed.RaggedArray)
        assert_same(list(result), SEQUENCES[:most])


def test_the_side_of_padding():
    values, lengths = torch.arange(6).reshape(2, 3), torch.tensor([1, 2])
    for mask, expected in (
        (None, [0, 3, 4]),
        ([[1, 0, 0], [1, 1, 0]], [0, 3, 4]),
        ([[0, 0, 1], [0, 1, 1]], [2, 4, 5]),
    ):
        masked = None if mask is None else torch.tensor(mask).bool()
        batch = pinfeed.Padded(values, lengths, masked)
        assert to_numpy([batch]).values.tolist() == expected
    holes = pinfeed.Padded(values, lengths, torch.tensor([[1, 0, 0], [1, 0, 1]]).bool())
    with pytest.raises(ValueError, match="batch 0: lengths and mask contradict each other"):
        to_numpy([holes])


def test_frames():
    """Padded and jagged batches whose items are more than numbers."""
    frames = [random_array((n, 2, 3), "i4", n) for n in (2, 4, 1)]
    for field in (pinfeed.Pad(axes=0), pinfeed.Jagged()):
        batches = [pinfeed.Collate(field)(frames[:2]), pinfeed.Collate(field)(frames[2:])]
        assert_same(list(to_numpy(batches)), frames)


def test_lengths_of_two_axes_stay_beside_the_values():
    boxes = [random_array((n, 3), "i4", n) for n in (2, 4, 4)]
    batches = [pinfeed.Collate(pinfeed.Pad(axes=(0, 1)))(part) for part in (boxes[:2], boxes[2:])]
    result = to_numpy(batches)
    assert_same(result.lengths, np.array([[2, 3], [4, 3], [4, 3]]))
    assert_same(result.values[1], boxes[1])


def test_ragged_arrays_are_batches_too():
    ragged = pinfeed.RaggedArray(torch.arange(9.0), torch.tensor([1, 3, 3, 8], dtype=torch.int32))
    assert_same(list(to_numpy([ragged[:1], ragged[1:]])), [part.numpy() for part in ragged])
    jagged = pinfeed.JaggedBatch(np.arange(9), np.array([2, 5, 7]))  # not all values are used
    assert_same(list(to_numpy([jagged])), [np.arange(2, 5), np.arange(5, 7)])


# Batches of arrays like those before take a short way, and any other batch the long one.
OTHER_ROWS = {
    "requires_grad": torch.ones(2, 3, requires_grad=True),
    "ndarray": np.full((1, 3), 2, np.float32),
    "no samples": torch.ones(0, 3),
    "strided": torch.arange(12.0).reshape(2, 6)[:, ::2],
    "negative": torch.ones(2, 3, dtype=torch.complex64).conj().imag,
    "a subclass": torch.nn.Parameter(torch.ones(2, 3)),
}


@pytest.mark.parametrize("other", OTHER_ROWS.values(), ids=OTHER_ROWS.keys())
@pytest.mark.parametrize(
    "make", [lambda x: x, lambda x: (x, x), lambda x: [x, x], lambda x: {"a": x, "b": {"c": x}}]
)
def test_batches_of_plain_arrays_and_others(make, other):
    parts = [torch.full((i % 3 + 1, 3), float(i)) for i in range(9)]
    parts.insert(5, other)
    expected = np.concatenate(
        [
            np.asarray(part.detach().resolve_neg() if isinstance(part, torch.Tensor) else part)
            for part in parts
        ]
    )
    result = to_numpy(make(part) for part in parts)
    assert_same(result, make(expected))


def test_a_plain_batch_whose_entries_disagree_is_left_out():
    x = torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"expected 2 samples, as .* has, got 1") as caught:
        to_numpy(iter([(x, x), (x, x), (x, x[:1])]))
    assert [len(array) for array in caught.value.partial] == [4, 4]
