"""write_array: the values of every source are unchanged."""

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


class Chunked:
    """Rows by number, and a shape instead of a length, like zarr's arrays."""

    shape = (3, 2)

    def __getitem__(self, i):
        return np.full(2, i)


class Unsure(list[int]):
    """An iterable of unknown length."""

    def __len__(self):
        raise NotImplementedError


IMAGES = random_array((10, 8, 8, 3), "u1")
LARGE = random_array((5, 700, 1000), "u1")
LONG = [np.arange(length) for length in (3, 200_000, 5, 0, 300_000)]
SHORT = [np.arange(length) for length in np.random.default_rng(0).integers(0, 4, 20_000)]
NOTHING, ROWS = np.zeros(0), [np.arange(3), np.arange(2)]
# Samples, a dtype, and the result: an array, or a list of sequences.
SAMPLES = {
    # More samples than wait in memory, or without space after the waiting ones.
    "many numbers": (range(300_000), None, np.arange(300_000)),
    "many sequences": (SHORT, None, SHORT),
    "large images": (LARGE, None, LARGE),
    "long sequences": (LONG, None, LONG),
    "a shape after empty lists": (
        [*[[]] * 5000, [[1, 2], [3, 4]]], None, [*[np.zeros((0, 2), int)] * 5000, np.array([[1, 2], [3, 4]])],
    ),
    "a list of images": (list(IMAGES), None, IMAGES),
    "PIL images": ([PIL.Image.fromarray(image) for image in IMAGES], None, IMAGES),
    "arrays": (ROWS, None, ROWS),
    "a shape and no length": (Chunked(), None, np.repeat(np.arange(3), 2).reshape(3, 2)),
    "unknown length": (Unsure([1, 2]), None, np.array([1, 2])),
    # Empty float arrays have no dtype.
    "empty arrays": (
        [NOTHING, [1, 2], torch.zeros(0), np.arange(3), NOTHING],
        None, [np.arange(0), np.array([1, 2]), np.arange(0), np.arange(3), np.arange(0)],
    ),
    "empty arrays only": ([NOTHING] * 3, None, np.zeros((3, 0))),
    "empty float16": ([[], NOTHING.astype("f2")], None, [NOTHING.astype("f2")] * 2),
    # Dtypes.
    "floats": ([0.5, 2.0], None, np.array([0.5, 2], "f4")),
    "bools": ([True], None, np.array([True])),
    "numbers of NumPy": ([np.float64(1)], None, np.ones(1)),
    "lists of floats": ([[], [1.5]], None, [np.zeros(0, "f4"), np.array([1.5], "f4")]),
    "lists with a dtype": ([[1], []], torch.int16, [np.array([1], "i2"), np.zeros(0, "i2")]),
    "empty lists with a dtype": ([[], []], np.uint8, [np.zeros(0, "u1")] * 2),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_every_kind_of_samples(name, tmp_path):
    samples, dtype, expected = SAMPLES[name]
    if isinstance(expected, np.ndarray):
        written = write_array(tmp_path / "x.npy", samples, dtype=dtype)
        assert_same(np.array(written), expected)
    else:
        written = write_array(tmp_path / "x", samples, dtype=dtype)
        assert isinstance(written, RaggedArray)
        assert_same(list(written), expected)
    if isinstance(samples, list) and len(expected) < 20 and name != "empty arrays only":
        dicts = ({"x": sample, "y": 1} for sample in samples)
        both = write_array(tmp_path / "both", dicts, dtype={"x": dtype})
        assert_same([*map(np.asarray, both["x"])], [*map(np.asarray, expected)])


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
    """A dataset that raises at its fifth sample."""

    def __len__(self):
        return 7

    def __getitem__(self, i):
        return {"x": 1 // (i - 4)}


@pytest.mark.parametrize("make", [Broken, lambda: ({"x": 1 // (i - 4)} for i in range(7))])
def test_dataset_errors_name_the_sample(tmp_path, make):
    with pytest.raises(ZeroDivisionError) as caught:
        write_array(tmp_path / "x", make())
    assert caught.value.__notes__ == ["raised by the samples of write_array at sample 4"]
    assert os.listdir(tmp_path) == []


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


def test_big_endian_files(tmp_path):
    np.save(tmp_path / "big.npy", np.arange(6, dtype=">i2").reshape(3, 2))
    big = np.load(tmp_path / "big.npy", mmap_mode="r")
    with pytest.raises(TypeError, match=r"write_array\(path, a, dtype='int16'\)"):
        ArrayDataset(tmp_path / "big.npy")
    written = write_array(tmp_path / "x.npy", big, dtype=np.int16)
    assert ArrayDataset(written)[2].tolist() == [4, 5]


def test_a_dtype_per_key(tmp_path):
    written = write_array(tmp_path / "y", [{"a": 1, "b": 2}], dtype={"a": np.uint8})
    assert (written["a"].dtype, written["b"].dtype) == (np.uint8, np.int64)


def test_the_sources_of_a_mapped_file_can_be_overwritten(tmp_path):
    path = tmp_path / "x.npy"
    first = write_array(path, range(10))
    second = write_array(path, (number * 2 for number in first), overwrite=True)
    assert first.tolist() == list(range(10))
    assert second.tolist() == np.load(path).tolist() == list(range(0, 20, 2))


def test_progress(tmp_path, capsys):
    write_array(tmp_path / "x.npy", [np.zeros(1000)] * 50, progress=True)
    assert "write_array: 100%" in capsys.readouterr().err
    with pytest.raises(
        TypeError, match="sample 0: expected an array or a list of numbers, got NoneType"
    ):
        write_array(tmp_path / "y.npy", [None], progress=True)
    assert "write_array: 0.00 samples" in capsys.readouterr().err


def test_written_data_does_not_stay_in_memory(tmp_path):
    lines = run_program("little_memory", str(tmp_path)).splitlines()  # 63 MB and 48 MB
    assert lines == ["(60, 1048576)", "6000"]
