"""to_numpy: every structure, dtype and kind of leaf, from loaders of every kind."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Subset, TensorDataset

import pinfeed
from arrays import NUMPY_DTYPES, views
from pinfeed.exports.loader import PlannedLength, planned_length
from pinfeed.exports.to_numpy import to_numpy
from samples import STRUCTURES, MarkedTensor, assert_same


class Numbers:
    """A sampler that may yield fewer or more samples than it says."""

    def __init__(self, count: int, said: int) -> None:
        self.count, self.said = count, said

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))

    def __len__(self) -> int:
        return self.said


def cut(rows: Any, size: int) -> list[Any]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


# What a loader says about its length, from the number of samples.
SAID = {"exact": lambda n: n, "too few": lambda n: 1, "too many": lambda n: 2 * n + 3}


def make_loader(kind: str, batches: list[Any], count: int, size: int) -> Iterable[Any]:
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
def test_structures_shapes_dtypes_and_loaders(
    data: st.DataObject, structure: str, loader: str
) -> None:
    count, size = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 5))
    columns: list[Any] = []
    for _ in "xy":
        shape = (count, *data.draw(st.lists(st.integers(0, 3), max_size=2)))
        array = data.draw(views(shape, data.draw(st.sampled_from(NUMPY_DTYPES))))
        as_tensor = min(array.strides) >= 0 and data.draw(st.booleans())
        columns.append(torch.from_numpy(array) if as_tensor else array)
    make = STRUCTURES[structure]
    batches = [make(x, y) for x, y in zip(*(cut(column, size) for column in columns), strict=True)]
    result = to_numpy(make_loader(loader, batches, count, size))
    assert_same(result, make(*(np.asarray(column).copy() for column in columns)))


def test_collate_bucketed_batches_and_workers() -> None:
    sequences = [np.arange(i % 23) for i in range(200)]
    ragged = pinfeed.RaggedArray.from_sequences(sequences)
    sampler = pinfeed.LengthBucketSampler(ragged.lengths, max_tokens=64, seed=1)
    order = np.concatenate(list(sampler))
    loader = DataLoader(
        pinfeed.ArrayDataset({"tokens": ragged, "id": np.arange(200)}),
        batch_sampler=sampler,
        collate_fn=pinfeed.Collate({"tokens": pinfeed.Pad(-1, lengths=True)}),
        num_workers=2,
    )
    result = to_numpy(loader)
    assert_same(result["id"], order)
    assert_same(list(result["tokens"]), [sequences[i] for i in order])


@given(st.integers(1, 20), st.integers(1, 6), st.integers(1, 25), st.sampled_from(["list", *SAID]))
def test_max_samples(count: int, size: int, most: int, loader: str) -> None:
    rows = np.arange(count)
    batches = [{"x": part, "s": [str(i) for i in part]} for part in cut(rows, size)]
    result = to_numpy(make_loader(loader, batches, count, size), max_samples=most)
    assert_same(result, {"x": rows[:most], "s": [str(i) for i in rows[:most]]})


def test_max_samples_ends_an_infinite_loader_at_the_batch_that_fills_it() -> None:
    drawn = []

    def forever() -> Iterator[Any]:
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
def test_arrays_that_are_more_than_memory(batch: Any, expected: np.ndarray) -> None:
    assert_same(
        to_numpy([batch, batch[:1]]),
        np.concatenate([expected, expected[:1]], axis=0, dtype=expected.dtype),
    )


@pytest.mark.parametrize("kind", ["dense", "transposed", "jagged", "padded"])
def test_bfloat16(kind: str) -> None:
    values = torch.randn(6, 5).to(torch.bfloat16)
    batch: Any = values.t() if kind == "transposed" else values
    if kind == "jagged":
        batch = pinfeed.JaggedBatch(values, torch.tensor([0, 4, 6]))
    if kind == "padded":
        batch = pinfeed.Padded(values, torch.full((6,), 5))
    for choice, expected in (("float32", values.float()), ("uint16", values.view(torch.uint16))):
        result = to_numpy([batch], bfloat16=choice)
        result = result.values if isinstance(result, pinfeed.RaggedArray) else result
        wanted = expected.t() if kind == "transposed" else expected
        assert_same(result.ravel(), wanted.numpy().ravel())


def test_keys_may_come_in_another_order() -> None:
    batches = [
        {"x": np.zeros(2), "y": np.ones(2), "s": {"a": ["a"] * 2, "b": ["b"] * 2}},
        {"s": {"b": ["b"], "a": ["a"]}, "y": np.ones(1), "x": np.zeros(1)},
    ]
    expected = {"x": np.zeros(3), "y": np.ones(3), "s": {"a": ["a"] * 3, "b": ["b"] * 3}}
    assert_same(to_numpy(batches), expected)


def test_objects_and_strings_are_lists_and_none_stays_none() -> None:
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


def arrays_of(*lengths: int) -> list[Any]:
    return [np.arange(n) for n in lengths]


def test_lists_of_arrays_are_objects_only_where_they_cannot_be_columns() -> None:
    x = np.zeros(3)
    # As many as samples, and none of that size, or not all.
    assert_same(to_numpy([{"x": x, "raw": arrays_of(1, 5, 2)}] * 2)["raw"], arrays_of(1, 5, 2) * 2)
    assert_same(to_numpy([{"raw": arrays_of(3, 1, 2), "x": x}])["raw"], arrays_of(3, 1, 2))
    # Columns.
    assert_same(to_numpy([{"x": x, "two": arrays_of(3, 3)}])["two"], arrays_of(3, 3))
    assert_same(to_numpy([arrays_of(2, 2)]), arrays_of(2, 2))
    # Neither.
    with pytest.raises(ValueError, match=r"leaf \['raw'\]\[0\].*expected 3 samples.*got 1"):
        to_numpy([{"x": x, "raw": arrays_of(1, 2)}])
    with pytest.raises(ValueError, match=r"leaf \[1\] of batch 0: expected 2 samples.*got 3"):
        to_numpy([[np.zeros(2), ["a", "b", "c"]]])


def test_what_a_loader_plans_tells_samples_from_columns() -> None:
    def loader(*lengths: int, collate: Any = list) -> DataLoader:
        return DataLoader(arrays_of(*lengths), 2, collate_fn=collate)

    assert_same(to_numpy(loader(4, 1, 3, 2)), arrays_of(4, 1, 3, 2))
    with pytest.raises(ValueError, match=r"2 arrays in a list could be the 2 samples"):
        to_numpy(loader(3, 3, 3, 3))
    # What the message says: columns, or samples.
    assert_same(to_numpy(iter(loader(3, 3, 3, 3))), [np.tile(np.arange(3), 2)] * 2)
    marked = loader(3, 3, 3, 3, collate=lambda samples: np.fromiter(samples, object))
    assert_same(to_numpy(marked), arrays_of(3, 3, 3, 3))


def test_images_and_targets_of_a_detector() -> None:
    samples = [(torch.zeros(3, i + 1, 2), {"boxes": torch.zeros(i, 4)}) for i in range(5)]
    loader = DataLoader(samples, 4, collate_fn=lambda batch: tuple(zip(*batch, strict=True)))
    images, targets = to_numpy(loader)
    assert [tuple(image.shape) for image in images] == [(3, i + 1, 2) for i in range(5)]
    assert [len(target["boxes"]) for target in targets] == list(range(5))


class Stream(IterableDataset):
    """Numbers one after the other."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))


