"""RaggedArray: views, slices and selections, use in a dataset, and wrong offsets."""

import pickle
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
from pinfeed.sources.ragged import RaggedArray
from programs import run_program
from samples import assert_same

LENGTHS = [3, 0, 1, 5, 0, 2, 4]
COUNT = len(LENGTHS)
TOTAL = sum(LENGTHS)


def offsets():
    return np.cumsum([0, *LENGTHS])


def values():
    return np.arange(TOTAL * 2, dtype=np.float32).reshape(TOTAL, 2)


def parts(array):
    """Returns the sequences, by definition."""
    ends = offsets()
    return [array[ends[i] : ends[i + 1]] for i in range(COUNT)]


def mapped(folder, name, array, mode="r"):
    np.save(folder / name, array)
    return np.load(folder / f"{name}.npy", mmap_mode=mode)


def read_only(array):
    array.flags.writeable = False
    return array


KINDS = {
    "ndarrays": lambda _: (values(), offsets()),
    "read-only": lambda _: (read_only(values()), read_only(offsets())),
    "strided": lambda _: (np.repeat(values(), 2, 0)[::2, ::-1], np.repeat(offsets(), 3)[::3]),
    "backwards": lambda _: (values()[::-1], offsets()[::-1].copy()[::-1]),
    "int32 offsets": lambda _: (values(), offsets().astype(np.int32)),
    "memmaps": lambda folder: (mapped(folder, "values", values()), mapped(folder, "offsets", offsets(), "r+")),
    "tensors": lambda _: (torch.from_numpy(values()), torch.from_numpy(offsets())),
    "bfloat16": lambda _: (torch.from_numpy(values()).to(torch.bfloat16), offsets()),
    "tensor view": lambda _: (torch.from_numpy(values()).t().contiguous().t(), offsets()),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_are_views(kind, tmp_path):
    array, ends = KINDS[kind](tmp_path)
    ragged = RaggedArray(array, ends)
    plain = array if isinstance(array, torch.Tensor) else np.asarray(array)
    assert type(ragged.values) is type(plain)
    assert np.shares_memory(np.asarray(ends), ragged.offsets)
    assert ragged.offsets.dtype == np.asarray(ends).dtype
    assert len(ragged) == COUNT
    assert_same(list(ragged), parts(plain))
    for i in range(-COUNT, COUNT):
        assert_same(ragged[i], parts(plain)[i])
    for i in (0, np.int64(3), np.array(3), torch.tensor(3), -1):
        view, expected = ragged[i], parts(plain)[i]
        if isinstance(array, torch.Tensor):
            assert view.data_ptr() == expected.data_ptr()
            assert view.stride() == expected.stride()
        else:
            assert view.ctypes.data == expected.ctypes.data
            assert view.strides == expected.strides
            assert view.flags.writeable == array.flags.writeable


def test_empty_arrays():
    for ragged in (RaggedArray(np.arange(3), np.array([1])), RaggedArray(values(), offsets())[:0]):
        assert len(ragged) == 0
        assert list(ragged) == []
        assert_same(ragged.lengths, np.empty(0, np.int64))
        assert len(ragged[::2]) == len(ragged[[]]) == 0
    assert_same(list(RaggedArray(np.empty((0, 3)), np.zeros(3, np.int64))), [np.empty((0, 3))] * 2)


@pytest.mark.parametrize("kind", KINDS)
@given(st.slices(COUNT))
def test_slices(kind, tmp_path_factory, part):
    array, ends = KINDS[kind](tmp_path_factory.getbasetemp())
    ragged = RaggedArray(array, ends)
    plain = array if isinstance(array, torch.Tensor) else np.asarray(array)
    cut = ragged[part]
    assert type(cut) is RaggedArray
    assert_same(list(cut), parts(plain)[part])
    assert_same(list(cut[1:]), parts(plain)[part][1:])
    if part.step in (None, 1):
        assert np.shares_memory(cut.offsets, ragged.offsets)
        if isinstance(array, torch.Tensor):
            assert cut.values is array
        else:
            assert cut.values is ragged.values


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(st.integers(-COUNT, COUNT - 1), max_size=20))
def test_selections(kind, tmp_path_factory, index):
    array, ends = KINDS[kind](tmp_path_factory.getbasetemp())
    ragged = RaggedArray(array, ends)
    plain = array if isinstance(array, torch.Tensor) else np.asarray(array)
    expected = [parts(plain)[i] for i in index]
    for form in (index, np.array(index, np.int16), torch.tensor(index, dtype=torch.int64)):
        chosen = ragged[form]
        assert type(chosen) is RaggedArray
        assert_same(list(chosen), expected)
        assert chosen.offsets[0] == 0
        assert chosen.offsets[-1] == len(chosen.values)
        if isinstance(array, torch.Tensor):
            assert chosen.values.is_contiguous()
        else:
            assert chosen.values.flags.c_contiguous
            assert not np.shares_memory(chosen.values, ragged.values)


