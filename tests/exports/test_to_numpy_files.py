"""to_numpy into files: complete or absent, whatever happens."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import pinfeed
from arrays import NUMPY_DTYPES, random_array
from cold_files import open_files
from pinfeed.exports.to_numpy import to_numpy
from pinfeed.files.npy import NpyFile
from samples import Point, Record, assert_same


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@given(
    st.sampled_from([*NUMPY_DTYPES, ">i4", "M8[ns]", "i2, f4"]),
    st.lists(st.integers(0, 9), min_size=1, max_size=6),
    st.lists(st.integers(0, 3), max_size=3),
    st.booleans(),
)
def test_a_file(
    tmp_path: Path, dtype: str, counts: list[int], shape: list[int], known: bool
) -> None:
    batches = [np.zeros((n, *shape), dtype) for n in counts]
    for seed, batch in enumerate(batches):
        raw = random_array((batch.nbytes,), "u1", seed)
        batch[...] = raw.view(dtype).reshape(batch.shape) if batch.size else batch
    path = tmp_path / "x.npy"
    result = to_numpy(batches if known else iter(batches), path, overwrite=True)
    assert isinstance(result, np.memmap)
    assert not result.flags.writeable
    for array in (result, np.load(path), np.load(path, mmap_mode="r")):
        assert array.dtype == np.dtype(dtype)
        assert array.flags.c_contiguous
        assert array.shape == (sum(counts), *shape)
        assert array.tobytes() == b"".join(batch.tobytes() for batch in batches)
    assert os.listdir(tmp_path) == ["x.npy"]


def test_a_directory(tmp_path: Path) -> None:
    def batch(n: int) -> Any:
        return {
            "image": torch.full((n, 2), n),
            "target": [Point(np.full(n, n), Record(np.ones(n), torch.ones(n, 1)))],
            "a/b %": np.zeros(n),
            3: np.arange(n),
            "tokens": pinfeed.JaggedBatch(torch.arange(n), torch.tensor([0] * n + [n])),
            "logits": np.full((n, n), n),
            "nothing": None,
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
    for key in ("tokens", "logits"):
        assert_same(list(result[key]), list(expected[key]))
        assert_same(list(pinfeed.RaggedArray.open(tmp_path / "out" / key)), list(expected[key]))
    assert result["nothing"] is None
    found = [f"{key}/{name}.npy" for key in ("tokens", "logits") for name in ("values", "offsets")]
    assert contents(tmp_path / "out").keys() == {*found, *(f"{name}.npy" for name in files)}
    assert os.listdir(tmp_path) == ["out"]


def test_a_directory_of_a_single_leaf(tmp_path: Path) -> None:
    to_numpy([np.ones((2, 3))], tmp_path / "one")
    assert list(contents(tmp_path / "one")) == ["values.npy"]
    to_numpy([np.ones((2, 3)), np.ones((1, 4))], tmp_path / "two")
    assert [len(row) for row in pinfeed.RaggedArray.open(tmp_path / "two")] == [3, 3, 4]


def test_a_directory_of_nothing(tmp_path: Path) -> None:
    empty = pinfeed.JaggedBatch(np.zeros((0, 2)), np.zeros(3, np.int64))
    assert_same(list(to_numpy([empty] * 2, tmp_path / "x")), [np.zeros((0, 2))] * 4)
    none = pinfeed.JaggedBatch(np.zeros((0, 2)), np.zeros(1, np.int64))
    assert len(to_numpy([none], tmp_path / "y")) == 0
    dataset = pinfeed.ArrayDataset(to_numpy([np.zeros((0, 3))], tmp_path / "z.npy"))
    assert len(dataset) == 0


def test_padding_in_a_file(tmp_path: Path) -> None:
    batches = [random_array((n, n), "f4", n) for n in (2, 3, 1, 60)]
    result = to_numpy(iter(batches), tmp_path / "x.npy", pad=0)
    assert np.array_equal(result, to_numpy(batches, pad=0), equal_nan=True)
    assert (tmp_path / "x.npy").stat().st_size == 128 + result.nbytes


class Promising(list[int]):
    """A sampler that says it has more than it yields."""

    def __len__(self) -> int:
        return 40


def test_room_that_was_planned_and_not_needed(tmp_path: Path) -> None:
    loader = DataLoader(range(10), 4, sampler=Promising(range(10)))
    assert_same(np.array(to_numpy(loader, tmp_path / "x.npy")), np.arange(10))
    assert (tmp_path / "x.npy").stat().st_size == 128 + 80


def test_overwriting(tmp_path: Path) -> None:
    file, folder = tmp_path / "x.npy", tmp_path / "x"
    to_numpy([np.zeros(3)], file)
    to_numpy([{"a": np.zeros(3), "b": np.zeros((3, 1))}], folder)
    before = contents(tmp_path)

    def untouched() -> Iterator[Any]:
        pytest.fail("the loader was asked for a batch")
        yield

    for path in (file, folder):
        with pytest.raises(FileExistsError, match="exists; overwrite=True replaces it"):
            to_numpy(untouched(), path)
    assert contents(tmp_path) == before
    to_numpy([np.ones(2)], file, overwrite=True)
    to_numpy([{"a": np.ones(2)}], folder, overwrite=True)
    assert sorted(contents(tmp_path)) == ["x.npy", "x/a.npy"]
    assert np.load(file).tolist() == np.load(folder / "a.npy").tolist() == [1, 1]


@pytest.mark.parametrize("make", ["notes.txt", "deep/x.npy", "tokens/more.npy", "link"])
def test_what_others_wrote_is_never_replaced(tmp_path: Path, make: str) -> None:
    folder = tmp_path / "x"
    (folder / make).parent.mkdir(parents=True)
    if make == "link":
        (folder / make).symlink_to(tmp_path)
    else:
        (folder / make).write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder.npy").mkdir()
    for path in (folder, tmp_path / "file", tmp_path / "folder.npy"):
        with pytest.raises(FileExistsError, match=r"is no .* that to_numpy wrote"):
            to_numpy([np.zeros(2)], path, overwrite=True)
    assert len(os.listdir(tmp_path)) == 3


def test_a_path_that_is_taken_meanwhile(tmp_path: Path) -> None:
    def batches() -> Iterator[Any]:
        yield np.zeros(2)
        (tmp_path / "x.npy").write_text("mine")

    with pytest.raises(FileExistsError, match="exists") as caught:
        to_numpy(batches(), tmp_path / "x.npy")
    assert_same(caught.value.partial, np.zeros(2))
    assert contents(tmp_path) == {"x.npy": b"mine"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("name", ["x.npy", "x"])
def test_a_run_that_fails_leaves_the_previous_files(
    tmp_path: Path, name: str, error: type[BaseException]
) -> None:
    def batches() -> Iterator[Any]:
        yield np.ones((2, 3))
        yield np.ones((1, 3))
        raise error

    path = tmp_path / name
    with pytest.raises(error) as caught:
        to_numpy(batches(), path)
    assert contents(tmp_path) == {}
    assert_same(caught.value.partial, np.ones((3, 3)))
    to_numpy([np.zeros((1, 3))], path)
    before = contents(tmp_path)
    with pytest.raises(error):
        to_numpy(batches(), path, overwrite=True)
    assert contents(tmp_path) == before
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("renamed", ["x", "result"])
def test_an_interrupt_behind_either_rename_leaves_a_complete_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renamed: str
) -> None:
    to_numpy([np.zeros(2)], tmp_path / "x")
    rename = os.rename

    def interrupted(source: str, target: str) -> None:
        rename(source, target)
        if os.path.basename(source) == renamed:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        to_numpy([np.ones(2)], tmp_path / "x", overwrite=True)
    assert os.listdir(tmp_path) == ["x"]
    assert_same(np.load(tmp_path / "x" / "values.npy"), np.full(2, float(renamed == "result")))


def test_dtypes_that_a_file_would_forget(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(TypeError, match=r"can't hold bfloat16; convert with \.astype"):
        to_numpy([np.ones(2, ml_dtypes.bfloat16)], tmp_path / "x")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("choice", ["float32", "uint16"])
def test_bfloat16(tmp_path: Path, choice: str) -> None:
    values = torch.tensor([1, -0.0, 3e38, 1e-38, torch.inf, torch.nan]).bfloat16()
    expected = values.float() if choice == "float32" else values.view(torch.uint16)
    written = to_numpy([values, values], tmp_path / "x.npy", bfloat16=choice)
    assert written.dtype == choice
    assert written.tobytes() == 2 * expected.numpy().tobytes()


@pytest.fixture
def little_disk() -> Iterator[None]:
    """A limit on the size of files fails where a full disk does, and needs no disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_fills(tmp_path: Path, little_disk: None) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))
    known = DataLoader(range(2000), 100, collate_fn=lambda _: np.ones((100, 100)))
    # Where the length is known, nothing is written; else, 13 batches of 80,000 bytes fit.
    for loader, partial in ((known, None), (iter(known), (1300, 100))):
        with pytest.raises(OSError, match="too large") as caught:
            to_numpy(loader, tmp_path / "x.npy", overwrite=True)
        assert caught.value.errno == errno.EFBIG
        assert getattr(caught.value.partial, "shape", None) == partial
        assert os.listdir(tmp_path) == ["x.npy"]
        assert np.load(tmp_path / "x.npy").tolist() == [0, 1, 2]
    # There is no room to grow in, but for what is needed.
    fits = to_numpy((np.ones(1000) for _ in range(120)), tmp_path / "y.npy")
    assert fits.shape == (120_000,)


def test_what_is_written_through_a_view_has_its_room_on_the_disk(tmp_path: Path) -> None:
    file = NpyFile(str(tmp_path / "x.npy"), np.dtype(np.int64), 1)
    file.view(0, 1 << 17)  # a hole would end the process, once the disk is full
    assert os.stat(file.path).st_blocks * 512 >= 1 << 20
    file.close()


def test_file_systems_that_allocate_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    batches = [random_array((700, width), "u4", width) for width in (60, 100, 80)]
    expected = to_numpy(batches, pad=0)
    assert_same(np.array(to_numpy(batches, tmp_path / "x.npy", pad=0)), expected)
    monkeypatch.delattr(os, "posix_fallocate")
    assert_same(np.array(to_numpy(batches, tmp_path / "y.npy", pad=0)), expected)


def test_descriptors_are_closed(tmp_path: Path) -> None:
    for i in range(3):
        to_numpy([np.zeros(2)], tmp_path / f"{i}.npy")
        with pytest.raises(ValueError, match="no batch"):
            to_numpy([], tmp_path / "x.npy")
    assert [path for path in open_files() if path.startswith(str(tmp_path))] == []