class SizedStream(Stream):
    def __len__(self) -> int:
        return self.count


class Shard(BatchSampler):
    """Every second batch, as a library for several processes makes it."""

    def __iter__(self) -> Iterator[list[int]]:
        return islice(super().__iter__(), 0, None, 2)

    def __len__(self) -> int:
        return (super().__len__() + 1) // 2


@pytest.mark.parametrize(
    ("loader", "plan"),
    [
        (DataLoader(range(10), 4), PlannedLength(10, 4)),
        (DataLoader(range(10), 4, drop_last=True), PlannedLength(8, 4)),
        (DataLoader(range(3), 4), PlannedLength(3, 3)),
        (DataLoader(range(3), 4, drop_last=True), PlannedLength(0, 0)),
        (DataLoader(range(10), 4, sampler=range(3, 9)), PlannedLength(6, 4)),
        (DataLoader(Subset(range(10), [1, 2, 5]), 2, shuffle=True), PlannedLength(3, 2)),
        (DataLoader(range(10), batch_sampler=BatchSampler(range(7), 3, True)), PlannedLength(6, 3)),
        (DataLoader(range(10), batch_sampler=[[1], [2, 3]]), PlannedLength(3, 1)),
        (DataLoader(SizedStream(9), 2, drop_last=True), PlannedLength(8, 2)),
        (DataLoader(Stream(3), 2), None),
        (DataLoader(SizedStream(3), None), None),
        (DataLoader(range(4), None), None),
        (DataLoader(range(4), 2, sampler=iter([1, 2])), None),
        (DataLoader(range(4), batch_sampler=pinfeed.LengthBucketSampler([1] * 4, 2)), None),
        (DataLoader(range(10), batch_sampler=Shard(range(10), 3, False)), None),
        (DataLoader(range(4), batch_sampler=[]), None),
        (iter([]), None),
        (3, None),
    ],
)
def test_planned_length(loader: Any, plan: PlannedLength | None) -> None:
    assert planned_length(loader) == plan
    if plan is not None:
        assert len([i for batch in loader for i in batch]) == plan.samples