def test_selections_larger_than_one_copied_block():
    rng = np.random.default_rng(0)
    lengths = rng.choice([0, 1, 30, 3000, 100_000], 500)
    ends = np.cumsum([5, *lengths])
    array = rng.integers(0, 256, ends[-1] + 7, np.uint8)
    index = rng.integers(-500, 500, 700)
    chosen = RaggedArray(array, ends)[index]
    expected = [array[ends[i] : ends[i] + lengths[i]] for i in index % 500]
    assert_same(list(chosen), expected)


def test_masks():
    ragged = RaggedArray(values(), offsets())
    expected = [part for part in parts(values()) if len(part) > 1]
    mask = ragged.lengths > 1
    for form in (mask, torch.from_numpy(mask), np.repeat(mask, 2)[::2], mask.tolist()):
        assert_same(list(ragged[form]), expected)
    with pytest.raises(IndexError, match=r"mask of shape \(7,\), got \(6,\)"):
        ragged[mask[1:]]
    with pytest.raises(IndexError, match=r"mask of shape \(7,\), got \(7, 1\)"):
        ragged[mask[:, None]]


@pytest.mark.parametrize("index", [COUNT, -COUNT - 1, 2**70])
def test_indices_out_of_range(index):
    ragged = RaggedArray(values(), offsets())
    with pytest.raises(IndexError, match=r"RaggedArray: index -?\d+ is out of range for 7 samp"):
        ragged[index]
    with pytest.raises(IndexError, match=r"RaggedArray: indices: index .* at position 1"):
        ragged[[0, index]]


REFUSED = (
    ([1, 2], offsets(), TypeError, "values: expected a NumPy array or a torch tensor, got li"),
    (values(), np.ma.array(offsets()), TypeError, "offsets: expected an array without a mask"),
    (np.float32(1), offsets(), TypeError, "values: expected a NumPy array.*got float32"),
    (np.zeros(()), offsets(), ValueError, "values: .*0-d"),
    (values(), offsets().astype(np.uint64), TypeError, "offsets: expected int64 or int32, got ui"),
    (values(), offsets().astype(np.float64), TypeError, "offsets: expected int64 or int32, got fl"),
    (values(), offsets() > 0, TypeError, "offsets: expected int64 or int32, got bool"),
    (values(), offsets()[:0], ValueError, r"offsets: .*of sequences \+ 1,\), got \(0,\)"),
    (values(), offsets()[:, None], ValueError, r"offsets: .*of sequences \+ 1,\), got \(8, 1\)"),
    (values(), np.array([-1, 3]), ValueError, r"offsets\[0\] must be from 0 to 15 .*, got -1$"),
    (values(), np.array([16]), ValueError, r"offsets\[0\] must be from 0 to 15 \(the numb.*, got 16$"),
    (values(), np.array([0, 15, 16]), ValueError, r"offsets\[2\] must be from 15 .*to 15 .*, got 16$"),
    (values(), np.array([0, 9, 4, 99]), ValueError, r"\[2\] must be from 9 \(offsets\[1\]\) .*, got 4$"),
    (values(), np.array([0, 99, 4, -1]), ValueError, r"\[1\] must be from 0 .* to 15 .*, got 99$"),
    (values(), np.array([0, -4, 1]), ValueError, r"\[1\] must be from 0 .*, got -4$"),
    (values(), np.array([0, 2**63 - 1, 3]), ValueError, r"\[1\] must be .*, got 9223372036854775807$"),
    (values(), torch.tensor([0, 3, 2]), ValueError, r"\[2\] must be from 3 .*, got 2$"),
)  # fmt: skip


