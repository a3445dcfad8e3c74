"""to_numpy into files: complete or absent, even after failures."""

import errno
import os

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import pinfeed
from arrays import NUMPY_DTYPES, random_array
from cold_files import contents, open_files
from pinfeed import to_numpy
from samples import Point, Record, assert_same


@given(
    st.sampled_from([*NUMPY_DTYPES, ">i4", "M8[ns]", "i2, f4"]),
    st.lists(st.integers(0, 9), min_size=1, max_size=6),
    st.lists(st.integers(0, 3), max_size=3),
    st.booleans(),
)
def test_a_file(tmp_path, dtype, counts, shape, is_planned):
    batches = [np.zeros((n, *shape), dtype) for n in counts]
    for seed, batch in enumerate(batches):
        raw = random_array((batch.nbytes,), "u1", seed)
        batch[...] = raw.view(dtype).reshape(batch.shape) if batch.size else batch
    path = tmp_path / "x.npy"
    result = to_numpy(batches if is_planned else iter(batches), path, overwrite=True)
    assert isinstance(result, np.memmap)
    assert not result.flags.writeable
    for array in (result, np.load(path), np.load(path, mmap_mode="r")):
        assert array.dtype == np.dtype(dtype)
        assert array.flags.c_contiguous
        assert array.shape == (sum(counts), *shape)
        assert array.tobytes() == b"".join(batch.tobytes() for batch in batches)
    assert os.listdir(tmp_path) == ["x.npy"]


def test_a_directory(tmp_path):
    def batch(n):
        return {
            "image": torch.full((n, 2), n),
            "target": [Point(np.full(n, n), Record(np.ones(n), torch.ones(n, 1)))],
            "a/b %": np.zeros(n),
            3: np.arange(n),
            "tokens": pinfeed.JaggedBatch(torch.arange(n), torch.tensor([0] * n + [n])),
            "padded": pinfeed.Padded(np.full((n, n), n), np.arange(n)),
            "nothing": None,
            "name": [f"{i} ä" for i in range(n)],
            "raw": np.full(n, b"\xff"),
            "": np.zeros(n),
            "..": np.full(n, 7),
            "a\0b": np.ones(n),
        }

    result = to_numpy([batch(2), batch(3)], str(tmp_path / "out"))
    expected = to_numpy([batch(2), batch(3)])
    target, read = expected["target"][0], result["target"][0]
    files = {
        "image": (result["image"], expected["image"]),
        "target.0.x": (read.x, target.x),
        "target.0.y.x": (read.y.x, target.y.x),
        "target.0.y.y": (read.y.y, target.y.y),
        "a%2Fb %25": (result["a/b %"], np.zeros(5)),
        "3": (result[3], expected[3]),
        "%": (result[""], np.zeros(5)),
        "%2E.": (result[".."], np.full(5, 7)),
        "a%00b": (result["a\0b"], np.ones(5)),
    }
    for name, (array, plain) in files.items():
        assert_same(np.array(array), plain)
        assert_same(np.load(tmp_path / "out" / f"{name}.npy"), plain)
    for key in ("tokens", "padded"):
        assert_same(list(result[key]), list(expected[key]))
        assert_same(list(pinfeed.RaggedArray.open(tmp_path / "out" / key)), list(expected[key]))
    assert result["nothing"] is None
    for key, kind in (("name", "utf8"), ("raw", "binary")):
        assert list(result[key]) == expected[key]
        assert list(pinfeed.RaggedArray.open(tmp_path / "out" / key)) == expected[key]
        files[f"{key}/{kind}"] = files[f"{key}/offsets"] = None, None
    actual = [f"{key}/{name}.npy" for key in ("tokens", "padded") for name in ("values", "offsets")]
    assert contents(tmp_path / "out").keys() == {*actual, *(f"{name}.npy" for name in files)}
    assert os.listdir(tmp_path) == ["out"]


def test_directories_of_a_single_entry_and_of_nothing(tmp_path):
    to_numpy([np.ones((2, 3))], tmp_path / "one")
    assert list(contents(tmp_path / "one")) == ["values.npy"]
    to_numpy([pinfeed.JaggedBatch(np.ones(3), np.array([0, 1, 3]))], tmp_path / "two")
    assert [len(row) for row in pinfeed.RaggedArray.open(tmp_path / "two")] == [1, 2]
    empty = pinfeed.JaggedBatch(np.zeros((0, 2)), np.zeros(3, np.int64))
    assert_same(list(to_numpy([empty] * 2, tmp_path / "x")), [np.zeros((0, 2))] * 4)
    none = pinfeed.JaggedBatch(np.zeros((0, 2)), np.zeros(1, np.int64))
    assert len(to_numpy([none], tmp_path / "y")) == 0
    assert len(pinfeed.ArrayDataset(to_numpy([np.zeros((0, 3))], tmp_path / "z.npy"))) == 0
    batches = [{"name": names, "x": np.ones(len(names))} for names in ([], ["a", "ä"])]
    to_numpy(batches, tmp_path / "names")
    assert len(pinfeed.ArrayDataset(tmp_path / "names")) == 2


class Promising(list[int]):
    """A sampler that reports more samples than it yields."""

    def __len__(self):
        return 40


def test_planned_space_that_is_not_needed(tmp_path):
    loader = DataLoader(range(10), 4, sampler=Promising(range(10)))
    assert_same(np.array(to_numpy(loader, tmp_path / "x.npy")), np.arange(10))
    assert (tmp_path / "x.npy").stat().st_size == 128 + 80


def test_dtypes_that_a_file_would_lose(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(
        TypeError, match=r"a dtype of .npy files, got bfloat16; convert with \.astype"
    ):
        to_numpy([np.ones(2, ml_dtypes.bfloat16)], tmp_path / "x")
    assert os.listdir(tmp_path) == []


@pytest.fixture
def little_disk():
    """Limits file sizes, which fails like a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk(tmp_path, little_disk):
    """For planned and growing files; test_atomic.py checks the remaining files."""
    planned = DataLoader(range(2000), 100, collate_fn=lambda _: np.ones((100, 100)))
    with pytest.raises(OSError, match="too large"):
        to_numpy(planned, tmp_path / "x.npy")
    assert os.listdir(tmp_path) == []
    # The file can't grow beyond the required size.
    fits = to_numpy((np.ones(1000) for _ in range(120)), tmp_path / "y.npy")
    assert fits.shape == (120_000,)


def test_file_systems_without_preallocation(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    loader = DataLoader(random_array((700, 60), "u4", 0), 100)
    expected = to_numpy(loader)
    assert_same(np.array(to_numpy(loader, tmp_path / "x.npy")), expected)
    monkeypatch.delattr(os, "posix_fallocate")
    assert_same(np.array(to_numpy(loader, tmp_path / "y.npy")), expected)


def test_descriptors_are_closed(tmp_path):
    for i in range(3):
        to_numpy([np.zeros(2)], tmp_path / f"{i}.npy")
        with pytest.raises(ValueError, match="at least one batch"):
            to_numpy([], tmp_path / "x.npy")
    assert [path for path in open_files() if path.startswith(str(tmp_path))] == []
