"""write_array: the same values come back, from every source."""

import itertools
import os
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset

from arrays import NUMPY_DTYPES, random_array, views
from cold_files import contents
from pinfeed import ArrayDataset, RaggedArray, write_array
from programs import run_program
from samples import assert_same


@given(st.data(), st.sampled_from(NUMPY_DTYPES), st.lists(st.integers(0, 4), max_size=3))
def test_dense(tmp_path, data, dtype, shape):
    counts = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=5))
    batches = [data.draw(views((count, *shape), dtype)) for count in counts]
    expected = np.concatenate(batches)
    path = tmp_path / "x.npy"
    assume(len(expected))
    tensors = (torch.from_numpy(x.copy()) for x in expected) if shape else expected
    for samples in (itertools.chain.from_iterable(batches), tensors):
        written = write_array(path, samples, overwrite=True)
        assert isinstance(written, np.memmap)
        assert not written.flags.writeable
        for array in (written, np.load(path)):
            assert array.dtype == dtype
            assert array.shape == expected.shape
            assert array.tobytes() == expected.tobytes()
    assert os.listdir(tmp_path) == ["x.npy"]


@given(
    st.sampled_from(NUMPY_DTYPES),
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.lists(st.integers(0, 3), max_size=2),
)
def test_ragged(tmp_path, dtype, lengths, item):
    samples = [random_array((length, *item), dtype, seed) for seed, length in enumerate(lengths)]
    written = write_array(tmp_path / "x", iter(samples), overwrite=True)
    for ragged in (written, RaggedArray.open(tmp_path / "x")):
        assert_same(list(ragged), samples)
    assert sorted(os.listdir(tmp_path / "x")) == ["offsets.npy", "values.npy"]
    assert os.listdir(tmp_path) == ["x"]


def test_more_samples_than_wait_in_memory(tmp_path):
    lengths = np.random.default_rng(0).integers(0, 4, 20_000)
    whole = RaggedArray(np.arange(lengths.sum()), np.concatenate([[0], np.cumsum(lengths)]))
    written = write_array(tmp_path / "x", iter(whole))
    assert np.array_equal(written.values, whole.values)
    assert np.array_equal(written.offsets, whole.offsets)
    numbers = write_array(tmp_path / "x.npy", range(300_000))
    assert np.array_equal(numbers, np.arange(300_000))


def test_samples_for_which_there_is_no_room_behind_those_that_wait(tmp_path):
    images = random_array((5, 700, 1000), "u1")
    assert np.array_equal(write_array(tmp_path / "x.npy", iter(images)), images)
    sequences = [np.arange(length) for length in (3, 200_000, 5, 0, 300_000)]
    assert_same(list(write_array(tmp_path / "x", sequences)), sequences)


def test_a_shape_that_comes_after_many_empty_lists(tmp_path):
    written = write_array(tmp_path / "x", [*[[]] * 5000, [[1, 2], [3, 4]]])
    assert len(written) == 5001
    assert written[5000].tolist() == [[1, 2], [3, 4]]


def test_empty_arrays_of_floats_have_no_dtype(tmp_path):
    samples = [np.zeros(0), [1, 2], torch.zeros(0), np.arange(3), np.array([])]
    written = write_array(tmp_path / "x", samples)
    assert written.dtype == np.int64
    assert [list(sample) for sample in written] == [[], [1, 2], [], [0, 1, 2], []]
    entries = write_array(tmp_path / "leaves", [{"x": sample, "y": 1} for sample in samples])
    assert_same(list(entries["x"]), list(written))
    assert write_array(tmp_path / "rows.npy", [np.zeros(0)] * 3).shape == (3, 0)
    assert write_array(tmp_path / "none", [[], np.zeros(0, np.float16)]).dtype == np.float16


def test_a_list_of_arrays_is_one_of_samples(tmp_path):
    images = list(random_array((10, 8, 8, 3), "u1"))
    assert write_array(tmp_path / "x.npy", images).shape == (10, 8, 8, 3)
    written = write_array(tmp_path / "x", ({"image": image} for image in images))
    assert np.array_equal(written["image"], images)
    rows = write_array(tmp_path / "rows", [np.arange(3), np.arange(2)])
    assert_same(list(rows), [np.arange(3), np.arange(2)])