def test_a_collate_function_that_leaves_samples_out() -> None:
    loader = DataLoader(range(20), 4, collate_fn=lambda rows: np.array([i for i in rows if i % 3]))
    expected = np.array([i for i in range(20) if i % 3])
    assert_same(to_numpy(loader), expected)
    out = np.zeros(13, np.int64)  # room for all that come, not for all that the sampler draws
    assert to_numpy(loader, out) is out
    assert_same(out, expected)


def test_empty_batches_say_the_dtype_only() -> None:
    batches = [np.zeros((0, 7), np.int16), np.ones((2, 3), np.int16), np.zeros((0, 0), np.int16)]
    assert_same(to_numpy(batches), np.ones((2, 3), np.int16))
    assert_same(to_numpy(batches[:1]), np.zeros((0, 7), np.int16))


def test_batches_whose_memory_is_used_again() -> None:
    buffer = np.zeros((2, 3))

    def batches() -> Iterator[np.ndarray]:
        for i in range(5):
            buffer[:] = i
            yield buffer

    assert_same(to_numpy(batches()), np.repeat(np.arange(5.0), 2)[:, np.newaxis] * np.ones(3))


def test_out_is_filled_and_returned() -> None:
    x, y = torch.randn(10, 3), torch.arange(10)
    out = [np.zeros((10, 3), np.float32), np.zeros(10, np.int64)]
    for loader in (DataLoader(TensorDataset(x, y), 4), list(DataLoader(TensorDataset(x, y), 4))):
        result = to_numpy(loader, out)
        assert result[0] is out[0]
        assert result[1] is out[1]
        assert_same(result, [x.numpy(), y.numpy()])


def test_out_that_is_longer_strided_or_left_to_make() -> None:
    batches = [{"x": np.full((2, 3), i, ">i2"), "y": ["a", "b"], "z": np.ones(2)} for i in range(3)]
    base = np.zeros((16, 6), ">i2")
    result = to_numpy(iter(batches), {"x": base[::2, ::2], "y": None, "z": None})
    assert_same(result["x"].copy(), np.repeat(np.arange(3), 2)[:, None].astype(">i2").repeat(3, 1))
    assert np.shares_memory(result["x"], base)
    assert (base[12:] == 0).all()
    assert (base[1::2] == 0).all()
    assert result["y"] == ["a", "b"] * 3
    assert_same(result["z"], np.ones(6))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_out_with_strides_takes_tensors(dtype: torch.dtype) -> None:
    values = torch.randn(4, 3, dtype=dtype)
    expected = (values.float() if dtype == torch.bfloat16 else values).numpy()
    out = np.zeros((3, 4), expected.dtype).T
    assert to_numpy([values], out) is out
    assert_same(out.copy(), expected.copy())


@pytest.mark.slow  # transformers takes seconds to import
def test_outputs_of_transformers() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")
    batch = outputs.SequenceClassifierOutput(logits=torch.ones(4, 2, requires_grad=True))
    result = to_numpy(iter([batch, batch]))
    assert type(result) is type(batch)
    assert_same(result.logits, np.ones((8, 2), np.float32))
    assert_same(result["logits"], result.logits)


def test_progress(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loader = DataLoader(TensorDataset(torch.zeros(20, 25)), 5)
    to_numpy(loader, progress=True)
    shown = capsys.readouterr().err
    for part in ("to_numpy: 100%", "20.0/20.0", "samples/s", "2.00kB"):
        assert part in shown
    to_numpy((x for (x,) in loader), progress=True)
    assert "20.0 samples" in capsys.readouterr().err

    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    unread = iter(loader)
    with pytest.raises(ImportError, match=r"tqdm is not installed: pip install pinfeed\[progress"):
        to_numpy(unread, tmp_path / "x.npy", progress=True)
    assert len(list(unread)) == 4
    assert list(tmp_path.iterdir()) == []