@pytest.mark.parametrize(("array", "ends", "error", "message"), REFUSED)
def test_bad_offsets_and_values(array, ends, error, message):
    with pytest.raises(error, match=f"^RaggedArray: .*{message}"):
        RaggedArray(array, ends)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("entry", [1, 2**20 - 1, 2**20, 2**20 + 1, 2**21, 2_500_000])
def test_the_first_bad_entry_of_many(entry, dtype):
    ends = np.arange(2_500_001, dtype=dtype)
    ends[entry:] -= 2
    ends[-1] = -5
    result = -5 if entry == 2_500_000 else entry - 2
    message = re.escape(f"offsets[{entry}] must be from {entry - 1} ") + f".*, got {result}$"
    with pytest.raises(ValueError, match=message):
        RaggedArray(np.broadcast_to(np.uint8(0), 2_500_001), ends)


BROKEN_LATER = {
    "before the first value": -1,
    "less than the one before": 2,
    "past the last value": 16,
    "far away": 2**62,
    "far before": -(2**62),
}


@pytest.mark.parametrize("offset", BROKEN_LATER.values(), ids=list(BROKEN_LATER))
@pytest.mark.parametrize("kind", ["ndarrays", "memmaps", "tensors"])
def test_offsets_that_change_later(kind, offset, tmp_path):
    array, ends = KINDS[kind](tmp_path)
    ragged = RaggedArray(array, ends)
    ends[3] = offset  # the end of sequence 2 and the start of sequence 3
    name = re.escape(str(tmp_path)) if kind == "memmaps" else "RaggedArray"
    dataset = pinfeed.ArrayDataset({"x": ragged})
    reads = (
        lambda: ragged[[0, 2]],
        lambda: ragged[::-1],
        lambda: pinfeed.Collate()(dataset.__getitems__([2, 2])),
        lambda: ragged.save(tmp_path / "saved"),
    )
    for read in reads:
        with pytest.raises(
            ValueError,
            match=rf"({name}|Collate: entry).*offsets(\[\d\] must be from .*, got {offset}$| must not decrease .*{offset}\b)",
        ):
            read()
    assert_same(ragged[0], parts(array)[0] if kind == "tensors" else parts(np.asarray(array))[0])


def test_selections_larger_than_memory():
    assert run_program("larger_than_memory").split() == ["refused"] * 19


def test_pickles_are_small():
    large = RaggedArray(np.zeros(10**6), np.arange(10**6 + 1))
    assert len(pickle.dumps(large[500:510])) < 1000


# As an entry of ArrayDataset.


def test_ragged_samples_of_different_lengths_do_not_stack():
    rows = pinfeed.ArrayDataset({"x": RaggedArray(values(), offsets())}).__getitems__([2, 2, 0])
    message = (
        r"entry \['x'\] of sample 2 of the batch \(index 0\): expected length 1 .*, got 3; Pad"
    )
    with pytest.raises(ValueError, match=message):
        pinfeed.Collate()(rows)


def test_ragged_images():
    photos = np.arange(10 * 4 * 3, dtype=np.uint8).reshape(10, 4, 3)  # heights: 3, 3, 4
    rows = pinfeed.ArrayDataset(RaggedArray(photos, np.array([0, 3, 6, 10]))).__getitems__
    collate = pinfeed.Collate(pinfeed.Image())
    assert_same(collate(rows([0, 1])), collate([photos[:3], photos[3:6]]))
    with pytest.raises(ValueError, match=r"sample 1 of the batch \(index 2\)"):
        collate(rows([0, 2]))