def test_dicts(tmp_path):
    samples = [
        {
            "image": np.full((2, 3), i, np.uint8),
            "tokens": list(range(i)),
            "label": i,
            "a/b": 0.5,
            "name": f"{i}ä",
            "raw": b"\xff" * i,
            "later": np.ones(2 + i // 4),
        }
        for i in range(5)
    ]
    path = tmp_path / "x"
    written = write_array(path, samples)
    ragged = {"tokens", "name", "raw", "later"}
    assert {*os.listdir(path)} == {"a%2Fb.npy", "image.npy", "label.npy", *ragged}
    assert {key for key, entry in written.items() if isinstance(entry, RaggedArray)} == ragged
    assert list(written["name"]) == [sample["name"] for sample in samples]
    strings = RaggedArray.from_strings(sample["raw"] for sample in samples)
    strings.save(tmp_path / "saved")
    assert contents(tmp_path / "saved") == contents(path / "raw")
    assert written["a/b"].dtype == np.float32
    dataset = ArrayDataset(written)
    assert len(dataset) == 5
    assert dataset[3]["tokens"].tolist() == [0, 1, 2]
    assert dataset[3]["label"] == 3


def test_strings(tmp_path):
    names = ["a.jpg", "", "ä" * 7000, "d.jpg"] * 1500
    assert list(write_array(tmp_path / "x", iter(names))) == names
    RaggedArray.from_strings(names).save(tmp_path / "saved")
    assert contents(tmp_path / "saved") == contents(tmp_path / "x")


class Broken(Dataset[Any]):
    """A dataset that raises an error of its own at its fifth sample."""

    def __len__(self):
        return 7

    def __getitem__(self, i):
        return {"x": 1 // (i - 4)}


@pytest.mark.parametrize("make", [Broken, lambda: ({"x": 1 // (i - 4)} for i in range(7))])
def test_an_error_of_the_dataset_says_at_which_sample(tmp_path, make):
    with pytest.raises(ZeroDivisionError) as caught:
        write_array(tmp_path / "x", make())
    assert caught.value.__notes__ == ["raised by the samples of write_array at sample 4"]
    assert os.listdir(tmp_path) == []


def test_images(tmp_path):
    pixels = random_array((3, 4, 5, 3), "u1")
    written = write_array(tmp_path / "x.npy", map(PIL.Image.fromarray, pixels))
    assert np.array_equal(written, pixels)


class Squares(Dataset[Any]):
    """A map-style dataset that never ends if indexed beyond its length."""

    def __len__(self):
        return 7

    def __getitem__(self, i):
        return {"x": i, "y": torch.tensor([i * i])}


def test_datasets_and_loaders(tmp_path):
    written = write_array(tmp_path / "a", Squares())
    assert written["x"].tolist() == list(range(7))
    again = write_array(tmp_path / "b", DataLoader(Squares(), batch_size=None))
    assert again["y"].tolist() == written["y"].tolist() == [[i * i] for i in range(7)]
    rows = write_array(tmp_path / "c", ArrayDataset({"x": np.arange(3)}))
    assert rows["x"].tolist() == [0, 1, 2]


class Chunked:
    """Rows by their number, and a shape in place of a length, as zarr's arrays have it."""

    shape = (3, 2)

    def __getitem__(self, i):
        return np.full(2, i)


def test_what_has_a_shape_and_no_length(tmp_path):
    assert write_array(tmp_path / "x.npy", Chunked()).tolist() == [[0, 0], [1, 1], [2, 2]]


def test_big_endian_files(tmp_path):
    np.save(tmp_path / "big.npy", np.arange(6, dtype=">i2").reshape(3, 2))
    big = np.load(tmp_path / "big.npy", mmap_mode="r")
    with pytest.raises(TypeError, match=r"write_array\(path, a, dtype='int16'\)"):
        ArrayDataset(tmp_path / "big.npy")
    written = write_array(tmp_path / "x.npy", big, dtype=np.int16)
    assert ArrayDataset(written)[2].tolist() == [4, 5]


def test_dtypes(tmp_path):
    def write(samples, dtype=None, name="x"):
        return write_array(tmp_path / name, samples, dtype=dtype, overwrite=True).dtype

    assert write([1, 2], name="x.npy") == np.int64
    assert write([0.5, 2.0], name="x.npy") == np.float32
    assert write([True], name="x.npy") == np.bool_
    assert write([np.float64(1)], name="x.npy") == np.float64
    assert write([[], [1.5]]) == np.float32
    assert write([[1], []], torch.int16) == np.int16
    assert write([[], []], np.uint8) == np.uint8
    written = write_array(tmp_path / "y", [{"a": 1, "b": 2}], dtype={"a": np.uint8}, overwrite=True)
    assert (written["a"].dtype, written["b"].dtype) == (np.uint8, np.int64)


def test_what_a_mapped_file_is_made_of_can_be_overwritten(tmp_path):
    path = tmp_path / "x.npy"
    first = write_array(path, range(10))
    second = write_array(path, (number * 2 for number in first), overwrite=True)
    assert first.tolist() == list(range(10))
    assert second.tolist() == np.load(path).tolist() == list(range(0, 20, 2))


def test_progress(tmp_path, capsys):
    write_array(tmp_path / "x.npy", [np.zeros(1000)] * 50, progress=True)
    assert "write_array: 100%" in capsys.readouterr().err
    with pytest.raises(TypeError, match="sample 0: expected a numeric or bool dtype"):
        write_array(tmp_path / "y.npy", [None], progress=True)
    assert "write_array: 0.00 samples" in capsys.readouterr().err


def test_what_is_written_does_not_stay_in_memory(tmp_path):
    shown = run_program("little_memory", str(tmp_path)).splitlines()  # 63 MB and 48 MB
    assert shown == ["(60, 1048576)", "6000"]
